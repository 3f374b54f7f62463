"""HTTP/1.1 over a kept connection, with callbacks instead of futures: the generator must cost little."""

from __future__ import annotations

import asyncio
from typing import cast

import httptools


class Connection(asyncio.Protocol):
    """Sends one request after another. Subclasses say what happens to answers."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self.received = 0

    # -- for subclasses ------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """The connection is there."""

    def body(self, chunk: bytes) -> None:
        """A piece of an answer came."""

    def answered(self, status: int) -> None:
        """An answer is complete."""

    def lost(self) -> None:
        """The connection has ended."""

    def send(self, request: bytes) -> None:
        """Send a request; the answer before it must be complete."""
        assert self._transport is not None
        self._transport.write(request)

    def close(self) -> None:
        """Let go of the connection."""
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self.opened()

    def data_received(self, data: bytes) -> None:
        """Read."""
        self.received += len(data)
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.lost()

    # -- httptools -------------------------------------------------------------------------------------------------

    def on_body(self, chunk: bytes) -> None:
        """Pass on a piece, without the marks of chunked transfer."""
        self.body(chunk)

    def on_message_complete(self) -> None:
        """Pass on the end of an answer."""
        self.answered(self._parser.get_status_code())


class Single(Connection):
    """One request, one answer."""

    def __init__(self, request: bytes) -> None:
        super().__init__()
        self._request = request
        self._chunks: list[bytes] = []
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def opened(self) -> None:
        """Ask."""
        self.send(self._request)

    def body(self, chunk: bytes) -> None:
        """Keep."""
        self._chunks.append(chunk)

    def answered(self, status: int) -> None:
        """Give the answer."""
        if not self.answer.done():
            self.answer.set_result((status, b"".join(self._chunks)))
        self.close()

    def lost(self) -> None:
        """Without an answer, say so."""
        if not self.answer.done():
            self.answer.set_exception(ConnectionError("the server closed the connection"))


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """Send one request over a connection of its own; the status and the body."""
    loop = asyncio.get_running_loop()
    _, single = await loop.create_connection(lambda: Single(request), "127.0.0.1", port)
    return await single.answer
