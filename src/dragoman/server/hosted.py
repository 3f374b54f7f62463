"""One agent with everything that answers for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.server.agent_cards import AgentCards
from dragoman.transports.endpoint import JSON_LIMITS, Endpoint
from dragoman.transports.jsonrpc.serve import JsonRpc
from dragoman.transports.rest.serve import Rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.dialects.json_limits import JsonLimits
    from dragoman.engine.ports import Outbox
    from dragoman.engine.service import Service
    from dragoman.server.agent import Agent
    from dragoman.server.cards import Cards
    from dragoman.transports.denials import Denials
    from dragoman.transports.endpoint import ExtendedCard


class Hosted:
    """One agent with everything that answers for it."""

    def __init__(
        self,
        agent: Agent,
        cards: Cards,
        service: Callable[[Outbox | None], Service],
        body_limit: int,
        *,
        blocking: bool,
        limits: JsonLimits = JSON_LIMITS,
    ) -> None:
        self.agent = agent
        self.cards = cards
        self.agent_cards = AgentCards(agent, cards)
        self._make_service = service
        self._body_limit = body_limit
        self._blocking = blocking
        self._limits = limits

    def renew(self, outbox: Outbox | None, extended: ExtendedCard | None, denials: Denials) -> None:
        """Begin with a fresh engine, for a new event loop."""
        self.service = self._make_service(outbox)
        endpoint = Endpoint(
            self.service,
            self.agent.extensions,
            body_limit=self._body_limit,
            blocking=self._blocking,
            limits=self._limits,
            denials=denials,
            tools=self.agent.tools is not None,
        )
        endpoint.extended = extended
        self.rpc = JsonRpc(endpoint)
        self.rest = Rest(endpoint)
