"""System calls of the guard, and the steps from fork to exec."""

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
    """Return prctl as a function of an option and a value; None where it is missing."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # optional in some Python builds

        function = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    ulong = ctypes.c_ulong
    return lambda option, value: function(option, ulong(value), ulong(0), ulong(0), ulong(0))


def kill(pid: int, number: int) -> bool:
    """Send a signal. Return False if that is not permitted."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def group_of(pid: int) -> int:
    """Return the process group of a process; 0 if it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def session_of(pid: int) -> int:
    """Return the session of a process; 0 if it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def close(*descriptors: int) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def drain(descriptor: int) -> None:
    """Read everything from a non-blocking descriptor."""
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def read_file(path: str) -> bytes:
    """Return the content of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return file.read()
    except OSError:
        return b""


def has_zombie() -> bool:
    """Return True if a child waits to be reaped."""
    try:
        return bool(os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except (AttributeError, OSError):
        return False


def has_child() -> bool:
    """Return True if there is a child, as far as the system reports."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (AttributeError, OSError):
        return False
    return True


def children(pid: int) -> list[int]:
    """Return the children of a process; none without /proc."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return []
    return [int(child) for thread in threads for child in read_file(f"/proc/{pid}/task/{thread}/children").split()]


def descendants(pid: int) -> list[int]:
    """Return the children of a process and all of their descendants."""
    processes = children(pid)
    for one in processes:
        processes.extend(children(one))
    return processes


# Number of attempts to run an executable that is open for writing, and the first delay.
_BUSY_TRIES, _BUSY_SECONDS = 6, 0.01


def exec_program(
    frame: dict[str, Any], streams: list[int], status: int, prepare: Callable[[], None], changed_signals: list[int]
) -> NoReturn:
    """Turn the forked process into the program. Errors are written to `status`, which a successful exec closes.

    `prepare` performs the steps that need the guard's state. `changed_signals` are reset to their defaults.
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
        path, argv = _from_latin1(frame["path"]), [_from_latin1(one) for one in frame["argv"]]
        env = {_from_latin1(name): _from_latin1(value) for name, value in frame["env"].items()}
        step = "chdir"
        os.chdir(_from_latin1(frame["cwd"]))
        step = "limits"
        _set_limits(frame["limits"])
        step = "exec"
        _execute(path, argv, env)
    except BaseException as error:  # noqa: BLE001 - no guard code may continue in the child
        _report_failure(status, error, step)
    os._exit(127)


def _report_failure(status: int, error: BaseException, step: str) -> None:
    try:
        number = getattr(error, "errno", None) or (errno.ENOMEM if isinstance(error, MemoryError) else errno.EINVAL)
        os.write(status, f"{number} {step}".encode())
    finally:
        os._exit(127)


def _set_limits(limits: dict[str, int]) -> None:
    # Memory is last, because the guard's own image in this process may exceed the limit.
    for name, kind, more in (
        ("cpu", resource.RLIMIT_CPU, 1),  # so that SIGXCPU, which names the cause, comes before SIGKILL
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
            # The writer has closed the file, but a process forked in the meantime may still hold it.
            if error.errno != errno.ETXTBSY or attempt == _BUSY_TRIES - 1:
                raise
            time.sleep(_BUSY_SECONDS * 2**attempt)


def _from_latin1(text: str) -> bytes:
    return text.encode("latin-1")
