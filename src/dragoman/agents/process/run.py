"""Runs A2A tasks in program sessions: each message is one turn of its conversation's session."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from dragoman.agents.offers import offers_from_tool_names
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
# Key in the conversation's state of the program's own conversation id.
CONVERSATION_KEY = "dragoman/remembered"
CONVERSATION_RESET = "The program could not go on with the conversation: the next message begins a new one."
# Errors before any output that have nothing to do with the conversation being resumed.
_UNRELATED_ERRORS = ("start", "timeout", "inactivity", "output", "input")


class SessionRuns:
    """Runs each task in the session of its conversation, with any process manager.

    `create_session` is called with the session of each task before its program starts, and may return a replacement; it
    is not called again for an answer. At most `max_running` tasks run at once; others stay submitted until there is
    room; 0 means no limit. With `attaches`, the prompt lists the files of its message; `artifacts` is the maximum size
    of a result file, in bytes. Calls deeper than `max_depth` in a chain of agents are rejected.
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
        self._create_session = create_session
        self._folders = folders
        self._max_running = max_running
        self._slots: asyncio.Semaphore | None = None
        self._attaches = attaches
        self._max_artifact_bytes = artifacts
        self._max_depth = max_depth
        self._sessions: dict[str, ProgramSession] = {}
        self._started: set[str] = set()
        self._cancellations: set[asyncio.Task[None]] = set()

    async def prepare(self, ctx: Context) -> None:
        """Reserve a session and a slot for a task, which stays submitted until then.

        Raises:
            Rejected: the call is too deep in a chain of agents.
            Failed: the folder of the session cannot be created.
        """
        if _depth(ctx) > self._max_depth:
            raise Rejected("Invocation depth limit exceeded.")
        worker = asyncio.current_task()
        assert worker is not None
        slots: asyncio.Semaphore | None = None
        # On the end of the asyncio task: a task that is canceled now never reaches `run`.
        worker.add_done_callback(lambda _: self._release(ctx, slots))
        # An answer goes to a running program and needs no slot.
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
        )
        if self._folders is not None:
            try:
                session.folder = await asyncio.to_thread(self._folders.folder_of, session.id)
            except OSError as error:
                ctx.log.error("a session has no folder: %s", error)
                raise Failed("the program cannot be started: its folder cannot be made") from error
        if self._create_session is not None and ctx.resume is None:
            replacement = self._create_session(session)
            replacement = await replacement if inspect.isawaitable(replacement) else replacement
            session = replacement or session
        self._sessions[ctx.task_id] = session

    def _release(self, ctx: Context, slots: asyncio.Semaphore | None) -> None:
        is_started = ctx.task_id in self._started
        self._started.discard(ctx.task_id)
        if ctx.resume is not None and not is_started:
            # If it was canceled before the answer reached the program, nothing else would stop it.
            cancellation = asyncio.get_running_loop().create_task(self._cancel_ended(ctx, ctx.resume.ref))
            self._cancellations.add(cancellation)
            cancellation.add_done_callback(self._cancellations.discard)
        session = self._sessions.pop(ctx.task_id, None)
        interactive = interactive_manager(self.manager)
        is_open = session is not None and interactive is not None and interactive.pid(session.id) is not None
        if session is not None and session.folder is not None and self._folders is not None and not is_open:
            self._folders.remove_if_empty(session.folder)
        if slots is not None:
            slots.release()

    async def _cancel_ended(self, ctx: Context, ref: Any) -> None:
        """Stop the program that waits for an answer, unless the task goes on and answers it later."""
        if await ctx.journaled_end() is not None:
            await self.canceled(ref)

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Send the message to the session's program and yield the outputs of the agent.

        Raises:
            Failed: the program failed, the files of the message cannot be saved, or the agent was closed.
            Rejected: the program cannot take the message.
        """
        session = self._sessions.get(ctx.task_id)
        if session is None:
            raise Failed("the agent was closed before the task began")
        self._started.add(ctx.task_id)
        file_names: list[str] = []
        if session.folder is not None and ctx.files:
            try:
                file_names = await asyncio.to_thread(folders.save_files, session.folder, ctx.files)
            except OSError as error:
                ctx.log.error("files of a message cannot be kept: %s", error)
                raise Failed("the files of the message cannot be kept here") from error
        prompt = prompt_of(ctx.message, self._paths(session, file_names) if self._attaches else None)
        turn = ProgramTurn(ctx, self.manager, session, attached=file_names, max_bytes=self._max_artifact_bytes)
        remembered = ctx.state.get(CONVERSATION_KEY)
        # Closed deterministically: when the task has ended, it must have released its program.
        async with aclosing(turn.outputs(prompt, self._facts(ctx, file_names), remembered)) as outputs:
            try:
                async for output in outputs:
                    yield output
            except Failed as error:
                if remembered is None or not _may_have_lost_conversation(turn.first_error):
                    raise
                # Otherwise every further message would fail to resume the same conversation.
                del ctx.state[CONVERSATION_KEY]
                raise Failed(f"{error}\n{CONVERSATION_RESET}") from error
        if turn.remembers is not None:
            ctx.state[CONVERSATION_KEY] = turn.remembers

    @staticmethod
    def _paths(session: ProgramSession, names: list[str]) -> list[str]:
        # Absolute paths, because the program may run in its owner's folder instead of the session's.
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
        """Stop the program whose question will not be answered."""
        fields = cast("dict[str, Any]", ref) if isinstance(ref, dict) else {}
        session = fields.get("session")
        interactive, pid = interactive_manager(self.manager), fields.get("pid")
        if isinstance(session, str) and interactive is not None and pid is not None and interactive.pid(session) == pid:
            await stop(self.manager, session, "the task was canceled")

    async def close(self) -> None:
        """Close the process manager and remove temporary folders."""
        close = getattr(self.manager, "close", None)
        if close is not None:
            await close()
        if self._folders is not None:
            self._folders.close()
        self._slots = None


def _depth(ctx: Context) -> int:
    """Return how deep the task's first message is in a chain of agents, from its metadata and its request's."""
    first = ctx.history[0] if ctx.history else ctx.message
    return depth_of(ctx.first_metadata, first.metadata)


def _may_have_lost_conversation(first_error: Event | None) -> bool:
    """Return True if a program failed before any output for a reason that may be the resumed conversation."""
    about: Any = None if first_error is None else first_error.get("error")
    kind: Any = cast("dict[str, Any]", about).get("type") if isinstance(about, dict) else None
    return first_error is not None and kind not in _UNRELATED_ERRORS


class CommandSessions:
    """The sessions of an agent that is made from a command."""

    def __init__(
        self, spec: ProgramSpec, *, agent_id: str, project_id: str | None, description: str, tools: Sequence[str] | None
    ) -> None:
        self._spec = spec
        self._agent_id = agent_id
        self._project_id = project_id
        self._home: Path | None = None
        self._keep = 0.0
        self._max_depth = 3
        # One agent may be served on several event loops at once.
        self._runs: WeakKeyDictionary[asyncio.AbstractEventLoop, SessionRuns] = WeakKeyDictionary()
        self.offers = offers_from_tool_names(spec.name, description, tools)

    def configure(self, home: Path | None, keep: float, max_depth: int) -> None:
        """Set where session folders are kept and for how long; without `home` they last as long as the server.

        Calls that have passed more than `max_depth` agents are rejected.
        """
        self._home, self._keep, self._max_depth = home, keep, max_depth

    @property
    def programs(self) -> int:
        """The number of open programs."""
        managers = [runs.manager for runs in self._runs.values()]
        return sum(len(manager) for manager in managers if isinstance(manager, ProgramManager))

    @property
    def keeps_conversations(self) -> bool:
        """True if the program itself remembers a conversation."""
        return self._spec.interactive or self._spec.profile is not None

    async def open(self) -> None:
        """Check the program and remove expired session folders.

        Raises:
            ConfigError: the program cannot be run, or this system has no process groups.
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
        return self._session_runs().prepare(ctx)

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        return self._session_runs().run(ctx)

    async def canceled(self, ref: Any) -> None:
        await self._session_runs().canceled(ref)

    async def close(self) -> None:
        """Stop all programs of this event loop."""
        runs = self._runs.pop(asyncio.get_running_loop(), None)
        if runs is not None:
            await runs.close()
