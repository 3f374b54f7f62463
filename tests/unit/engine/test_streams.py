"""Following a task: every record once, in order, whoever reads and however slowly."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from support.login_link import handle_of, link

from dragoman import Agent
from dragoman.engine.call import CallContext
from dragoman.engine.journal.durability import MAX_WINDOW_EVENTS
from dragoman.engine.ports.store import Sweep
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import ServerError, UnsupportedOperation
from dragoman.model.state import State
from dragoman.outputs import Ask
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore


def numbers(records: list[Any]) -> list[int]:
    return [record.generation for record in records]


def counting(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


class Steps:
    """An agent that says a word each time it is let go on."""

    def __init__(self) -> None:
        self.next = asyncio.Semaphore(0)
        self.count = 0

    async def run(self, ctx: Any) -> Any:
        if ctx.resume is not None:
            yield "resumed "
        while True:
            await self.next.acquire()
            if ctx.text == "ask" and self.count == 2:
                self.count += 1
                yield Ask("?")
                return
            if self.count >= 4:
                return
            self.count += 1
            yield f"{self.count} "


def let(agent: Steps, steps: int = 9) -> None:
    for _ in range(steps):
        agent.next.release()


# SendStreamingMessage


async def test_an_agent_whose_card_says_no_does_not_stream(start: Any) -> None:
    engine = await start(Agent("test", run=Steps().run, card={"capabilities": {"streaming": False}}))
    with pytest.raises(UnsupportedOperation):
        await engine.stream()
    with pytest.raises(UnsupportedOperation):
        await engine.subscribe("any")
    assert (await engine.list()).tasks == ()


# SubscribeToTask


# Slow readers


async def test_a_slow_reader_rereads_the_journal_and_misses_nothing(start: Any) -> None:
    chunks = 5_000

    async def run(ctx: Any) -> Any:
        for number in range(chunks):
            yield f"{number} "

    engine = await start(run)
    stream = await engine.service.stream(CallContext(), engine.request())
    async with asyncio.timeout(30), aclosing(stream.batches) as batches:
        first = await anext(batches)
        await engine.idle()  # the agent is done long before the reader reads on: it never waited for the reader
        records = [*first.records]
        async for batch in batches:
            assert len(batch.records) <= MAX_WINDOW_EVENTS
            records += batch.records
    assert numbers(records) == counting(1, chunks + 3)
    text = "".join(record.event.artifact.text for record in records[2:-1])
    assert text == "".join(f"{number} " for number in range(chunks))
    assert records[-1].state is State.COMPLETED
    assert engine.left() == {}


async def test_a_reader_who_slept_through_a_pause_an_answer_and_the_end_gets_it_all(start: Any) -> None:
    agent = Steps()
    let(agent, 30)
    engine = await start(agent.run)
    task = await engine.send("ask", wait=False)
    stream = await engine.subscribe(task, 0)
    async with asyncio.timeout(10), aclosing(stream.batches) as batches:
        records = [*(await anext(batches)).records]
        while records[-1].state is not State.INPUT_REQUIRED:
            records += (await anext(batches)).records
        await engine.idle()
        ended = await engine.send("3", task=task)
        await engine.idle()
        async for batch in batches:
            records += batch.records
    assert numbers(records) == counting(1, ended.generation)


@pytest.mark.requirement("S2-93")
async def test_a_reader_who_leaves_ends_nothing_and_is_forgotten(start: Any) -> None:
    agent = Steps()
    engine = await start(agent.run)
    task = await engine.send(wait=False)
    streams = [
        await engine.subscribe(task),
        await engine.subscribe(task, 0),
        await engine.service.stream(CallContext(), engine.request("hi", task=task)),
    ]
    new = await engine.service.stream(CallContext(), engine.request("two", history_length=0))
    for stream in (*streams, new):
        await anext(stream.batches)
    assert engine.left()["listeners"] == 2  # tasks that are listened to
    for stream in (*streams, new):
        await stream.batches.aclose()
    assert "listeners" not in engine.left()
    let(agent, 20)
    assert (await engine.until_state(task, State.COMPLETED)).text


async def test_a_reader_who_is_cancelled_while_it_waits_is_forgotten(start: Any, turns: Any) -> None:
    engine = await start(Steps().run)
    task = await engine.send(wait=False)
    readings = [asyncio.create_task(engine.follow(task, after)) for after in (None, 0, 1)]
    await turns()
    for reading in readings:
        reading.cancel()
    await asyncio.gather(*readings, return_exceptions=True)
    await turns()
    assert "listeners" not in engine.left()
    assert (await engine.get(task)).state is State.WORKING


# Heartbeats


async def test_a_silent_stream_says_now_and_then_that_it_is_alive(start: Any, clock: Any, turns: Any) -> None:
    agent = Steps()
    engine = await start(agent.run, settings=EngineSettings(heartbeat=15, drain=0))
    task = await engine.send(wait=False)
    stream = await engine.subscribe(task)
    seen: list[int] = []

    async def read() -> None:
        async for records, _ in stream.batches:
            seen.append(len(records))

    reading = asyncio.create_task(read())
    await turns()
    assert seen == [1]
    await clock.advance(14.9)
    assert seen == [1]
    await clock.advance(0.1)
    assert seen == [1, 0]
    await clock.advance(30)
    assert seen == [1, 0, 0, 0]
    let(agent)
    await reading
    assert clock.pending == 0


class CountingStore(MemoryStore):
    """A store that counts what is read from it."""

    reads = 0

    async def task(self, task_id: str) -> Any:
        self.reads += 1
        return await super().task(task_id)

    async def records(self, number: int, after: int, limit: int) -> Any:
        self.reads += 1
        return await super().records(number, after, limit)


@pytest.mark.parametrize("question", [Ask("?", auth=True, url=link), None], ids=["at rest", "at work"])
async def test_a_stream_that_waits_reads_nothing(start: Any, clock: Any, turns: Any, question: Any) -> None:
    ended = asyncio.Event()

    async def run(ctx: Any) -> Any:
        yield question if question is not None and ctx.resume is None else "one "
        await ended.wait()
        yield "two"

    store = CountingStore()
    engine = await start(run, store=store, settings=EngineSettings(heartbeat=15, drain=0))
    task = await engine.send(wait=False)
    await turns()
    stream = await engine.subscribe(task)
    seen: list[Any] = []

    async def read() -> None:
        async for batch in stream.batches:
            seen.extend(batch.records or [None])

    reading = asyncio.create_task(read())
    await turns()
    store.reads = 0
    before = len(seen)
    await clock.advance(150)
    assert (store.reads, seen[before:]) == (0, [None] * 10)
    ended.set()
    if question is not None:
        await engine.service.resume(handle_of(await engine.get(task)))
    await reading
    assert numbers([record for record in seen if record is not None]) == counting(
        seen[0].generation, (await engine.get(task)).generation
    )


# A store that fails


async def test_readers_of_a_task_whose_write_failed_get_the_error(start: Any, failing_store: Any, turns: Any) -> None:
    agent = Steps()
    engine = await start(agent.run, store=failing_store)
    task = await engine.send(wait=False)
    readings = [asyncio.create_task(engine.follow(task, after)) for after in (None, 0)]
    await turns()
    failing_store.refuses = lambda write: True
    let(agent)
    for reading in readings:
        with pytest.raises(ServerError):
            await reading


@pytest.mark.parametrize("ask", ["answer", "cancel"])
async def test_readers_of_a_waiting_task_wait_on_when_a_change_was_refused(
    start: Any, failing_store: Any, turns: Any, ask: str
) -> None:
    async def run(ctx: Any) -> Any:
        yield Ask("?") if ctx.resume is None else "done"

    engine = await start(run, store=failing_store)
    task = await engine.send()
    await engine.idle()
    reading = asyncio.create_task(engine.follow(task))
    await turns()
    failing_store.refuses = lambda write: True
    with pytest.raises(ServerError):
        await (engine.send("3", task=task) if ask == "answer" else engine.cancel(task))
    await turns()
    if ask == "cancel":  # nobody worked on it: for its readers nothing has happened
        assert not reading.done()
    failing_store.refuses = lambda write: False
    if reading.done():
        with pytest.raises(ServerError):
            reading.result()
        reading = asyncio.create_task(engine.follow(task))
    ended = await engine.send("3", task=task)
    assert ended.state is State.COMPLETED
    assert numbers(await reading) == counting(task.generation, ended.generation)


# Journals that were swept


@pytest.fixture
def in_file(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "tasks.db")


async def test_what_was_compacted_cannot_be_resumed_and_nobody_waits_for_it(
    start: Any, clock: Any, in_file: SqliteStore
) -> None:
    agent = Steps()
    let(agent, 20)
    engine = await start(agent.run, store=in_file)
    request = engine.request()
    await engine.service.send(CallContext(), request)
    (task,) = (await engine.list()).tasks
    await engine.idle()
    assert await in_file.sweep(Sweep(compact_before_ms=clock.now() + 1)) == 1
    for after in (None, 0, 1, task.generation):
        with pytest.raises(UnsupportedOperation):
            await engine.subscribe(task, after)
    async with asyncio.timeout(10):
        repeated = await engine.service.stream(CallContext(), request)
        records = [record async for batch in repeated.batches for record in batch.records]
    assert [record.event.text for record in records] == ["1 2 3 4 "]
    assert repeated.repeat is True


@pytest.mark.parametrize(
    "rules", [Sweep(compact_before_ms=2**60), Sweep(ended_before_ms=2**60)], ids=["compact", "delete"]
)
async def test_a_reader_whose_task_is_swept_away_meanwhile_is_let_go(
    start: Any, in_file: SqliteStore, rules: Sweep
) -> None:
    async def run(ctx: Any) -> Any:
        for number in range(1000):
            yield f"{number} "

    engine = await start(run, store=in_file)
    stream = await engine.service.stream(CallContext(), engine.request())
    async with asyncio.timeout(10), aclosing(stream.batches) as batches:
        await anext(batches)
        await engine.idle()
        while await in_file.sweep(rules):
            pass
        async for batch in batches:
            assert not batch.ended
