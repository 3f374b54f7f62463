"""The plug-in of tool servers: rows, ids and responses for callers of A2A 0.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.compat.tool_server.answers import ToolAnswers
from dragoman.compat.tool_server.rows import NumberedTasks
from dragoman.server.plugins import Plugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.engine.operations import EngineSettings
    from dragoman.engine.ports.store import Store
    from dragoman.server.agent.agent import Agent
    from dragoman.transports.endpoint import PluginOperations


class ToolServerPlugin(Plugin):
    """Agents that are tools of other servers: their tasks of the oldest version stand in a table of their own."""

    def engine(self, store: Store, clock: Clock) -> Callable[[Agent, EngineSettings], EngineSettings]:
        """Return what adds the table `a2a_tasks` to the engines of agents made of tools."""
        # One for all agents, as its ids must be unique within the store.
        tasks = NumberedTasks(store, clock)
        return lambda agent, settings: settings if agent.tools is None else replace(settings, task_rows=tasks)

    def answers(self, agent: Agent, store: Store, clock: Clock) -> PluginOperations | None:
        """Return the answers to callers of A2A 0.1."""
        return None if agent.tools is None else ToolAnswers(store, clock)


TOOL_SERVER = ToolServerPlugin()
