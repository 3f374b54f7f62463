"""Starts `dragoman` commands of the tests by forking a process that has imported everything already.

A command is a process of its own all the same, with its own pid, folder, environment, streams and signals: only the
half second (with MCP, more than one) that Python takes to import packages is spent once for all of them.

`install()` replaces `subprocess.Popen`; commands that are no `python -m dragoman.cli.main …`, or whose environment
Python reads while it starts, begin as always. So do those with DRAGOMAN_COLD_START=1, and all on systems without
`fork` and descriptors over sockets. `write_command()` writes a `dragoman` for shells, and
`program()` is the command of another program; both start warm, too.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import inspect
import json
import os
import pkgutil
import runpy
import secrets
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

SRC = str(Path(__file__).resolve().parents[1] / "src")
COMMAND = [sys.executable, "-m", "dragoman.cli.main"]
CLIENT = Path(__file__).with_name("warm_command.py")
# Whether sockets have names outside the file system, and processes descriptors.
SERVES_SHELLS = sys.platform == "linux"
# The variable that has the address of the warm process of all.
SHARED = "TEST_WARM_PROCESS"
# How many descriptors come with a request: three streams, and one over which the end of the process is reported.
REPORTED = 4
# Signals that a command ignores if the process that starts it does: as a background job, or after `nohup`.
INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# Variables that Python itself, or the loader before it, reads while it starts.
STARTING = ("PYTHON", "LD_", "LC_", "LANG", "COV", "MALLOC", "TZ")

HARMLESS = {"PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
# What the modules of the package import only when they are needed.
PRELOADED = (
    *("cryptography.fernet", "cryptography.hazmat.primitives.asymmetric.rsa", "ctypes", "encodings.idna"),
    *(
        "encodings.utf_16_be",
        "http.server",
        "httptools",
        "mcp.client.session",
        "mcp.server",
        "readline",
        "sqlite3",
        "ssl",
    ),
    *("uvicorn", "uvicorn.lifespan.on", "uvicorn.loops.uvloop", "uvicorn.protocols.http.httptools_impl", "uvloop"),
)


def install() -> None:
    """Start commands warm from now on, in this process."""
    if hasattr(os, "fork") and hasattr(socket, "send_fds") and not os.environ.get("DRAGOMAN_COLD_START"):
        subprocess.Popen = WarmPopen  # type: ignore[misc]


def share() -> None:
    """Start commands warm in all processes that this one starts, too, from one warm process for all of them."""
    if subprocess.Popen is WarmPopen and SERVES_SHELLS:
        os.environ[SHARED] = _forker().address


def write_command(folder: Path) -> None:
    """Write a `dragoman` for the PATH of shells into a folder; none where their commands cannot be warm."""
    if subprocess.Popen is WarmPopen and SERVES_SHELLS:
        words = _client_command()
        file = folder / "dragoman"
        file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$0" "$@"\n', encoding="utf-8")
        file.chmod(0o755)


def program(script: Path, *arguments: str) -> list[str]:
    """The command of a Python program, for whoever starts it; it starts warm where it can."""
    is_warm = subprocess.Popen is WarmPopen and SERVES_SHELLS
    return [*(_client_command() if is_warm else [sys.executable]), str(script), *arguments]


def close() -> None:
    """End the warm process, which ends none that it has forked."""
    while _FORKERS:
        _FORKERS.popitem()[1].close()


class WarmPopen(subprocess.Popen[Any]):
    """A `subprocess.Popen` whose process is forked from one that is warm, if it can be."""

    _status: int | None = None  # where its end is reported; None for a process that was started as always

    def _execute_child(self, *positional: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        arguments = inspect.signature(start).bind(*positional).arguments
        if not _can_be_warm(arguments):
            start(*positional)
            return
        streams = [arguments[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        self._status, reported = os.pipe()
        request = {
            "arguments": [os.fsdecode(each) for each in arguments["args"][3:]],
            "folder": os.fsdecode(arguments["cwd"] or Path.cwd()),
            "environment": dict(os.environ if arguments["env"] is None else arguments["env"]),
            "leads": arguments["start_new_session"],
            "ignored": [number for number in INHERITED if signal.getsignal(number) is signal.SIG_IGN],
        }
        try:
            self.pid = _forker().start(request, [*streams, reported])
        finally:
            os.close(reported)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(arguments[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        )

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc]
        if wait_flags & os.WNOHANG:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(0):
                    return 0, 0
        status = int(os.read(self._status, 20))
        os.close(self._status)
        return self.pid, status

    def _internal_poll(self, *args: Any, **options: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*args, **options)  # type: ignore[misc]
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _client_command() -> list[str]:
    return [sys.executable, "-IS", str(CLIENT), _forker().address]


def _can_be_warm(arguments: dict[str, Any]) -> bool:
    if list(arguments["args"][:3]) != COMMAND or arguments["preexec_fn"] or arguments["pass_fds"] or arguments["shell"]:
        return False
    if sys._getframe(3).f_globals["__name__"].startswith("asyncio"):
        return False  # it waits for its processes in ways of its own
    environment = os.environ if arguments["env"] is None else arguments["env"]
    if environment.get("DRAGOMAN_COLD_START"):
        return False
    mine = {name: value for name, value in environment.items() if name.startswith(STARTING) and name not in HARMLESS}
    if mine.pop("PYTHONPATH", SRC) != SRC:  # without it, the same package is imported: it is installed from there
        return False
    return all(os.environ.get(name) == value for name, value in mine.items())


# -- in the tests' process ---------------------------------------------------------------------------------------------


class Forker:
    """The warm process, and the socket over which it is asked for others. Shells reach it at `address`."""

    def __init__(self) -> None:
        self.address = f"dragoman-{os.getpid()}-{secrets.token_hex(8)}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as listeners:
            environment = {**os.environ, "PYTHONPATH": SRC, "PYTHONWARNINGS": "ignore"}
            descriptors = [theirs.fileno()]
            if SERVES_SHELLS:
                listener = listeners.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                listener.bind(f"\0{self.address}")
                listener.listen()
                descriptors.append(listener.fileno())
            command = [sys.executable, __file__, *map(str, descriptors)]
            self._process = _COLD(
                command,
                env=environment,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._socket = ours
        self._lock = threading.Lock()

    def start(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Start a process; gives its pid."""
        with self._lock:
            return _ask(self._socket, request, descriptors)

    def close(self) -> None:
        """End it, and wait for its end."""
        self._socket.close()
        self._process.wait(20)


class SharedForker:
    """The warm process of another process, which ends it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def start(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Start a process; gives its pid."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(f"\0{self.address}")
            return _ask(connection, request, descriptors)


def _ask(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> int:
    socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
    return int(connection.recv(20))


_COLD = subprocess.Popen
_FORKERS: dict[int, Forker] = {}


def _forker() -> Forker | SharedForker:
    pid = os.getpid()  # a fork of the tests' process has no socket to share
    if SHARED in os.environ and pid not in _FORKERS:
        return SharedForker(os.environ[SHARED])
    if pid not in _FORKERS:
        _FORKERS[pid] = Forker()
    return _FORKERS[pid]


# -- in the warm process -----------------------------------------------------------------------------------------------


def serve(connection: socket.socket, *shells: socket.socket) -> None:
    """Fork whenever asked to. Returns in every process that was forked, ready to run its command."""
    # Not a list of names, which nobody would keep up to date: a command that imports for itself is slow, and works.
    package = import_module("dragoman")
    # A module whose extra is not installed is left out.
    walked = pkgutil.walk_packages(package.__path__, "dragoman.", onerror=lambda _: None)
    for name in (*PRELOADED, *(each.name for each in walked if not each.name.endswith("__main__"))):
        with contextlib.suppress(Exception):
            import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watchers
    while True:
        asked, _, _ = select.select([connection, *shells], [], [])
        asker = connection if connection in asked else asked[0].accept()[0]
        message, descriptors, _, _ = socket.recv_fds(asker, 1 << 20, 8)
        if not message and asker is connection:
            sys.exit()
        if message and os.fork() == 0:
            for each in (connection, *shells):
                if each is not asker:
                    each.close()
            # Whoever has a descriptor for the report need not stay until then.
            watch = _watch if len(descriptors) == REPORTED else _accompany
            watch(asker, json.loads(message), descriptors)
            return
        for each in descriptors:
            os.close(each)
        if asker is not connection:
            asker.close()


def _watch(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """Fork once more: this process waits for the other, which is the command, and reports its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        connection.detach()
        _become(request, descriptors)
        return
    os.setpgid(0, 0)  # no Ctrl-C for the command ends its watcher
    connection.send(str(pid).encode())
    connection.close()
    for each in descriptors[:3]:
        os.close(each)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        os.write(descriptors[3], str(status).encode())
    os._exit(0)


def _accompany(shell: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """As `_watch`, for a command of a shell: when the process that stands for it there is killed, so is the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        shell.detach()
        _become(request, descriptors)
        return
    os.setpgid(0, 0)
    for each in descriptors:
        os.close(each)
    shell.send(str(pid).encode())
    ended = os.pidfd_open(pid)
    if ended not in select.select([shell, ended], [], [])[0]:
        for kill in (os.killpg, os.kill):  # its group, which it may not have left ours for yet
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        shell.send(str(status).encode())
    os._exit(0)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    if request["leads"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    for number in INHERITED:  # whatever the warm process was started with
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    # As Python does it: `-m` imports from the folder, a script from where it is.
    script = request.get("script")  # of Python, or `dragoman`
    sys.argv[:] = [script or "dragoman", *request["arguments"]]
    sys.path[0] = str(Path(script).parent) if script else request["folder"]
    warnings.resetwarnings()
    warnings.filters[:] = []  # type: ignore[index]
    for unseen in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", unseen)  # as in any program of a user
    for text in filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")):
        sys.warnoptions.append(text)
        warnings.simplefilter(text)  # type: ignore[arg-type]
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = _writer(1, "surrogateescape", unbuffered)
    sys.stderr = _writer(2, "backslashreplace", unbuffered)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _writer(number: int, errors: str, unbuffered: bool) -> Any:
    line_by_line = number == 2 or os.isatty(number)
    writer = open(number, "w", encoding="utf-8", errors=errors, closefd=False, buffering=1 if line_by_line else -1)  # noqa: SIM115
    writer.reconfigure(write_through=unbuffered)
    return writer


def main() -> NoReturn:
    """Wait to be forked, and run the command in every process that was."""
    serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
    try:
        if sys.argv[0].endswith(".py"):
            runpy.run_path(sys.argv[0], run_name="__main__")
            sys.exit()
        import_module("dragoman.cli.main").main()
    except SystemExit as end:
        if isinstance(end.code, int | None):
            with contextlib.suppress(OSError, ValueError):  # of streams that nobody reads, or that are closed
                _leave(end.code or 0)
        raise


def _leave(code: int) -> NoReturn:
    """End as Python does, and take nothing apart: that would copy each page of memory that this process shares."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
