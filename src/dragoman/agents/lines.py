"""Splits a byte stream into lines."""

from __future__ import annotations


class LineTooLongError(Exception):
    """A line exceeds the maximum length."""


class LineBuffer:
    """Assembles lines of at most `max_length` bytes from chunks of bytes."""

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length
        self._pieces: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add a chunk and return the lines that it completes.

        Raises:
            LineTooLongError: a line exceeds `max_length`; the buffer and the chunk are dropped.
        """
        first, *others = data.split(b"\n")
        self._pieces.append(first)
        self._length += len(first)
        longest = max(self._length, max(map(len, others), default=0))
        if longest > self._max_length:
            self._pieces, self._length = [], 0
            raise LineTooLongError
        if not others:
            return []
        # Joined only when the line is complete: joining at every chunk would be quadratic for long lines.
        line = b"".join(self._pieces)
        *whole, last = others
        self._pieces, self._length = [last], len(last)
        return [line, *whole]

    def rest(self) -> bytes:
        """Remove and return the unfinished line."""
        line, self._pieces, self._length = b"".join(self._pieces), [], 0
        return line
