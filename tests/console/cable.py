"""A cable between the browser and a server that can be cut: connections pass through a port of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class Cable:
    """Passes on what comes to its port. `cut` ends all connections at once, as a network that fails does."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on one connection, both ways."""
        with suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, back}
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    def cut(self) -> None:
        """End all connections; new ones may come."""
        for writer in list(self._writers):
            writer.transport.abort()


@asynccontextmanager
async def cable(port: int) -> AsyncGenerator[Cable]:
    """Lay a cable to a port."""
    laid = Cable(port)
    server = await asyncio.start_server(laid.connect, "127.0.0.1", 0)
    laid.port = server.sockets[0].getsockname()[1]
    try:
        yield laid
    finally:
        laid.cut()
        server.close()
