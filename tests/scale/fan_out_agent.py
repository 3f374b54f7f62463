"""An agent that says a word for every line on its standard input."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator

from dragoman import Agent, Context

agent = Agent("parade", description="Says what it reads, to everybody who listens")


def lines(loop: asyncio.AbstractEventLoop) -> asyncio.Queue[str]:
    """The lines of the standard input as they come; an empty one is the end."""
    queue: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(queue.put_nowait, line.rstrip("\n"))
        loop.call_soon_threadsafe(queue.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    return queue


@agent.skill
async def parade(ctx: Context) -> AsyncIterator[str]:
    """Say every line, until an empty one."""
    await ctx.progress("ready")
    queue = lines(asyncio.get_running_loop())
    while line := await queue.get():
        yield line
