"""An agent with a skill for everything that can happen in a conversation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

from dragoman import Agent, Context, File, Rejected
from dragoman.errors import A2AError, InvalidParams, Overloaded, Unauthorized
from dragoman.outputs import Done, Reply

SECONDS = 10


class QuotaUsedUp(A2AError):
    """An error of the agent's own."""

    code = -32050
    reason = "QUOTA_USED_UP"


class Gate:
    """A skill that says when it has begun, and ends when a test opens it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        """Wait until the skill has begun."""
        assert self.begun.wait(SECONDS)

    def open(self) -> None:
        """Let the skill end."""
        self._open.set()

    def run(self) -> str:
        """Begin, and wait until the gate is open."""
        self.begun.set()
        assert self._open.wait(SECONDS)
        return "through"


class Gates:
    """Gates by name, so that every test has its own."""

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def __getitem__(self, name: str) -> Gate:
        return self._gates.setdefault(name, Gate())


def echo(text: str) -> str:
    """Say it again."""
    return text


async def count(n: int) -> AsyncIterator[str]:
    """Count aloud."""
    for number in range(1, n + 1):
        yield f"{number} "


def same(value: object) -> object:
    """Give the value back."""
    return value


async def both() -> AsyncIterator[object]:
    """Give a text and an object, each an artifact."""
    yield "a text"
    yield {"an": "object"}


async def ask_name(ctx: Context) -> AsyncIterator[str]:
    """Ask, then greet."""
    name = await ctx.ask("What is your name?")
    yield "Hello, "
    yield f"{name}!"


async def slow(ctx: Context) -> None:
    """Begin and never end."""
    await ctx.progress("begun")
    await asyncio.Event().wait()


async def until_message(ctx: Context) -> AsyncIterator[str]:
    """Begin, and end with the next message."""
    await ctx.progress("begun")
    async for message in ctx.messages():
        yield message.text
        return


async def sign_in(ctx: Context) -> str:
    """Wait for a login that nobody reports."""
    await ctx.ask_auth("Please sign in", url=lambda handle: f"https://login.example.com/?state={handle}")
    return "signed in"


def boom() -> str:
    """Break."""
    raise RuntimeError("secret text in /etc/shadow")


def deny() -> str:
    """Refuse."""
    raise Rejected("not today")


def reply() -> Reply:
    """Answer without a task."""
    return Reply("at once")


async def who(ctx: Context) -> str:
    """Say whose request this is, for which tenant, and with which extensions."""
    return f"user={ctx.user.id if ctx.user else ''} tenant={ctx.tenant} extensions={','.join(sorted(ctx.extensions))}"


async def export() -> AsyncIterator[object]:
    """Give rows, then say that it is done."""
    yield {"rows": 3}
    yield Done("All exported", File(b"log", name="export.log"))


def book(city: str) -> str:
    """Book a trip."""
    raise InvalidParams(f"no such city: {city}", field="city")


def enter() -> str:
    """Refuse everybody."""
    raise Unauthorized("members only")


def buy() -> str:
    """Have no credits."""
    raise QuotaUsedUp("no more credits", details={"left": 0})


def hurry(after: str) -> str:
    """Be busy."""
    raise Overloaded("come back later", retryAfter=after)


async def trip(ctx: Context) -> AsyncIterator[str]:
    """Ask, then fail."""
    yield "A trip to "
    raise InvalidParams(f"no such city: {await ctx.ask('Where to?')}")


SKILLS = (
    *(echo, count, same, both, ask_name, slow, until_message, sign_in, boom, deny, reply, who, export),
    *(book, enter, buy, hurry, trip),
)


def make_agent(
    gates: Gates | None = None, *, name: str = "contract", extensions: Sequence[dict[str, object]] = ()
) -> Agent:
    """The agent; its first skill is the default."""
    agent = Agent(name, description="Does what it is asked", version="1.2.3", extensions=extensions)
    for function in SKILLS:
        agent.skill(function)
    opened = gates or Gates()

    @agent.skill
    async def gated(name: str) -> str:
        """Wait at the gate of that name."""
        return await asyncio.to_thread(opened[name].run)

    return agent
