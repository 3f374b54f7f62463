"""What session servers add to a server: tasks in plain JSON, agents under their ids, and what cards say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.compat.sessions.cards import enrich_description
from dragoman.compat.sessions.invocation_guard import InvocationGuard, max_depth_of
from dragoman.compat.sessions.routes import SessionRoutes
from dragoman.server.plugins import Plugin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.server.agent.agent import Agent
    from dragoman.server.plugins import PluginContext, Routes


class SessionsPlugin(Plugin):
    """Tasks in plain JSON, agents under `/api/agents/`, and what their cards say of them."""

    def routes(self, site: PluginContext) -> Routes:
        """See `Plugin.routes`."""
        return SessionRoutes(site, InvocationGuard.from_env(site.clock, site.environ))

    def description(self, agent: Agent, text: str) -> str:
        """See `Plugin.description`."""
        return enrich_description(text, agent.persona, agent.skill_bundles)

    def max_depth(self, environ: Mapping[str, str]) -> int:
        """See `Plugin.max_depth`."""
        return max_depth_of(environ)


SESSIONS = SessionsPlugin()
