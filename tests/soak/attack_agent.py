"""What is attacked: one agent for polite callers, which others abuse, and one in front of a hostile MCP server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dragoman import Agent

agent = Agent("polite", description="Repeats its input")


@agent.skill(default=True)
async def echo(text: str) -> str:
    """Say it again."""
    return text


@agent.skill
async def hold() -> str:
    """Keep a message for a while."""
    await asyncio.sleep(5)
    return "held"


@agent.skill
async def chatter():
    """Say more than a slow reader reads."""
    for number in range(200):
        yield f"{number} " + "x" * 5000
        await asyncio.sleep(0.05)


tools = Agent.from_mcp([sys.executable, str(Path(__file__).with_name("hostile_mcp.py"))], name="tools", timeout=5)
