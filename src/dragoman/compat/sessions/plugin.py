"""The plug-in of session servers: their routes, and what they add to descriptions on cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.compat.sessions.cards import enrich_description, instance_members
from dragoman.compat.sessions.invocation_guard import InvocationGuard, max_depth_of
from dragoman.compat.sessions.routes import SessionRoutes
from dragoman.server.plugins import Plugin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model.card import AgentCard
    from dragoman.server.agent.agent import Agent
    from dragoman.server.plugins import PluginContext, Routes


class SessionsPlugin(Plugin):
    """Adds the session routes, agents under `/api/agents/{id}`, and persona and skill bundles in descriptions."""

    def routes(self, site: PluginContext) -> Routes:
        """Return the session routes, with the limits of the environment."""
        return SessionRoutes(site, InvocationGuard.from_env(site.clock, site.environ))

    def description(self, agent: Agent, text: str) -> str:
        """Append persona and skill bundles to a description."""
        return enrich_description(text, agent.persona, agent.skill_bundles)

    def card_members(self, agent: Agent, card: AgentCard, base: str) -> Mapping[str, Any]:
        """Return the members of an instance's card that A2A has not: for agents to which session tasks go."""
        return {} if agent.default_project_id is None else instance_members(card, base)

    def max_depth(self, environ: Mapping[str, str]) -> int:
        """Return `A2A_MAX_DEPTH`."""
        return max_depth_of(environ)


SESSIONS = SessionsPlugin()
