"""Code of agents that wants to end the program: it ends its task, never the loop that everybody shares."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.engine.execute.containment import contain_exits
from dragoman.model.state import State
from dragoman.outputs import Ask
from dragoman.server.agent.base import Backend
from dragoman.sync import Context as SyncContext

EXITS = [KeyboardInterrupt, SystemExit, GeneratorExit]
pytestmark = pytest.mark.parametrize("exit_", EXITS)


def in_coroutine(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    async def leave() -> str:
        raise exit_


def in_generator(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    async def leave() -> Any:
        yield "going"
        raise exit_


def in_thread(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    def leave() -> str:
        raise exit_


def in_thread_generator(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    def leave() -> Any:
        yield "going"
        raise exit_


def in_effect(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    async def leave(ctx: Context) -> Any:
        def effect() -> None:
            raise exit_

        return await ctx.once("effect", effect)


def in_effect_of_a_thread(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    def leave(ctx: SyncContext) -> Any:
        async def effect() -> None:
            raise exit_

        return ctx.once("effect", effect)


def in_task_of_its_own(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    async def leave() -> Any:
        async def work() -> None:
            await asyncio.sleep(0)
            raise exit_

        async with asyncio.TaskGroup() as group:
            group.create_task(work())


def in_task_that_nobody_waits_for(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    async def leave() -> Any:
        async def work() -> None:
            raise exit_

        helper = asyncio.create_task(work())
        await asyncio.wait([helper])
        raise RuntimeError("the helper has left") from helper.exception()


def in_messages(agent: Agent, exit_: type[BaseException]) -> None:
    @agent.skill
    async def leave(ctx: Context) -> Any:
        async for _ in ctx.messages():
            raise exit_


PLACES = [
    in_coroutine,
    in_generator,
    in_thread,
    in_thread_generator,
    in_effect,
    in_effect_of_a_thread,
    in_task_of_its_own,
    in_task_that_nobody_waits_for,
    in_messages,
]


@pytest.mark.parametrize("place", PLACES)
async def test_a_skill_that_wants_to_end_the_program_fails_its_task(
    start: Any, place: Callable[[Agent, type[BaseException]], None], exit_: type[BaseException]
) -> None:
    agent = Agent("test")
    place(agent, exit_)
    engine = await start(agent)
    sending = engine.sending()
    if place is in_messages:
        (task,) = await _until_there(engine)
        await engine.send("more", task=task, wait=False)
    task = await sending
    assert task.state is State.FAILED
    assert task.error.startswith("execution failed: Internal error, reference ")


async def _until_there(engine: Any) -> Any:
    while not (tasks := (await engine.list(status=State.WORKING)).tasks):  # noqa: ASYNC110 - the store says when
        await asyncio.sleep(0)
    return tasks


async def test_what_prepares_a_run_fails_its_task(start: Any, exit_: type[BaseException]) -> None:
    async def run(ctx: Any) -> Any:
        yield "never"

    async def prepare(ctx: Any) -> None:
        raise exit_

    agent = Agent("test", Backend(run, prepare=prepare))
    engine = await start(agent)
    assert (await engine.send()).state is State.FAILED


async def test_a_clean_up_changes_nothing(start: Any, exit_: type[BaseException], caplog: Any) -> None:
    async def run(ctx: Any) -> Any:
        try:
            yield Ask("?")
        finally:
            raise exit_

    engine = await start(run)
    assert (await engine.send()).state is State.INPUT_REQUIRED
    assert exit_ is GeneratorExit or "an agent raised an exception while its generator was being closed" in caplog.text


async def test_an_exit_in_the_cancel_callback_changes_nothing(
    start: Any, exit_: type[BaseException], caplog: Any
) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("?")

    async def canceled(ref: Any) -> None:
        raise exit_

    agent = Agent("test", Backend(run, canceled=canceled))
    engine = await start(agent)
    task = await engine.send()
    assert (await engine.cancel(task)).state is State.CANCELED
    assert "could not be told" in caplog.text


async def test_a_task_that_is_cancelled_before_it_begins_leaves_nothing_behind(
    start: Any, exit_: type[BaseException]
) -> None:
    async def run(ctx: Any) -> Any:
        async def never() -> None:
            raise exit_

        helper = asyncio.create_task(never(), name="helper")
        assert "never" in repr(helper)
        helper.cancel()
        await asyncio.wait([helper])
        gc.collect()  # a coroutine that was never awaited warns now, and warnings are errors
        yield "cancelled" if helper.cancelled() else "not"

    engine = await start(run)
    assert (await engine.send()).text == "cancelled"


async def test_tasks_outside_of_runs_are_made_as_before(exit_: type[BaseException]) -> None:
    made: list[Any] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **options)

    async def work() -> str:
        return "done"

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    contain_exits(loop)
    contain_exits(loop)
    mine: Awaitable[str] = work()
    assert await asyncio.create_task(mine) == "done"  # type: ignore[arg-type]
    assert made == [mine]
