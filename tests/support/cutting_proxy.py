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

from support.tcp_proxy import READ, Link, TcpProxy

How = Literal["fin", "rst", "end"]
_STREAM = b"content-type: text/event-stream"
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


class CuttingProxy(TcpProxy):
    """Stands before a server. Each stream that is opened through it is cut by the next cut, while there is one.

    Streams are the answers that begin with `marker`; when it is empty, every connection is one, as for gRPC. `made`
    counts the cuts and `on_cut` is called with each number. `streams` counts the streams, and `on_stream` is called
    with each number when the first event or message of that stream has been relayed, or when it is cut before that.
    """

    def __init__(
        self,
        target: str,
        cuts: Iterable[Cut],
        on_cut: Callable[[int], object] = lambda _: None,
        *,
        on_stream: Callable[[int], object] = lambda _: None,
        marker: bytes = _STREAM,
    ) -> None:
        port = urlsplit(target).port
        assert port is not None
        super().__init__(port)
        self._cuts = deque(cuts)
        self._on_cut = on_cut
        self._on_stream = on_stream
        self._marker = marker
        self.made = 0
        self.streams = 0

    @property
    def left(self) -> int:
        """How many cuts are still to be made."""
        return len(self._cuts)

    async def downward(self, link: Link) -> None:
        """Carry what the server sends, up to the cut of its stream."""
        writer, answer, cut, has_begun = link.to_caller, b"", None, False
        while chunk := await link.from_target.read(READ):
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
                if place and not has_begun:
                    self._on_stream(self.streams)
                await self._hang_up(writer, cut.how)
                return
            answer += chunk
            writer.write(chunk)
            await writer.drain()
            if not has_begun and self._end_of_first(answer) is not None:
                has_begun = True
                self._on_stream(self.streams)

    def _end_of_first(self, answer: bytes) -> int | None:
        return _end_of_frame(answer, 1) if self._marker else _end_of_message(answer, 1)

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
