"""Reading server-sent events as they arrive, however the bytes are cut."""

from __future__ import annotations

from typing import NamedTuple

from dragoman.model.error import BadResponse
from dragoman.net.exchange import MAX_ANSWER

_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """The data of one event and the last id the stream has named; 0 when none of ours."""

    data: bytes
    id: int


class SseReader:
    """Takes chunks, gives events. Comments, event names and retry hints are skipped."""

    __slots__ = ("_buffer", "_id", "_limit", "_returned", "_started")

    def __init__(self, limit: int = MAX_ANSWER) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._id = 0
        self._started = False
        self._returned = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that are whole now.

        Raises:
            BadResponse: an event does not end.
        """
        if not self._started:
            self._started = True
            chunk = chunk.removeprefix(_BOM)
        if self._returned or b"\r" in chunk:
            chunk = self._one_ending(chunk)
        if self._buffer:
            seen = len(self._buffer)
            self._buffer += chunk
            # What has been searched is not searched again: a large event costs what its length is.
            if self._buffer.find(b"\n\n", seen - 1) < 0:
                self._check()
                return []
            chunk = bytes(self._buffer)
        blocks = chunk.split(b"\n\n")
        self._buffer = bytearray(blocks.pop())
        self._check()
        found: list[ServerSentEvent] = []
        for block in blocks:
            data = self._data(block)
            if data is not None:
                found.append(ServerSentEvent(data, self._id))
        return found

    @property
    def pending(self) -> bool:
        """True when the stream has stopped in the middle of an event."""
        return b"data:" in self._buffer

    def _check(self) -> None:
        if len(self._buffer) > self._limit:
            self._buffer.clear()
            raise BadResponse(f"an event is larger than {self._limit} bytes: nothing more of the stream is read")

    def _one_ending(self, chunk: bytes) -> bytes:
        """Lines may end in CR, LF or both: make it LF. A CR at the end may be half of both."""
        if self._returned and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._returned = chunk.endswith(b"\r") if chunk else self._returned
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _data(self, block: bytes) -> bytes | None:
        # Nearly every event is one line of data, or an id and one line of data.
        if block.startswith(b"data: ") and b"\n" not in block:
            return block[6:]
        lines: list[bytes] = []
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                lines.append(value)
            elif name == b"id":
                self._id = int(value) if value.isdigit() and len(value) < 19 else 0
        return b"\n".join(lines) if lines else None
