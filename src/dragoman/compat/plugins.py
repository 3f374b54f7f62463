"""The plug-ins of the servers that `compat` is the words of. `dragoman.server.plugins` names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.dialects.tool_tasks import TOOL_TASKS
from dragoman.engine.projection import Projectors
from dragoman.server.invocation_guard import InvocationGuard, max_depth_of
from dragoman.server.persona import enriched
from dragoman.server.plugins import Plugin
from dragoman.server.session_routes import SessionRoutes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.engine.operations import EngineSettings, Service
    from dragoman.model.task import Task
    from dragoman.server.agent.agent import Agent
    from dragoman.server.plugins import Routes, Site
    from dragoman.transports.endpoint import Answers


class SessionsPlugin(Plugin):
    """Tasks in plain JSON, agents under `/api/agents/`, and what their cards say of them."""

    def routes(self, site: Site) -> Routes:
        """See `Plugin.routes`."""
        return SessionRoutes(site, InvocationGuard.from_env(site.clock, site.environ))

    def description(self, agent: Agent, text: str) -> str:
        """See `Plugin.description`."""
        return enriched(text, agent.persona, agent.skill_bundles)

    def max_depth(self, environ: Mapping[str, str]) -> int:
        """See `Plugin.max_depth`."""
        return max_depth_of(environ)


class ToolAnswers:
    """Tasks of tools, as they stand in the table that other programs read."""

    needs_user = True

    async def task(self, task: Task, service: Service) -> Task:
        """See `Answers.task`."""
        return await service.projected(task)


class ToolServerPlugin(Plugin):
    """Agents that are tools of other servers: their tasks of the oldest version stand in a table of their own."""

    def engine(self) -> Callable[[Agent, EngineSettings], EngineSettings]:
        """See `Plugin.engine`."""
        # One for all agents: the ids it gives are distinct among all tasks of a store.
        projectors = Projectors({TOOL_TASKS.origin: TOOL_TASKS})
        return lambda agent, settings: settings if agent.tools is None else replace(settings, projectors=projectors)

    def answers(self, agent: Agent) -> Answers | None:
        """See `Plugin.answers`."""
        return None if agent.tools is None else ToolAnswers()


SESSIONS = SessionsPlugin()
TOOL_SERVER = ToolServerPlugin()
