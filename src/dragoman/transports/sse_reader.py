"""Reading server-sent events as they arrive, however the bytes are cut."""

from __future__ import annotations

from dragoman.model.error import ResponseTooLarge
from dragoman.net.exchange import MAX_ANSWER, size_in_words

_BOM = b"\xef\xbb\xbf"
# A task does not have so many events; what is longer is a time or a number of another kind.
_MOST_DIGITS = 9

Event = tuple[bytes, int]


class SseReader:
    """Takes chunks, gives events: the data of each and its own number, 0 when it has none that could be ours.

    Comments, event names and retry hints are skipped.
    """

    __slots__ = ("_buffer", "_limit", "_returned", "_started")

    def __init__(self, limit: int = MAX_ANSWER) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._started = False
        self._returned = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are whole now.

        Raises:
            ResponseTooLarge: an event does not end.
        """
        if not self._started:
            chunk = self._without_mark(chunk)
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
        return [event for block in blocks if (event := _event(block)) is not None]

    @property
    def pending(self) -> bool:
        """True when the stream has stopped in the middle of an event."""
        return b"data:" in self._buffer

    def _check(self) -> None:
        if len(self._buffer) > self._limit:
            self._buffer.clear()
            size = size_in_words(self._limit)
            raise ResponseTooLarge(
                f"an event is larger than {size}: nothing more of the stream is read", limit=self._limit
            )

    def _without_mark(self, chunk: bytes) -> bytes:
        """A stream may begin with a byte order mark, which may come in pieces."""
        chunk = bytes(self._buffer) + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._buffer = bytearray(chunk)
            return b""
        self._started = True
        self._buffer.clear()
        return chunk.removeprefix(_BOM)

    def _one_ending(self, chunk: bytes) -> bytes:
        """Lines may end in CR, LF or both: make it LF. A CR at the end may be half of both."""
        if not chunk:
            return chunk
        half = self._returned and chunk.startswith(b"\n")
        self._returned = chunk.endswith(b"\r")
        return (chunk[1:] if half else chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event(block: bytes) -> Event | None:
    # Nearly every event is one line of data, or an id and one line of data.
    if block.startswith(b"id: "):
        first, _, rest = block.partition(b"\n")
        if rest.startswith(b"data: ") and b"\n" not in rest:
            return rest[6:], _number(first[4:])
    elif block.startswith(b"data: ") and b"\n" not in block:
        return block[6:], 0
    lines: list[bytes] = []
    number = 0
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
        elif name == b"id":
            number = _number(value.removeprefix(b" "))
    return (b"\n".join(lines), number) if lines else None


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else 0
