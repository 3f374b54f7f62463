"""One running program: sends its prompt, parses its output, enforces its limits, stops it."""

from __future__ import annotations

import array
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.agents.lines import LineTooLongError
from dragoman.agents.process import events, folders
from dragoman.agents.process.guard.spawner import PipeEnd

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event
    from dragoman.agents.process.guard.client import Child
    from dragoman.agents.process.guard.spawner import Pipes
    from dragoman.agents.process.spec import ProgramSpec
    from dragoman.clock import Clock, Timer

logger = logging.getLogger("dragoman.process")

# Kernel wait channels of a process that reads from a pipe.
_READ_CHANNELS = ("pipe_read", "anon_pipe_read", "pipe_wait")
# Wait channels of a process that sleeps or waits for a child: it is working silently.
_BUSY_CHANNELS = ("hrtimer_nanosleep", "do_nanosleep", "do_wait", "kernel_wait4", "do_wait4")
_MAX_THREADS = 100


def is_idle(pid: int, stdin: int, *, is_long_silent: bool) -> bool:
    """Return True if the program seems to wait for input: it has read all of it, and no process of it is working.

    A program that reads from a pipe is idle at once. One that waits for anything else, other than a timer or a child,
    counts as idle only if `is_long_silent`.
    """
    if _unread_bytes(stdin):
        return False
    threads = _thread_states(pid)
    if any(state in "RD" for state, _ in threads):
        return False
    if any(channel in _READ_CHANNELS for _, channel in threads):
        return True
    return is_long_silent and (not threads or any(channel not in _BUSY_CHANNELS for _, channel in threads))


def _unread_bytes(fd: int) -> int:
    """Return how many bytes of its input the program has not read."""
    try:
        import fcntl
        import termios

        count = array.array("i", [0])
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except (ImportError, OSError):
        return 0
    return count[0]


def _thread_states(pid: int) -> list[tuple[str, str]]:
    """Return state and wait channel of each thread of a process and its descendants; empty where /proc is missing."""
    if sys.platform != "linux":
        return []
    threads: list[tuple[str, str]] = []
    pids = [pid]
    while pids and len(threads) < _MAX_THREADS:
        each = Path("/proc", str(pids.pop()))
        with suppress(OSError, IndexError):
            for thread in (each / "task").iterdir():
                threads.append(((thread / "stat").read_text().rpartition(") ")[2][0], (thread / "wchan").read_text()))
                pids += [int(child) for child in (thread / "children").read_text().split()]
    return threads


_CHUNK = 65_536
# Bytes of stderr that are kept, and how many of them a caller may see.
_STDERR_BYTES, _PUBLIC_STDERR_BYTES = 8000, 2000
# How long to wait for more output of an exited program: a process it has left behind may hold the pipe open.
_DRAIN_SECONDS = 0.5
# How long to wait for the end of a program after its grace period.
_KILL_SECONDS = 5.0
# Bytes of line output that are parsed before other tasks of the event loop run.
_PARSE_CHUNK = 8192


class Program:
    """A running program. `emit` gets its events and returns awaitables that are awaited before the next event.

    `finished` is resolved after the last event, whatever happened. `question_ms` is the time of the last question.
    """

    def __init__(
        self,
        spec: ProgramSpec,
        child: Child,
        folder: Path | None,
        clock: Clock,
        emit: Callable[[Event], list[Awaitable[Any]]],
    ) -> None:
        self._spec = spec
        self._child = child
        self._folder = folder
        self._clock = clock
        self._publish = emit
        self._output = spec.new_output()
        self._is_text = spec.output == "text" and spec.profile is None
        self._stamps: dict[str, folders.FileStamp] = {}
        self._stdin: asyncio.WriteTransport | None = None
        self._stdin_fd = -1
        self._readers: list[asyncio.ReadTransport] = []
        self._stdout_bytes = 0
        self._stderr_tail = b""
        self._stderr_since_pause = b""
        self._is_asking = False
        self.question_ms = 0
        self._in_read = False
        self._last_activity_ms = clock.now()
        self._quiet_checks = 0
        self._timers: dict[str, Timer] = {}
        self._stop_reason: str | None = None
        self._problem: Event | None = None
        self._task: asyncio.Task[None] | None = None
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        return self._child.pid

    @property
    def asks(self) -> bool:
        """True while the program waits for an answer."""
        return self._is_asking and self.is_open

    @property
    def is_open(self) -> bool:
        """True while the program takes input: it runs and is not being stopped."""
        ends = self._stop_reason is not None or self._problem is not None
        return not (ends or self.finished.done() or self._child.exited.done())

    @property
    def end_reason(self) -> str:
        """Why it is being stopped, or was; empty if it is not."""
        return self._stop_reason or "" if self._problem is None else events.problem_of(self._problem)

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    def begin(self, pipes: Pipes, prompt: str, stamps: dict[str, folders.FileStamp]) -> None:
        """Send the prompt and start reading the output. Takes ownership of the pipes."""
        self._stamps = stamps
        # A task of its own, so that the program is stopped properly even if its caller is canceled.
        self._task = asyncio.get_running_loop().create_task(self._run(pipes, prompt))

    async def _run(self, pipes: Pipes, prompt: str) -> None:
        try:
            out, err = await self._connect(pipes)
            self._start_timers()
            if not self._spec.prompt_in_argument:
                self._write(prompt + "\n" if self._spec.interactive else prompt)
            if self._stdin is not None and not self._spec.keeps_input:
                self._stdin.close()  # after everything is written
            await self._follow(out, err)
        except Exception as error:
            logger.exception("a program could not be followed")
            self._child.end(0)
            self._publish(events.error(f"the program could not be followed: {type(error).__name__}"))
        finally:
            pipes.close()
            self._release()
            self.finished.set_result(None)

    async def _connect(self, pipes: Pipes) -> tuple[asyncio.StreamReader, asyncio.StreamReader]:
        loop = asyncio.get_running_loop()
        out, err = asyncio.StreamReader(limit=_CHUNK), asyncio.StreamReader(limit=_CHUNK)
        for reader in (err, out):
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(lambda protocol=protocol: protocol, PipeEnd(pipes.ours.pop()))
            self._readers.insert(0, transport)
        self._stdin_fd = pipes.ours.pop()
        self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, PipeEnd(self._stdin_fd))
        return out, err

    def _start_timers(self) -> None:
        limits = self._spec.limits
        if limits.time:
            self._timers["time"] = self._clock.call_later(limits.time, self._on_timeout)
        if limits.inactivity:
            self._timers["silence"] = self._clock.call_later(limits.inactivity, self._check_inactivity)

    def say(self, line: str) -> None:
        """Send a line of input: an answer or the next message."""
        self._is_asking = False
        if self._spec.output == "jsonl":  # the protocol is one line per answer
            line = " ".join(line.splitlines())
        self._write(line + "\n")

    def _write(self, text: str) -> None:
        if self._stdin is not None and text and not self._stdin.is_closing():
            self._stdin.write(text.encode(errors="surrogateescape"))
        self._note_activity()

    async def stop(self, reason: str = "") -> None:
        """Stop the program and all it has started: SIGTERM first, SIGKILL after the grace period.

        Waits for the end, but at most 5 seconds longer than the grace period. The first `reason` is reported.
        """
        if self._stop_reason is None:
            self._stop_reason = reason
        self._child.end(self._spec.limits.grace)
        # Bounded, because a program or guard process that cannot be stopped must not block the server's shutdown.
        await asyncio.wait((self.finished,), timeout=self._spec.limits.grace + _KILL_SECONDS)

    def _fail(self, message: str, kind: str) -> None:
        """Stop the program and remember the error that is reported at its end."""
        if self._problem is None:
            self._problem = events.error(message, kind)
        self._child.end(self._spec.limits.grace)

    # -- output --------------------------------------------------------------------------------------------------------

    async def _follow(self, out: asyncio.StreamReader, err: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        readers = {loop.create_task(self._read_stdout(out)), loop.create_task(self._read_stderr(err))}
        for task in readers:
            task.add_done_callback(self._on_reader_done)
        try:
            code = await asyncio.shield(self._child.exited)
            await self._drain(readers)
            await self._finish(code)
        finally:
            for task in readers:
                task.cancel()

    async def _drain(self, readers: set[asyncio.Task[None]]) -> None:
        """Read the rest of the output, while data arrives or a subscriber has not taken it yet."""
        while any(not task.done() for task in readers):
            before = self._stdout_bytes
            _, waiting = await asyncio.wait(readers, timeout=_DRAIN_SECONDS)
            if waiting and self._in_read and before == self._stdout_bytes:
                return

    def _on_reader_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("the output of a program cannot be read", exc_info=error)
            self._fail("the output of the program could not be read", "output")

    async def _read_stdout(self, out: asyncio.StreamReader) -> None:
        most = self._spec.limits.output
        while True:
            self._in_read = True
            data = await out.read(_CHUNK)
            self._in_read = False
            if not data:
                return
            self._stdout_bytes += len(data)
            self._note_activity()
            if most and self._stdout_bytes > most:
                self._fail(f"the program wrote more than {_size(most)} to its standard output", "output")
                self._readers[0].close()
                return
            try:
                for piece in _pieces(data, _CHUNK if self._is_text else _PARSE_CHUNK):
                    for event in self._output.feed(piece):
                        await self._emit(event)
                    if not self._is_text:
                        await asyncio.sleep(0)
            except LineTooLongError:
                self._fail("the program wrote a line that is too long to be a message", "output")
                self._readers[0].close()
                return

    async def _read_stderr(self, err: asyncio.StreamReader) -> None:
        while data := await err.read(_CHUNK):
            self._stderr_tail = (self._stderr_tail + data)[-_STDERR_BYTES:]
            self._stderr_since_pause = (self._stderr_since_pause + data)[-_PUBLIC_STDERR_BYTES:]
            self._note_activity()

    async def _emit(self, event: Event) -> None:
        kind = event["type"]
        if kind == "error":
            # Reported at the end of the program, which is stopped now.
            self._problem = self._problem or event
            self._child.end(self._spec.limits.grace)
            return
        if kind == "ask":
            if not self._spec.keeps_input:
                self._fail(
                    f"the program asks ({event['question']}), but its input has ended: give it its prompt as an "
                    "argument, {prompt}, or run it with input=interactive",
                    "input",
                )
                return
            await self._publish_changed_files()
            self._is_asking, self.question_ms = True, self._clock.now()
        for waiting in self._publish(event):
            await waiting

    async def _publish_changed_files(self) -> None:
        folder = self._folder
        if folder is None:
            return
        limit = self._spec.limits.artifacts
        names, self._stamps = await asyncio.to_thread(folders.changed_files, folder, self._stamps, limit)
        for name in names:
            for waiting in self._publish(events.artifact({"file": name, "name": name, "found": True})):
                await waiting

    # -- limits --------------------------------------------------------------------------------------------------------

    def _note_activity(self) -> None:
        """Restart the inactivity checks after input or output."""
        self._last_activity_ms, self._quiet_checks = self._clock.now(), 0
        if self._spec.interactive and self._spec.output == "text" and "quiet" not in self._timers:
            self._timers["quiet"] = self._clock.call_later(self._spec.limits.quiet, self._check_quiet)

    def _check_quiet(self) -> None:
        """Detect by its silence that an interactive program waits for input."""
        self._timers.pop("quiet", None)
        if self._is_asking or self.finished.done() or self._child.exited.done():
            return
        quiet = self._spec.limits.quiet
        left = quiet - (self._clock.now() - self._last_activity_ms) / 1000
        if left <= 0:
            self._quiet_checks += 1
            if is_idle(self._child.pid, self._stdin_fd, is_long_silent=self._quiet_checks >= 3):
                waiting = asyncio.get_running_loop().create_task(self._pause())
                waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
                return
            left = quiet
        self._timers["quiet"] = self._clock.call_later(left, self._check_quiet)

    async def _pause(self) -> None:
        stderr, self._stderr_since_pause = self._stderr_since_pause, b""
        for event in self._output.pause(_last_line(stderr)):
            await self._emit(event)

    def _check_inactivity(self) -> None:
        most = self._spec.limits.inactivity
        left = most - (self._clock.now() - self._last_activity_ms) / 1000
        if left > 0:
            self._timers["silence"] = self._clock.call_later(left, self._check_inactivity)
        elif self._is_asking:
            self._fail(f"nobody answered the program within {most:g} s", "inactivity")
        else:
            self._fail(f"the program said nothing for {most:g} s", "inactivity")

    def _on_timeout(self) -> None:
        self._fail(f"the program ran longer than {self._spec.limits.time:g} s", "timeout")

    # -- exit ----------------------------------------------------------------------------------------------------------

    async def _finish(self, code: int) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._problem is None or self._problem["error"]["type"] != "output":
            for event in self._output.close():
                await self._emit(event)
        if self._problem is not None:
            self._publish(self._problem)
        elif self._stop_reason is not None:
            self._publish(events.stopped(self._stop_reason))
        elif code != 0:
            self._publish(events.error(self._exit_message(code), "exit" if code > 0 else "signal"))
        else:
            await self._publish_changed_files()
            self._publish(events.exited(code))

    def _exit_message(self, code: int) -> str:
        """Return how the program ended, with the end of its stderr."""
        limits = self._spec.limits
        if code > 0:
            how = f"the program ended with exit code {code}"
        elif limits.cpu and -code == signal.SIGXCPU:
            how = f"the program used more than {limits.cpu} s of CPU time"
        elif -code == signal.SIGXFSZ:
            how = f"the program wrote a file of more than {_size(limits.file_size)}"
        else:
            how = f"the program was ended by {_signal_name(-code)}"
        words = self._stderr_tail.decode(errors="replace").strip()
        return f"{how}: {words[-_PUBLIC_STDERR_BYTES:]}" if words else how

    def _release(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for transport in self._readers:
            with suppress(Exception):
                transport.close()
        if self._stdin is not None:
            with suppress(Exception):  # an already closed transport may raise
                self._stdin.abort()


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def _last_line(data: bytes) -> str:
    return data.decode(errors="replace").rpartition("\n")[2]


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _size(count: int) -> str:
    for unit, name in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "KB")):
        if count >= unit and count % (unit // 10) == 0:
            return f"{count / unit:g} {name}"
    return f"{count} bytes"
