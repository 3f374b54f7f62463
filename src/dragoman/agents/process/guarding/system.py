"""What the guardian asks of the system."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def find_prctl() -> Callable[[int, int], int] | None:
    """The system's prctl, called with an option and a value. None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # it may be missing, and is not worth failing for

        function = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    ulong = ctypes.c_ulong
    return lambda option, value: function(option, ulong(value), ulong(0), ulong(0), ulong(0))


def kill(pid: int, number: int) -> bool:
    """Send a signal. False when that is not allowed."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def group_of(pid: int) -> int:
    """The group of a process; 0 when it has none any more."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def session_of(pid: int) -> int:
    """The session of a process; 0 when it has none any more."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def close(*descriptors: int) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def drain(descriptor: int) -> None:
    """Read all there is from a descriptor that does not block."""
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def read(path: str) -> bytes:
    """What a file holds; nothing when it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return file.read()
    except OSError:
        return b""


def has_zombie() -> bool:
    """Tell whether a child waits to be reaped."""
    try:
        return bool(os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except (AttributeError, OSError):
        return False


def has_child() -> bool:
    """Tell whether there is any child, as far as the system tells."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (AttributeError, OSError):
        return False
    return True


def children(pid: int) -> list[int]:
    """The children of a process; none without /proc."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return []
    return [int(child) for thread in threads for child in read(f"/proc/{pid}/task/{thread}/children").split()]


def descendants(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    found = children(pid)
    for one in found:
        found.extend(children(one))
    return found
