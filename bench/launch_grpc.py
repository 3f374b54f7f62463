"""A gRPC server process: pinned to its core, on uvloop, told where it listens by a line on stdout.

It runs in the environment of whatever it serves, so it imports nothing but uvloop and the standard library. It ends
when its stdin does.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import sys
from contextlib import AbstractAsyncContextManager

import uvloop

from bench import cores


async def serve(serving: AbstractAsyncContextManager[int]) -> None:
    """Enter what listens, tell the port, and leave it when stdin ends."""
    ended = asyncio.Event()
    async with serving as port:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
        print(json.dumps({"port": port}), flush=True)
        await ended.wait()
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())


def main() -> None:
    """Serve the agent of a module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module", help="has serving(store), an asynchronous context manager that gives the port")
    parser.add_argument("--store", default="memory", help="memory, or a file for SQLite")
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    cores.pin(options.core)
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(serve(importlib.import_module(options.module).serving(options.store)))


if __name__ == "__main__":
    main()
