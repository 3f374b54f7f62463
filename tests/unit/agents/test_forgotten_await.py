"""A call of the context without `await`: the task fails, and says which line to change."""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Agent, Client, Context, State, Task
from dragoman.testing import served


async def outcome(skill: Any, *, dev: bool = True) -> Task:
    agent = Agent("careless")
    agent.skill(skill)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python's own warning is not needed any more
        with served(agent, dev=dev) as url:
            async with Client(url) as client:
                task = await client.send(tool=skill.__name__, arguments={})
    assert isinstance(task, Task)
    return task


async def used_as_the_answer(ctx: Context) -> AsyncIterator[str]:
    days: Any = ctx.ask("How many days?", type=int)  # here
    for day in range(days):
        yield f"Day {day}"


async def printed_into_the_answer(ctx: Context) -> AsyncIterator[str]:
    days = ctx.ask("How many days?")  # here
    yield f"{days} days"


async def returned(ctx: Context) -> Any:
    return ctx.ask("How many days?")  # here


async def left_alone(ctx: Context) -> str:
    ctx.progress("half")  # here
    return "done"


async def before_a_question(ctx: Context) -> str:
    ctx.once("pay", print)  # here
    return await ctx.ask("Sure?")


async def caught(ctx: Context) -> str:
    ctx.artifact("x")  # here
    try:
        raise ValueError
    except ValueError:
        return "done"


SKILLS = [used_as_the_answer, printed_into_the_answer, returned, left_alone, before_a_question, caught]


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.__name__)
async def test_the_task_fails_and_names_the_line_and_what_to_write(skill: Any) -> None:
    source = inspect.getsource(sys.modules[__name__]).splitlines()
    start = skill.__code__.co_firstlineno
    line = next(number for number, text in enumerate(source[start:], start + 1) if text.endswith("# here"))
    method = source[line - 1].partition("ctx.")[2].partition("(")[0]
    task = await outcome(skill)
    assert task.state is State.FAILED
    assert task.error == (
        f"test_forgotten_await.py, line {line}: `ctx.{method}(...)` is not awaited: write `await ctx.{method}(...)`"
    )
    assert not task.artifacts


async def test_callers_of_a_server_in_production_do_not_read_the_line_but_its_log_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = await outcome(left_alone, dev=False)
    assert task.error is not None
    assert task.error.startswith("execution failed: Internal error, reference ")
    assert "`ctx.progress(...)` is not awaited: write `await ctx.progress(...)`" in caplog.text


async def test_a_low_level_run_fails_so_too() -> None:
    async def run(ctx: Context) -> AsyncIterator[str]:
        ctx.progress("half")
        yield "done"

    with served(Agent("careless", run=run), dev=True) as url:
        async with Client(url) as client:
            task = await client.send("x")
    assert task.state is State.FAILED
    assert "write `await ctx.progress(...)`" in task.error


async def test_calls_that_are_awaited_later_or_by_a_task_are_fine() -> None:
    async def careful(ctx: Context) -> AsyncIterator[str]:
        await asyncio.gather(ctx.progress("a"), ctx.progress("b"))
        first, second = ctx.progress("c"), ctx.progress("d")
        await second
        await first
        background = asyncio.create_task(ctx.progress("e"))
        yield "1"
        await background
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.artifact("f"))
            yield "2"
        await asyncio.wait_for(ctx.progress("g"), 1)
        yield "3"
        last = asyncio.create_task(ctx.progress("h"))
        last.add_done_callback(lambda task: task.exception())

    task = await outcome(careful)
    assert (task.state, task.text) == (State.COMPLETED, "123f")


async def stored(ctx: Context) -> AsyncIterator[str]:
    call = ctx.progress("later")
    yield "1"
    await call


async def in_a_list(ctx: Context) -> AsyncIterator[str]:
    calls = [ctx.progress("a"), ctx.progress("b")]
    yield "1"
    await asyncio.gather(*calls)


async def in_a_task_that_has_not_begun(ctx: Context) -> AsyncIterator[str]:
    task = asyncio.create_task(asyncio.wait_for(ctx.progress("x"), 5))
    yield "1"
    await task


async def with_a_helper_that_waits(ctx: Context) -> AsyncIterator[str]:
    gate = asyncio.Event()

    async def wait(call: Any) -> None:
        await gate.wait()
        await call

    task = asyncio.create_task(wait(ctx.progress("x")))
    await asyncio.sleep(0)
    yield "1"
    gate.set()
    await task


async def in_a_group(ctx: Context) -> AsyncIterator[str]:
    async def wait(call: Any) -> None:
        await call

    async with asyncio.TaskGroup() as group:
        group.create_task(wait(ctx.progress("x")))
        yield "1"


async def in_an_object(ctx: Context) -> AsyncIterator[str]:
    class Deferred:
        def __init__(self, call: Any) -> None:
            self.call = call

        def __await__(self) -> Any:
            return self.call.__await__()

    deferred = Deferred(ctx.progress("x"))
    yield "1"
    await deferred


CORRECT = [stored, in_a_list, in_a_task_that_has_not_begun, with_a_helper_that_waits, in_a_group, in_an_object]


@pytest.mark.parametrize("skill", CORRECT, ids=lambda skill: skill.__name__)
async def test_a_call_that_can_still_be_awaited_fails_no_task(skill: Any) -> None:
    task = await outcome(skill)
    assert (task.state, task.text) == (State.COMPLETED, "1"), task.error


@pytest.mark.parametrize("method", [Context.ask, Context.ask_auth, Context.once, Context.progress, Context.artifact])
def test_the_methods_are_coroutine_functions_for_those_who_ask(method: Any) -> None:
    is_coroutine_function = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction
    assert is_coroutine_function(method)


async def test_an_agent_may_write_about_coroutines_while_it_keeps_a_call() -> None:
    async def explain(ctx: Context) -> AsyncIterator[str]:
        call = ctx.progress("later")
        yield "'coroutine' object is not iterable: write await"
        await call

    assert (await outcome(explain)).state is State.COMPLETED


async def test_an_error_while_a_call_is_kept_for_later_is_reported_as_it_is() -> None:
    async def broken(ctx: Context) -> AsyncIterator[str]:
        call = ctx.progress("later")
        yield "1"
        try:
            raise ValueError("no")
        finally:
            call.close()

    assert "reference" in (await outcome(broken)).error


async def test_a_skill_that_fails_for_another_reason_says_that() -> None:
    async def broken(ctx: Context) -> None:
        await ctx.progress("half")
        raise ValueError("no")

    assert "reference" in (await outcome(broken)).error
