"""One end of a pipe, for an event loop to read or write."""

from __future__ import annotations

import os
from contextlib import suppress


class PipeEnd:
    """A descriptor that is closed once, whoever closes it.

    An event loop closes the file object that it was given. uvloop has closed the descriptor itself before that, and by
    then its number may be that of a file which another thread has just opened.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pipe = _identity(descriptor)

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close it, unless that has been done."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                if _identity(descriptor) == self._pipe:
                    os.close(descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino
