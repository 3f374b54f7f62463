"""An agent as users had it in the version named in made/facts.toml. It is never changed: people have such programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from dragoman import Agent, Context, Failed, File, Rejected

agent = Agent("trips", description="Books trips", version="7.2")


def issue_ticket() -> str:
    """An effect that must not happen twice."""
    with Path("tickets.txt").open("a") as file:
        file.write("ticket 7\n")
    return "ticket 7"


async def until_go() -> None:
    """Wait for a file, for ever if need be."""
    while not await asyncio.to_thread(Path("go").exists):  # noqa: ASYNC110 - somebody else makes the file
        await asyncio.sleep(0.05)


@agent.skill(default=True)
async def greet(name: str = "you") -> AsyncIterator[str]:
    """Greet somebody."""
    yield "Hello, "
    yield f"{name}!"


@agent.skill
async def book(ctx: Context) -> AsyncIterator[str]:
    """Book a trip."""
    ctx.state["asked"] = ctx.state.get("asked", 0) + 1
    ticket = await ctx.once("ticket", issue_ticket)
    yield "Looking. "
    place = await ctx.ask("Where to?")
    beds = await ctx.ask("How many beds?", type=int)
    yield f"A trip to {place} with {beds} beds, {ticket}."


@agent.skill
async def visits(ctx: Context) -> str:
    """Count the visits of a conversation."""
    ctx.state["visits"] = ctx.state.get("visits", 0) + 1
    return f"visit {ctx.state['visits']}, asked {ctx.state.get('asked', 0)}"


@agent.skill
async def photo(ctx: Context) -> AsyncIterator[str | File]:
    """Give the files back, and one of its own."""
    await ctx.progress("looking", done=1, total=2)
    await ctx.artifact({"files": len(ctx.files)}, name="figures")
    for file in ctx.files:
        yield f"{file.name} has {len(file.bytes)} bytes. "
    yield File(b"\x89PNG photo", name="photo.png", media_type="image/png")


@agent.skill
async def log_in(ctx: Context) -> str:
    """Ask for authorization."""
    data = await ctx.ask_auth("Log in", lambda handle: f"https://login.example/start?state={handle}")
    return f"logged in as {data}"


@agent.skill(permission="admin")
async def audit() -> str:
    """For administrators."""
    return "all is well"


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
    """Begin, and end when there is a file."""
    yield "begun"
    await until_go()


@agent.skill(restart=True)
async def report() -> AsyncIterator[str]:
    """Begin, end when there is a file, and begin again after a restart."""
    yield "The report "
    await until_go()
    yield "is done."
