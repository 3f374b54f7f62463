"""The clock on the wall jumps by days, backwards and forwards: order, lists, repeats and retention stay sane."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.clocks import SettableClock
from unit.engine.conftest import Engine, start

from dragoman.engine.journal.retention import SWEEP_SECONDS, Janitor, Retention
from dragoman.model.state import State
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore

__all__ = ["start"]

pytestmark = pytest.mark.fault

DAY = 86_400
JUMPS = (-3 * DAY, 5 * DAY, -400 * DAY, 399 * DAY, -1)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: Any, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "tasks.db")


async def pages(engine: Engine, size: int) -> list[str]:
    """The ids of all tasks, a page at a time."""
    found: list[str] = []
    token: str | None = None
    while token is None or token:
        page = await engine.list(page_size=size, page_token=token)
        found += [task.id for task in page.tasks]
        token = page.next_page_token
    return found


async def say(ctx: Any) -> Any:
    yield ctx.text


async def test_the_events_of_a_task_keep_their_order(start: Any, store: Any, clock: SettableClock) -> None:
    async def jumping(ctx: Any) -> Any:
        for seconds in JUMPS:
            await ctx.progress(f"{seconds}")
            clock.jump(seconds)
            yield f"{seconds} "
            await asyncio.sleep(0)

    engine = await start(jumping, store=store)
    task = await engine.send()
    assert task.state is State.COMPLETED
    records = await engine.follow(task, 0)
    assert [record.generation for record in records] == list(range(1, len(records) + 1))
    statuses = [record.event.status for record in records if record.state is State.WORKING]
    assert [status.message.text for status in statuses if status.message] == [str(seconds) for seconds in JUMPS]
    for after in range(len(records)):
        assert [record.generation for record in await engine.follow(task, after)] == list(
            range(after + 1, len(records) + 1)
        )


async def test_a_list_shows_every_task_once_a_page_at_a_time(start: Any, store: Any, clock: SettableClock) -> None:
    engine = await start(say, store=store)
    made: list[str] = []
    for seconds in (0, *JUMPS):
        clock.jump(seconds)
        made += [(await engine.send()).id for _ in range(3)]
    for size in (1, 2, 5, 100):
        found = await pages(engine, size)
        assert sorted(found) == sorted(made)
        assert found == await pages(engine, 100)


async def test_a_list_goes_on_where_it_was_when_the_clock_jumps_between_two_pages(
    start: Any, store: Any, clock: SettableClock
) -> None:
    engine = await start(say, store=store)
    made = [(await engine.send()).id for _ in range(6)]
    first = await engine.list(page_size=3)
    clock.jump(-10 * DAY)
    rest = await engine.list(page_size=3, page_token=first.next_page_token)
    assert sorted(task.id for task in (*first.tasks, *rest.tasks)) == sorted(made)


async def test_a_message_sent_again_after_the_clock_went_back_runs_nothing_twice(
    start: Any, store: Any, clock: SettableClock
) -> None:
    engine = await start(say, store=store)
    message_id = str(uuid4())
    first = await engine.send(message_id=message_id)
    for seconds in (-1, -3 * DAY, -400 * DAY):
        clock.jump(seconds)
        again = await engine.answer(message_id=message_id)
        assert (again.result.id, again.repeat) == (first.id, True)
    assert await pages(engine, 100) == [first.id]


async def test_a_message_is_forgotten_when_the_clock_goes_forward_and_known_from_then_on(
    start: Any, store: Any, clock: SettableClock
) -> None:
    engine = await start(say, store=store)
    message_id = str(uuid4())
    first = await engine.send(message_id=message_id)
    clock.jump(5 * DAY)
    second = await engine.answer(message_id=message_id)
    assert (second.result.id == first.id, second.repeat) == (False, False)
    third = await engine.answer(message_id=message_id)
    assert (third.result.id, third.repeat) == (second.result.id, True)


async def test_a_long_poll_lasts_as_long_as_before(start: Any, store: Any, clock: SettableClock) -> None:
    go_on = asyncio.Event()

    async def waiting(ctx: Any) -> Any:
        await go_on.wait()
        yield "done"

    engine = await start(waiting, store=store)
    task = await engine.send(wait=False)
    polling = asyncio.ensure_future(engine.get(task, current_generation=100))
    await clock.advance(1)
    for seconds in JUMPS:
        clock.jump(seconds)
        await clock.advance(1)
        assert not polling.done()
    await clock.advance(30)
    assert (await polling).state is State.WORKING
    go_on.set()
    assert (await engine.follow(task, 0))[-1].state is State.COMPLETED


async def sweep(store: Any, clock: SettableClock, retention: Retention) -> None:
    """What a janitor does who starts now, and looks again after a minute."""
    janitor = Janitor(store, clock, retention)
    janitor.start()
    for _ in range(2):
        assert janitor._worker is not None
        await janitor._worker
        await clock.advance(SWEEP_SECONDS)
    await janitor.stop()


async def test_a_clock_that_went_back_deletes_nothing_early(start: Any, store: Any, clock: SettableClock) -> None:
    engine = await start(say, store=store)
    before = await engine.send()
    clock.jump(-30 * DAY)
    after = await engine.send()
    await sweep(store, clock, Retention(keep=7 * DAY, compact=DAY))
    for task in (before, after):
        assert (await engine.get(task)).state is State.COMPLETED
        assert await engine.follow(task, 0)
    # Time passes, and everything goes in the end.
    clock.jump(40 * DAY)
    await sweep(store, clock, Retention(keep=7 * DAY))
    assert await pages(engine, 100) == []


async def test_a_task_that_ended_before_the_clock_was_corrected_is_compacted(
    start: Any, store: Any, clock: SettableClock
) -> None:
    engine = await start(say, store=store)
    clock.jump(10 * DAY)  # it is wrong
    early = await engine.send()
    clock.jump(2 * DAY)
    await sweep(store, clock, Retention(compact=DAY))
    assert len(await store.records((await store.task(early.id)).row.number, 0, 100)) == 0
    clock.jump(-12 * DAY)  # and put right
    await sweep(store, clock, Retention(compact=DAY))
    late = await engine.send()
    clock.jump(2 * DAY)
    await sweep(store, clock, Retention(compact=DAY))
    assert len(await store.records((await store.task(late.id)).row.number, 0, 100)) == 0
    for task in (early, late):
        assert (await engine.get(task)).text == "go"
