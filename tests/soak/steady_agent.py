"""The agent of the long soak: short answers, streams, questions, work that is canceled, and failures."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman import Agent, Context

agent = Agent("steady", description="Does a little of everything, for a long time")


@agent.skill(default=True)
async def echo(text: str = "") -> str:
    """Say it again."""
    return text


@agent.skill
async def talk(text: str = "") -> Any:
    """Say some words, as a model does."""
    for number in range(15):
        yield f"word {number} "
        await asyncio.sleep(0.01)


@agent.skill
async def greet(ctx: Context) -> str:
    """Ask, then greet."""
    return f"Hello, {await ctx.ask('What is your name?')}!"


@agent.skill
async def hold(text: str = "") -> None:
    """Work until it is canceled."""
    await asyncio.Event().wait()


@agent.skill
async def fail(text: str = "") -> None:
    """Go wrong."""
    raise RuntimeError(text)


@agent.skill
def in_thread(text: str = "") -> str:
    """Say it again, from a thread."""
    return text
