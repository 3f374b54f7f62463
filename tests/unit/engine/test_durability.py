"""Persist, then publish: what leaves the process is durable, and the agent does not wait for it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from dragoman import Agent
from dragoman.engine.journal.durability import MAX_AHEAD_BYTES, MAX_AHEAD_EVENTS
from dragoman.engine.journal.replay import Replay, messages_by_generation
from dragoman.model.error import ServerError
from dragoman.model.record import Folding
from dragoman.model.state import State
from dragoman.outputs import Ask, Reply

from .conftest import Gate


class Talking:
    """An agent that talks without end and without waiting, and counts what it got rid of."""

    def __init__(self, value: Any = "word ") -> None:
        self.value = value
        self.sent = 0
        self.most = 100_000

    async def run(self, ctx: Any) -> Any:
        while self.sent < self.most:
            self.sent += 1
            yield self.value


# How far ahead


async def test_the_agent_gets_256_events_ahead_of_the_disk_and_not_more(
    start: Any, held_store: Any, turns: Any
) -> None:
    assert MAX_AHEAD_EVENTS == 256
    agent = Talking()
    held_store.holding = True
    engine = await start(agent.run, store=held_store)
    sending = engine.sending()
    await turns(1000)
    assert held_store.events == MAX_AHEAD_EVENTS
    held_store.release(
        99
    )  # 100 events, the first two in one write: not enough to go on: it waits until half of the window is free
    await turns(1000)
    assert held_store.events == MAX_AHEAD_EVENTS - 100
    held_store.release(100)
    await turns(1000)
    assert held_store.events == MAX_AHEAD_EVENTS
    agent.most = agent.sent
    held_store.release()
    task = await sending
    assert task.state is State.COMPLETED
    assert task.text == "word " * agent.sent


async def test_large_events_fill_the_window_by_their_size(start: Any, held_store: Any, turns: Any) -> None:
    agent = Talking({"x": "y" * 300_000})
    agent.most = 40
    held_store.holding = True
    engine = await start(agent.run, store=held_store)
    sending = engine.sending()
    await turns(300)
    assert agent.sent == 4  # the fourth goes over a megabyte
    held_store.release(2)  # the task with its status, and the first value
    await turns(300)
    assert agent.sent == 5
    held_store.release()
    assert len((await sending).artifacts) == 40
    assert MAX_AHEAD_BYTES == 1_000_000


async def test_artifacts_and_progress_keep_to_the_window_too(start: Any, held_store: Any, turns: Any) -> None:
    async def run(ctx: Any) -> Any:
        for _ in range(1000):
            await ctx.progress("on")
            await ctx.artifact("x")
        yield "done"

    held_store.holding = True
    engine = await start(run, store=held_store)
    sending = engine.sending()
    await turns(2000)
    assert held_store.events == MAX_AHEAD_EVENTS
    held_store.release()
    assert (await sending).state is State.COMPLETED


async def test_an_agent_that_waits_for_room_can_be_cancelled(start: Any, held_store: Any, turns: Any) -> None:
    agent = Talking()
    held_store.holding = True
    engine = await start(agent.run, store=held_store)
    sending = engine.sending()
    await turns(1000)
    (task_id,) = engine.service._tasks.live
    cancelling = asyncio.create_task(engine.cancel(task_id))
    await turns()
    held_store.release()
    assert (await cancelling).state is State.CANCELED
    assert (await sending).state is State.CANCELED
    sent = agent.sent
    await engine.idle()
    assert agent.sent == sent


async def test_a_skill_that_times_out_while_it_waits_for_room_fails(
    start: Any, held_store: Any, clock: Any, turns: Any
) -> None:
    agent = Agent("test")

    @agent.skill(timeout=5)
    async def talk() -> Any:
        while True:
            yield "word "

    held_store.holding = True
    engine = await start(agent, store=held_store)
    sending = engine.sending(None, parts=())
    await turns(1000)
    await clock.advance(6)
    held_store.release()
    task = await sending
    assert (task.state, task.error) == (State.FAILED, "timed out after 5 s")


# Nothing leaves before it is durable


async def test_a_sender_hears_nothing_before_the_commit(start: Any, held_store: Any, turns: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield "done" if ctx.text == "end" else Ask("?")

    engine = await start(run, store=held_store)
    for text in ("end", "ask"):
        for wait in (True, False):
            held_store.holding = True
            sending = engine.sending(text, wait=wait)
            await turns()
            assert not sending.done()
            held_store.release(1)
            await turns()
            assert not sending.done()
            held_store.release()
            await sending


async def test_readers_see_only_what_is_committed(start: Any, held_store: Any, turns: Any) -> None:
    go_on = asyncio.Event()

    async def run(ctx: Any) -> Any:
        yield "one "
        yield "two "
        await go_on.wait()
        yield "three "

    engine = await start(run, store=held_store)
    task = await engine.send(wait=False)
    await turns()
    seen: list[int] = []

    async def read(after: int) -> None:
        stream = await engine.subscribe(task, after)
        async with aclosing(stream.batches) as batches:
            async for batch in batches:
                seen.extend(record.generation for record in batch.records)

    reading = asyncio.create_task(read(0))
    await turns()
    committed = (await engine.get(task)).generation
    assert seen == list(range(1, committed + 1))
    held_store.holding = True
    go_on.set()
    await turns()
    assert held_store.events == 2  # the chunk, the end
    assert seen == list(range(1, committed + 1))
    held_store.release()
    await reading
    assert seen == list(range(1, committed + 3))


async def test_get_and_list_never_show_what_is_not_committed(start: Any, held_store: Any, turns: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, store=held_store)
    task = await engine.send(wait=False)
    await turns()
    held_store.holding = True
    gate.open.set()
    await turns()
    getting, listing = asyncio.create_task(engine.get(task)), asyncio.create_task(engine.list())
    await turns()
    assert not getting.done()
    assert not listing.done()
    held_store.release()
    assert (await getting).state is State.COMPLETED
    assert (await listing).tasks[0].state is State.COMPLETED


async def test_a_store_that_takes_no_writes_keeps_no_reader_waiting(
    start: Any, held_store: Any, clock: Any, turns: Any
) -> None:
    gate = Gate()
    engine = await start(gate.run, store=held_store)
    task = await engine.begin()
    held_store.holding = True
    gate.open.set()
    await turns()
    getting = asyncio.create_task(engine.get(task))
    await clock.advance(6)
    assert (await getting).state is State.WORKING


async def test_an_answer_without_waiting_needs_no_commit_but_its_own(start: Any, held_store: Any, turns: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield "done" if ctx.text == "end" else Ask("?")

    engine = await start(run, store=held_store)
    task = await engine.send("ask")
    held_store.holding = True
    answering = engine.sending("end", task=task, wait=False)
    await turns()
    assert not answering.done()
    held_store.release(1)
    assert (await answering).state is State.WORKING
    assert held_store.events > 0


async def test_a_message_is_not_shown_before_it_is_stored(start: Any, held_store: Any, turns: Any) -> None:
    engine = await start(Gate().run, store=held_store)
    task = await engine.send(wait=False)
    await turns()
    held_store.holding = True
    telling = engine.sending("more", task=task, wait=False)
    await turns()
    getting = asyncio.create_task(engine.get(task))
    await turns()
    assert not telling.done()
    assert not getting.done()
    held_store.release()
    assert [message.text for message in (await getting).history] == ["go", "more"]
    await telling


async def test_a_cancel_is_answered_when_it_is_durable(start: Any, held_store: Any, turns: Any) -> None:
    engine = await start(Talking().run, store=held_store)
    task = await engine.send(wait=False)
    await turns()
    held_store.holding = True
    cancelling = asyncio.create_task(engine.cancel(task))
    await turns()
    assert not cancelling.done()
    held_store.release()
    assert (await cancelling).state is State.CANCELED


async def test_a_task_is_forgotten_only_when_its_end_is_durable(start: Any, held_store: Any, turns: Any) -> None:
    agent = Talking()
    agent.most = 1
    held_store.holding = True
    engine = await start(agent.run, store=held_store)
    sending = engine.sending()
    await turns()
    assert engine.left()["live tasks"] == 1
    held_store.release()
    await sending
    await engine.idle()
    assert engine.left() == {}


async def test_a_follow_up_stands_after_what_the_agent_wrote_before_it_alive_and_in_the_journal(
    start: Any, until: Any
) -> None:
    async def run(ctx: Any) -> Any:
        await ctx.progress("looking")
        async for message in ctx.messages():
            await ctx.progress(f"received {message.text}")
            if message.text == "end":
                break
        yield "done"

    engine = await start(run)
    task = await engine.send(wait=False)
    await until(lambda: engine.service._tasks.live[task.id].folding.status.message is not None)
    await engine.send("on", task=task, wait=False)
    ended = await engine.send("end", task=task)
    assert [message.text for message in ended.history] == ["go", "looking", "on", "received on", "end", "received end"]
    await engine.idle()
    stored = await engine.store.task(task.id)
    for generation in range(1, stored.row.generation + 1):
        at = await Replay(engine.store, stored._replace(snapshot=None, snapshot_generation=0)).task(generation)
        folding = Folding(at, generation)
        rest = await engine.store.records(stored.row.number, generation, 100)
        notes = messages_by_generation(await engine.store.notes(stored.row.number))
        for record in rest:
            folding.apply(record.event)
            for message in notes.get(record.generation, ()):
                folding.add_message(message)
        assert folding.task() == ended


# A store that fails


async def test_a_write_that_fails_is_an_error_for_its_caller_and_harms_no_other_task(
    start: Any, failing_store: Any
) -> None:
    async def run(ctx: Any) -> Any:
        yield ctx.text

    engine = await start(run, store=failing_store)
    for refused in (1, 2, 3, 4):

        def refuses(write: Any, refused: int = refused) -> bool:
            return write.row.context_id == "bad" and write.row.generation >= refused

        failing_store.refuses = refuses
        results = await asyncio.gather(
            engine.send("a", context="good"),
            engine.send("b", context="bad"),
            engine.send("c", context="good"),
            return_exceptions=True,
        )
        assert (results[0].text, results[2].text) == ("a", "c")
        assert isinstance(results[1], ServerError)
        assert "try again later" in str(results[1])
        await engine.idle()
        assert engine.left() == {}


async def test_work_whose_journal_is_broken_is_stopped_once_and_may_clean_up(
    start: Any, failing_store: Any, turns: Any
) -> None:
    happened: list[str] = []

    async def run(ctx: Any) -> Any:
        try:
            for number in range(10):
                yield str(number)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            happened.append("cancelled")
            await turns(10)  # later failures of the same batch must not interrupt this
            happened.append("cleaned up")
            raise

    engine = await start(run, store=failing_store)
    failing_store.refuses = lambda write: write.row.generation > 3
    with pytest.raises(ServerError):
        await engine.send()
    await engine.idle()
    assert happened == ["cancelled", "cleaned up"]
    assert engine.left() == {}


async def test_a_message_that_could_not_be_stored_is_an_error_for_its_sender(
    start: Any, failing_store: Any, turns: Any
) -> None:
    engine = await start(Gate().run, store=failing_store)
    task = await engine.send(wait=False)
    await turns()
    failing_store.refuses = lambda write: True
    with pytest.raises(ServerError):
        await engine.send("more", task=task, wait=False)
    await engine.idle()
    assert engine.left() == {}


async def test_one_broken_task_does_not_break_the_list(start: Any, failing_store: Any, turns: Any) -> None:
    held = asyncio.Event()

    async def run(ctx: Any) -> Any:
        try:
            yield "text"
            await asyncio.Event().wait()
        finally:
            await held.wait()  # it stays in the engine's hands for a while

    engine = await start(run, store=failing_store)
    task = await engine.begin()
    await turns()
    failing_store.refuses = lambda write: True
    with pytest.raises(ServerError):
        await engine.cancel(task)
    assert [found.id for found in (await engine.list()).tasks] == [task.id]
    held.set()
    await engine.idle()


async def test_a_reply_that_cannot_be_kept_is_not_given(start: Any, failing_store: Any) -> None:
    async def run(ctx: Any) -> Any:
        yield Reply("hi")

    failing_store.refuses = lambda write: write.delete
    engine = await start(Agent("test", run=run, replies=True), store=failing_store)
    with pytest.raises(ServerError):
        await engine.send()


async def test_a_broken_task_says_so_to_everybody_who_waits_for_it(start: Any, failing_store: Any, turns: Any) -> None:
    gate = Gate()
    engine = await start(gate.run, store=failing_store)
    first = engine.sending()
    await turns()
    (task_id,) = engine.service._tasks.live
    second = engine.sending("more", task=task_id)
    await turns()
    failing_store.refuses = lambda write: True
    gate.open.set()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [ServerError, ServerError]
