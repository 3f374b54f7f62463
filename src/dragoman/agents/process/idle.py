"""Whether a program that says nothing waits for input."""

from __future__ import annotations

import array
import sys
from contextlib import suppress
from pathlib import Path

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
