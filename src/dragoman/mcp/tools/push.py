"""The tool about webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.mcp.tools.tool import Answer
from dragoman.mcp.webhooks import ARTIFACT, STATUS

if TYPE_CHECKING:
    from dragoman.mcp.tools.context import Desk
    from dragoman.mcp.tools.tool import Call

ALL = [STATUS, ARTIFACT]


class PushTools:
    """configure_push_notifications."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        desk.errands.refused = desk.webhooks.refused

    async def configure(self, call: Call) -> Answer:
        """Create or change a webhook."""
        webhooks = self._desk.webhooks
        agent = await self._desk.peers.known(call.text("agent_id"))
        address = self._desk.peers.reach.check(call.text("webhook_url"))
        events: list[str] = list(dict.fromkeys(call.get("events", ALL)))
        hook, problem = await webhooks.configure(agent, address, events)
        shown: dict[str, Any] = hook.shape()
        shown["served_by"] = "agent" if webhooks.is_served_by(agent, hook) else "this server"
        if problem:
            shown["note"] = problem
        return Answer(shown)
