"""What servers of tools add to a server: rows, ids and answers for callers of A2A 0.1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.dialects.tool_tasks import TOOL_TASKS
from dragoman.engine.projection import Projectors
from dragoman.model.task import Task
from dragoman.server.plugins import Plugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.dialects.negotiate import Choice
    from dragoman.engine.call import Call
    from dragoman.engine.operations import EngineSettings
    from dragoman.engine.ports import Store
    from dragoman.server.agent.agent import Agent
    from dragoman.transports.endpoint import Answers, Endpoint, Outcome
    from dragoman.transports.http import Request


class ToolAnswers:
    """Answers those who call in 0.1, or in no version about a task that began in it. See `Answers`."""

    dialect = TOOL_TASKS
    needs_user = True

    async def perform(
        self, endpoint: Endpoint, choice: Choice, call: Call, params: Any, after: int | None, request: Request | None
    ) -> Outcome:
        """Carry out an operation. Raises A2AError."""
        outcome = await endpoint.perform(choice.operation, call, params, after, request)
        if isinstance(outcome.result, Task) and self.dialect.origin in (outcome.origin, choice.dialect.origin):
            return outcome._replace(result=await endpoint.service.projected(outcome.result))
        return outcome


class ToolServerPlugin(Plugin):
    """Agents that are tools of other servers: their tasks of the oldest version stand in a table of their own."""

    def engine(self, store: Store, clock: Clock) -> Callable[[Agent, EngineSettings], EngineSettings]:
        """See `Plugin.engine`."""
        # One for all agents: the ids it gives are distinct among all tasks of the store.
        projectors = Projectors({TOOL_TASKS.origin: TOOL_TASKS})
        return lambda agent, settings: settings if agent.tools is None else replace(settings, projectors=projectors)

    def answers(self, agent: Agent, store: Store, clock: Clock) -> Answers | None:
        """See `Plugin.answers`."""
        return None if agent.tools is None else ToolAnswers()


TOOL_SERVER = ToolServerPlugin()
