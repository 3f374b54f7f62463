"""Agents for the chat of the console: `parlor` asks for every kind of value, and repeats what it hears while it runs.

    dragoman serve tests/console/parlor.py:server

No skill waits for time: what goes on for long goes on until a message or a cancel comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, Literal

from dragoman import Agent, Context, Rejected, Server
from dragoman.outputs import Ask

parlor = Agent("parlor", description="Asks for every kind of value.", version="1.0.0")


class City(Enum):
    """More of them than one wants to see at once."""

    ATHENS = "Athens"
    BERLIN = "Berlin"
    CAIRO = "Cairo"
    DELHI = "Delhi"
    ESSEN = "Essen"
    FARO = "Faro"
    GENOA = "Genoa"
    HANOI = "Hanoi"
    IZMIR = "Izmir"


@dataclass
class Traveller:
    """Somebody who travels."""

    name: str
    age: int
    seat: Literal["window", "aisle"] = "aisle"
    vegan: bool = False


KINDS: dict[str, Any] = {
    "whole": int,
    "number": float,
    "yes": bool,
    "text": str,
    "day": date,
    "city": City,
    "names": list[str],
    "traveller": Traveller,
}


@parlor.skill(default=True, examples=["good evening"])
async def talk(ctx: Context, text: str = "") -> AsyncIterator[str]:
    """Say the words of each message that comes while it runs, until one is "stop"."""
    yield text
    async for message in ctx.messages():
        if message.text == "stop":
            return
        yield message.text


@parlor.skill
async def ask(ctx: Context, text: str) -> str:
    """Ask for a value of a kind, and say what it became."""
    if text == "seat":
        return repr(await ctx.ask("Which **seat**?", choices=["window", "aisle"]))
    return repr(await ctx.ask(f"Which *{text}*?", type=KINDS[text]))


@parlor.skill
async def reject(text: str = "") -> str:
    """Reject whatever is wanted."""
    raise Rejected("I only know *parlor* games.")


@parlor.skill
async def drafts(ctx: Context) -> AsyncIterator[Any]:
    """Send an artifact, and replace it."""
    await ctx.artifact("The first draft", name="draft", id="draft")
    await ctx.artifact("The second draft", name="draft", id="draft")
    await ctx.artifact({"words": 3}, name="figures")
    yield "Two artifacts are beside this."


async def tool_run(ctx: Context) -> AsyncIterator[Any]:
    """Ask with a form, as the tools of a server of MCP do."""
    if ctx.resume is None:
        schema = {
            "type": "object",
            "properties": {
                "email": {"type": "string", "format": "email"},
                "nights": {"type": "integer", "minimum": 1, "maximum": 30, "default": 2},
                "breakfast": {"type": "boolean", "default": True},
                "room": {"type": "string", "enum": ["s", "d"], "enumNames": ["single", "double"]},
            },
            "required": ["email", "room"],
        }
        form = {"message": "Who stays?", "requestedSchema": schema, "actions": ["accept", "decline", "cancel"]}
        yield Ask("Who stays?", ref={"asked": True}, details=(form,))
        return
    yield f"text {ctx.resume.text!r} data {ctx.resume.data!r}"


tool = Agent("tool", description="Asks with forms of MCP.", run=tool_run)
server = Server(parlor, tool)
