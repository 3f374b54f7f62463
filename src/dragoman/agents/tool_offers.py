"""What the card says of an agent that has tools, or is one thing as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dragoman.agents.named_skill import NamedSkill
from dragoman.agents.presentation import categories, humanized


def offers_with_tools(name: str, description: str, tools: Iterable[tuple[str, str]]) -> tuple[NamedSkill, ...]:
    """One skill for the agent, and one for every tool it has: its name, and what it says of itself."""
    itself = re.sub(r"\W+", "-", name).strip("-").casefold() or "agent"
    about = description or f"Talks to {name}"
    agent = NamedSkill(itself, name, about, categories(name, description), default=True)
    others = (
        NamedSkill(f"{itself}-{tool}", humanized(tool), said or f"Tool: {tool}", categories(tool, said))
        for tool, said in tools
    )
    return (agent, *others)


def offers_of(name: str, description: str, tools: Sequence[str] | None) -> tuple[NamedSkill, ...]:
    """The tools its owner lets it use, in that order; where nothing is said, the program itself."""
    if tools is None:
        title = humanized(name)
        return (NamedSkill(name, title, description, categories(name, description), default=True),)
    return tuple(NamedSkill(tool, humanized(tool), f"Tool: {tool}", categories(tool)) for tool in tools)
