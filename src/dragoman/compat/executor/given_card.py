"""A card that is served as it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dragoman.dialects.table import V0_3
from dragoman.server.cards.cache import MAX_AGE, Cards

if TYPE_CHECKING:
    from dragoman.compat.executor.card import AgentCard
    from dragoman.model.user import User
    from dragoman.server.agent.agent import Agent
    from dragoman.transports.http import Header, Request

_NONE = b'{"error":"agent card not configured"}'


class GivenCard(Cards):
    """Serves one card at every address, or says that there is none."""

    def __init__(self, agent: Agent, card: AgentCard | None, started_ms: int) -> None:
        super().__init__(agent, V0_3, started_ms)
        self._body = None if card is None else msgspec.json.encode(card.to_map())

    def serve(self, request: Request, base: str, user: User | None = None) -> tuple[int, bytes, list[Header]]:
        """Status, body and headers for the card."""
        if self._body is None:
            return 404, _NONE, []
        return (
            200,
            self._body,
            [
                (b"cache-control", b"public, max-age=%d" % MAX_AGE),
                (b"access-control-allow-origin", b"*"),
            ],
        )
