"""Commits to new tables of PostgreSQL are no slower than to those that the planner knows."""

from __future__ import annotations

import time
from statistics import median

import pytest
from msgspec import structs

from dragoman.engine.ports.store import Scope, TaskRow, Write
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.net.postgres import connect
from dragoman.stores.postgres.sql.database import PostgresDatabase

NODE = 7
SCOPE = Scope("agent", "", "me")
BODY = b"x" * 280
TASKS, STATEMENTS = 64, 100


def nothing(error: BaseException | None) -> None:
    assert error is None


async def commit(database: PostgresDatabase, writes: list[Write]) -> float:
    """Commit changes in one statement; the milliseconds that it took."""
    began = time.perf_counter()
    outcomes = await database.commit(NODE, [[write] for write in writes])
    milliseconds = 1000 * (time.perf_counter() - began)
    assert all(outcome.kind == "committed" for outcome in outcomes)
    return milliseconds


async def append(database: PostgresDatabase) -> float:
    """Let new tasks stream, each statement with a record of each; the median time of a statement in milliseconds."""
    first = await database.numbers(TASKS)
    numbers = range(first, first + TASKS)
    rows = [TaskRow(n, f"t{n}", SCOPE, f"c{n}", "", State.WORKING, 1, 1, 1) for n in numbers]
    await commit(database, [Write(row, nothing, create=True, records=(Record(1, BODY),)) for row in rows])
    times: list[float] = []
    for _ in range(STATEMENTS):
        rows = [structs.replace(row, generation=row.generation + 1) for row in rows]
        writes = [Write(row, nothing, records=(Record(row.generation, BODY),), epoch=1) for row in rows]
        times.append(await commit(database, writes))
    return median(times)


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_commits_are_as_fast_on_new_tables_as_on_analyzed_ones(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    await database.open(())
    fresh = await append(database)
    connection = await connect(postgres_url)
    await connection.execute("ANALYZE")
    await connection.close()
    analyzed = await append(database)
    await database.close()
    print(f"\n{TASKS} records, p50: new tables {fresh:.2f} ms, analyzed tables {analyzed:.2f} ms")
    assert fresh < 3 * analyzed
