"""An agent that is nothing but its sessions, as the engine sees it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from dragoman.agents.process.run import SessionRuns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from dragoman.compat.sessions.deps import Chosen, TaskDeps
    from dragoman.engine.execute.context import Context
    from dragoman.engine.execute.outputs import Marks
    from dragoman.model.card import AgentExtension


class Worker:
    """Runs the tasks of one agent with the parts that were given. See `Runnable`."""

    extensions: Sequence[AgentExtension] = ()
    closing: Literal["whole", "last"] = "whole"
    parallel = False
    streams = True
    marks: Marks | None = None

    def __init__(self, deps: TaskDeps, agent: Chosen) -> None:
        self.name = agent.id
        self._runs = SessionRuns(
            deps.process_manager,
            agent_id=agent.id,
            project_id=agent.project_id,
            create_session=deps.create_session,
        )

    def may_reply(self, ctx: Context) -> bool:
        """Never: every message becomes a task."""
        return False

    def restarts(self, ctx: Context) -> bool:
        """Never: nothing of it outlives the process."""
        return False

    def prepare(self, ctx: Context) -> Callable[[], Awaitable[None]] | None:
        """Have a session for a task."""
        return partial(self._runs.prepare, ctx)

    def run(self, ctx: Context) -> AsyncIterator[Any]:
        """Let the session's program work."""
        return self._runs.run(ctx)

    async def canceled(self, ref: Any) -> None:
        """End a program that waits for an answer."""
        await self._runs.canceled(ref)
