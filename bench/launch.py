"""A server process: pinned to its core, uvicorn with one worker, told where it listens by a line on stdout.

It runs in the environment of whatever it serves, so it imports nothing but uvicorn and the standard library. It ends
when its stdin does: no server outlives the benchmark, however that ends.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import importlib.util
import json
import logging
import resource
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from bench import cores

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

PROBE = "/bench/probe"


class Server(uvicorn.Server):
    """Says where it listens, and stops with its stdin."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell."""
        await super().startup(sockets)
        assert sockets is not None
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._stop)
        print(json.dumps({"port": sockets[0].getsockname()[1]}), flush=True)

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self.should_exit = True


def probed(app: App) -> App:
    """The app, and beside it a page that says how many asyncio tasks there are."""

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PROBE:
            await app(scope, receive, send)
            return
        gc.collect()
        body = json.dumps({"tasks": len(asyncio.all_tasks())}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer


def main() -> None:
    """Serve the agent of a module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module", help="has app(store), an ASGI callable")
    parser.add_argument("--store", default="memory", help="memory, a file for SQLite, or the URL of a PostgreSQL")
    parser.add_argument("--config", help="a settings file, given to app(store, config)")
    parser.add_argument("--core", type=int)
    parser.add_argument("--probe", action="store_true")
    options = parser.parse_args()
    cores.pin(options.core)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    logging.basicConfig(level=logging.WARNING)

    more = [options.config] if options.config else []
    app: App = importlib.import_module(options.module).app(options.store, *more)
    config = uvicorn.Config(
        probed(app) if options.probe else app,
        loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
        http="httptools" if importlib.util.find_spec("httptools") else "h11",
        ws="none",
        lifespan="auto",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # there is no proxy, and Dragoman serves itself without
        timeout_graceful_shutdown=1,
    )
    with socket.create_server(("127.0.0.1", 0), backlog=config.backlog) as listener:
        Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
