"""A TCP proxy that lets everything through, except that it cuts event streams where it is told to."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

How = Literal["fin", "rst", "end"]
_STREAM = b"content-type: text/event-stream"
_READ = 64 * 1024
_RESET = struct.pack("ii", 1, 0)
# Lines end as the server likes.
_FRAME = re.compile(rb"\n\n|\r\n\r\n")
_FRAME_AND_CHUNK = re.compile(rb"(?:\n\n|\r\n\r\n)\r\n")
# The end of a chunked body, as a server sends it that is done with a reader.
_LAST_CHUNK = b"0\r\n\r\n"
# A frame of HTTP/2: three bytes of length, its type, a byte of flags, four bytes for the stream.
_HTTP2_HEAD = 9
_DATA = 0


@dataclass(frozen=True)
class Cut:
    """Where a stream is cut, and how: with a FIN, with a RST, or as if the server had ended it."""

    place: Callable[[bytes], int | None]
    """How much of an answer gets through, as soon as what has arrived of it is enough to tell."""
    how: How = "fin"


def before_the_head(how: How = "fin") -> Cut:
    """Nothing of the answer gets through."""
    return Cut(lambda _: 0, how)


def after_frames(count: int, extra: int = 0, how: How = "fin") -> Cut:
    """So many whole events get through, and some bytes of what follows."""

    def place(answer: bytes) -> int | None:
        end = _end_of_frame(answer, count)
        return None if end is None or len(answer) < end + extra else end + extra

    return Cut(place, how)


def within(marker: bytes, keep: int, count: int = 1, how: How = "fin") -> Cut:
    """After so many events, as many bytes of the next of these get through."""

    def place(answer: bytes) -> int | None:
        end = _end_of_frame(answer, count)
        found = -1 if end is None else answer.find(marker, end)
        return None if found < 0 else found + keep

    return Cut(place, how)


def ended(count: int) -> Cut:
    """After so many events the answer ends in good order, whatever the task does."""

    def place(answer: bytes) -> int | None:
        end = _end_of_frame(answer, count - 1)
        found = None if end is None else _FRAME_AND_CHUNK.search(answer, end)
        return None if found is None else found.end()

    return Cut(place, "end")


def after_messages(count: int, extra: int = 0, how: How = "fin") -> Cut:
    """So many messages of gRPC get through, and some bytes of what follows."""

    def place(answer: bytes) -> int | None:
        end = _end_of_message(answer, count)
        return None if end is None or len(answer) < end + extra else end + extra

    return Cut(place, how)


def _end_of_message(answer: bytes, count: int) -> int | None:
    end = 0
    while count:
        if len(answer) < end + _HTTP2_HEAD:
            return None
        length, kind = int.from_bytes(answer[end : end + 3]), answer[end + 3]
        end += _HTTP2_HEAD + length
        count -= kind == _DATA and length > 0
    return end


def _end_of_frame(answer: bytes, count: int) -> int | None:
    end = answer.find(b"\r\n\r\n") + 4
    if end < 4:
        return None
    for _ in range(count):
        found = _FRAME.search(answer, end)
        if found is None:
            return None
        end = found.end()
    return end


class CuttingProxy:
    """Stands before a server. Each stream that is opened through it is cut by the next cut, while there is one.

    Streams are the answers that begin with `marker`; when it is empty, every connection is one, as for gRPC. `made`
    counts the cuts and `on_cut` hears of each; `streams` counts the streams.
    """

    def __init__(
        self,
        target: str,
        cuts: Iterable[Cut],
        on_cut: Callable[[int], object] = lambda _: None,
        *,
        marker: bytes = _STREAM,
    ) -> None:
        self._port = urlsplit(target).port
        self._cuts = deque(cuts)
        self._on_cut = on_cut
        self._marker = marker
        self._server: asyncio.Server | None = None
        self._carried: dict[asyncio.Task[None], list[asyncio.Task[None]]] = {}
        self._changed = asyncio.Condition()
        self.made = 0
        self.streams = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def left(self) -> int:
        """How many cuts are still to be made."""
        return len(self._cuts)

    async def until_nobody_is_connected(self) -> None:
        """Wait until all who called have hung up."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._carried)

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        carriers = list(self._carried)
        for pumps in list(self._carried.values()):
            for pump in pumps:
                pump.cancel()
        await asyncio.gather(*carriers)
        await self._server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        pumps = [
            asyncio.ensure_future(self._upward(reader, back)),
            asyncio.ensure_future(self._downward(there, writer)),
        ]
        this = asyncio.current_task()
        assert this is not None
        self._carried[this] = pumps
        try:
            # Whoever hangs up, on either side, ends both.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (back, writer):
                each.close()
            del self._carried[this]
            async with self._changed:
                self._changed.notify_all()

    @staticmethod
    async def _upward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_READ):
            writer.write(chunk)
            await writer.drain()

    async def _downward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer, cut = b"", None
        while chunk := await reader.read(_READ):
            if cut is None:
                start = chunk.lower().find(self._marker)
                if start < 0:
                    writer.write(chunk)
                    await writer.drain()
                    continue
                # Servers send the head of an answer in one piece.
                self.streams += 1
                cut = self._cuts.popleft() if self._cuts else Cut(lambda _: None)
            place = cut.place(answer + chunk)
            if place is not None:
                writer.write((answer + chunk)[len(answer) : place])
                await self._hang_up(writer, cut.how)
                return
            answer += chunk
            writer.write(chunk)
            await writer.drain()

    async def _hang_up(self, writer: asyncio.StreamWriter, how: How) -> None:
        if how == "end":
            writer.write(_LAST_CHUNK)
        await writer.drain()
        if how == "rst":
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        else:
            writer.close()
        self.made += 1
        self._on_cut(self.made)
