"""Python functions of each kind."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from contract.bridges.bridge import PICTURE, REASON, SECRET, TRIP, Behavior, Bridge, Place
from contract.bridges.checkpoints import block_at, wait_at
from opentelemetry import trace
from support.login_link import link

from dragoman import Agent, Context, Failed
from dragoman.sync import Context as SyncContext

TRACER = trace.get_tracer("contract")


def answer(ctx: Context | SyncContext) -> Any:
    """The answer to an order that waits for nothing."""
    match ctx.text.split()[0]:
        case "remember":
            ctx.state["texts"] = [*ctx.state.get("texts", []), ctx.text]
            return json.dumps(ctx.state["texts"])
        case "fail":
            raise ValueError(SECRET)
        case "refuse":
            raise Failed(REASON)
        case "exit":
            sys.exit(3)
        case "look":
            [file] = ctx.files
            return json.dumps([file.media_type, base64.b64encode(file.raw or b"").decode()])
        case "draw":
            return PICTURE
        case "read":
            return json.dumps(ctx.data)
        case "plan":
            return TRIP
        case "who":
            return ctx.user.id if ctx.user else "nobody"
        case order:
            raise AssertionError(f"an unknown order: {order}")


async def work(ctx: Context, port: int) -> AsyncIterator[Any]:
    match ctx.text.split()[0]:
        case "tell":
            yield "one "
            await wait_at(port, "tell")
            yield "two"
        case "ask":
            yield "Well. "
            yield f"{await ctx.ask('How many days?', type=int)} days."
        case "wait":
            await wait_at(port, "wait")
            yield "done"
        case "step":
            await ctx.progress("looking", 1, 2)
            yield "found"
        case "login":
            await ctx.ask_auth("Log in, please", url=link)
        case "span":
            with TRACER.start_as_current_span("in the work"):
                yield "done"
        case _:
            yield answer(ctx)


def work_in_thread(ctx: SyncContext, port: int) -> Iterator[Any]:
    match ctx.text.split()[0]:
        case "tell":
            yield "one "
            block_at(port, "tell")
            yield "two"
        case "ask":
            yield "Well. "
            yield f"{ctx.ask('How many days?', type=int)} days."
        case "wait":
            block_at(port, "wait", lambda: ctx.cancelled)
            yield "done"
        case "step":
            ctx.progress("looking", 1, 2)
            yield "found"
        case "login":
            ctx.ask_auth("Log in, please", url=link)
        case "span":
            with TRACER.start_as_current_span("in the work"):
                yield "done"
        case _:
            yield answer(ctx)


def whole(outputs: list[Any]) -> Any:
    """The one value that a function returns where another yields several texts."""
    return outputs[0] if len(outputs) == 1 else "".join(outputs)


def async_generator(agent: Agent, place: Place) -> None:
    @agent.skill(id="work", restart=place.restart)
    async def work_in_pieces(ctx: Context, values: Any = None) -> AsyncIterator[Any]:
        async for output in work(ctx, place.port):
            yield output


def coroutine(agent: Agent, place: Place) -> None:
    @agent.skill(id="work", restart=place.restart)
    async def work_as_a_whole(ctx: Context, values: Any = None) -> Any:
        return whole([output async for output in work(ctx, place.port)])


def generator(agent: Agent, place: Place) -> None:
    @agent.skill(id="work", restart=place.restart)
    def work_in_pieces(ctx: SyncContext, values: Any = None) -> Iterator[Any]:
        yield from work_in_thread(ctx, place.port)


def function(agent: Agent, place: Place) -> None:
    @agent.skill(id="work", restart=place.restart)
    def work_as_a_whole(ctx: SyncContext, values: Any = None) -> Any:
        return whole(list(work_in_thread(ctx, place.port)))


WHOLE: dict[Behavior, str] = {"stream": "it returns its answer as a whole"}


def agent_maker(register: Callable[[Agent, Place], None]) -> Callable[[Place], Agent]:
    def make(place: Place) -> Agent:
        agent = Agent("worker")
        register(agent, place)
        return agent

    return make


BRIDGES = [
    Bridge(name="async generator", make=agent_maker(async_generator)),
    Bridge(name="coroutine", make=agent_maker(coroutine), lacks=WHOLE),
    Bridge(name="generator in a thread", make=agent_maker(generator)),
    Bridge(name="function in a thread", make=agent_maker(function), lacks=WHOLE),
]
