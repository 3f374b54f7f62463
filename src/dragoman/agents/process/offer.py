"""What the card says a program can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from dragoman.agents.mcp_tools.presentation import categories, humanized
from dragoman.model.card import AgentSkill


class ProgramSkill(Struct, frozen=True):
    """One thing a program does, as its owner says. See `Offer`."""

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


def offers_of(name: str, description: str, tools: Sequence[str] | None) -> tuple[ProgramSkill, ...]:
    """The tools its owner lets it use, in that order; where nothing is said, the program itself."""
    if tools is None:
        title = humanized(name)
        return (ProgramSkill(name, title, description, categories(name, description), default=True),)
    return tuple(ProgramSkill(tool, humanized(tool), f"Tool: {tool}", categories(tool)) for tool in tools)
