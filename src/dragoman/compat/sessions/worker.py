"""The adapter that lets the engine run tasks as sessions of a process manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.agents.process.run import SessionRuns
from dragoman.engine.ports.agent import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.compat.sessions.deps import ProjectAgent, TaskDeps
    from dragoman.engine.call import ClosingChoice
    from dragoman.engine.execute.context import Context
    from dragoman.engine.ports.agent import ForeignTasks, OutputMetadata
    from dragoman.model.card import AgentExtension


class Worker:
    """A `Runnable` that runs the tasks of one agent as sessions of the process manager."""

    extensions: Sequence[AgentExtension] = ()
    closing: ClosingChoice = "auto"
    closing_message = False
    parallel = False
    pinned = True
    streams = True
    output_metadata: OutputMetadata | None = None
    foreign: ForeignTasks | None = None

    def __init__(self, deps: TaskDeps, agent: ProjectAgent) -> None:
        self.name = agent.id
        self._runs = SessionRuns(
            deps.process_manager,
            agent_id=agent.id,
            project_id=agent.project_id,
            create_session=deps.create_session,
        )

    def plan(self, ctx: Context) -> Plan:
        """Plan a run that creates a session and starts its program. It is not repeated after a crash."""
        return Plan(self._runs.run, prepare=self._runs.prepare)

    async def canceled(self, ref: Any) -> None:
        """Stop the program of a canceled task that waits for an answer."""
        await self._runs.canceled(ref)
