"""Agents that do everything that metrics tell of. tests/interop/test_prometheus.py serves them in processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from dragoman import Agent, Client, Server
from dragoman.errors import DragomanError

agent = Agent("watched", description="Does what it is told")
calm = Agent("calm", description="Waits")


@agent.skill(default=True)
async def echo(text: str) -> AsyncIterator[str]:
    for word in text.split():
        yield f"{word} "
        await asyncio.sleep(0.02)


@agent.skill
async def stall(seconds: float) -> str:
    time.sleep(seconds)  # noqa: ASYNC251 - it is what must not be done
    return "done"


@agent.skill
def compute(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@agent.skill
async def fail() -> str:
    raise RuntimeError("as it was told")


@agent.skill
async def relay(url: str) -> str:
    """Call an agent, and one that is not there."""
    async with Client(url) as client:
        answer = await client.send("one two")
        with suppress(DragomanError):
            await client.get_task("nothing")
    return str(answer)


@calm.skill(default=True, restart=True)
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@calm.skill
async def linger(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


server = Server(agent, calm)
