"""How fast commits to PostgreSQL are, and that new tables are no slower than those the planner knows."""

from __future__ import annotations

import os
import time
from statistics import quantiles
from typing import NamedTuple

import pytest
from msgspec import structs

from dragoman.engine.ports.store import DedupeKey, Note, Scope, TaskRow, Write
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.net.postgres import connect
from dragoman.stores.postgres.sql.database import PostgresDatabase

NODE = 7
SCOPE = Scope("agent", "", "me")
BODY = b"x" * 280
SECONDS = 3.0


class Speed(NamedTuple):
    """Records or tasks a second, the median and the 99th percentile of a statement in ms, client CPU in us for each."""

    rate: float
    median: float
    slow: float
    cpu: float

    def __str__(self) -> str:
        return (
            f"{self.rate:,.0f}/s, p50 {self.median:.2f} ms, p99 {self.slow:.2f} ms, client CPU {self.cpu:.1f} us each"
        )


def nothing(error: BaseException | None) -> None:
    assert error is None


async def commit(database: PostgresDatabase, writes: list[Write], times: list[float]) -> None:
    began = time.perf_counter()
    outcomes = await database.commit(NODE, [[write] for write in writes])
    times.append(1000 * (time.perf_counter() - began))
    assert all(outcome.kind == "committed" for outcome in outcomes)


async def new_rows(database: PostgresDatabase, count: int, generation: int) -> list[TaskRow]:
    first = await database.numbers(count)
    numbers = range(first, first + count)
    return [TaskRow(n, f"t{n}", SCOPE, f"c{n}", "", State.WORKING, 1, generation, 1) for n in numbers]


async def append(database: PostgresDatabase, batch: int, statements: int | None = None) -> Speed:
    """Streams: each statement has a record of each of `batch` tasks."""
    rows = await new_rows(database, batch, 1)
    times: list[float] = []
    await commit(database, [Write(row, nothing, create=True, records=(Record(1, BODY),)) for row in rows], times)
    times.clear()
    began, used = time.perf_counter(), time.process_time()
    while len(times) < statements if statements else time.perf_counter() - began < SECONDS:
        rows = [structs.replace(row, generation=row.generation + 1) for row in rows]
        writes = [Write(row, nothing, records=(Record(row.generation, BODY),), epoch=1) for row in rows]
        await commit(database, writes, times)
    return _speed(times, batch * len(times), began, used)


async def send(database: PostgresDatabase, batch: int) -> Speed:
    """Messages: `batch` tasks of four records in two statements, with a request, a dedupe key and a snapshot each."""
    times: list[float] = []
    began, used, tasks = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < SECONDS:
        rows = await new_rows(database, batch, 2)
        parts = {"create": True, "begins": True, "serial": True, "epoch": 1, "notes": (Note(1, "request", BODY),)}
        records = (Record(1, BODY), Record(2, BODY))
        keys = [DedupeKey(os.urandom(32), 1 << 50) for _ in rows]
        pairs = zip(rows, keys, strict=True)
        await commit(
            database, [Write(row, nothing, records=records, dedupe_key=key, **parts) for row, key in pairs], times
        )
        rows = [structs.replace(row, generation=4, state=State.COMPLETED) for row in rows]
        parts = {"records": (Record(3, BODY), Record(4, BODY)), "previous_state": State.WORKING, "snapshot": 3 * BODY}
        await commit(database, [Write(row, nothing, epoch=1, **parts) for row in rows], times)
        tasks += batch
    return _speed(times, tasks, began, used)


def _speed(times: list[float], count: int, began: float, used: float) -> Speed:
    percentiles = quantiles(times, n=100)
    rate = count / (time.perf_counter() - began)
    return Speed(rate, percentiles[49], percentiles[98], 1e6 * (time.process_time() - used) / count)


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_commits_are_as_fast_on_new_tables_as_on_analyzed_ones(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    await database.open(())
    fresh = await append(database, 64, statements=100)
    print(f"\n64 records, new tables: {fresh}")
    for batch in (1, 8, 64, 256):
        print(f"{batch} records: {await append(database, batch)}")
    for batch in (1, 8, 32, 128):
        print(f"{batch} tasks of four records: {await send(database, batch)}")
    connection = await connect(postgres_url)
    await connection.execute("ANALYZE")
    await connection.close()
    analyzed = await append(database, 64, statements=100)
    print(f"64 records, analyzed tables: {analyzed}")
    await database.close()
    assert fresh.median < 3 * analyzed.median
