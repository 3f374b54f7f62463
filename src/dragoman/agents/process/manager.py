"""The process manager that runs one command for all sessions."""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.agents.process import events, folders
from dragoman.agents.process.events import Backlog, SessionSubscribers
from dragoman.agents.process.guard.client import NotStarted
from dragoman.agents.process.guard.spawner import Spawner
from dragoman.agents.process.program import Program
from dragoman.model.error import Failed, Rejected

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.agents.process.events import Callback, Event
    from dragoman.agents.process.guard.client import Child
    from dragoman.agents.process.guard.spawner import Pipes
    from dragoman.agents.process.session import ProgramSession
    from dragoman.agents.process.spec import ProgramSpec
    from dragoman.clock import Clock

logger = logging.getLogger("dragoman.process")
# Number of sessions whose last end reason is remembered.
_MAX_END_REASONS = 1000


class ProgramManager:
    """Runs the program of each session and emits its events. Implements `ProcessManager`.

    `projects` are the valid project ids; None allows any. A program that waits for an answer stays open. As many
    programs may wait as may run; beyond that, the one that has waited longest is stopped first.
    """

    def __init__(self, spec: ProgramSpec, clock: Clock, *, projects: Collection[str] | None = None) -> None:
        self._spec = spec
        self._clock = clock
        self._projects = projects
        self._subscribers = SessionSubscribers()
        self._programs: dict[str, Program] = {}
        self._backlogs: dict[str, Backlog] = {}
        self._end_reasons: OrderedDict[str, str] = OrderedDict()
        self._spawner = Spawner()

    def __len__(self) -> int:
        """Return the number of open programs."""
        return len(self._programs)

    # -- the ProcessManager protocol -----------------------------------------------------------------------------------

    def subscribe(self, session_id: str, callback: Callback, /) -> Callable[[], None]:
        """Subscribe to a session; events that came while nobody was subscribed are delivered first."""
        backlog = self._backlogs.pop(session_id, None)
        return self._subscribers.subscribe(session_id, callback, () if backlog is None else backlog.take())

    async def start_process(self, session: ProgramSession, prompt: str, /, **options: Any) -> None:
        """Start the program of a session, after stopping the one that still runs there.

        Options are `facts`, environment variables about the task, and `remembered`, the program's own id of the
        conversation; others are ignored. A program that cannot be started is reported as an `error` event.
        """
        if self._projects is not None and session.project_id not in self._projects:
            self._subscribers.emit(session.id, events.error(f"Project {session.project_id} not found", "not_found"))
            return
        await self.stop_process(session.id, "another message came")
        try:
            program, pipes, stamps = await self._start(session, prompt, options)
        except (Failed, Rejected) as error:
            kind = events.REJECTED if isinstance(error, Rejected) else "start"
            self._subscribers.emit(session.id, events.error(str(error), kind))
            return
        self._programs[session.id] = program
        program.finished.add_done_callback(lambda _: self._remove(session, program))
        session.status, session.pid, session.turns = "running", program.pid, session.turns + 1
        self._subscribers.emit(session.id, events.started(program.pid))
        program.begin(pipes, prompt, stamps)
        self._stop_oldest_waiting()

    async def _start(
        self, session: ProgramSession, prompt: str, options: Mapping[str, Any]
    ) -> tuple[Program, Pipes, dict[str, folders.FileStamp]]:
        spec, folder = self._spec, session.folder
        cwd = spec.cwd or folder
        if cwd is None:
            raise Failed("the program cannot be started: its session has no folder")
        argv = spec.argv(prompt, options.get("remembered"))
        facts = dict(options.get("facts") or {})
        if folder is not None:
            facts["FOLDER"] = str(folder)
        stamps = {} if folder is None else await asyncio.to_thread(folders.scan, folder)
        child, pipes = await self._spawn(argv, spec.executable(argv[0], cwd), spec.environment(facts), cwd)
        emit = partial(self._emit, session)
        return Program(spec, child, folder, self._clock, emit), pipes, stamps

    async def _spawn(self, argv: tuple[str, ...], path: str, env: Mapping[str, str], cwd: Path) -> tuple[Child, Pipes]:
        limits = self._spec.limits
        named = {name: getattr(limits, name) for name in ("cpu", "memory", "files", "file_size")}
        try:
            return await self._spawner.spawn(path, argv, env=env, cwd=cwd, limits=named)
        except NotStarted as error:
            raise Failed(_start_error(error.errno, error.step, argv[0])) from error
        except OSError as error:
            logger.error("a program cannot be started: %s", error)
            raise Failed("the program cannot be started: the server's log says why") from error

    # -- conversations -------------------------------------------------------------------------------------------------

    def pid(self, session_id: str) -> int | None:
        """Return the process id of the open program of a session, or None."""
        program = self._programs.get(session_id)
        return program.pid if program is not None and program.is_open else None

    def goes_on(self, session_id: str) -> bool:
        """Return True if the session has an open program that takes further messages, not only answers."""
        return self._spec.interactive and self.pid(session_id) is not None

    def say(self, session: ProgramSession, line: str) -> None:
        """Send a line to the open program of a session, if there is one."""
        program = self._programs.get(session.id)
        if program is not None:
            session.turns += 1
            program.say(line)

    def put_back(self, session_id: str, events: Iterable[Event]) -> None:
        """Buffer unread events for the next subscriber, while the program is open."""
        if self.pid(session_id) is not None:
            self._backlogs.setdefault(session_id, Backlog()).put_back(events)

    def end_reason(self, session_id: str) -> str:
        """Return why the last program of a session was stopped or failed; empty if it exited or is not remembered."""
        program = self._programs.get(session_id)  # it may still be ending
        return (program.end_reason if program is not None else "") or self._end_reasons.get(session_id, "")

    async def stop_process(self, session_id: str, reason: str = "") -> None:
        """Stop the program of a session and everything it has started."""
        program = self._programs.get(session_id)
        if program is not None:
            await program.stop(reason)

    async def close(self) -> None:
        """Stop all programs."""
        stopping = [asyncio.ensure_future(each.stop("the server stops")) for each in self._programs.values()]
        if stopping:
            await asyncio.wait(stopping)
        await self._spawner.close()

    # -- internals -----------------------------------------------------------------------------------------------------

    def _emit(self, session: ProgramSession, event: Event) -> list[Awaitable[Any]]:
        kind = event["type"]
        if kind == "session_exited":
            session.status = "idle"
        elif kind in ("session_stopped", "error"):
            session.status = "stopped" if kind == "session_stopped" else "error"
        elif kind == "ask":
            session.status = "paused"
        if kind in events.END_TYPES:
            self._record_end(session.id, event)
        backlog_full: asyncio.Future[None] | None = None
        if kind not in events.END_TYPES and not self._subscribers.has_listeners(session.id):
            backlog_full = self._backlogs.setdefault(session.id, Backlog()).add(event)
        waits = self._subscribers.emit(session.id, event)
        return waits if backlog_full is None else [*waits, backlog_full]

    def _record_end(self, session_id: str, event: Event) -> None:
        how = events.problem_of(event) if event["type"] == "error" else str(event.get("reason") or "")
        self._end_reasons[session_id] = how
        self._end_reasons.move_to_end(session_id)
        if len(self._end_reasons) > _MAX_END_REASONS:
            self._end_reasons.popitem(last=False)

    def _remove(self, session: ProgramSession, program: Program) -> None:
        if self._programs.get(session.id) is program:
            del self._programs[session.id]
            backlog = self._backlogs.pop(session.id, None)
            if backlog is not None:
                backlog.take()
        session.pid = None

    def _stop_oldest_waiting(self) -> None:
        waiting = sorted((each for each in self._programs.values() if each.asks), key=lambda each: each.question_ms)
        for program in waiting[: max(0, len(waiting) - self._spec.limits.sessions)]:
            ending = asyncio.get_running_loop().create_task(program.stop("others needed its place"))
            ending.add_done_callback(lambda done: done.cancelled() or done.exception())


def _start_error(code: int, step: str, name: str) -> str:
    """Return why a program could not be started, for callers."""
    if step == "chdir":
        return f"the program cannot be started: its folder cannot be used ({os.strerror(code)})"
    reasons = {
        errno.ENOENT: f"there is no `{name}` here, or not what it needs to run",
        errno.EACCES: f"`{name}` may not be run",
        errno.ENOEXEC: f"`{name}` is no program that this system can run",
        errno.E2BIG: "the text is too long for it",
        errno.EAGAIN: "there are too many processes: try again later",
        errno.EMFILE: "too many files are open: try again later",
        errno.ENFILE: "too many files are open: try again later",
        errno.ENOMEM: "there is not enough memory: try again later",
    }
    return f"the program cannot be started: {reasons.get(code) or os.strerror(code)}"


class ProcessManager(Protocol):
    """What the server requires of a process manager; third parties may bring their own.

    `subscribe` may return a function that unsubscribes. `start_process` may be a coroutine; a program that cannot be
    started is reported as an `error` event. If there is a method `stop_process(session_id, reason)`, it is called for
    programs whose work is no longer wanted.
    """

    def subscribe(self, session_id: str, callback: Callback, /) -> Callable[[], object] | None:
        """Call back with every further event of a session."""
        ...

    def start_process(self, session: ProgramSession, prompt: str, /, **options: Any) -> Awaitable[object] | object:
        """Run the session's program on a prompt."""
        ...


def interactive_manager(manager: ProcessManager) -> ProgramManager | None:
    """Return the process manager if its programs take input while they run, else None."""
    return cast("ProgramManager", manager) if hasattr(manager, "say") and hasattr(manager, "pid") else None


async def stop(manager: ProcessManager, session_id: str, reason: str) -> None:
    """Ask a process manager to stop a program, if it has a method for that."""
    stop_process = getattr(manager, "stop_process", None)
    if stop_process is not None:
        done = stop_process(session_id, reason)
        if inspect.isawaitable(done):
            await done
