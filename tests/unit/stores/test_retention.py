"""Retention takes little of the writer's time at once, however many keys, events or bytes a task has.

What a step costs is counted in rows and in instructions of SQLite's machine: a clock would measure this computer.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.engine.ports.store import DedupeKey, Note, Sweep, TaskQuery
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.sqlite import retention as sweeping
from dragoman.stores.sqlite.retention import Sweeper
from dragoman.stores.sqlite.schema import ALL_SCOPES
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing.store_writes import NOW, SCOPE, create, outcome, read_task, row_of, write

RULES = Sweep(ended_before_ms=NOW, expired_before_ms=NOW)
EMPTIED = ("tasks", "events", "notes", "snapshots", "repeats", "leftovers", "contexts", "context_counts", "pushes")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.open()
    yield store
    await store.close()


async def run(store: SqliteStore, job: Callable[[sqlite3.Connection], Any]) -> Any:
    return await store._writer.run(job)


async def fill(store: SqliteStore, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
    many = list(rows)
    places = ", ".join("?" * len(many[0]))
    await run(store, lambda db: db.executemany(f"INSERT INTO {table} VALUES ({places})", many))


async def ended(store: SqliteStore, name: str, *, snapshot: bytes = b"{}", generation: int = 2) -> int:
    """A task that ended a moment before NOW. Gives its number."""
    row = await create(store, row_of(store, name, context_id=f"talk-{name}"), notes=(Note(1, "request", b"r"),))
    row = structs.replace(row, state=State.COMPLETED, status_ms=NOW - 1, generation=2)
    await write(
        store, row, records=(Record(2, b"{}"),), previous_state=State.SUBMITTED, snapshot=snapshot, context_state=b"{}"
    )
    if generation > 2:
        await run(store, lambda db: db.execute("UPDATE tasks SET generation = ?", (generation,)))
        await run(store, lambda db: db.execute("UPDATE snapshots SET generation = ?", (generation,)))
    return row.number


async def count(store: SqliteStore, table: str) -> int:
    return await run(store, lambda db: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def steps(store: SqliteStore, rules: Sweep, sweeper: Sweeper, has_waiting: bool = False) -> list[int]:
    """Sweep until all is done. Gives how many rows each step has changed."""
    changed: list[int] = []

    def step(db: sqlite3.Connection) -> int:
        before = db.total_changes
        touched = sweeper.step(db, rules, lambda: has_waiting)
        changed.append(db.total_changes - before)
        return touched

    while await run(store, step):
        pass
    return changed


def ticking(seconds: float) -> Sweeper:
    """A sweeper for which every slice takes that long."""
    ticks = itertools.count()
    return Sweeper(clock=lambda: next(ticks) * seconds)


async def work(store: SqliteStore, rules: Sweep) -> int:
    """How many instructions one step takes, in hundreds."""
    hundreds = itertools.count()
    await run(store, lambda db: db.set_progress_handler(lambda: next(hundreds) < 0, 100))
    await store.sweep(rules)
    await run(store, lambda db: db.set_progress_handler(None, 0))
    return next(hundreds)


# What a step costs


async def test_the_dedupe_keys_of_other_tasks_cost_a_sweep_nothing(store: SqliteStore) -> None:
    for number in range(10):
        await ended(store, f"old-{number}")
    few = await work(store, structs.replace(RULES, limit=5))
    await fill(store, "repeats", ((b"%d" % number, f"other-{number}", NOW + 1, None) for number in range(20_000)))
    assert await work(store, structs.replace(RULES, limit=5)) < 2 * few + 10
    assert await count(store, "tasks") == 0


async def test_every_statement_of_a_sweep_finds_its_rows_by_an_index(store: SqliteStore) -> None:
    for number in range(4):
        await ended(store, f"old-{number}")
    rules = Sweep(ended_before_ms=NOW - 1, keep_tasks=2, compact_before_ms=NOW, expired_before_ms=NOW)
    texts: list[str] = []
    await run(store, lambda db: db.set_trace_callback(texts.append))
    while await store.sweep(rules):
        pass
    await store.sweep(structs.replace(RULES, ended_before_ms=NOW))
    await run(store, lambda db: db.set_trace_callback(None))
    texts = [text for text in texts if text.split()[0] in ("SELECT", "DELETE", "UPDATE")]
    assert len(texts) > 30

    def plans(db: sqlite3.Connection) -> list[str]:
        return [row[3] for text in set(texts) for row in db.execute(f"EXPLAIN QUERY PLAN {text}")]

    scans = [line for line in await run(store, plans) if line.startswith("SCAN")]
    # In order and from the first one, of which the statement takes a few.
    assert set(scans) <= {"SCAN leftovers", "SCAN tasks USING INDEX tasks_ended"}


async def test_how_many_tasks_there_are_is_known_without_adding_up_their_owners(store: SqliteStore) -> None:
    await ended(store, "a")
    few = await work(store, Sweep(keep_tasks=5))
    await fill(store, "state_counts", ((scope, 3, 1) for scope in range(100, 20_000)))
    assert await work(store, Sweep(keep_tasks=5)) < few + 5


async def test_a_task_with_thousands_of_dedupe_keys_goes_in_many_small_steps(store: SqliteStore) -> None:
    await ended(store, "old")
    await fill(store, "repeats", ((b"%d" % number, "old", NOW + 1, None) for number in range(5000)))
    changed = await steps(store, RULES, ticking(0.0015))  # three slices fill a step
    assert max(changed) < 3 * sweeping.SLICE_ROWS
    assert len(changed) > 5000 / (3 * sweeping.SLICE_ROWS)
    assert [await count(store, table) for table in EMPTIED] == [0] * len(EMPTIED)


async def test_the_journal_of_a_large_task_goes_in_slices_that_nobody_sees(store: SqliteStore) -> None:
    number = await ended(store, "old", generation=50_000)
    kept = await ended(store, "kept")
    await run(store, lambda db: db.execute("UPDATE tasks SET status_ms = ? WHERE id = 'kept'", (NOW,)))
    await fill(store, "events", ((number, generation, b"{}", NOW) for generation in range(3, 50_001)))
    assert await run(store, lambda db: ticking(0.01).step(db, RULES, lambda: False)) == 1
    assert await store.task("old") is None
    assert (await store.page(TaskQuery(SCOPE))).total == 1
    assert 49_000 < await count(store, "events") < 50_000
    changed = await steps(store, RULES, ticking(0.001))
    assert max(changed) <= 6 * sweeping.SLICE_ROWS
    assert await count(store, "events") == len(await store.records(kept, 0, 10)) == 2
    assert await count(store, "leftovers") == 0


async def test_a_large_task_is_compacted_in_slices_from_its_end(store: SqliteStore) -> None:
    number = await ended(store, "old", generation=5000)
    await fill(store, "events", ((number, generation, b"{}", NOW) for generation in range(3, 5001)))
    rules = Sweep(compact_before_ms=NOW)
    assert await run(store, lambda db: ticking(0.01).step(db, rules, lambda: False)) == 1
    left = await store.records(number, 0, 10_000)
    assert [record.generation for record in left] == list(range(1, len(left) + 1))  # there is no gap
    assert 4000 < len(left) < 5000
    assert len(await store.notes(number)) == 1  # the events that are left need it
    assert max(await steps(store, rules, ticking(0.001))) <= 6 * sweeping.SLICE_ROWS
    assert (await store.records(number, 0, 1), await store.notes(number)) == ([], [])
    assert (await read_task(store, "old")).snapshot == b"{}"


async def test_of_large_events_a_slice_has_few(store: SqliteStore) -> None:
    number = await ended(store, "old", snapshot=b"s" * 400_000, generation=6)
    await fill(store, "events", ((number, generation, b"e" * 100_000, NOW) for generation in range(3, 7)))
    changed = await steps(store, Sweep(compact_before_ms=NOW), ticking(0.01))
    assert len(changed) >= 2
    assert max(changed) <= 4
    assert await count(store, "events") == 0


async def test_slices_get_smaller_when_they_are_slow_and_larger_when_they_are_quick(store: SqliteStore) -> None:
    async def sweep_keys(sweeper: Sweeper) -> list[int]:
        await fill(store, "repeats", ((b"%d" % number, "t", NOW - 1, None) for number in range(130)))
        return await steps(store, RULES, sweeper)

    assert await sweep_keys(ticking(0.005)) == [64, 32, 16, 8, 4, 2, 1, 1, 1, 1, 0]
    assert await sweep_keys(ticking(0.0001)) == [130, 0]


async def test_a_step_ends_when_somebody_waits_to_write(store: SqliteStore) -> None:
    await fill(store, "repeats", ((b"%d" % number, "t", NOW - 1, None) for number in range(1000)))
    changed = await steps(store, RULES, ticking(0), has_waiting=True)
    assert changed == [64, 128, 256, 256, 256, 40, 0]
    assert store._writer.has_waiting() is False


# What is left


async def test_nothing_of_swept_tasks_is_left_in_the_file(store: SqliteStore) -> None:
    for name in range(40):
        row = row_of(store, f"t{name}", context_id=f"c{name % 7}")
        await create(
            store, row, notes=[Note(1, "request", b"r")] * (name % 3), dedupe_key=DedupeKey(b"%d" % name, NOW + 1)
        )
        done = structs.replace(row, state=State.FAILED, status_ms=NOW - 1, generation=2)
        parts = {"snapshot": b"{}"} if name % 2 else {}
        await write(
            store, done, records=(Record(2, b"{}"),), previous_state=State.SUBMITTED, context_state=b"{}", **parts
        )
    while await store.sweep(RULES):
        pass
    assert [await count(store, table) for table in EMPTIED] == [0] * len(EMPTIED)
    counts = await run(store, lambda db: db.execute("SELECT scope, tasks FROM state_counts").fetchall())
    assert (ALL_SCOPES, 0) in counts
    assert {tasks for _, tasks in counts} == {0}


async def test_expired_dedupe_keys_go_and_the_others_stay(store: SqliteStore) -> None:
    await create(store, row_of(store, "a"), dedupe_key=DedupeKey(b"young", NOW))
    await fill(store, "repeats", ((b"%d" % number, "a", NOW - 1 - number, None) for number in range(3000)))
    while await store.sweep(Sweep(expired_before_ms=NOW)):
        pass
    assert await store.dedupe_keys(0) == [b"young"]


async def test_a_deleted_task_with_a_long_journal_leaves_the_rest_to_the_next_sweep(store: SqliteStore) -> None:
    row = await create(store, row_of(store, "a"))
    await fill(store, "events", ((row.number, generation, b"{}", NOW) for generation in range(2, 1002)))
    assert await outcome(store, row, delete=True) is None
    assert await store.task("a") is None
    assert await count(store, "events") > 500
    while await store.sweep(Sweep()):
        pass
    assert await count(store, "events") == await count(store, "leftovers") == 0


# The writer


async def test_what_was_queued_before_a_sweep_is_committed_before_it(store: SqliteStore) -> None:
    row = row_of(store, "a", state=State.COMPLETED, status_ms=NOW - 1)
    writing = asyncio.ensure_future(create(store, row))
    await asyncio.sleep(0)  # it is queued
    assert await store.sweep(RULES) == 1
    await writing
    assert await store.task("a") is None


async def test_the_log_of_a_long_sweep_is_emptied_now_and_then(store: SqliteStore, tmp_path: Path) -> None:
    await fill(
        store, "repeats", ((b"%032d" % (number * 7919 % 30_011), "t", NOW - 1, None) for number in range(30_000))
    )
    await run(store, lambda db: db.execute("SELECT 1"))
    log = tmp_path / "tasks.db-wal"
    before = log.stat().st_size
    while await store.sweep(RULES):
        pass
    assert await count(store, "repeats") == 0
    assert log.stat().st_size <= before + 6_000_000
