"""Events on their way to webhooks, for agents that post nothing themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.client.event import Event
    from dragoman.engine.clock import Clock
    from dragoman.mcp.peers import Peers
    from dragoman.mcp.record import AgentRecord, TaskRecord
    from dragoman.mcp.registry import Registry


class Webhooks:
    """Posts what is observed of the tasks of an agent."""

    def __init__(self, registry: Registry, peers: Peers, clock: Clock) -> None:
        self._registry = registry
        self._peers = peers
        self._clock = clock

    def for_agent(self, record: AgentRecord) -> Any:
        """The webhook to send along with a message, for an agent that posts its events itself."""
        return None

    def post(self, record: TaskRecord, event: Event) -> None:
        """Post an event to the webhooks that want it."""

    async def close(self) -> None:
        """Finish."""
