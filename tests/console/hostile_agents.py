"""Agents that emit everything of `hostile.py`, through the doors that every agent has.

    dragoman serve tests/console/hostile_agents.py:server

`hostile` has a skill for every place where a text, a name or a file is seen; `names` has skills with hostile names; and
each card of `hostile.CARDS` that a server can serve is the card of an agent called `card-…`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # a served file has its own folder on the path, not that one

from console.hostile import CARDS, DATA, FILES, NAMES, TEXTS

from dragoman import Agent, Context, Failed, File, Part, Server
from dragoman.errors import DragomanError
from dragoman.outputs import Reply

CHUNK = 4_096

hostile = Agent("hostile", description=TEXTS["script"], version="<b>1</b>")


@hostile.skill(default=True)
async def say(text: str) -> AsyncIterator[str]:
    """Stream a hostile text, in pieces that end anywhere; a text that has no such name is repeated."""
    whole = TEXTS.get(text, text)
    size = min(CHUNK, max(3, len(whole) // 7))
    for start in range(0, len(whole), size):
        yield whole[start : start + size]
        await asyncio.sleep(0)


@hostile.skill
async def reply(text: str) -> Reply:
    """Answer with a message, without a task."""
    return Reply(TEXTS[text])


@hostile.skill
async def progress(ctx: Context, text: str) -> AsyncIterator[str]:
    """Report a text as progress, and numbers that make no sense."""
    await ctx.progress(TEXTS[text], done=1, total=3)
    for done, total in ((-5, 3), (9, 3), (1, 0), (1e308, 1e-308)):
        with suppress(ValueError, DragomanError):
            await ctx.progress(TEXTS[text], done=done, total=total)
    yield "over"
    await asyncio.Event().wait()


@hostile.skill
async def ask(ctx: Context, text: str) -> str:
    """Ask a text, with hostile choices."""
    return await ctx.ask(TEXTS[text], choices=[*NAMES.values()])


@hostile.skill
async def sign_in(ctx: Context, url: str) -> str:
    """Ask for a sign-in at any address."""
    return str(await ctx.ask_auth(TEXTS["form"], url=url))


@hostile.skill
async def fail(text: str) -> str:
    """Fail with a text."""
    raise Failed(TEXTS[text])


@hostile.skill
async def artifact(ctx: Context, name: str) -> str:
    """Send artifacts with a hostile name and metadata."""
    await ctx.artifact("text", name=NAMES[name], metadata={NAMES["prototype"]: DATA["prototype"], "x": NAMES[name]})
    return "sent"


@hostile.skill
async def file(name: str) -> File:
    """Return a hostile file."""
    return _file(name)


@hostile.skill
async def data(name: str) -> Part:
    """Return hostile data."""
    return Part(data=DATA[name])


def _file(name: str) -> File:
    chosen = FILES[name]
    return File(chosen.data, name=chosen.name, media_type=chosen.media_type)


names = Agent("names", description=TEXTS["link-javascript"])


def _name_skill(name: str) -> None:
    async def skill(text: str = name) -> str:
        return text

    with suppress(DragomanError, ValueError):  # what a server refuses, no console shows
        names.skill(
            id=name, name=name, description=TEXTS["img-onerror"] + name, tags=[name], examples=[name, TEXTS["script"]]
        )(skill)


for each in NAMES.values():
    _name_skill(each)


def card_agent(key: str) -> Agent:
    """An agent with a hostile card, which says what it is sent."""
    agent = Agent(f"card-{key}", description="a hostile card", card=CARDS[key])

    @agent.skill
    def echo(text: str) -> str:
        """Repeat."""
        return text

    return agent


def _can_be_served(agent: Agent) -> bool:
    try:
        agent.app(store="memory:")
    except (DragomanError, TypeError, ValueError):
        return False
    return True


CARD_AGENTS: dict[str, Any] = {key: agent for key in CARDS if _can_be_served(agent := card_agent(key))}
server = Server(hostile, names, *CARD_AGENTS.values())
