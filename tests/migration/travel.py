"""An agent with a skill for every way in which a task can be, for files that are moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

from dragoman import Agent, Context, Failed, Rejected
from dragoman.outputs import Reply

ODD_TEXT = "NUL \0, \N{PILE OF POO}, \N{ARABIC LETTER AIN}, \N{ZERO WIDTH JOINER}e\N{COMBINING ACUTE ACCENT}"


class Gate:
    """What runs wait at while it is shut, on the event loops of whatever servers."""

    def __init__(self) -> None:
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def __call__(self) -> None:
        if not self._is_open:
            event = asyncio.Event()
            self._waiting.append((asyncio.get_running_loop(), event))
            await event.wait()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open it for a while."""
        self._is_open = True
        for loop, event in self._waiting:
            with suppress(RuntimeError):  # the loop of a server that has stopped
                loop.call_soon_threadsafe(event.set)
        self._waiting.clear()
        try:
            yield
        finally:
            self._is_open = False


# On the server of the file it is shut, later it is open.
LATER = Gate()


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
        await LATER()

    @agent.skill(restart=True)
    async def report() -> AsyncIterator[str]:
        """Begin and never end, and begin again."""
        yield "The report "
        await LATER()
        yield "is done."

    @agent.skill
    async def reply(text: str) -> Reply:
        """Answer without a task."""
        if text == "later":
            await LATER()
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
