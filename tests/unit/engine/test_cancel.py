"""Cancelling: it reaches the work, and nothing changes afterwards."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dragoman import Agent
from dragoman.model.error import InvalidParams, ServerError, TaskNotCancelable
from dragoman.model.state import State
from dragoman.outputs import Ask
from dragoman.sync import Context as SyncContext

FOREVER = asyncio.Event


class Work:
    """An agent that goes on until it is let go, and says what happened to it."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.go_on = asyncio.Event()

    async def run(self, ctx: Any) -> Any:
        try:
            yield "begun "
            await self.go_on.wait()
            yield "done"
            self.happened.append("finished")
        except asyncio.CancelledError:
            self.happened.append("cancelled")
            raise
        finally:
            self.happened.append("cleaned up")


async def test_output_before_the_cancel_is_kept(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield "held"
        engine_task = asyncio.create_task(engine.cancel(ctx.task_id))
        await FOREVER().wait()
        await engine_task

    engine = await start(run)
    task = await engine.send()
    assert (task.state, task.text) == (State.CANCELED, "held")


async def test_work_that_swallows_the_cancel_cannot_change_the_task(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        try:
            await FOREVER().wait()
        except asyncio.CancelledError:
            yield "late text"
            yield {"late": "data"}
        await ctx.progress("late")
        await ctx.artifact("late")

    engine = await start(run)
    task = await engine.begin()
    canceled = await engine.cancel(task)
    await engine.idle()
    assert await engine.get(task) == canceled
    assert canceled.artifacts == ()
    assert (await engine.journal(task))[-1].status.state is State.CANCELED


@pytest.mark.parametrize("error", [ValueError("late"), InvalidParams("late")], ids=lambda error: type(error).__name__)
async def test_a_failure_after_the_cancel_is_not_seen(start: Any, error: Exception) -> None:
    async def run(ctx: Any) -> Any:
        try:
            yield await FOREVER().wait()
        finally:
            raise error

    engine = await start(run)
    task = await engine.begin()
    await engine.cancel(task)
    await engine.idle()
    assert await engine.states(task) == [State.SUBMITTED, State.WORKING, State.CANCELED]


async def test_a_cancel_and_the_completion_at_the_same_moment_give_one_end(start: Any, turns: Any) -> None:
    for wait_for in range(12):
        work = Work()
        engine = await start(work.run)
        task = await engine.send(wait=False)
        await turns()
        work.go_on.set()
        await turns(wait_for)
        try:
            ended = await engine.cancel(task)
        except TaskNotCancelable:
            ended = await engine.get(task)
            assert ended.state is State.COMPLETED
        await engine.idle()
        states = await engine.states(task)
        assert [state for state in states if state.final] == [ended.state]
        assert states[-1] is ended.state
        assert await engine.get(task) == ended


async def test_a_thread_sees_that_it_is_cancelled_and_its_late_result_is_dropped(start: Any, until: Any) -> None:
    begun, stopped = threading.Event(), threading.Event()
    agent = Agent("test")

    @agent.skill
    def count(ctx: SyncContext) -> str:
        begun.set()
        while not ctx.cancelled:
            stopped.wait(0.001)
        ctx.progress("late")
        ctx.artifact("late")
        stopped.set()
        return "late"

    engine = await start(agent)
    task = await engine.send(wait=False)
    await until(begun.is_set)
    canceled = await engine.cancel(task)
    await until(stopped.is_set)
    await engine.idle()
    assert await engine.get(task) == canceled
    assert canceled.artifacts == ()


async def test_a_generator_in_a_thread_is_closed_there(start: Any, until: Any) -> None:
    closed: list[str] = []
    begun = threading.Event()
    agent = Agent("test")

    @agent.skill
    def count(ctx: SyncContext) -> Any:
        begun.set()
        try:
            while True:
                yield "x"
        finally:
            ctx.progress("bye")  # would wait for ever on the thread of the loop
            closed.append(threading.current_thread().name)

    engine = await start(agent)
    task = await engine.send(wait=False)
    await until(begun.is_set)
    await engine.cancel(task)
    await until(lambda: closed)
    assert closed[0].startswith("dragoman-skill")


# Who can be cancelled


async def test_of_two_cancels_one_wins(start: Any) -> None:
    engine = await start(Work().run)
    task = await engine.send(wait=False)
    results = await asyncio.gather(*(engine.cancel(task) for _ in range(3)), return_exceptions=True)
    assert sum(isinstance(result, TaskNotCancelable) for result in results) == 2


async def test_a_task_that_pauses_at_this_moment_can_be_cancelled(start: Any, turns: Any) -> None:
    for wait_for in range(8):
        cleaned: list[bool] = []

        async def run(ctx: Any, cleaned: list[bool] = cleaned) -> Any:
            try:
                yield Ask("?")
            finally:
                await turns(3)
                cleaned.append(True)

        engine = await start(run)
        task = await engine.send(wait=False)
        await turns(wait_for)
        assert (await engine.cancel(task)).state is State.CANCELED
        await engine.idle()
        assert (await engine.get(task)).state is State.CANCELED
        assert engine.left() == {}


async def test_a_task_that_waits_for_its_turn_can_be_cancelled_and_never_runs(start: Any, turns: Any) -> None:
    ran: list[str] = []
    go_on = asyncio.Event()

    async def run(ctx: Any) -> Any:
        ran.append(ctx.text)
        await go_on.wait()
        yield "done"

    engine = await start(run)
    _, second, third = [await engine.send(text, context="c", wait=False) for text in ("one", "two", "three")]
    await turns()
    assert (await engine.cancel(second)).state is State.CANCELED
    go_on.set()
    await engine.until_state(third, State.COMPLETED)
    await engine.idle()
    assert ran == ["one", "three"]
    assert (await engine.get(second)).artifacts == ()
    assert engine.left() == {}


async def test_a_run_that_is_cancelled_before_its_first_step_leaves_nothing(start: Any, until: Any, turns: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield "never"

    engine = await start(run)
    waiting = engine.sending()
    await until(lambda: engine.service._tasks.live)
    (live,) = engine.service._tasks.live.values()
    live.worker.cancel()
    with pytest.raises(ServerError):
        await waiting
    await turns()
    assert engine.left() == {}


async def test_a_cancel_that_the_store_refuses_is_an_error_and_leaves_nothing_behind(
    start: Any, failing_store: Any
) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("?")

    engine = await start(run, store=failing_store)
    task = await engine.send()
    await engine.idle()
    failing_store.refuses = lambda write: True
    with pytest.raises(ServerError):
        await engine.cancel(task)
    assert engine.left() == {}
    failing_store.refuses = lambda write: False
    assert (await engine.get(task)).state is State.INPUT_REQUIRED
    assert (await engine.cancel(task)).state is State.CANCELED
