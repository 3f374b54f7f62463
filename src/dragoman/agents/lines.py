"""Splits a byte stream into lines."""

from __future__ import annotations


class TooLongError(Exception):
    """A line exceeds the maximum length."""


class LineBuffer:
    """Assembles lines of at most `longest` bytes from chunks."""

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length
        self._pieces: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add a chunk and return the lines that it completes.

        Raises:
            TooLongError: the unfinished line is longer than `longest`; its buffered part is dropped.
        """
        first, *others = data.split(b"\n")
        self._pieces.append(first)
        self._length += len(first)
        if self._length > self._max_length:
            self._pieces, self._length = [], 0
            raise TooLongError
        if not others:
            return []
        # Joined once, at the end of the line: joining at every chunk would be quadratic for long lines.
        line = b"".join(self._pieces)
        *whole, last = others
        self._pieces, self._length = [last], len(last)
        return [line, *whole]

    def rest(self) -> bytes:
        """Remove and return the unfinished line."""
        line, self._pieces, self._length = b"".join(self._pieces), [], 0
        return line
