"""An agent that blocks the event loop in several ways, and logs."""

from __future__ import annotations

import asyncio
import logging
import re
import time

from dragoman import Agent, Context

agent = Agent("blocky", description="Blocks the event loop")
mine = logging.getLogger("mine")


@agent.skill
async def doze(text: str) -> str:
    """Wait without await."""
    time.sleep(1)  # noqa: ASYNC251 - that is what it is for
    return text


@agent.skill
async def nod(text: str) -> str:
    """Wait without await, not for long."""
    time.sleep(0.4)  # noqa: ASYNC251 - that is what it is for
    return text


@agent.skill
async def doze_in_task(text: str) -> str:
    """Wait without await, in a task of its own."""

    async def part() -> None:
        time.sleep(1)  # noqa: ASYNC251 - that is what it is for

    await asyncio.create_task(part())
    return text


@agent.skill
async def match(text: str) -> str:
    """Keep the interpreter's lock with a regular expression, until it has taken a second or so."""
    for length in range(18, 40):
        began = time.monotonic()
        re.match("(a+)+$", "a" * length + "b")
        if time.monotonic() - began > 0.5:
            break
    return text


@agent.skill
def compute(text: str) -> str:
    """Compute in a thread."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
    return text


@agent.skill
async def log(ctx: Context, text: str) -> str:
    """Log in many ways."""
    mine.info("mine")
    ctx.log.info("of the context")

    async def part() -> None:
        mine.info("of a task")

    await asyncio.create_task(part())
    await asyncio.to_thread(mine.info, "of a thread")
    mine.info("with a field", extra={"order": 4711, "task": "my own"})
    try:
        raise ValueError("wrong")
    except ValueError:
        mine.exception("broken")
    return text


@agent.skill
def log_in_thread(text: str) -> str:
    """Log in the thread of a `def` skill."""
    mine.info("of a def")
    return text
