"""The agent that foreign clients are driven against: one skill per behavior worth testing.

The drivers in peers/ run without dragoman, so they know these skills, and their words, by heart.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from dragoman import Agent, Context, Rejected, User
from dragoman.outputs import Reply
from dragoman.transports.http import Request

agent = Agent("interop", description="Behaves in every way a caller must cope with")


received_files: list[bytes | None] = []
"""What echo was sent beside its text, for a test to compare: a client reads back even what it sent wrongly."""


@agent.skill
async def echo(ctx: Context, text: str) -> str:
    """Return the text."""
    received_files.extend(file.raw for file in ctx.files)
    return text


@agent.skill
async def count(n: int) -> AsyncIterator[str]:
    """Stream the numbers from 1 to n, one chunk each."""
    for number in range(1, n + 1):
        yield f"{number} "


@agent.skill
async def ask_name(ctx: Context) -> AsyncIterator[str]:
    """Ask for a name, then greet it."""
    name = await ctx.ask("Your name?")
    yield f"Hello {name}"


@agent.skill
async def slow(ctx: Context) -> None:
    """Work until cancelled."""
    await ctx.progress("working")
    await asyncio.Event().wait()


@agent.skill
def boom() -> str:
    """Fail with a text that no caller may see."""
    raise RuntimeError("the password is swordfish")


@agent.skill
def same(value: dict[str, Any]) -> dict[str, Any]:
    """Return the object as it came."""
    return value


@agent.skill
def deny() -> str:
    """Refuse to work."""
    raise Rejected("not today")


@agent.skill
async def reply(text: str) -> Reply:
    """Answer with a bare message, without a task."""
    return Reply(text)


# -- for callers who say who they are ----------------------------------------------------------------------------------

guarded = Agent(agent.name, description=agent.description)
"""The same agent with one skill more, which is on the extended card of those who may use it."""

for skill in agent.functions.skills.values():
    guarded.functions.add(skill)


@guarded.skill(permission="vault")
def vault() -> str:
    """Tell what is in the vault."""
    return "gold"


async def authenticate(request: Request) -> User:
    """Let everybody in: who has the token may open the vault."""
    if request.headers.get("authorization") == "Bearer open-sesame":
        return User("ada", permissions=frozenset({"vault"}))
    return User("guest")
