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
from dragoman.agents.process.folders import Folders
from dragoman.agents.process.programs import Programs, stop, talk_of
from dragoman.agents.process.session import Session, new_session, prompt_of
from dragoman.agents.process.turn import Turn
from dragoman.clock import SystemClock
from dragoman.model.error import ConfigError, Failed, Rejected
from dragoman.model.message import depth_of

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event
    from dragoman.agents.process.programs import ProcessManager
    from dragoman.agents.process.recipe import Recipe
    from dragoman.engine.execute.context import Context

CreateSession = Callable[[Session], "Session | Awaitable[Session | None] | None"]
# How the program calls the conversation, kept in the conversation's state.
REMEMBERED = "dragoman/remembered"
AFRESH = "The program could not go on with the conversation: the next message begins a new one."
# What else keeps a program from saying anything: the conversation is not to blame.
_BLAMELESS = ("start", "timeout", "inactivity", "output", "input")


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
        folders: Folders | None = None,
        most: int = 0,
        attaches: bool = False,
        artifacts: int = 0,
        max_depth: int = 3,
    ) -> None:
        self.manager = manager
        self._agent_id = agent_id
        self._project_id = project_id
        self._create = create_session
        self._folders = folders
        self._most = most
        self._places: asyncio.Semaphore | None = None
        self._attaches = attaches
        self._artifacts = artifacts
        self._max_depth = max_depth
        self._sessions: dict[str, Session] = {}
        self._begun: set[str] = set()
        self._endings: set[asyncio.Task[None]] = set()

    async def prepare(self, ctx: Context) -> None:
        """Have a session and a place for a task, which is submitted until then.

        Raises:
            Rejected: it comes from too deep a chain of agents.
        """
        if _depth(ctx) > self._max_depth:
            raise Rejected("Invocation depth limit exceeded.")
        worker = asyncio.current_task()
        assert worker is not None
        places: asyncio.Semaphore | None = None
        # At the end of all of it: a task that is canceled now never gets to `run`.
        worker.add_done_callback(lambda _: self._leave(ctx, places))
        # An answer goes to a program that has its place.
        if self._most and ctx.resume is None:
            wanted = self._places = self._places or asyncio.Semaphore(self._most)
            await wanted.acquire()
            places = wanted
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
                session.folder = await asyncio.to_thread(self._folders.of, session.id)
            except OSError as error:
                ctx.log.error("a session has no folder: %s", error)
                raise Failed("the program cannot be started: its folder cannot be made") from error
        if self._create is not None and ctx.resume is None:
            other = self._create(session)
            other = await other if inspect.isawaitable(other) else other
            session = other or session
        self._sessions[ctx.task_id] = session

    def _leave(self, ctx: Context, places: asyncio.Semaphore | None) -> None:
        begun = ctx.task_id in self._begun
        self._begun.discard(ctx.task_id)
        if ctx.resume is not None and not begun:  # canceled before its answer was given: nobody else will
            ending = asyncio.get_running_loop().create_task(self.canceled(ctx.resume.ref))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
        session = self._sessions.pop(ctx.task_id, None)
        talk = talk_of(self.manager)
        is_open = session is not None and talk is not None and talk.pid(session.id) is not None
        if session is not None and session.folder is not None and self._folders is not None and not is_open:
            self._folders.tidy(session.folder)
        if places is not None:
            places.release()

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Give the message to the session's program, and pass on what it says."""
        session = self._sessions.get(ctx.task_id)
        if session is None:
            raise Failed("the agent was closed before the task began")
        self._begun.add(ctx.task_id)
        names: list[str] = []
        if session.folder is not None and ctx.files:
            try:
                names = await asyncio.to_thread(folders.put, session.folder, ctx.files)
            except OSError as error:
                ctx.log.error("files of a message cannot be kept: %s", error)
                raise Failed("the files of the message cannot be kept here") from error
        prompt = prompt_of(ctx.message, self._paths(session, names) if self._attaches else None)
        turn = Turn(ctx, self.manager, session, given=names, most=self._artifacts)
        remembered = ctx.state.get(REMEMBERED)
        # Closed here and not whenever somebody gets to it: a task that has ended has also let go of its program.
        async with aclosing(turn.outputs(prompt, self._facts(ctx, names), remembered)) as outputs:
            try:
                async for output in outputs:
                    yield output
            except Failed as error:
                if remembered is None or not _is_lost(turn.first_error):
                    raise
                # Or no message of this conversation would ever be answered again.
                del ctx.state[REMEMBERED]
                raise Failed(f"{error}\n{AFRESH}") from error
        if turn.remembers is not None:
            ctx.state[REMEMBERED] = turn.remembers

    @staticmethod
    def _paths(session: Session, names: list[str]) -> list[str]:
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
        found = cast("dict[str, Any]", ref) if isinstance(ref, dict) else {}
        session = found.get("session")
        talk, pid = talk_of(self.manager), found.get("pid")
        if isinstance(session, str) and talk is not None and pid is not None and talk.pid(session) == pid:
            await stop(self.manager, session, "the task was canceled")

    async def close(self) -> None:
        """End what is open."""
        close = getattr(self.manager, "close", None)
        if close is not None:
            await close()
        if self._folders is not None:
            self._folders.close()
        self._places = None


def _depth(ctx: Context) -> int:
    """How deep a task is: of what its message says and what came with the request, the larger counts."""
    first = ctx.history[0] if ctx.history else ctx.message
    return depth_of(ctx.first_metadata, first.metadata)


def _is_lost(first_error: Event | None) -> bool:
    """True when a program failed before it had said anything, and not because it was kept from it."""
    about: Any = None if first_error is None else first_error.get("error")
    kind: Any = cast("dict[str, Any]", about).get("type") if isinstance(about, dict) else None
    return first_error is not None and kind not in _BLAMELESS


class CommandSessions:
    """Everything behind an agent made from a command."""

    def __init__(
        self, recipe: Recipe, *, agent_id: str, project_id: str | None, description: str, tools: Sequence[str] | None
    ) -> None:
        self._recipe = recipe
        self._agent_id = agent_id
        self._project_id = project_id
        self._home: Path | None = None
        self._keep = 0.0
        self._max_depth = 3
        # One agent may be served on several event loops.
        self._runs: WeakKeyDictionary[asyncio.AbstractEventLoop, SessionRuns] = WeakKeyDictionary()
        self.offers = offers_of(recipe.name, description, tools)

    def settle(self, home: Path | None, keep: float, max_depth: int) -> None:
        """Say where folders of sessions are kept, and how long: None is for as long as the server runs.

        A call that has come through more than `max_depth` agents is refused.
        """
        self._home, self._keep, self._max_depth = home, keep, max_depth

    @property
    def programs(self) -> int:
        """How many programs are open."""
        managers = [runs.manager for runs in self._runs.values()]
        return sum(len(manager) for manager in managers if isinstance(manager, Programs))

    @property
    def keeps_talks(self) -> bool:
        """True when a program itself remembers what was said in a conversation."""
        return self._recipe.interactive or self._recipe.profile is not None

    async def open(self) -> None:
        """Look whether there is such a program, and remove folders that are too old.

        Raises:
            ConfigError: there is none that can be run, or this system has no process groups.
        """
        if os.name != "posix":
            raise ConfigError("programs are served on Linux and macOS: this system has no process groups")
        self._made()
        self._recipe.check()
        if self._home is not None and self._keep:
            await asyncio.to_thread(Folders(self._home / self._agent_id).sweep, self._keep)

    def _made(self) -> SessionRuns:
        loop = asyncio.get_running_loop()
        runs = self._runs.get(loop)
        if runs is None:
            folders = Folders(None if self._home is None else self._home / self._agent_id)
            runs = self._runs[loop] = SessionRuns(
                Programs(self._recipe, SystemClock()),
                agent_id=self._agent_id,
                project_id=self._project_id,
                folders=folders,
                most=self._recipe.limits.sessions,
                attaches=self._recipe.profile is not None,
                artifacts=self._recipe.limits.artifacts,
                max_depth=self._max_depth,
            )
        return runs

    def prepare(self, ctx: Context) -> Awaitable[None]:
        """See `SessionRuns.prepare`."""
        return self._made().prepare(ctx)

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """See `SessionRuns.run`."""
        return self._made().run(ctx)

    async def canceled(self, ref: Any) -> None:
        """See `SessionRuns.canceled`."""
        await self._made().canceled(ref)

    async def close(self) -> None:
        """End all programs."""
        runs = self._runs.pop(asyncio.get_running_loop(), None)
        if runs is not None:
            await runs.close()
