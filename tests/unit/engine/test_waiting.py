"""Long polls, and what happens to everybody who waits when the server stops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent
from dragoman.engine.call import CallContext
from dragoman.engine.execute.runner import CANCEL_GRACE_SECONDS
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import ServerError
from dragoman.model.state import State
from dragoman.outputs import Ask
from dragoman.sync import Context as SyncContext

from .conftest import Gate

DRAIN = EngineSettings(drain=30)


# Long polls


async def test_a_long_poll_gives_up_after_its_time_with_the_task_as_it_is(start: Any, clock: Any) -> None:
    engine = await start(Gate().run, settings=EngineSettings(long_poll=30, drain=0))
    task = await engine.begin()
    getting = asyncio.create_task(engine.get(task, current_generation=task.generation))
    await clock.advance(29.9)
    assert not getting.done()
    await clock.advance(0.1)
    assert await getting == task
    assert "listeners" not in engine.left()


async def test_a_caller_who_leaves_a_long_poll_is_forgotten(start: Any, clock: Any, turns: Any) -> None:
    engine = await start(Gate().run)
    task = await engine.begin()
    getting = asyncio.create_task(engine.get(task, current_generation=task.generation))
    await turns()
    getting.cancel()
    await asyncio.gather(getting, return_exceptions=True)
    assert "listeners" not in engine.left()
    assert clock.pending == 0


# Stopping


async def test_runs_that_wait_for_their_conversation_get_their_time_too(start: Any, clock: Any, turns: Any) -> None:
    agent = Gate()
    engine = await start(agent.run, settings=DRAIN)
    sending = [engine.sending(context="c") for _ in range(3)]
    await turns()
    closing = asyncio.create_task(engine.service.close())
    await clock.advance(10)
    agent.open.set()
    await closing
    assert [(await one).state for one in sending] == [State.COMPLETED] * 3


async def test_a_stopping_server_takes_no_new_messages(start: Any, turns: Any) -> None:
    agent = Gate()
    engine = await start(agent.run, settings=DRAIN)
    sending = engine.sending()
    await turns()
    closing = asyncio.create_task(engine.service.close())
    await turns()
    with pytest.raises(ServerError) as refused:
        await engine.send("late")
    assert refused.value.metadata == {"retryAfter": "1"}
    with pytest.raises(ServerError) as refused:
        await engine.stream("late")
    assert refused.value.metadata == {"retryAfter": "1"}
    agent.open.set()
    await closing
    assert (await sending).state is State.COMPLETED


async def test_runs_left_after_the_drain_time_are_cancelled_and_their_callers_get_the_error(
    start: Any, clock: Any, turns: Any
) -> None:
    agent = Gate()
    engine = await start(agent.run, settings=DRAIN)
    sending = [engine.sending("a", context="c"), engine.sending("queued", context="c"), engine.sending("b")]
    reading = asyncio.create_task(engine.stream("stream"))
    await turns()
    closing = asyncio.create_task(engine.service.close())
    await clock.advance(30)
    await closing
    assert agent.stopped == 3  # the queued one never began
    interrupted = set[str]()
    for one in sending:
        with pytest.raises(ServerError, match="stopping") as stopped:
            await one
        assert stopped.value.metadata["interrupted"] == "true"
        interrupted.add(stopped.value.metadata["taskId"])
    records = await reading
    assert not any(record.state and record.state.final for record in records)  # it can be resumed later
    assert engine.left() == {}
    tasks = (await engine.list()).tasks
    assert sorted(task.state for task in tasks) == sorted([State.WORKING] * 3 + [State.SUBMITTED])
    assert len(interrupted) == 3
    assert interrupted < {task.id for task in tasks}


async def test_callers_of_a_run_that_might_still_reply_get_the_error_too(start: Any, turns: Any) -> None:
    engine = await start(Agent("test", run=Gate().run, replies=True))
    sending = [engine.sending(), asyncio.create_task(engine.stream())]
    await turns()
    await engine.service.close()
    for one in sending:
        with pytest.raises(ServerError, match="stopping"):
            await one


async def test_long_polls_end_when_the_server_stops(start: Any, turns: Any) -> None:
    engine = await start(Gate().run)
    task = await engine.begin()
    getting = asyncio.create_task(engine.get(task, current_generation=task.generation))
    await turns()
    await engine.service.close()
    assert (await getting).id == task.id


async def test_a_message_sent_while_its_run_is_given_up_gets_the_error(start: Any, turns: Any) -> None:
    for wait_for in range(12):
        engine = await start(Gate().run)
        task = await engine.send(wait=False)
        await turns()
        telling = engine.sending("more", task=task)
        await turns(wait_for)
        await engine.service.close()
        with pytest.raises(ServerError):
            await telling


async def test_a_thread_learns_that_the_server_stops(start: Any, until: Any) -> None:
    begun, stopped = threading.Event(), threading.Event()
    agent = Agent("test")

    @agent.skill
    def work(ctx: SyncContext) -> str:
        begun.set()
        while not ctx.cancelled:
            stopped.wait(0.001)
        ctx.progress("late")
        stopped.set()
        return "late"

    engine = await start(agent)
    task = await engine.send(wait=False)
    await until(begun.is_set)
    await engine.service.close()
    await until(stopped.is_set)
    assert (await engine.get(task)).state is State.WORKING


async def test_a_run_that_will_not_stop_is_not_waited_for_for_ever(
    start: Any, clock: Any, turns: Any, caplog: Any
) -> None:
    stubborn = asyncio.Event()

    async def run(ctx: Any) -> Any:
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue
        yield "at last"

    engine = await start(run)
    sending = engine.sending()
    await turns()
    closing = asyncio.create_task(engine.service.close())
    await clock.advance(CANCEL_GRACE_SECONDS)
    await closing
    assert "the code of 1 canceled task does not stop" in caplog.text
    stubborn.set()
    await engine.idle()
    await asyncio.gather(sending, return_exceptions=True)


async def test_a_stop_that_is_itself_cancelled_is_not_swallowed(start: Any, turns: Any) -> None:
    engine = await start(Gate().run, settings=DRAIN)
    sending = engine.sending()
    await turns()
    closing = asyncio.create_task(engine.service.close())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    (task,) = (await engine.list()).tasks
    await engine.cancel(task)
    assert (await sending).state is State.CANCELED


# Limits of a skill


async def test_a_skill_is_stopped_after_its_time_and_says_so(start: Any, clock: Any) -> None:
    happened: list[str] = []
    agent = Agent("test")

    @agent.skill(timeout=5)
    async def slow() -> Any:
        try:
            yield "begun "
            await asyncio.Event().wait()
        finally:
            happened.append("cleaned up")

    engine = await start(agent)
    sending = engine.sending()
    await clock.advance(4.9)
    assert not sending.done()
    await clock.advance(0.1)
    task = await sending
    assert (task.state, task.error, task.text) == (State.FAILED, "timed out after 5 s", "begun ")
    assert happened == ["cleaned up"]
    assert clock.pending == 0


async def test_a_skill_that_is_quick_enough_leaves_no_timer(start: Any, clock: Any) -> None:
    agent = Agent("test")

    @agent.skill(timeout=5)
    async def quick() -> str:
        return "done"

    engine = await start(agent)
    assert (await engine.send()).state is State.COMPLETED
    assert clock.pending == 0


async def test_a_skill_that_ignores_its_end_fails_all_the_same(start: Any, clock: Any) -> None:
    agent = Agent("test")

    @agent.skill(timeout=5)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    engine = await start(agent)
    sending = engine.sending()
    await clock.advance(5)
    task = await sending
    assert (task.state, task.error) == (State.FAILED, "timed out after 5 s")
    assert task.artifacts == ()


async def test_a_cancel_at_the_same_moment_as_the_timeout_is_a_cancel(start: Any, clock: Any, turns: Any) -> None:
    agent = Agent("test")

    @agent.skill(timeout=5)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    engine = await start(agent)
    task = await engine.send(wait=False)
    await turns()
    cancelling = asyncio.create_task(engine.service.cancel(CallContext(), _cancel(task)))
    await asyncio.sleep(0)
    clock.move(5)
    assert (await cancelling).result.state is State.CANCELED
    await engine.idle()
    assert (await engine.get(task)).state is State.CANCELED


async def test_a_skill_in_a_thread_is_given_up_after_its_time(start: Any, clock: Any, until: Any) -> None:
    begun, released = threading.Event(), threading.Event()
    agent = Agent("test")

    @agent.skill(timeout=5)
    def slow(ctx: SyncContext) -> str:
        begun.set()
        released.wait(10)
        return "late"

    engine = await start(agent)
    sending = engine.sending()
    await until(begun.is_set)
    await clock.advance(5)
    task = await sending
    assert (task.state, task.error) == (State.FAILED, "timed out after 5 s")
    released.set()
    await engine.idle()
    assert await engine.get(task) == task


def _cancel(task: Any) -> Any:
    from dragoman.model.operation import CancelTaskRequest

    return CancelTaskRequest(task.id)


async def test_a_stopping_server_continues_nothing(start: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("log in", auth=True, url=link)

    engine = await start(run)
    task = await engine.send()
    await engine.service.close()
    with pytest.raises(ServerError, match="stopping"):
        await engine.service.resume(handle_of(task))
    assert (await engine.get(task)).state is State.AUTH_REQUIRED
