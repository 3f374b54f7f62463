"""Lines from the pieces in which a program writes them."""

from __future__ import annotations


class TooLongError(Exception):
    """A line does not end."""


class LineBuffer:
    """Puts lines together. None may be longer than `longest` bytes."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece. Raises TooLongError; what was held of the line is gone then."""
        first, *others = data.split(b"\n")
        self._pieces.append(first)
        self._length += len(first)
        if self._length > self._longest:
            self._pieces, self._length = [], 0
            raise TooLongError
        if not others:
            return []
        # Put together once, at its end: a long line comes in many pieces.
        line = b"".join(self._pieces)
        *whole, last = others
        self._pieces, self._length = [last], len(last)
        return [line, *whole]

    def rest(self) -> bytes:
        """The line that has not ended; it is taken out."""
        line, self._pieces, self._length = b"".join(self._pieces), [], 0
        return line
