"""Wake-ups between processes that share a PostgreSQL: two buses stand for two processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.bus import postgres
from dragoman.bus.postgres import CHANNEL, MAX_PAYLOAD, PostgresBus
from dragoman.clock import SystemClock
from dragoman.engine.ports.bus import Watch
from dragoman.testing import Clock

asyncpg = pytest.importorskip("asyncpg")
SECONDS = 10


@pytest.fixture(autouse=True)
def polls_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "MIN_POLL_INTERVAL", 0.02)


async def past(watch: Watch, generation: int) -> bool:
    """Wait until a watch is past a generation. A wake-up may come without one, as when a connection is new."""
    while not await watch.wait_past(generation, 60):
        pass
    return True


async def until(condition: Callable[[], object]) -> None:
    """Let others run, and bytes arrive, until the condition holds."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - any condition, also one that PostgreSQL fulfills
            await asyncio.sleep(0.001)


class Process:
    """A bus, what it was asked to pass on, and the store it polls."""

    def __init__(self, url: str, stored: dict[str, int], clock: Any = None, jitter: float = 0.5) -> None:
        self.stored = stored
        self.foreign: list[str] = []
        self.work = 0
        self.polls: list[list[str]] = []
        self.bus = PostgresBus(
            clock or SystemClock(),
            url,
            self.generations,
            on_foreign=self.foreign.extend,
            on_work=self.count_work,
            jitter=lambda: jitter,
        )

    def has_met_others(self) -> bool:
        if isinstance(self.bus._clock, Clock):
            self.bus._clock.move(0.01)  # or it would wait for ever before it sends again
        return self.bus._has_company

    async def generations(self, task_ids: Sequence[str]) -> list[tuple[str, int]]:
        self.polls.append(list(task_ids))
        return [(task_id, self.stored[task_id]) for task_id in task_ids if task_id in self.stored]

    def count_work(self) -> None:
        self.work += 1


@asynccontextmanager
async def running(*processes: Process) -> AsyncIterator[None]:
    """Processes that have found each other."""
    for process in processes:
        await process.bus.open()
    try:
        for process in processes:
            await until(lambda: process.bus.is_connected)  # noqa: B023 - awaited here
        if len(processes) > 1:
            await until(lambda: all(process.has_met_others() for process in processes))
        for process in processes:
            process.foreign.clear()
            process.polls.clear()
            process.work = 0
        yield
    finally:
        for process in processes:
            await process.bus.close()


@asynccontextmanager
async def listener(url: str) -> AsyncIterator[list[str]]:
    """Everything that is sent, as another client of PostgreSQL receives it."""
    payloads: list[str] = []
    connection = await asyncpg.connect(url)
    await connection.add_listener(CHANNEL, lambda *got: payloads.append(got[3]))
    try:
        yield payloads
    finally:
        await connection.close()


async def test_a_subscriber_in_another_process_wakes(empty_postgres_url: str) -> None:
    here, there = Process(empty_postgres_url, {}), Process(empty_postgres_url, {})
    async with running(here, there):
        with here.bus.watch("a") as near, there.bus.watch("a") as far:
            waiting = [asyncio.ensure_future(past(watch, 3)) for watch in (near, far)]
            await asyncio.sleep(0)
            here.bus.notify("a", 4)
            assert waiting[0].done() or await waiting[0]  # at once, without a way through PostgreSQL
            assert await asyncio.wait_for(waiting[1], SECONDS) is True
        assert there.foreign == ["a"]
        assert here.foreign == []  # its own notifications come back to it, and are ignored


async def test_work_is_announced_to_the_others(empty_postgres_url: str) -> None:
    here, there = Process(empty_postgres_url, {}), Process(empty_postgres_url, {})
    async with running(here, there):
        here.bus.announce_work()
        await until(lambda: there.work)
        assert here.work == 0


async def test_thousands_of_changes_are_a_few_payloads_and_none_is_too_long(empty_postgres_url: str) -> None:
    here, there = Process(empty_postgres_url, {}), Process(empty_postgres_url, {})
    awkward = 'ü"' * 100
    ids = [f"{awkward}-{number}" for number in range(300)] + [f"task-{number}" for number in range(5000)]
    async with running(here, there), listener(empty_postgres_url) as payloads:
        for generation in range(1, 11):
            for task_id in ids:
                here.bus.notify(task_id, generation)
        # The processes may still greet each other: those payloads name no task.
        await until(lambda: len(there.foreign) >= len(ids) and any(f'"{ids[-1]}"' in payload for payload in payloads))
        assert there.foreign == ids  # each once, although each was notified ten times
        sizes = [len(payload.encode()) for payload in payloads if not payload.endswith(",[]]")]
        assert max(sizes) < 8000
        assert sum(sizes) / len(sizes) > 0.9 * MAX_PAYLOAD


async def test_a_lost_connection_comes_back_and_what_was_missed_is_polled_at_once(empty_postgres_url: str) -> None:
    stored: dict[str, int] = {"a": 3}
    here, there = Process(empty_postgres_url, stored), Process(empty_postgres_url, stored)
    async with running(here, there):
        with there.bus.watch("a") as watch:
            waiting = asyncio.ensure_future(past(watch, 3))
            await asyncio.sleep(0)
            stored["a"] = 4  # whatever happens while there is no connection is not notified
            admin, lost = await asyncpg.connect(empty_postgres_url), there.bus._connection
            await admin.execute("SELECT pg_terminate_backend($1)", lost.get_server_pid())
            await admin.close()
            assert await asyncio.wait_for(waiting, SECONDS) is True
            await until(lambda: there.work)  # there may be tasks to take, too
            # A poll that was due anyway may come before it is noticed that the connection is lost.
            await until(lambda: there.bus.is_connected and there.bus._connection is not lost)
            here.bus.notify("a", 5)
            assert await asyncio.wait_for(past(watch, 4), SECONDS) is True


async def test_what_cannot_be_sent_is_made_up_for_when_the_connection_is_back(empty_postgres_url: str) -> None:
    stored: dict[str, int] = {"a": 3}
    here, there = Process(empty_postgres_url, stored), Process(empty_postgres_url, stored)
    async with running(here, there):
        with there.bus.watch("a") as watch:
            waiting = asyncio.ensure_future(past(watch, 3))
            await asyncio.sleep(0)
            stored["a"] = 4
            here.bus._connection.terminate()
            here.bus.notify("a", 4)
            assert await asyncio.wait_for(waiting, SECONDS) is True


async def test_a_lone_process_sends_nothing_and_a_joining_one_misses_nothing(empty_postgres_url: str) -> None:
    clock = Clock()
    stored = {"a": 3}
    here, late = Process(empty_postgres_url, stored, clock), Process(empty_postgres_url, stored)
    async with listener(empty_postgres_url) as payloads, running(here):
        assert here.bus.is_sending  # it has asked, and waits for an answer
        await clock.advance(13)
        assert not here.bus.is_sending
        await until(lambda: payloads)
        await clock.advance(1)
        payloads.clear()
        here.bus.notify("b", 1)
        async with running(late):
            with late.bus.watch("a") as watch:
                waiting = asyncio.ensure_future(past(watch, 3))
                await asyncio.sleep(0)
                # What happens before the other's greeting arrives is not sent. The one who joins polls it.
                stored["a"] = 4
                await until(lambda: (clock.move(0.01), here.bus.is_sending)[1])
                assert await asyncio.wait_for(waiting, SECONDS) is True
            assert not any('"b"' in payload for payload in payloads)


async def test_a_late_answer_makes_up_for_what_was_not_sent(empty_postgres_url: str) -> None:
    clock = Clock()
    stored = {"a": 3}
    here, there = Process(empty_postgres_url, stored, clock), Process(empty_postgres_url, stored)
    async with running(here, there):
        # The other process does nothing for a while: it neither answers nor receives.
        there.bus._is_closed = True
        await clock.advance(13)
        await clock.advance(13)
        await clock.advance(13)
        assert not here.bus.is_sending
        stored["a"] = 4
        here.bus.notify("a", 4)
        there.bus._is_closed = False
        with there.bus.watch("a") as watch:
            waiting = asyncio.ensure_future(past(watch, 3))
            await asyncio.sleep(0)
            there.bus.announce_work()
            await until(lambda: (clock.move(0.01), here.work)[1])
            assert await asyncio.wait_for(waiting, SECONDS) is True


# Without a connection


def unreachable(stored: dict[str, int], clock: Clock, jitter: float = 0.5) -> Process:
    return Process("postgresql://127.0.0.1:1/nothing", stored, clock, jitter)


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 10.0), (1.0, 15.0)])
async def test_watched_tasks_are_polled_together_every_10_to_15_seconds(jitter: float, seconds: float) -> None:
    clock, stored = Clock(), {"a": 3, "b": 7}
    process = unreachable(stored, clock, jitter)
    await process.bus.open()
    with process.bus.watch("a") as one, process.bus.watch("b") as two, process.bus.watch("a") as three:
        waiting = [
            asyncio.ensure_future(watch.wait_past(generation, 600))
            for watch, generation in ((one, 3), (two, 7), (three, 3))
        ]
        await clock.advance(seconds - 0.1)
        assert process.polls == []
        await clock.advance(0.1)
        assert process.polls == [["a", "b"]]
        assert not any(each.done() for each in waiting)  # who has read all of it is not woken
        stored["a"] = 4
        await clock.advance(seconds)
        assert [each.done() for each in waiting] == [True, False, True]
        waiting[1].cancel()
    await process.bus.close()
    assert clock.pending == 0


async def test_a_waiter_for_a_deleted_task_is_woken() -> None:
    clock = Clock()
    process = unreachable({}, clock)
    await process.bus.open()
    with process.bus.watch("a") as watch:
        waiting = asyncio.ensure_future(watch.wait_past(3, 600))
        await clock.advance(13)
        assert (await waiting, watch.timed_out) == (False, False)
    await process.bus.close()


async def test_a_poll_that_fails_is_made_up_for_by_the_next() -> None:
    clock = Clock()
    process = unreachable({"a": 4}, clock)
    failing = process.bus._generations

    async def broken(task_ids: Sequence[str]) -> list[tuple[str, int]]:
        raise ConnectionError("no database")

    process.bus._generations = broken
    await process.bus.open()
    with process.bus.watch("a") as watch:
        waiting: Awaitable[bool] = asyncio.ensure_future(watch.wait_past(3, 600))
        await clock.advance(13)
        process.bus._generations = failing
        await clock.advance(13)
        assert await waiting is True
    await process.bus.close()


async def test_text_that_is_no_notice_is_ignored(empty_postgres_url: str) -> None:
    here = Process(empty_postgres_url, {})
    async with running(here):
        connection = await asyncpg.connect(empty_postgres_url)
        for payload in ("", "hello", "[1]", '{"a": 1}'):
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, '[1, 1, [["a", 2]], "later versions add more"]')
        await until(lambda: here.foreign)
        assert (here.foreign, here.work) == (["a"], 1)
        await connection.close()
