"""Checkpoints: work in a task, a thread or another process reports where it is, and waits there for the test.

Only the standard library is imported here, so that the programs of the contract start quickly.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

SECONDS = 10.0


class Checkpoint:
    """One piece of work that waits at a checkpoint."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def release(self) -> None:
        """Let the work go on."""
        self._writer.write(b"go on\n")

    async def aborted(self) -> None:
        """Wait until the work has ended without having been released. Raises TimeoutError."""
        async with asyncio.timeout(SECONDS):
            assert await self._reader.read() == b""

    def close(self) -> None:
        self._writer.close()


class Checkpoints:
    """The test's side of all checkpoints."""

    def __init__(self) -> None:
        self.port = 0
        self._reached: defaultdict[str, asyncio.Queue[Checkpoint]] = defaultdict(asyncio.Queue)
        self._all: list[Checkpoint] = []

    async def reached(self, name: str) -> Checkpoint:
        """Wait until some work has reached the checkpoint of that name. Raises TimeoutError."""
        async with asyncio.timeout(SECONDS):
            return await self._reached[name].get()

    def waiting(self, name: str) -> int:
        """How many pieces of work have reached the checkpoint and were not taken by `reached`."""
        return self._reached[name].qsize()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        checkpoint = Checkpoint(reader, writer)
        self._all.append(checkpoint)
        self._reached[(await reader.readline()).decode().strip()].put_nowait(checkpoint)

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncGenerator[Checkpoints]:
        """Listen on a free port until the end of the test; work that still waits then goes on."""
        checkpoints = cls()
        server = await asyncio.start_server(checkpoints._connected, "127.0.0.1", 0)
        checkpoints.port = server.sockets[0].getsockname()[1]
        try:
            yield checkpoints
        finally:
            server.close()
            for checkpoint in checkpoints._all:
                checkpoint.close()


async def wait_at(port: int, name: str) -> None:
    """Report that the work has reached a checkpoint, and wait until the test releases it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{name}\n".encode())
        await reader.readline()
    finally:
        writer.close()


def block_at(port: int, name: str, is_canceled: Callable[[], bool] = lambda: False) -> None:
    """As `wait_at`, in a thread or a program of its own; returns early once `is_canceled`."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{name}\n".encode())
        while not is_canceled():
            if select.select([connection], [], [], 0.01)[0]:
                return
