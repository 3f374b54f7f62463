"""Sessions as the `run` of an agent: every message becomes a turn of its conversation's session."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from dragoman.agents.offers import offers_of
from dragoman.agents.process import folders
from dragoman.agents.process.folders import SessionFolders
from dragoman.agents.process.manager import ProgramManager, interactive_manager, stop
from dragoman.agents.process.session import ProgramSession, new_session, prompt_of
from dragoman.agents.process.turn import ProgramTurn
from dragoman.clock import SystemClock
from dragoman.model.error import ConfigError, Failed, Rejected
from dragoman.model.message import depth_of

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event
    from dragoman.agents.process.manager import ProcessManager
    from dragoman.agents.process.spec import ProgramSpec
    from dragoman.engine.execute.context import Context

CreateSession = Callable[[ProgramSession], "ProgramSession | Awaitable[ProgramSession | None] | None"]
# How the program calls the conversation, kept in the conversation's state.
REMEMBERED = "dragoman/remembered"
CONVERSATION_RESET = "The program could not go on with the conversation: the next message begins a new one."
# What else keeps a program from saying anything: the conversation is not to blame.
_UNRELATED_ERRORS = ("start", "timeout", "inactivity", "output", "input")


class SessionRuns:
    """Runs every task in the session of its conversation, whoever's process manager does the work.

    `create_session` is told of a session before its first program begins, and may give back another in its place.
    At most `most` tasks work at once; the others are submitted until it is their turn. `attaches` says that a prompt
    names the files that come with it, `artifacts` how large one that it leaves may be. A call that is more than
    `max_depth` calls away from its beginning is refused.
    """

    def __init__(
        self,
        manager: ProcessManager,
        *,
        agent_id: str,
        project_id: str | None,
        create_session: CreateSession | None = None,
        folders: SessionFolders | None = None,
        max_running: int = 0,
        attaches: bool = False,
        artifacts: int = 0,
        max_depth: int = 3,
    ) -> None:
        self.manager = manager
        self._agent_id = agent_id
        self._project_id = project_id
        self._create = create_session
        self._folders = folders
        self._max_running = max_running
        self._slots: asyncio.Semaphore | None = None
        self._attaches = attaches
        self._artifacts = artifacts
        self._max_depth = max_depth
        self._sessions: dict[str, ProgramSession] = {}
        self._started: set[str] = set()
        self._cancellations: set[asyncio.Task[None]] = set()

    async def prepare(self, ctx: Context) -> None:
        """Have a session and a place for a task, which is submitted until then.

        Raises:
            Rejected: it comes from too deep a chain of agents.
        """
        if _depth(ctx) > self._max_depth:
            raise Rejected("Invocation depth limit exceeded.")
        worker = asyncio.current_task()
        assert worker is not None
        slots: asyncio.Semaphore | None = None
        # At the end of all of it: a task that is canceled now never gets to `run`.
        worker.add_done_callback(lambda _: self._release(ctx, slots))
        # An answer goes to a program that has its place.
        if self._max_running and ctx.resume is None:
            semaphore = self._slots = self._slots or asyncio.Semaphore(self._max_running)
            await semaphore.acquire()
            slots = semaphore
        session = new_session(
            ctx.session_id,
            agent_id=self._agent_id,
            project_id=self._project_id,
            message=ctx.history[0].text if ctx.history else ctx.text,
            created_ms=ctx.clock.now(),
            updated_ms=ctx.clock.now(),
        )
        if self._folders is not None:
            try:
                session.folder = await asyncio.to_thread(self._folders.folder_of, session.id)
            except OSError as error:
                ctx.log.error("a session has no folder: %s", error)
                raise Failed("the program cannot be started: its folder cannot be made") from error
        if self._create is not None and ctx.resume is None:
            other = self._create(session)
            other = await other if inspect.isawaitable(other) else other
            session = other or session
        self._sessions[ctx.task_id] = session

    def _release(self, ctx: Context, slots: asyncio.Semaphore | None) -> None:
        is_started = ctx.task_id in self._started
        self._started.discard(ctx.task_id)
        if ctx.resume is not None and not is_started:  # canceled before its answer was given: nobody else will
            ending = asyncio.get_running_loop().create_task(self.canceled(ctx.resume.ref))
            self._cancellations.add(ending)
            ending.add_done_callback(self._cancellations.discard)
        session = self._sessions.pop(ctx.task_id, None)
        interactive = interactive_manager(self.manager)
        is_open = session is not None and interactive is not None and interactive.pid(session.id) is not None
        if session is not None and session.folder is not None and self._folders is not None and not is_open:
            self._folders.remove_if_empty(session.folder)
        if slots is not None:
            slots.release()

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Give the message to the session's program, and pass on what it says."""
        session = self._sessions.get(ctx.task_id)
        if session is None:
            raise Failed("the agent was closed before the task began")
        self._started.add(ctx.task_id)
        names: list[str] = []
        if session.folder is not None and ctx.files:
            try:
                names = await asyncio.to_thread(folders.save_files, session.folder, ctx.files)
            except OSError as error:
                ctx.log.error("files of a message cannot be kept: %s", error)
                raise Failed("the files of the message cannot be kept here") from error
        prompt = prompt_of(ctx.message, self._paths(session, names) if self._attaches else None)
        turn = ProgramTurn(ctx, self.manager, session, attached=names, max_bytes=self._artifacts)
        remembered = ctx.state.get(REMEMBERED)
        # Closed here and not whenever somebody gets to it: a task that has ended has also let go of its program.
        async with aclosing(turn.outputs(prompt, self._facts(ctx, names), remembered)) as outputs:
            try:
                async for output in outputs:
                    yield output
            except Failed as error:
                if remembered is None or not _has_lost_conversation(turn.first_error):
                    raise
                # Or no message of this conversation would ever be answered again.
                del ctx.state[REMEMBERED]
                raise Failed(f"{error}\n{CONVERSATION_RESET}") from error
        if turn.remembers is not None:
            ctx.state[REMEMBERED] = turn.remembers

    @staticmethod
    def _paths(session: ProgramSession, names: list[str]) -> list[str]:
        # Whole paths: the program may run in a folder of its owner's.
        return [str(name if session.folder is None else session.folder / name) for name in names]

    def _facts(self, ctx: Context, names: list[str]) -> dict[str, str]:
        return {
            "TASK": ctx.task_id,
            "CONTEXT": ctx.context_id,
            "DEPTH": str(_depth(ctx) + 1),
            **({"USER": ctx.user.id} if ctx.user else {}),
            **({"FILES": "\n".join(names)} if names else {}),
        }

    async def canceled(self, ref: Any) -> None:
        """Nobody will answer: end the program that asked."""
        fields = cast("dict[str, Any]", ref) if isinstance(ref, dict) else {}
        session = fields.get("session")
        interactive, pid = interactive_manager(self.manager), fields.get("pid")
        if isinstance(session, str) and interactive is not None and pid is not None and interactive.pid(session) == pid:
            await stop(self.manager, session, "the task was canceled")

    async def close(self) -> None:
        """End what is open."""
        close = getattr(self.manager, "close", None)
        if close is not None:
            await close()
        if self._folders is not None:
            self._folders.close()
        self._slots = None


def _depth(ctx: Context) -> int:
    """How deep a task is: of what its message says and what came with the request, the larger counts."""
    first = ctx.history[0] if ctx.history else ctx.message
    return depth_of(ctx.first_metadata, first.metadata)


def _has_lost_conversation(first_error: Event | None) -> bool:
    """True when a program failed before it had said anything, and not because it was kept from it."""
    about: Any = None if first_error is None else first_error.get("error")
    kind: Any = cast("dict[str, Any]", about).get("type") if isinstance(about, dict) else None
    return first_error is not None and kind not in _UNRELATED_ERRORS


class CommandSessions:
    """Everything behind an agent made from a command."""

    def __init__(
        self, spec: ProgramSpec, *, agent_id: str, project_id: str | None, description: str, tools: Sequence[str] | None
    ) -> None:
        self._spec = spec
        self._agent_id = agent_id
        self._project_id = project_id
        self._home: Path | None = None
        self._keep = 0.0
        self._max_depth = 3
        # One agent may be served on several event loops.
        self._runs: WeakKeyDictionary[asyncio.AbstractEventLoop, SessionRuns] = WeakKeyDictionary()
        self.offers = offers_of(spec.name, description, tools)

    def configure(self, home: Path | None, keep: float, max_depth: int) -> None:
        """Say where folders of sessions are kept, and how long: None is for as long as the server runs.

        A call that has come through more than `max_depth` agents is refused.
        """
        self._home, self._keep, self._max_depth = home, keep, max_depth

    @property
    def programs(self) -> int:
        """How many programs are open."""
        managers = [runs.manager for runs in self._runs.values()]
        return sum(len(manager) for manager in managers if isinstance(manager, ProgramManager))

    @property
    def keeps_conversations(self) -> bool:
        """True when a program itself remembers what was said in a conversation."""
        return self._spec.interactive or self._spec.profile is not None

    async def open(self) -> None:
        """Look whether there is such a program, and remove folders that are too old.

        Raises:
            ConfigError: there is none that can be run, or this system has no process groups.
        """
        if os.name != "posix":
            raise ConfigError("programs are served on Linux and macOS: this system has no process groups")
        self._session_runs()
        self._spec.check()
        if self._home is not None and self._keep:
            await asyncio.to_thread(SessionFolders(self._home / self._agent_id).sweep, self._keep)

    def _session_runs(self) -> SessionRuns:
        loop = asyncio.get_running_loop()
        runs = self._runs.get(loop)
        if runs is None:
            folders = SessionFolders(None if self._home is None else self._home / self._agent_id)
            runs = self._runs[loop] = SessionRuns(
                ProgramManager(self._spec, SystemClock()),
                agent_id=self._agent_id,
                project_id=self._project_id,
                folders=folders,
                max_running=self._spec.limits.sessions,
                attaches=self._spec.profile is not None,
                artifacts=self._spec.limits.artifacts,
                max_depth=self._max_depth,
            )
        return runs

    def prepare(self, ctx: Context) -> Awaitable[None]:
        """See `SessionRuns.prepare`."""
        return self._session_runs().prepare(ctx)

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """See `SessionRuns.run`."""
        return self._session_runs().run(ctx)

    async def canceled(self, ref: Any) -> None:
        """See `SessionRuns.canceled`."""
        await self._session_runs().canceled(ref)

    async def close(self) -> None:
        """End all programs."""
        runs = self._runs.pop(asyncio.get_running_loop(), None)
        if runs is not None:
            await runs.close()
