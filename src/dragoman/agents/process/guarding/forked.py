"""What a forked process does until it is the program."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# How often an executable that somebody still writes to is tried, and how long the first wait is.
_BUSY_TRIES, _BUSY_SECONDS = 6, 0.01


def become(
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
        _tell(status, error, step)
    os._exit(127)


def _tell(status: int, error: BaseException, step: str) -> None:
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
