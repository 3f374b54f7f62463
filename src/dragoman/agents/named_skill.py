"""A skill that is only told of: whoever does the work knows by itself what is meant."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.model.card import AgentSkill


class NamedSkill(Struct, frozen=True):
    """One thing a program or an agent of another framework does, as its owner says. See `Offer`."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    default: bool = False
    permission: str | None = None

    def card(self) -> AgentSkill:
        """See `Offer.card`."""
        return AgentSkill(self.id, self.name, self.description, self.tags)

    def sample(self) -> dict[str, Any]:
        """See `Offer.sample`."""
        return {"text": "hello"}
