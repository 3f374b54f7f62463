"""What the card says of an agent that has tools."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dragoman.agents.mcp_tools.presentation import categories, humanized
from dragoman.agents.process.offer import ProgramSkill


def offers_with_tools(name: str, description: str, tools: Iterable[tuple[str, str]]) -> tuple[ProgramSkill, ...]:
    """One skill for the agent, and one for every tool it has: its name, and what it says of itself."""
    itself = re.sub(r"\W+", "-", name).strip("-").casefold() or "agent"
    about = description or f"Talks to {name}"
    agent = ProgramSkill(itself, name, about, categories(name, description), default=True)
    others = (
        ProgramSkill(f"{itself}-{tool}", humanized(tool), said or f"Tool: {tool}", categories(tool, said))
        for tool, said in tools
    )
    return (agent, *others)
