"""One end of a pipe, for an event loop to read or write."""

from __future__ import annotations

import array
import os
import sys
from contextlib import suppress
from pathlib import Path


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


# What the kernel calls the place where a process waits for a pipe.
_READING = ("pipe_read", "anon_pipe_read", "pipe_wait")
# Where it waits for time to pass, or for another process: it works, and says nothing.
_BUSY = ("hrtimer_nanosleep", "do_nanosleep", "do_wait", "kernel_wait4", "do_wait4")
_MOST = 100


def is_idle(pid: int, stdin: int, *, sure: bool) -> bool:
    """True when nothing of the program works, as far as one can tell, and what it was given has been read.

    Where it waits for a pipe that is enough. Where it waits for something else, which may be input too, it is idle
    once one is `sure`: it has been silent for long.
    """
    if _unread(stdin):
        return False
    found = _processes(pid)
    if any(state in "RD" for state, _ in found):
        return False
    if any(place in _READING for _, place in found):
        return True
    return sure and (not found or any(place not in _BUSY for _, place in found))


def _unread(fd: int) -> int:
    """How many bytes of its input a program has not taken."""
    try:
        import fcntl
        import termios

        count = array.array("i", [0])
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except (ImportError, OSError):
        return 0
    return count[0]


def _processes(pid: int) -> list[tuple[str, str]]:
    """The state and the place of a process and of what it started; empty where that cannot be known."""
    if sys.platform != "linux":
        return []
    found: list[tuple[str, str]] = []
    pids = [pid]
    while pids and len(found) < _MOST:
        each = Path("/proc", str(pids.pop()))
        with suppress(OSError, IndexError):
            for thread in (each / "task").iterdir():
                found.append(((thread / "stat").read_text().rpartition(") ")[2][0], (thread / "wchan").read_text()))
                pids += [int(child) for child in (thread / "children").read_text().split()]
    return found
