"""What the guard asks of the system, and what a forked process does until it is the program."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

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
    processes = children(pid)
    for one in processes:
        processes.extend(children(one))
    return processes


# How often an executable that somebody still writes to is tried, and how long the first wait is.
_BUSY_TRIES, _BUSY_SECONDS = 6, 0.01


def exec_program(
    frame: dict[str, Any], streams: list[int], status: int, prepare: Callable[[], None], changed_signals: list[int]
) -> NoReturn:
    """Become the program. What goes wrong is told through `status`, which a good start closes.

    `prepare` does what only the guardian knows how to. `changed_signals` are those that it treats in its own way.
    """
    step = "session"
    try:
        os.setsid()
        prepare()
        for number in changed_signals:
            signal.signal(number, signal.SIG_DFL)
        step = "streams"
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        step = "exec"
        path, argv = _bytes(frame["path"]), [_bytes(one) for one in frame["argv"]]
        env = {_bytes(name): _bytes(value) for name, value in frame["env"].items()}
        step = "chdir"
        os.chdir(_bytes(frame["cwd"]))
        step = "limits"
        _limit(frame["limits"])
        step = "exec"
        _execute(path, argv, env)
    except BaseException as error:  # noqa: BLE001 - nothing of the guardian may go on in the child
        _report_failure(status, error, step)
    os._exit(127)


def _report_failure(status: int, error: BaseException, step: str) -> None:
    try:
        number = getattr(error, "errno", None) or (errno.ENOMEM if isinstance(error, MemoryError) else errno.EINVAL)
        os.write(status, f"{number} {step}".encode())
    finally:
        os._exit(127)


def _limit(limits: dict[str, int]) -> None:
    # Memory is last: the guardian's own in this process may be more than the program is to have.
    for name, kind, more in (
        ("cpu", resource.RLIMIT_CPU, 1),  # so that SIGXCPU, which says what happened, comes before SIGKILL
        ("files", resource.RLIMIT_NOFILE, 0),
        ("file_size", resource.RLIMIT_FSIZE, 0),
        ("memory", resource.RLIMIT_AS, 0),
    ):
        if limits[name]:
            _, most = resource.getrlimit(kind)
            hard = limits[name] + more if most == resource.RLIM_INFINITY else min(limits[name] + more, most)
            resource.setrlimit(kind, (min(limits[name], hard), hard))


def _execute(path: bytes, argv: list[bytes], env: dict[bytes, bytes]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for attempt in range(_BUSY_TRIES):
        try:
            os.execve(path, argv, env)  # noqa: S606 - no shell is wanted
        except OSError as error:
            # Whoever wrote the file has closed it, but a process forked meanwhile may not have.
            if error.errno != errno.ETXTBSY or attempt == _BUSY_TRIES - 1:
                raise
            time.sleep(_BUSY_SECONDS * 2**attempt)


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
