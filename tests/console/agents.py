"""The agents that the tests of the console talk to: `studio` does everything that the console can show.

    dragoman serve tests/console/agents.py:server      three open agents
    dragoman serve tests/console/agents.py:guarded     one that has skills for users, too

No skill waits for time: what goes on for long goes on until a message or a cancel comes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))  # a served file has its own folder on the path, not that one

from console.samples import HTML, MARKDOWN, PDF, SVG, TEXT, png

from dragoman import Agent, Context, Failed, File, Part, Server, User
from dragoman.errors import InvalidParams
from dragoman.outputs import Ask, Done, Reply

CHUNKS = 20_000

studio = Agent(
    "studio",
    description="A studio for everything that an agent can do: forms, files, questions, progress, *long* streams.",
    version="2.1.0",
    card={
        "provider": {"organization": "Studio Ltd", "url": "https://studio.example"},
        "documentationUrl": "https://studio.example/docs",
    },
)


# -- text --------------------------------------------------------------------------------------------------------------


@studio.skill(default=True, examples=["hello", "markdown"], tags=["talk", "markdown"])
async def chat(ctx: Context, text: str = "") -> AsyncIterator[str]:
    """Talk. Remembers how many messages the conversation had."""
    ctx.state["count"] = ctx.state.get("count", 0) + 1
    if text == "markdown":
        for word in MARKDOWN.splitlines(keepends=True):
            yield word
        return
    yield f"Message {ctx.state['count']}: "
    for word in text.split(" "):
        yield f"**{word}** " if word else " "


@studio.skill(tags=["stream"])
async def stream(chunks: int = CHUNKS, size: int = 8) -> AsyncIterator[str]:
    """Stream very many chunks of Markdown.

    Args:
        chunks: how many
        size: how many words each has
    """
    for number in range(chunks):
        yield f"- chunk **{number}** " + "word " * (size - 3) + "\n"
        if not number % 64:
            await asyncio.sleep(0)


@studio.skill(tags=["stream"])
async def paced(ctx: Context, total: int = 3) -> AsyncIterator[str]:
    """Write a line and move the bar for each message that comes, until "stop" or the last."""
    await ctx.progress("waiting for the first message", done=0, total=total)
    done = 0
    async for message in ctx.messages():
        if message.text == "stop":
            return
        done += 1
        await ctx.progress(f"after {message.text}", done=done, total=total)
        yield f"{done}. {message.text}\n"
        if done == total:
            return


# -- arguments ---------------------------------------------------------------------------------------------------------


class Color(Enum):
    """Colors of a poster."""

    RED = "red"
    GREEN = "green"
    BLUE = "blue"


@dataclass
class Address:
    """Where something goes."""

    street: str
    city: str
    country: Literal["DE", "FR", "PT"] = "PT"
    zip_code: str | None = None


@dataclass
class Guest:
    """Somebody who comes."""

    name: str
    age: Annotated[int, msgspec.Meta(ge=0, le=150)] = 30
    vegan: bool = False
    address: Address | None = None


class Range(TypedDict, total=False):
    """A range of numbers."""

    low: float
    high: float


@studio.skill(tags=["form"])
def order(
    title: Annotated[str, "what stands on the poster"],
    copies: Annotated[int, msgspec.Meta(ge=1, le=500), "how many"],
    color: Color,
    address: Address,
    size: Literal["small", "medium", "large"] = "medium",
    glossy: bool = True,
    price: float = 9.5,
) -> dict[str, Any]:
    """Order posters: a form with text, numbers, choices, a switch and a nested object.

    Args:
        price: at most, for one
    """
    return {
        "title": title,
        "copies": copies,
        "color": color.value,
        "size": size,
        "glossy": glossy,
        "price": price,
        "address": {"street": address.street, "city": address.city, "country": address.country},
    }


@studio.skill(tags=["form"])
def invite(
    guests: list[Guest],
    tags: list[str] | None = None,
    seats: dict[str, int] | None = None,
    day: date | None = None,
    at: datetime | None = None,
    budget: Decimal | None = None,
    rows: list[list[int]] | None = None,
    distance: Range | None = None,
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$", min_length=3, max_length=3)] = "ABC",
    either: int | str = 1,
) -> dict[str, Any]:
    """Invite guests: a form with lists of objects, maps, dates and either of two types."""
    return {
        "guests": [guest.name for guest in guests],
        "tags": tags,
        "seats": seats,
        "day": day and day.isoformat(),
        "at": at and at.isoformat(),
        "budget": budget and str(budget),
        "rows": rows,
        "distance": distance,
        "code": code,
        "either": either,
    }


# -- questions ---------------------------------------------------------------------------------------------------------


@studio.skill(tags=["questions"])
async def interview(ctx: Context) -> AsyncIterator[str]:
    """Ask for a number, a yes or no, a choice, a text and an object."""
    number = await ctx.ask("How many people?", type=int)
    yield f"{number} people\n"
    vegan = await ctx.ask("Vegan?", type=bool)
    yield f"vegan: {vegan}\n"
    place = await ctx.ask("Where would you like to sit?", choices=["inside", "outside", "on the roof"])
    yield f"{place}\n"
    name = await ctx.ask("What is **your** name?")
    yield f"{name}\n"
    where = await ctx.ask("Where do you live?", type=Address)
    yield f"{where.street}, {where.city}, {where.country}\n"


@studio.skill(tags=["questions"])
async def one_question(ctx: Context) -> str:
    """Ask one question, and answer with what was answered."""
    return f"You said: {await ctx.ask('Which city?')}"


@studio.skill(tags=["questions"])
async def calendar(ctx: Context) -> str:
    """Read a calendar, after a sign-in elsewhere."""
    login = await ctx.ask_auth(
        "Please sign in to your calendar.", url=lambda state: f"https://login.example/?state={state}"
    )
    return f"Nothing today, {login}."


# -- results -----------------------------------------------------------------------------------------------------------


@studio.skill(tags=["files"])
async def files() -> AsyncIterator[File | str]:
    """Return files of every kind that the console previews, and one that it does not."""
    yield "Seven files.\n"
    yield File(png(320, 200), name="chart.png", media_type="image/png")
    yield File(SVG.encode(), name="drawing.svg", media_type="image/svg+xml")
    yield File(TEXT.encode(), name="notes.txt", media_type="text/plain")
    yield File(MARKDOWN.encode(), name="report.md", media_type="text/markdown")
    yield File(PDF, name="paper.pdf", media_type="application/pdf")
    yield File(HTML.encode(), name="page.html", media_type="text/html")
    yield File(bytes(range(256)) * 40, name="data.bin", media_type="application/octet-stream")


@studio.skill(tags=["files"])
async def link() -> File:
    """Return a file that is a link to somewhere else."""
    return File(url="https://files.example/huge.zip", name="huge.zip", media_type="application/zip")


@studio.skill(tags=["files"])
async def receive(ctx: Context, text: str = "") -> AsyncIterator[str | File]:
    """Say what files were sent, and send them back."""
    if not ctx.files:
        raise Failed("Send at least one file.")
    for file in ctx.files:
        yield f"- `{file.name}` {file.media_type} {len(file.bytes)} bytes\n"
    for file in ctx.files:
        yield File(file.bytes, name=file.name, media_type=file.media_type)


@studio.skill(tags=["results"])
async def report(ctx: Context, title: str = "Spring") -> AsyncIterator[Any]:
    """Report progress, send artifacts beside the answer, and close with a message."""
    for step in range(1, 6):
        await ctx.progress(f"step {step} of {title}", done=step, total=5)
    await ctx.progress("almost there")
    await ctx.artifact({"rows": 3, "sums": [1, 2.5, None, True], "nested": {"a": {"b": []}}}, name="figures")
    await ctx.artifact("first draft", name="draft", metadata={"kind": "draft"})
    yield f"# {title}\n\nAll is **well**.\n"
    yield Part(data={"total": 12})
    yield Done("The next report comes on Friday.")


@studio.skill(tags=["results"])
async def ping() -> Reply:
    """Answer with a message, without a task."""
    return Reply("pong")


# -- failures and waiting ----------------------------------------------------------------------------------------------


@studio.skill(tags=["failures"])
async def fail(text: str = "there are **nine** doors") -> str:
    """Fail with a reason."""
    raise Failed(text)


@studio.skill(tags=["failures"])
async def broken() -> str:
    """Fail because of a bug, whose text callers do not see."""
    raise RuntimeError("hidden: the password is 1234")


@studio.skill(tags=["failures"])
async def refuse(shape: str = "circle") -> str:
    """Refuse with an error of the protocol."""
    raise InvalidParams(f"there is no {shape}", field="shape")


@studio.skill(tags=["failures"])
async def wait(ctx: Context) -> AsyncIterator[str]:
    """Work until canceled."""
    await ctx.progress("working until you cancel")
    yield "begun\n"
    await asyncio.Event().wait()


@studio.skill(tags=["failures"], restart=True)
async def survive(ctx: Context) -> AsyncIterator[str]:
    """Wait to be killed with the server, and go on after its restart."""
    if await ctx.once("start", os.getpid) != os.getpid():
        yield "went on after the restart\n"
        return
    yield f"begun in process {os.getpid()}\n"
    await asyncio.Event().wait()


# -- other agents ------------------------------------------------------------------------------------------------------

library = Agent("library", description="Knows books.", version="0.3.1")


@dataclass
class Book:
    """A book."""

    title: str
    author: str
    year: int
    keywords: list[str] = field(default_factory=list)


BOOKS = [
    Book("The Left Hand of Darkness", "Ursula K. Le Guin", 1969, ["Gethen", "winter"]),
    Book("Invisible Cities", "Italo Calvino", 1972, ["cities"]),
    Book("The Invention of Morel", "Adolfo Bioy Casares", 1940, ["island", "machine"]),
]


@library.skill(default=True, examples=["cities"])
def find(text: str) -> list[dict[str, Any]]:
    """Find books by a word."""
    found = [book for book in BOOKS if text.lower() in f"{book.title} {book.author} {book.keywords}".lower()]
    return [{"title": book.title, "author": book.author, "year": book.year} for book in found]


@library.skill
def add_book(book: Book) -> str:
    """Add a book to the shelf."""
    return f"{book.title} ({book.year}) is on the shelf."


async def parrot_run(ctx: Context) -> AsyncIterator[Any]:
    """Answer without skills: ask once, then repeat."""
    if ctx.resume is None:
        yield Ask("Say it again?", ref={"text": ctx.text})
        return
    yield f"{ctx.resume.ref['text']}, {ctx.resume.text}"


parrot = Agent("parrot", description="Has no skills; whatever you send, it asks you to say it again.", run=parrot_run)

vault = Agent("vault", description="Keeps things for those who may see them.")


@vault.skill(default=True)
async def whoami(ctx: Context) -> str:
    """Say who is calling."""
    return f"You are {ctx.user.id if isinstance(ctx.user, User) else 'nobody'}."


@vault.skill(permission="vault")
async def open_vault() -> str:
    """Open the vault, which only some may."""
    return "It is open."


@vault.skill(permission="admin")
async def empty_vault(ctx: Context) -> str:
    """Empty the vault, if that is really wanted."""
    return "empty" if await ctx.ask("Really?", type=bool) else "untouched"


server = Server(studio, library, parrot)
guarded = Server(vault, library)
