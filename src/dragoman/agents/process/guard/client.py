"""The server's side of the guard: one guardian per process and event loop."""

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
# How long the guardian may take to end everything before it is ended itself.
_CLOSE_SECONDS = 8.0
# What a program that went with its guardian has ended with.
_KILLED = -9
# The system has too many descriptors under way. It says nothing when that is over.
_OVERLOAD_ERRORS, _OVERLOAD_SECONDS = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM), 0.01
_AT_ONCE = 1 << 16
_LIMITS = ("cpu", "memory", "files", "file_size")


class NotStarted(Exception):
    """A program could not be started: the system's number for why, and in which step (`exec`, `chdir`, `limits` …)."""

    def __init__(self, errno: int, step: str) -> None:
        super().__init__(f"{step}: {os.strerror(errno)}")
        self.errno = errno
        self.step = step


class GuardLost(ConnectionError):
    """The guardian has ended, and all its programs with it. The next one to be asked for is a new one."""


class Child:
    """A program that the guardian has started.

    `exited` gets its exit code (-N when signal N ended it), then `clean` is done when nothing it had started is left.
    Both belong to all who wait: wait for them with `asyncio.shield`, or the first to give up takes them away.
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
        """Send a signal to the program and its group. One that has ended gets none."""
        if not self.clean.done():
            self._guard.send({"id": self.id, "number": int(number)})

    def end(self, grace: float) -> None:
        """Ask the program and its group to end; kill them after `grace` seconds, at once when that is 0.

        To do so again changes nothing, unless they are to have less time.
        """
        if not self.clean.done() and (self._grace is None or grace < self._grace):
            self._grace = grace
            self._guard.send({"id": self.id, "grace": grace})

    def handle_report(self, report: dict[str, Any]) -> bool:
        """Take what the guard reports of it. True when there will be no more."""
        if "pid" in report:
            self.pid = report["pid"]
            _finish(self.started, None)
        elif "failed" in report:
            if not self.started.done():
                self.started.set_exception(NotStarted(report["failed"], report["step"]))
            return True
        elif "exit" in report:
            _finish(self.exited, report["exit"])
        else:
            _finish(self.clean, None)
            return True
        return False

    def on_guard_lost(self) -> None:
        """The guardian has gone, and the program with it."""
        if not self.started.done():
            self.started.set_exception(GuardLost("the guardian has ended"))
        _finish(self.exited, _KILLED)
        _finish(self.clean, None)


class GuardClient:
    """The guardian of this process. Raises OSError when it cannot be started."""

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
        """The process it is."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False when it starts nothing any more."""
        return not (self._closing or self._closed.done())

    def retain(self) -> None:
        """One more holds it."""
        self._users += 1

    def release(self) -> bool:
        """One holds it no more. True when others still do."""
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
        """Start a program, the leader of a session of its own. The descriptors stay the caller's to close.

        `limits` may have `cpu` (seconds), `memory` and `file_size` (bytes) and `files`; 0 is none. What a program that
        is `marked` starts is known by a variable in its environment, also where it leaves the session. Who gives up
        waiting has it ended.

        Raises:
            NotStarted: the system does not start it.
            GuardianGone: the guardian has ended.

        """
        if not self.alive:
            raise GuardLost("the guardian has ended")
        child = Child(self, secrets.token_hex(8))
        id_variable = {ID_VARIABLE: child.id} if tag_environment else {}
        frame = {
            "id": child.id,
            "path": _text(path),
            "argv": [_text(one) for one in argv],
            "env": {_text(name): _text(value) for name, value in {**env, **id_variable}.items()},
            "cwd": _text(cwd),
            "limits": {name: limits.get(name, 0) for name in _LIMITS},
        }
        # Copies: a caller who gives up may close its own before they have been sent.
        streams = _copies(stdin, stdout, stderr)
        self._children[child.id] = child
        self._send(frame, streams)
        try:
            await child.started
        except asyncio.CancelledError:
            child.end(0)
            raise
        return child

    async def close(self) -> None:
        """End everything, and the guardian. Nothing is left when this returns."""
        if self.alive:
            self._closing = True
            self._drop_unsent()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        await asyncio.wait((self._closed,), timeout=_CLOSE_SECONDS)
        if not self._closed.done():
            self._on_lost()

    def abandon(self) -> None:
        """Close it when its event loop runs no more. This waits until it has gone."""
        self._drop_unsent()
        self._socket.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    # -- what goes -----------------------------------------------------------------------------------------------------

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame, now or as soon as there is room. Nothing happens when the guardian has gone."""
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
                # The descriptors went with the first byte.
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

    # -- what comes ----------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_AT_ONCE)
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
        """Note that it has gone. When nobody wanted that, do what it cannot do any more."""
        if self._closed.done():
            return
        expected = self._closing
        self._wait_for_room(False)
        self._loop.remove_reader(self._socket.fileno())
        self._drop_unsent()
        self._socket.close()
        # It is about to be gone, if it is not yet: this does not wait for long.
        self._process.kill()
        self._process.wait()
        if not expected:
            logger.error("the guardian of the programs has ended; %d programs end with it", len(self._children))
        if self._children:
            # The group of one that has exited may be another's by now.
            _kill_leftovers({one.id: 0 if one.exited.done() else one.pid for one in self._children.values()})
        for child in self._children.values():
            child.on_guard_lost()
        self._children.clear()
        self._closed.set_result(None)


# -- the guardian of this process --------------------------------------------------------------------------------------

_clients: dict[tuple[int, asyncio.AbstractEventLoop], GuardClient] = {}


async def acquire_guard() -> GuardClient:
    """The guardian of this process and event loop, started when it is first wanted. Release it once for each call.

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
    """Do without a guardian. The last one to do so closes it."""
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


def _finish(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _copies(*descriptors: int) -> list[int]:
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


def _text(value: str | os.PathLike[str]) -> str:
    """Bytes for the system as text that JSON can hold, whatever they are and whatever encoding either side has."""
    return os.fsencode(value).decode("latin-1")


# -- the guard's process ----------------------------------------------------------------------------------------------

# All that a Python needs to start, and what marks this process where it is a program of another server's itself.
_INHERITED_VARIABLES = ("DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", ID_VARIABLE)
# How many files this process may have open, where the system allows it: every program takes a few.
_OPEN_FILES = 65536
# How many it could have open before that.
_open_files: int | None = None


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    """Start the guard's process on its end of a socket. Raises OSError when that is not possible."""
    global _open_files  # noqa: PLW0603 - the limit is the process's
    if _open_files is None:
        _open_files = _raise_open_files()
    main = Path(__file__).with_name("main.py")
    # It ignores requests to end, but not before it runs.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", str(main), str(descriptor), str(_open_files)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if sys.stderr else subprocess.DEVNULL,
            pass_fds=(descriptor,),
            cwd="/",
            # Programs run as the same user, and can read what the guardian was started with.
            env={name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ},
            # What a terminal sends is for the server, which then ends its programs in its own way.
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _raise_open_files() -> int:
    """Let this process have many files open. What it could have before is what its programs get."""
    import resource  # there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft


def _kill_leftovers(programs: Mapping[str, int]) -> None:
    """Kill what programs leave when their guardian is killed: their groups, and whatever bears their marks.

    The programs are given as their marks and their pids, 0 for those whose pid is not known.
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
