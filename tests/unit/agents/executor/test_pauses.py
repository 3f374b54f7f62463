"""An executor that asks, is spoken to while it works, or is canceled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from unit.agents.executor.scripted import Scripted, Updater, agent_of, answer_of

from dragoman import Agent, Client, Context, State, Task
from dragoman.agents.executor.execution import ASK_GRACE
from dragoman.agents.executor.plain import PlainContext
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.state import Role
from dragoman.stores.sqlite.store import SqliteStore

# -- pauses ------------------------------------------------------------------------------------------------------------


async def ask_once(context: PlainContext, updater: Updater) -> None:
    if context.current_task is None:
        await updater.artifact("a", {"text": "Porto, "})
        await updater.status("input-required", "How many days?", {"data": {"from": 1, "to": 9}})
        return
    await updater.artifact("a", {"text": f"{context.get_user_input()} days"}, append=True)
    await updater.status("completed")


async def test_an_executor_that_gets_an_answer_sees_the_task_as_it_was() -> None:
    executor = Scripted(ask_once)
    async with Client(agent_of(executor)) as client:
        asked = await client.send("Porto")
        assert isinstance(asked, Task)
        assert asked.status.message is not None
        assert asked.status.message.data == {"from": 1, "to": 9}
        assert (await client.send("3", task=asked)).text == "Porto, 3 days"
    before = executor.contexts[1].current_task
    assert before is not None
    assert (before.id, before.state, before.question) == (asked.id, State.INPUT_REQUIRED, "How many days?")
    assert before.artifacts == asked.artifacts
    assert [message.text for message in before.history if message.role is Role.USER] == ["Porto", "3"]


async def test_a_question_of_the_function_that_was_there_before_can_be_answered(start: Any, tmp_path: Path) -> None:
    before = Agent("x")

    @before.skill
    async def plan(ctx: Context, city: str) -> str:
        return city + await ctx.ask("How many days?")

    executor, store = Scripted(ask_once), tmp_path / "tasks.db"
    engine = await start(before, store=SqliteStore(store))
    asked, again = await engine.send("Porto"), await engine.send("Porto")
    await engine.connection.close()
    engine = await start(agent_of(executor), store=SqliteStore(store))
    assert (await engine.send("3", task=asked)).text == "3 days"
    [context] = executor.contexts
    assert context.current_task is not None
    assert (context.current_task.state, context.current_task.question) == (State.INPUT_REQUIRED, "How many days?")
    assert (await engine.cancel(again)).state is State.CANCELED
    assert executor.canceled == []


async def test_a_request_for_credentials_pauses_too() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        if context.current_task is None:
            await updater.status("auth-required")
        else:
            await updater.status("completed", context.current_task.state.name)

    async with Client(agent_of(Scripted(execute))) as client:
        asked = await client.send("hi")
        assert isinstance(asked, Task)
        assert (asked.state, asked.question) == (State.AUTH_REQUIRED, "authentication required")
        assert (await client.send("in", task=asked)).text == "AUTH_REQUIRED"


async def test_the_task_that_was_given_may_be_enqueued_again() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        if context.current_task is None:
            await updater.artifact("a", {"text": "once"})
            await updater.status("input-required", "Go on?")
        else:
            await updater.queue.enqueue_event(context.current_task)

    async with Client(agent_of(Scripted(execute))) as client:
        asked = await client.send("hi")
        assert isinstance(asked, Task)
        events = [event.raw async for event in client.stream("yes", task=asked)]
    updates = [event for event in events if isinstance(event, ArtifactUpdate)]
    assert [(event.artifact.text, event.append, event.last_chunk) for event in updates] == [("", True, True)]  # its end
    assert isinstance(events[-1], StatusUpdate)
    assert events[-1].status.state is State.COMPLETED


async def test_the_question_of_an_executor_that_waits_for_the_answer_itself_is_a_status(start: Any, clock: Any) -> None:
    signed_in = asyncio.Event()

    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("auth-required", "Sign in at the desk")
        await signed_in.wait()
        await updater.status("completed", "in")

    executor = Scripted(execute)
    engine = await start(agent_of(executor))
    task = await engine.send(wait=False)
    await executor.began.wait()
    await clock.advance(ASK_GRACE)
    seen = await engine.get(task)
    assert (seen.state, seen.status.message.text) == (State.WORKING, "Sign in at the desk")
    signed_in.set()
    assert (await engine.until_state(task, State.COMPLETED)).text == "in"


async def test_a_question_that_is_taken_back_is_no_question() -> None:
    async def execute(context: PlainContext, updater: Updater) -> None:
        await updater.status("input-required", "Sure?")
        await updater.status("working", "never mind")

    task = await answer_of(execute)
    assert (task.state, task.question) == (State.COMPLETED, None)


async def test_a_message_to_a_working_task_is_worked_on_next(start: Any) -> None:
    go_on = asyncio.Event()

    async def execute(context: PlainContext, updater: Updater) -> None:
        if context.current_task is None:
            await go_on.wait()
            await updater.status("input-required", "What else?")
        else:
            await updater.status("completed", f"{context.current_task.state.name}: {context.get_user_input()}")

    executor = Scripted(execute)
    engine = await start(agent_of(executor))
    task = await engine.send("first", wait=False)
    await executor.began.wait()
    await engine.send("second", task=task, wait=False)
    go_on.set()
    assert (await engine.until_state(task, State.COMPLETED)).text == "INPUT_REQUIRED: second"


# -- cancel ------------------------------------------------------------------------------------------------------------


async def wait_forever(context: PlainContext, updater: Updater) -> None:
    await updater.artifact("a", {"text": "begun"})
    await asyncio.Event().wait()


async def test_a_cancel_reaches_cancel_first_and_then_the_work(start: Any) -> None:
    order: list[str] = []

    async def execute(context: PlainContext, updater: Updater) -> None:
        try:
            await wait_forever(context, updater)
        finally:
            order.append("execute")

    async def cancel(context: PlainContext, updater: Updater) -> None:
        await updater.status("canceled", "as you like")
        order.append("cancel")

    executor = Scripted(execute, cancel)
    engine = await start(agent_of(executor))
    task = await engine.send(wait=False)
    await executor.began.wait()
    assert (await engine.cancel(task)).state is State.CANCELED
    await executor.stopped.wait()
    assert order == ["cancel", "execute"]
    [context] = executor.canceled
    assert (context.task_id, context.context_id, context.message) == (task.id, task.context_id, None)
    assert context.get_user_input() == ""
    assert context.current_task is not None
    assert context.current_task.text == "begun"


async def test_an_executor_that_does_not_want_to_be_canceled_is_canceled(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(context: PlainContext, updater: Updater) -> None:
        raise NotImplementedError("cancel not supported")

    executor = Scripted(wait_forever, refuse)
    engine = await start(agent_of(executor))
    task = await engine.send(wait=False)
    await executor.began.wait()
    assert (await engine.cancel(task)).state is State.CANCELED
    await executor.stopped.wait()
    assert "cancel not supported" in caplog.text


async def test_canceling_a_waiting_task_calls_cancel_of_the_executor(start: Any) -> None:
    executor = Scripted(ask_once)
    engine = await start(agent_of(executor))
    asked = await engine.send("Porto")
    assert (await engine.cancel(asked)).state is State.CANCELED
    [context] = executor.canceled
    assert (context.task_id, context.context_id) == (asked.id, asked.context_id)
    assert context.current_task is not None
    assert context.current_task.question == "How many days?"


async def test_a_server_that_stops_stops_the_work_and_cancels_nothing(start: Any) -> None:
    executor = Scripted(wait_forever)
    engine = await start(agent_of(executor))
    await engine.send(wait=False)
    await executor.began.wait()
    await engine.connection.close()
    assert executor.stopped.is_set()
    assert executor.canceled == []
