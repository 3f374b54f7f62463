"""The two remote agents of `dragoman.examples.team`: a function, and an MCP server."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator

from dragoman.server.agent.agent import Agent
from dragoman.server.agent.server import Server

SIGHTS = ("a walk through the old town", "a boat on the river for 12 euros", "the museum of tiles for 8 euros")

guide = Agent("guide", description="Knows what to see")


@guide.skill
async def sights(wish: str) -> AsyncGenerator[str, None]:
    """Say what to see on each day of a trip."""
    days = re.search(r"(\d+) days", wish)
    for day, sight in enumerate(SIGHTS[: int(days[1]) if days else 1], 1):
        for word in re.findall(r"\S+ ?", f"Day {day}: {sight}. "):
            yield word
            await asyncio.sleep(0.03)  # a model would take its time, too


bookkeeper = Agent.from_mcp(
    [sys.executable, "-m", "dragoman.examples.ledger"],
    default_tool="add_up",
    name="bookkeeper",
    description="Knows what it costs",
)

server = Server(guide, bookkeeper)
