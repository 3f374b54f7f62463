"""The server's side of the guard: one guard process per server process and event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragoman.agents.process.guard.link import ID_VARIABLE, frame_bytes, frames_of

logger = logging.getLogger("dragoman.process")
# How long the guard may take to end all programs before it is killed.
_CLOSE_SECONDS = 8.0
# Exit code reported for a program that was killed together with its guard.
_KILLED = -9
# Too many descriptors are in flight. The system gives no notice when there is room again, so sending is retried.
_OVERLOAD_ERRORS, _OVERLOAD_SECONDS = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM), 0.01
_MAX_RECEIVE = 1 << 16
_LIMITS = ("cpu", "memory", "files", "file_size")


class NotStarted(Exception):
    """A program could not be started: the errno, and the failed step (`exec`, `chdir`, `limits` …)."""

    def __init__(self, errno: int, step: str) -> None:
        super().__init__(f"{step}: {os.strerror(errno)}")
        self.errno = errno
        self.step = step


class GuardLost(ConnectionError):
    """The guard process has ended, and all of its programs with it. The next `acquire_guard` starts a new one."""


class Child:
    """A program that the guard has started.

    `exited` resolves to its exit code (-N if signal N ended it); `clean` resolves later, when no process it has started
    is left. Both futures are shared: await them through `asyncio.shield`, or a canceled waiter cancels them for all.
    """

    def __init__(self, guard: GuardClient, id: str) -> None:
        loop = asyncio.get_running_loop()
        self._guard = guard
        self.id = id
        self._grace: float | None = None
        self.pid = 0
        self.started: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self.clean: asyncio.Future[None] = loop.create_future()

    def signal(self, number: int) -> None:
        """Send a signal to the program and its process group, unless they have ended."""
        if not self.clean.done():
            self._guard.send({"id": self.id, "number": int(number)})

    def end(self, grace: float) -> None:
        """Send SIGTERM to the program and its group, and SIGKILL after `grace` seconds; at once if that is 0.

        Repeated calls have no effect, unless they shorten the grace period.
        """
        if not self.clean.done() and (self._grace is None or grace < self._grace):
            self._grace = grace
            self._guard.send({"id": self.id, "grace": grace})

    def handle_report(self, report: dict[str, Any]) -> bool:
        """Process a report of the guard. Return True if it is the last one."""
        if "pid" in report:
            self.pid = report["pid"]
            _resolve(self.started, None)
        elif "failed" in report:
            if not self.started.done():
                self.started.set_exception(NotStarted(report["failed"], report["step"]))
            return True
        elif "exit" in report:
            _resolve(self.exited, report["exit"])
        else:
            _resolve(self.clean, None)
            return True
        return False

    def on_guard_lost(self) -> None:
        """Resolve all futures: the program was killed together with the guard."""
        if not self.started.done():
            self.started.set_exception(GuardLost("the guard process has ended"))
        _resolve(self.exited, _KILLED)
        _resolve(self.clean, None)


class GuardClient:
    """A guard process and the connection to it. Raises OSError if it cannot be started."""

    def __init__(self) -> None:
        if os.name != "posix":
            raise OSError(errno.ENOSYS, "programs need a POSIX system")
        self._loop = asyncio.get_running_loop()
        self._children: dict[str, Child] = {}
        self._in = bytearray()
        self._out: deque[tuple[memoryview, list[int]]] = deque()
        self._waiting_for_room = False
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._closing = False
        self._users = 0
        self._socket, theirs = socket.socketpair()
        try:
            self._process = _start(theirs.fileno())
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._receive)

    @property
    def pid(self) -> int:
        """The process id of the guard."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False if the guard starts no more programs."""
        return not (self._closing or self._closed.done())

    def retain(self) -> None:
        """Add a user."""
        self._users += 1

    def release(self) -> bool:
        """Remove a user. Return True if others remain."""
        self._users -= 1
        return self._users > 0

    async def spawn(
        self,
        path: str | os.PathLike[str],
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str],
        stdin: int,
        stdout: int,
        stderr: int,
        limits: Mapping[str, int],
        tag_environment: bool = True,
    ) -> Child:
        """Start a program as the leader of a new session. The descriptors remain the caller's to close.

        `limits` may have `cpu` (seconds), `memory` and `file_size` (bytes) and `files`; 0 means no limit. With
        `tag_environment`, a variable in its environment identifies all processes it starts, even outside of its
        session. If the caller is canceled, the program is killed.

        Raises:
            NotStarted: the system refuses to start it.
            GuardLost: the guard has ended.
            OSError: the descriptors cannot be duplicated.
        """
        if not self.alive:
            raise GuardLost("the guard process has ended")
        child = Child(self, secrets.token_hex(8))
        id_variable = {ID_VARIABLE: child.id} if tag_environment else {}
        frame = {
            "id": child.id,
            "path": _to_latin1(path),
            "argv": [_to_latin1(one) for one in argv],
            "env": {_to_latin1(name): _to_latin1(value) for name, value in {**env, **id_variable}.items()},
            "cwd": _to_latin1(cwd),
            "limits": {name: limits.get(name, 0) for name in _LIMITS},
        }
        # Duplicated, because a canceled caller may close its own before they have been sent.
        streams = _duplicate(stdin, stdout, stderr)
        self._children[child.id] = child
        self._send(frame, streams)
        try:
            await child.started
        except asyncio.CancelledError:
            child.end(0)
            raise
        return child

    async def close(self) -> None:
        """Kill all programs and end the guard. A guard that takes longer than 8 seconds is killed with its programs."""
        if self.alive:
            self._closing = True
            self._drop_unsent()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        await asyncio.wait((self._closed,), timeout=_CLOSE_SECONDS)
        if not self._closed.done():
            self._on_lost()

    def abandon(self) -> None:
        """Close a guard whose event loop is closed. Blocks until the guard has ended."""
        self._drop_unsent()
        self._socket.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame, as soon as there is room. Does nothing if the guard has ended."""
        if self.alive:
            self._send(frame, [])

    def _send(self, frame: dict[str, Any], descriptors: list[int]) -> None:
        self._out.append((memoryview(frame_bytes(frame)), descriptors))
        if not self._waiting_for_room:
            self._flush()

    def _flush(self) -> None:
        if self._closed.done():
            return
        self._wait_for_room(False)
        while self._out:
            data, descriptors = self._out[0]
            try:
                sent = socket.send_fds(self._socket, [data], descriptors) if descriptors else self._socket.send(data)
            except BlockingIOError:
                self._wait_for_room(True)
                return
            except OSError as error:
                if error.errno not in _OVERLOAD_ERRORS:
                    self._on_lost()
                    return
                self._waiting_for_room = True
                self._loop.call_later(_OVERLOAD_SECONDS, self._flush)
                return
            _close(descriptors)
            self._out.popleft()
            if sent < len(data):
                # The descriptors were sent with the first byte.
                self._out.appendleft((data[sent:], []))

    def _wait_for_room(self, waits: bool) -> None:
        if waits and not self._waiting_for_room:
            self._loop.add_writer(self._socket.fileno(), self._flush)
        elif self._waiting_for_room and not waits:
            self._loop.remove_writer(self._socket.fileno())
        self._waiting_for_room = waits

    def _drop_unsent(self) -> None:
        for _, descriptors in self._out:
            _close(descriptors)
        self._out.clear()

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_MAX_RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_lost()
            return
        self._in += data
        for report in frames_of(self._in):
            self._handle_report(report)

    def _handle_report(self, report: dict[str, Any]) -> None:
        child = self._children.get(report["id"])
        if child is not None and child.handle_report(report):
            del self._children[child.id]

    def _on_lost(self) -> None:
        """Handle the end of the guard. If it was not requested, kill the programs in its place."""
        if self._closed.done():
            return
        expected = self._closing
        self._wait_for_room(False)
        self._loop.remove_reader(self._socket.fileno())
        self._drop_unsent()
        self._socket.close()
        # It is about to exit, so this does not block for long.
        self._process.kill()
        self._process.wait()
        if not expected:
            logger.error("the guard process has ended; %d programs end with it", len(self._children))
        if self._children:
            # The group id of an exited program may have been reused.
            _kill_leftovers({one.id: 0 if one.exited.done() else one.pid for one in self._children.values()})
        for child in self._children.values():
            child.on_guard_lost()
        self._children.clear()
        self._closed.set_result(None)


# -- guards of this process --------------------------------------------------------------------------------------------

_clients: dict[tuple[int, asyncio.AbstractEventLoop], GuardClient] = {}


async def acquire_guard() -> GuardClient:
    """Return the guard of this process and event loop, starting it if needed. Call `release_guard` once for each call.

    Raises:
        OSError: it cannot be started.
    """
    _drop_closed_loops()
    key = os.getpid(), asyncio.get_running_loop()
    client = _clients.get(key)
    if client is None or not client.alive:
        client = _clients[key] = GuardClient()
    client.retain()
    return client


async def release_guard(guard: GuardClient) -> None:
    """Give up a guard. The last user closes it."""
    if guard.release():
        return
    key = os.getpid(), asyncio.get_running_loop()
    if _clients.get(key) is guard:
        del _clients[key]
    await guard.close()


def _drop_closed_loops() -> None:
    for key in [one for one in _clients if one[1].is_closed()]:
        client = _clients.pop(key)
        if key[0] == os.getpid() and client.alive:
            client.abandon()


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _duplicate(*descriptors: int) -> list[int]:
    copies: list[int] = []
    try:
        for descriptor in descriptors:
            copies.append(os.dup(descriptor))  # noqa: PERF401 - so that none is lost when one fails
    except OSError:
        _close(copies)
        raise
    return copies


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _to_latin1(value: str | os.PathLike[str]) -> str:
    """Encode a path or argument as text that JSON can hold, whatever its bytes and either side's encoding."""
    return os.fsencode(value).decode("latin-1")


# -- starting the guard process ----------------------------------------------------------------------------------------

# What Python needs to start, and the id of this process if it is itself a program of another server.
_INHERITED_VARIABLES = ("DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", ID_VARIABLE)
# Open-file limit of this process, where the system allows it: every program needs a few.
_OPEN_FILES = 65536
# The limit before it was raised.
_open_files: int | None = None


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    """Start the guard process on its end of a socket. Raises OSError."""
    global _open_files  # noqa: PLW0603 - the limit is the process's
    if _open_files is None:
        _open_files = _raise_open_files()
    main = Path(__file__).with_name("main.py")
    # Signals are blocked until the guard ignores them.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", str(main), str(descriptor), str(_open_files)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if sys.stderr else subprocess.DEVNULL,
            pass_fds=(descriptor,),
            cwd="/",
            # Programs run as the same user and can read the environment of the guard.
            env={name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ},
            # Signals of a terminal are for the server, which then stops its programs itself.
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _raise_open_files() -> int:
    """Raise the open-file limit of this process. Return the old limit, which is what programs get."""
    import resource  # not available on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft


def _kill_leftovers(programs: Mapping[str, int]) -> None:
    """Kill the processes that programs leave when their guard is killed: their groups, and all that carry their ids.

    The programs are given as their ids and pids; a pid is 0 if unknown.
    """
    for pid in programs.values():
        if pid:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
    id_variables = {f"{ID_VARIABLE}={program_id}".encode() for program_id in programs}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if id_variables.intersection((process / "environ").read_bytes().split(b"\0")):
                os.kill(int(process.name), signal.SIGKILL)
