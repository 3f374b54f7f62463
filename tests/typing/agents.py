"""What type checkers know about agents: decorators keep functions, questions give the type that was asked for."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_type

from dragoman import Agent, Artifact, Context, Failed, File, Message, Part, Rejected, User, sync
from dragoman.outputs import Ask, Done, Replace, Reply

agent = Agent("typed", description="Shows its types", version="1.0.0", closing="last", parallel=True)


@dataclass
class Point:
    x: int
    y: int


class Place(TypedDict):
    city: str


# -- the decorator gives the function back -------------------------------------------------------------------------


@agent.skill
def add_numbers(a: int, b: int) -> int:
    return a + b


@agent.skill(id="sum", name="Sum", description="Adds", tags=["math"], examples=["1 + 1"], default=True)
def add_more(a: int, b: float = 1.5) -> float:
    return a + b


@agent.skill()
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@agent.skill(permission="admin", timeout=2.5, restart=True)
async def story(ctx: Context, topic: str) -> AsyncIterator[str]:
    for word in topic.split():
        yield word


@agent.skill
def count(ctx: sync.Context, up_to: int) -> Iterator[str | File]:
    for number in range(up_to):
        yield str(number)
    yield File(b"done", name="done.txt", media_type="text/plain")


@agent.skill
async def ping() -> Reply:
    return Reply("pong")


@agent.skill
def where(point: Point, place: Place, size: Literal["small", "large"] = "small") -> dict[str, Any]:
    if size == "large":
        raise Rejected("too large")
    if point.x < 0:
        raise Failed("outside")
    return {"city": place["city"], "x": point.x}


async def functions_are_still_themselves(ctx: Context) -> None:
    assert_type(add_numbers(1, 2), int)
    assert_type(add_more(1, b=2.5), float)
    assert_type(await greet("Ada"), str)
    assert_type(story(ctx, "a fox"), AsyncIterator[str])
    assert_type(await ping(), Reply)
    assert_type(where(Point(1, 2), {"city": "Faro"}), dict[str, Any])


# -- the context ---------------------------------------------------------------------------------------------------


async def questions_give_the_asked_type(ctx: Context) -> None:
    assert_type(ctx.latest, Message)
    assert_type(await ctx.ask("Name?"), str)
    assert_type(await ctx.ask("Days?", type=int), int)
    assert_type(await ctx.ask("Days?", int), int)
    assert_type(await ctx.ask("Sure?", type=bool), bool)
    assert_type(await ctx.ask("Where?", type=Point), Point)
    assert_type(await ctx.ask("Which?", type=list[int]), list[int])
    assert_type(await ctx.ask("Color?", choices=["red", "blue"]), str)
    assert_type(await ctx.ask("How many?", type=int, choices=[1, 2, 3]), int)
    login: dict[str, str] = await ctx.ask_auth("Log in", url=lambda handle: f"https://login.example.com?s={handle}")
    assert login


def so_do_they_without_await(ctx: sync.Context) -> None:
    assert_type(ctx.latest, Message)
    assert_type(ctx.ask("Name?"), str)
    assert_type(ctx.ask("Days?", type=int), int)
    assert_type(ctx.ask("Color?", choices=["red", "blue"]), str)
    assert_type(ctx.cancelled, bool)
    ctx.progress("half", done=1, total=2)
    ctx.artifact({"a": 1}, name="figures")


async def a_run_knows_its_circumstances(ctx: Context) -> None:
    assert_type(ctx.task_id, str)
    assert_type(ctx.context_id, str)
    assert_type(ctx.skill, str)
    assert_type(ctx.user, User | None)
    assert_type(ctx.tenant, str)
    assert_type(ctx.message, Message)
    assert_type(ctx.text, str)
    assert_type(ctx.files, list[Part])
    assert_type(ctx.history, tuple[Message, ...])
    assert_type(ctx.metadata, dict[str, Any])
    assert_type(ctx.state, dict[str, Any])
    assert_type(ctx.cancelled, bool)
    ctx.log.info("visit %d", 1)
    ctx.state["visits"] = 1
    await ctx.progress("half", done=0.5, total=1)
    await ctx.artifact("text", {"a": 1}, File(url="https://example.com/a.pdf"), name="all", id="a", metadata={"b": 2})
    receipt: str = await ctx.once("charge", add_numbers, 1, 2)
    assert receipt
    async for message in ctx.messages():
        assert_type(message, Message)


# -- the low level -------------------------------------------------------------------------------------------------


async def run(ctx: Context) -> AsyncIterator[str | Ask | Replace | Artifact | Done]:
    if ctx.resume is None:
        yield Ask("Which color?", ref={"step": 1}, auth=False, details=(File(b"", name="palette.png"),))
        return
    assert_type(ctx.resume.text, str)
    yield Replace(ctx.resume.text)
    yield Done("That was all", {"rows": 3}, File(b"", name="log.txt"))


low = Agent("low", run=run, extensions=["https://example.com/e", {"uri": "https://example.com/f", "required": True}])
