"""The tool about webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.mcp.tool import Answer

if TYPE_CHECKING:
    from dragoman.mcp.call import Call
    from dragoman.mcp.desk import Desk

ALL = ["status_update", "artifact_update"]


class PushTools:
    """configure_push_notifications."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def configure(self, call: Call) -> Answer:
        """Create or change a webhook."""
        agent = await self._desk.peers.known(call.text("agent_id"))
        address = self._desk.peers.reach.check(call.text("webhook_url"))
        events = list(dict.fromkeys(call.get("events") or ALL))
        hook = self._desk.registry.hook(agent.agent_id, address, events)
        served = "agent" if self._desk.push_for(agent) is not None else "this server"
        return Answer({**hook.shape(), "served_by": served})
