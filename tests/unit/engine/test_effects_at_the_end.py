"""`ctx.once` in code that cleans up: what is called depends on why the run ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman import Agent, Client, Context, sync
from dragoman.engine.execute.outputs import Ask
from dragoman.errors import ServerError
from dragoman.model.state import State


class Cleaning:
    """A skill that works until it is stopped, and cleans up in a `finally`."""

    def __init__(self, **options: Any) -> None:
        self.agent = Agent("test")
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cleaned = 0
        self.errors: list[ServerError] = []
        self.agent.skill(**options)(self.work)

    async def work(self, ctx: Context) -> str:
        try:
            self.begun.set()
            await self.go_on.wait()
        finally:
            try:
                await ctx.once("clean", self.clean)
            except ServerError as error:
                self.errors.append(error)
                raise
        return "done"

    def clean(self) -> None:
        self.cleaned += 1


async def begin(start: Any, work: Cleaning, store: Any) -> tuple[Any, Any]:
    """Start an engine and a run in it."""
    engine = await start(work.agent, store=store)
    task = await engine.send("go", wait=False)
    await work.begun.wait()
    return engine, task


async def test_a_run_that_is_canceled_cleans_up_when_that_is_stored(start: Any, disk: Any, turns: Any) -> None:
    work = Cleaning()
    engine, task = await begin(start, work, disk)
    disk.holding = True
    canceling = asyncio.create_task(engine.cancel(task))
    await turns()
    assert work.cleaned == 0
    disk.release()
    assert (await canceling).state is State.CANCELED
    await engine.idle()
    assert (work.cleaned, work.errors) == (1, [])


async def test_a_cancel_that_the_store_refuses_calls_nothing(start: Any, failing_store: Any, until: Any) -> None:
    work = Cleaning()
    engine, task = await begin(start, work, failing_store)
    failing_store.refuses = lambda write: True
    with pytest.raises(ServerError):
        await engine.cancel(task)
    await until(lambda: work.errors)
    failing_store.refuses = lambda write: False
    assert work.cleaned == 0
    assert str(work.errors[0]) == "`clean` was not called: the store has refused to store what the run did"


@pytest.mark.parametrize("restart", [True, False])
async def test_a_run_of_a_server_that_stops_leaves_cleaning_up_to_the_next_start(
    start: Any, disk: Any, restart: bool
) -> None:
    work = Cleaning(restart=restart)
    engine, task = await begin(start, work, disk)
    await engine.connection.close()
    assert work.cleaned == 0
    assert str(work.errors[0]) == "`clean` was not called: the server is stopping"
    work.go_on.set()
    after = await start(work.agent, store=disk)
    found = await after.until_state(task, State.COMPLETED if restart else State.FAILED)
    assert work.cleaned == restart
    assert found.error == (None if restart else "interrupted by a restart")


async def test_a_run_that_was_lost_calls_nothing(start: Any, disk: Any) -> None:
    work = Cleaning()
    engine, task = await begin(start, work, disk)
    engine.service._tasks.live[task.id].lose()
    await engine.idle()
    assert work.cleaned == 0
    assert str(work.errors[0]).startswith("`clean` was not called: this server has lost the task")


async def test_code_that_a_lost_run_has_left_behind_calls_nothing_either(start: Any, disk: Any, until: Any) -> None:
    agent, called, go_on, errors = Agent("test"), [], asyncio.Event(), []
    left: list[asyncio.Task[None]] = []

    @agent.skill
    async def work(ctx: Context) -> str:
        async def later() -> None:
            await go_on.wait()
            try:
                await ctx.once("later", called.append, 1)
            except ServerError as error:
                errors.append(error)

        left.append(asyncio.create_task(later()))
        await asyncio.Event().wait()
        return ""

    engine = await start(agent, store=disk)
    task = await engine.send("go", wait=False)
    await until(lambda: left)
    engine.service._tasks.live[task.id].lose()
    await engine.idle()
    go_on.set()
    await asyncio.gather(*left)
    assert (called, len(errors)) == ([], 1)


async def test_a_run_that_is_lost_between_its_note_and_the_call_calls_nothing(
    start: Any, disk: Any, turns: Any
) -> None:
    agent, called = Agent("test"), []

    @agent.skill
    async def work(ctx: Context) -> str:
        await asyncio.shield(asyncio.create_task(ctx.once("pay", called.append, 1)))
        return ""

    engine = await start(agent, store=disk)
    disk.holding = True
    sending = engine.sending("go", wait=False)
    await turns()
    disk.release(1)
    await turns()
    (task,) = engine.service._tasks.live.values()
    task.lose()
    disk.release()
    await asyncio.gather(sending, return_exceptions=True)
    await engine.idle()
    assert called == []


async def test_a_question_does_not_clean_up_and_the_end_does(start: Any, disk: Any) -> None:
    agent, cleaned = Agent("test"), []

    @agent.skill
    async def work(ctx: Context) -> str:
        try:
            return await ctx.ask("Which?")
        finally:
            await ctx.once("clean", cleaned.append, 1)

    engine = await start(agent, store=disk)
    task = await engine.send("go")
    assert (task.state, task.question, cleaned) == (State.INPUT_REQUIRED, "Which?", [])
    done = await engine.send("this", task=task)
    assert (done.state, done.text, cleaned) == (State.COMPLETED, "this", [1])


async def test_a_question_of_a_low_level_run_does_not_clean_up(
    start: Any, disk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cleaned: list[int] = []

    async def run(ctx: Context) -> Any:
        try:
            if ctx.resume is None:
                yield Ask("Which?")
            yield "done"
        finally:
            await ctx.once("clean", cleaned.append, 1)

    engine = await start(run, store=disk)
    task = await engine.send("go")
    assert (task.state, cleaned) == (State.INPUT_REQUIRED, [])
    assert (await engine.send("this", task=task)).state is State.COMPLETED
    assert cleaned == [1]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


class CleaningInThread:
    """The same in a thread, which nobody can interrupt."""

    def __init__(self) -> None:
        self.agent = Agent("test")
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.over = threading.Event()
        self.cleaned = 0
        self.errors: list[ServerError] = []
        self.agent.skill(self.work)

    def work(self, ctx: sync.Context) -> str:
        self.begun.set()
        self.go_on.wait()
        try:
            ctx.once("clean", self.clean)
        except ServerError as error:
            self.errors.append(error)
        finally:
            self.over.set()
        return "done"

    def clean(self) -> None:
        self.cleaned += 1


@pytest.fixture
def in_thread() -> Iterator[CleaningInThread]:
    work = CleaningInThread()
    yield work
    work.go_on.set()
    assert work.over.wait(10)


async def test_a_thread_whose_task_is_canceled_may_clean_up(start: Any, disk: Any, in_thread: CleaningInThread) -> None:
    engine = await start(in_thread.agent, store=disk)
    task = await engine.send("go", wait=False)
    await asyncio.to_thread(in_thread.begun.wait)
    await engine.cancel(task)
    in_thread.go_on.set()
    await asyncio.to_thread(in_thread.over.wait)
    assert (in_thread.cleaned, in_thread.errors) == (1, [])


@pytest.mark.parametrize("how", ["stopped", "lost"])
async def test_a_thread_whose_run_does_not_go_on_here_calls_nothing(
    start: Any, disk: Any, in_thread: CleaningInThread, how: str
) -> None:
    engine = await start(in_thread.agent, store=disk)
    task = await engine.send("go", wait=False)
    await asyncio.to_thread(in_thread.begun.wait)
    if how == "lost":
        engine.service._tasks.live[task.id].lose()
    else:
        await engine.connection.close()
    in_thread.go_on.set()
    await asyncio.to_thread(in_thread.over.wait)
    assert in_thread.cleaned == 0
    assert "`clean` was not called" in str(in_thread.errors[0])


def test_a_thread_that_outlives_its_loop_calls_nothing(in_thread: CleaningInThread) -> None:
    async def main() -> None:
        async with Client(in_thread.agent) as client:
            await client.send("go", wait=False)
            await asyncio.to_thread(in_thread.begun.wait)

    asyncio.run(main())
    in_thread.go_on.set()
    assert in_thread.over.wait(10)
    assert (in_thread.cleaned, len(in_thread.errors)) == (0, 1)
