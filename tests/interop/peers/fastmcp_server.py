"""A server made with FastMCP: `fastmcp_server.py stdio|http [asking]`. With `asking` it has tools that ask, too."""

import socket
import sys
from dataclasses import dataclass
from typing import Annotated

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Audio, File, Image
from mcp.types import ResourceLink, TextContent
from pydantic import Field

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(8)
server = FastMCP("field", instructions="Tools of every kind.", version="1")


@dataclass
class Person:
    """What is asked for, and what comes back."""

    name: str
    age: int = 0


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
def add(a: int, b: float = 0.5) -> float:
    """Add two numbers."""
    return a + b


@server.tool
def is_even(n: int) -> bool:
    """Say whether a number is even."""
    return n % 2 == 0


@server.tool
def nothing() -> None:
    """Return nothing."""


@server.tool
def perhaps(n: int) -> int | None:
    """Return the number, or null for 0."""
    return n or None


@server.tool
def person(name: str, age: Annotated[int, Field(ge=0)]) -> Person:
    """Return an object."""
    return Person(name, age)


@server.tool
def counts(words: list[str]) -> dict[str, int]:
    """Return the length of each word."""
    return {word: len(word) for word in words}


@server.tool
def texts(n: int) -> list[str]:
    """Return a list of texts."""
    return [f"text {number}" for number in range(n)]


@server.tool
def numbers(n: int) -> list[int]:
    """Return a list of numbers."""
    return list(range(n))


@server.tool
def people() -> list[Person]:
    """Return a list of objects."""
    return [Person("Ada", 36), Person("Bob")]


@server.tool
def matrix() -> list[list[int]]:
    """Return lists in a list."""
    return [[1, 2], [3]]


@server.tool
def untyped():
    """Return a list that no schema describes."""
    return ["a", {"b": 1}, 3]


@server.tool
def image() -> Image:
    """Return an image."""
    return Image(data=PIXEL, format="png")


@server.tool
def audio() -> Audio:
    """Return a sound."""
    return Audio(data=b"RIFFsound", format="wav")


@server.tool
def file() -> File:
    """Return a file."""
    return File(data=b"\x00\x01fastmcp", format="octet-stream", name="blob")


@server.tool
def mixed():
    """Return a text, an image and an object."""
    return ["a text", Image(data=PIXEL, format="png"), {"k": 1}]


@server.resource("field://poem", mime_type="text/plain")
def poem() -> str:
    """Recite a poem."""
    return "roses are red"


@server.tool
def link() -> ToolResult:
    """Return a link to a resource of this server."""
    return ToolResult(content=[ResourceLink(type="resource_link", name="poem", uri="field://poem")])


@server.tool
def own_result() -> ToolResult:
    """Return text and structured content that differ, and metadata."""
    return ToolResult(
        content=[TextContent(type="text", text="seven")], structured_content={"n": 7}, meta={"field/unit": "kg"}
    )


@server.tool
def refuse() -> str:
    """Fail with a text for the caller."""
    raise ToolError("the disk is full")


@server.tool
def crash() -> str:
    """Fail with an exception."""
    raise ValueError("no such thing")


@server.tool
async def count(steps: int, ctx: Context) -> str:
    """Report progress."""
    for number in range(steps):
        await ctx.report_progress(number + 1, steps, f"step {number + 1}")
    return f"counted to {steps}"


async def ask_person(label: str, ctx: Context) -> str:
    """Ask for a person."""
    answer = await ctx.elicit(f"Who is {label}?", Person)
    return f"{answer.action} {getattr(answer, 'data', None)}"


async def ask_text(ctx: Context) -> str:
    """Ask for a text, and then for a choice."""
    word = await ctx.elicit("Which word?", str)
    if word.action != "accept":
        return word.action
    size = await ctx.elicit("Which size?", ["small", "large"])
    return f"{word.data} {getattr(size, 'data', size.action)}"


async def approve(ctx: Context) -> str:
    """Ask for a yes or a no."""
    answer = await ctx.elicit("Go on?", bool)
    return f"{answer.action} {getattr(answer, 'data', None)}"


def serve_http() -> None:
    """Serve on a free port, and print where."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening at http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(server.http_app(), log_level="critical")).run(sockets=[listener])


if __name__ == "__main__":
    transport, *words = sys.argv[1:]
    if "asking" in words:
        for tool in (ask_person, ask_text, approve):
            server.tool(tool)
    if transport == "http":
        serve_http()
    else:
        server.run(show_banner=False)
