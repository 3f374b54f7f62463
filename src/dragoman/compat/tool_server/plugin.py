"""The plug-in of tool servers: rows, ids and responses for callers of A2A 0.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.compat.tool_server.responses import ToolResponses
from dragoman.compat.tool_server.rows import NumberedTasks
from dragoman.server.plugins import Plugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.engine.ports.store import Store
    from dragoman.engine.settings import EngineSettings
    from dragoman.server.agent.agent import Agent
    from dragoman.server.plugins import Compat
    from dragoman.transports.endpoint import PluginOperations


class ToolServerPlugin(Plugin):
    """Adds the table `a2a_tasks`, and responses for callers of A2A 0.1, to agents made of MCP tools."""

    compat: Compat | None = "tool-server"

    def engine(self, store: Store, clock: Clock) -> Callable[[Agent, EngineSettings], EngineSettings]:
        """Return a function that adds the table `a2a_tasks` to the settings of agents made of tools."""
        # One object for all agents: the ids it assigns must be unique within the store.
        tasks = NumberedTasks(store, clock)
        return lambda agent, settings: settings if agent.tools is None else replace(settings, task_rows=tasks)

    def operations(self, agent: Agent, store: Store, clock: Clock) -> PluginOperations | None:
        """Return the responses to callers of A2A 0.1; None for agents that are not made of tools."""
        return None if agent.tools is None else ToolResponses(store, clock)


TOOL_SERVER = ToolServerPlugin()
