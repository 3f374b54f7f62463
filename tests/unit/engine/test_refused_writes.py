"""What the store has refused was not accepted: the message may come again, and its code does not begin twice."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from dragoman import Agent
from dragoman.engine.ports.store import Write
from dragoman.model.error import ServerError, UnsupportedOperation
from dragoman.model.state import State
from dragoman.outputs import Ask, Reply

from .conftest import FailingStore, Gate, HeldStore, turns, until


def asks(auth: bool) -> Any:
    async def run(ctx: Any) -> Any:
        yield "answered" if ctx.resume else Ask("?", auth=auth)

    return run


@pytest.mark.parametrize(
    ("auth", "after"), [(True, State.AUTH_REQUIRED), (False, State.COMPLETED)], ids=["a note", "an answer"]
)
async def test_a_message_to_a_waiting_task_that_was_refused_is_taken_when_it_comes_again(
    start: Any, failing_store: Any, auth: bool, after: State
) -> None:
    engine, message_id = await start(asks(auth), store=failing_store), str(uuid4())
    task = await engine.send()
    failing_store.refuses = lambda write: True
    with pytest.raises(ServerError, match="cannot take writes"):
        await engine.send("more", task=task, message_id=message_id)
    failing_store.refuses = lambda write: False
    for _ in range(2):  # the second is a repeat
        accepted = await engine.send("more", task=task, message_id=message_id)
        assert (accepted.state, [message.text for message in accepted.history]) == (after, ["go", "?", "more"])


async def test_a_repeat_is_not_confirmed_before_the_message_itself_is_stored(
    start: Any, held_store: Any, clock: Any
) -> None:
    agent = Gate()
    engine, message_id = await start(agent.run, store=held_store), str(uuid4())
    task = await engine.begin()
    held_store.holding = True
    first, second = (engine.sending("more", task=task, message_id=message_id, wait=False) for _ in range(2))
    await turns()
    await clock.advance(60)  # longer than a read waits for a store that takes no writes
    assert not first.done()
    assert not second.done()
    held_store.release()
    assert [message.text for message in (await second).history] == ["go", "more"]
    agent.open.set()
    await first
    await engine.idle()


async def test_a_message_that_names_its_task_and_was_refused_creates_it_once_when_it_comes_twice(
    start: Any, held_store: Any
) -> None:
    agent = Gate()
    agent.open.set()
    engine, named = await start(agent.run, store=held_store), {"message_id": str(uuid4()), "new_task_id": str(uuid4())}
    held_store.holding = True
    refused = engine.sending(**named)
    await turns()
    refuse_all(held_store)
    with pytest.raises(ServerError, match="cannot take writes"):
        await refused
    first, second = engine.sending(**named), engine.sending(**named)
    await turns()
    held_store.release()
    assert (await first).history == (await second).history
    assert [message.text for message in (await first).history] == ["go"]


def refuse_all(store: HeldStore) -> None:
    """Refuse what is held back."""
    held = list(store.held)
    store.held.clear()
    for write in held:
        store.report(write, OSError("no space left on device"))


async def test_a_message_whose_reply_was_refused_runs_once_and_its_task_fails(
    start: Any, failing_store: Any, clock: Any
) -> None:
    runs = 0

    async def run(ctx: Any) -> Any:
        nonlocal runs
        runs += 1
        yield Reply("hi")

    engine, message_id = await start(replying(run), store=failing_store), str(uuid4())
    failing_store.refuses = lambda write: write.delete
    for _ in range(2):  # also before anybody knows what becomes of it
        with pytest.raises(ServerError, match="cannot take writes"):
            await engine.send(message_id=message_id)
    failing_store.refuses = lambda write: False
    await clock.advance(2)
    task = await engine.send(message_id=message_id)
    assert (task.state, task.error) == (State.FAILED, "the store could not take writes")
    assert runs == 1
    assert await failing_store.drafts("test") == []


def replying(run: Any) -> Agent:
    return Agent("test", run=run, replies=True)


async def crashed_with_a_draft(start: Any, disk: HeldStore, agent: Gate) -> HeldStore:
    """What is left of a server that was killed while a run made its reply."""
    engine = await start(replying(agent.run), store=disk)
    sending = engine.sending("reply")
    await until(lambda: agent.runs)
    assert await disk.drafts("test")
    left = disk.crash()
    sending.cancel()
    return left


async def test_a_reply_that_a_crash_interrupted_does_not_begin_again_after_the_next_crash(
    start: Any, disk: HeldStore
) -> None:
    agent = Gate()
    second = await crashed_with_a_draft(start, disk, agent)
    second.holding = True
    starting = asyncio.create_task(start(replying(agent.run), store=second))
    await turns()
    second.release(1)  # the next crash comes between the two changes of the recovery
    await turns()
    third = second.crash()
    starting.cancel()
    engine = await start(replying(agent.run), store=third)
    (task,) = (await engine.list()).tasks
    assert (task.state, agent.runs) == (State.FAILED, 1)


async def test_a_server_that_cannot_write_what_it_recovers_does_not_start(
    start: Any, disk: HeldStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = await crashed_with_a_draft(start, disk, Gate())

    read_notes = left.notes

    def refuse(write: Any) -> None:
        asyncio.get_running_loop().call_soon(write.done, OSError("no space left on device"))

    async def read_slowly(number: int) -> Any:
        await turns()
        return await read_notes(number)

    monkeypatch.setattr(left, "write", refuse)
    monkeypatch.setattr(left, "notes", read_slowly)
    with pytest.raises(ServerError, match="cannot take writes"):
        await start(replying(Gate().run), store=left)


async def test_nobody_learns_of_an_end_that_is_not_stored(start: Any, held_store: Any) -> None:
    agent = Gate()
    engine = await start(agent.run, store=held_store)
    task = await engine.begin()
    held_store.holding = True
    agent.open.set()
    await turns()
    asking = [asyncio.create_task(engine.subscribe(task)), engine.sending("more", task=task)]
    await turns()
    assert not any(each.done() for each in asking)
    held_store.release()
    for each in asking:
        with pytest.raises(UnsupportedOperation, match="has ended"):
            await each


async def test_a_task_whose_pause_and_cancel_were_refused_does_not_stay_at_work(
    start: Any, held_store: Any, clock: Any
) -> None:
    going = asyncio.Event()

    async def run(ctx: Any) -> Any:
        await going.wait()
        yield Ask("?")

    engine = await start(run, store=held_store)
    task = await engine.begin()
    held_store.holding = True
    going.set()
    await turns()
    canceling = asyncio.create_task(engine.cancel(task))
    await turns()
    refuse_all(held_store)
    held_store.release()
    with pytest.raises(ServerError, match="cannot take writes"):
        await canceling
    await clock.advance(2)
    assert (await engine.get(task)).state is State.FAILED


@pytest.mark.parametrize(("refusals", "state"), [(1, State.COMPLETED), (9, State.FAILED)])
async def test_a_run_that_may_restart_is_tried_again_after_a_refused_write_three_times_in_all(
    start: Any, failing_store: Any, clock: Any, refusals: int, state: State
) -> None:
    failing_store.durable, runs = True, 0
    agent = Agent("test")

    @agent.skill(restart=True)
    async def work() -> str:
        nonlocal runs
        runs += 1
        return "done"

    def refuses(write: Write) -> bool:
        nonlocal refusals
        refusals -= write.row.state is State.COMPLETED
        return write.row.state is State.COMPLETED and refusals >= 0

    engine = await start(agent, store=failing_store)
    failing_store.refuses = refuses
    with pytest.raises(ServerError, match="cannot take writes"):
        await engine.send()
    for _ in range(6):
        await clock.advance(1)
    (task,) = (await engine.list()).tasks
    assert (task.state, runs) == (state, 2 if state is State.COMPLETED else 3)


async def test_a_task_at_work_that_nothing_works_on_takes_no_messages(start: Any, failing_store: Any) -> None:
    agent = Gate()
    engine = await start(agent.run, store=failing_store)
    task = await engine.begin()
    failing_store.refuses = lambda write: True
    agent.open.set()
    await until(lambda: not engine.service.running)
    await turns()
    with pytest.raises(UnsupportedOperation, match="interrupted"):
        await engine.send("more", task=task)


class Unreadable(FailingStore):
    """A store that cannot be read for a while, or answers late."""

    unreadable = False
    answers: asyncio.Event | None = None

    async def notes(self, number: int) -> Any:
        if self.answers is not None:
            await self.answers.wait()
        if self.unreadable:
            raise ServerError("the store cannot be read now")
        return await super().notes(number)


async def test_a_task_whose_write_was_refused_is_looked_at_again_until_it_can_be_read(start: Any, clock: Any) -> None:
    store, agent = Unreadable(), Gate()
    engine = await start(agent.run, store=store)
    task = await engine.begin()
    store.refuses = lambda write: True
    agent.open.set()
    await until(lambda: not engine.service.running)
    store.refuses, store.unreadable = lambda write: False, True
    await clock.advance(3)
    assert (await store.task(task.id)).row.state is State.WORKING
    store.unreadable = False
    await clock.advance(2)
    assert (await engine.get(task)).error == "the store could not take writes"


async def test_a_task_that_is_canceled_while_its_next_run_is_prepared_does_not_run(start: Any, clock: Any) -> None:
    store, runs, go_on = Unreadable(), 0, asyncio.Event()
    agent = Agent("test")

    @agent.skill(restart=True)
    async def work() -> str:
        nonlocal runs
        runs += 1
        await go_on.wait()
        return "done"

    engine = await start(agent, store=store)
    task = await engine.send(wait=False)
    await until(lambda: runs)
    store.refuses = lambda write: True
    go_on.set()
    await until(lambda: not engine.service.running)
    store.refuses, store.answers = lambda write: False, asyncio.Event()
    go_on.clear()
    await clock.advance(1)
    canceling = asyncio.create_task(engine.cancel(task))
    await turns()
    store.answers.set()
    assert (await canceling).state is State.CANCELED
    await engine.idle()
    assert (await engine.get(task)).state is State.CANCELED
    assert engine.left() == {}
