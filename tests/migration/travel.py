"""An agent with a skill for every way in which a task can be, for files that are moved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

from dragoman import Agent, Context, Failed, Rejected
from dragoman.outputs import Reply

# What a run gets past only when it is set: on the server of the file it is not, later it is.
LATER = threading.Event()
ODD_TEXT = "NUL \0, \N{PILE OF POO}, \N{ARABIC LETTER AIN}, \N{ZERO WIDTH JOINER}e\N{COMBINING ACUTE ACCENT}"


async def hang() -> None:
    if not LATER.is_set():
        await asyncio.Event().wait()


def build_agent() -> Agent:
    agent = Agent("travel", description="Books trips")

    @agent.skill(default=True)
    async def greet(name: str = "you") -> AsyncIterator[str]:
        """Greet somebody."""
        yield "Hello, "
        yield f"{name}!"

    @agent.skill
    async def book(ctx: Context) -> AsyncIterator[str]:
        """Book a trip."""
        ctx.state["asked"] = ctx.state.get("asked", 0) + 1
        ticket = await ctx.once("ticket", lambda: "ticket 7")
        yield "Looking. "
        place = await ctx.ask("Where to?")
        yield f"A trip to {place}, {ticket}."

    @agent.skill
    async def log_in(ctx: Context) -> str:
        """Ask for authorization."""
        await ctx.ask_auth("Log in", "https://example.com/login")
        return "logged in"

    @agent.skill
    async def refuse() -> str:
        """Refuse."""
        raise Rejected("not on Sundays")

    @agent.skill
    async def crash() -> str:
        """Fail."""
        raise Failed("no fuel")

    @agent.skill
    async def wait() -> AsyncIterator[str]:
        """Begin and never end."""
        yield "begun"
        await hang()

    @agent.skill(restart=True)
    async def report() -> AsyncIterator[str]:
        """Begin and never end, and begin again."""
        yield "The report "
        await hang()
        yield "is done."

    @agent.skill
    async def reply(text: str) -> Reply:
        """Answer without a task."""
        if text == "later":
            await hang()
        return Reply(f"to {text}")

    @agent.skill
    async def large(size: int) -> str:
        """Answer with much."""
        return "x" * size

    @agent.skill
    async def odd() -> str:
        """Answer with what is hard to store."""
        return ODD_TEXT

    return agent
