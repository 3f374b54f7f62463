"""Reading from PostgreSQL takes as long with a million tasks as with a thousand."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median

import pytest

from dragoman.engine.ports.store import Cursor, Scope, TaskQuery
from dragoman.model.state import State
from dragoman.net.postgres import connect
from dragoman.stores.postgres.sql import reader
from dragoman.stores.postgres.sql.database import PostgresDatabase

SCOPE = Scope("agent", "", "me")
SMALL, LARGE = 1_000, 1_000_000
ROUNDS = 300
PAGE = 50
# Every tenth task has failed; a context has ten tasks.
FILL = """
INSERT INTO tasks (number, id, scope, context_id, origin, state, status_ms, generation, created_ms, epoch)
SELECT n, 'task-' || n, 1, 'context-' || n / 10, '', CASE WHEN n % 10 = 0 THEN 4 ELSE 3 END, n, 4, n, 1
FROM generate_series($1::bigint, $2::bigint) n
"""
SNAPSHOTS = """
INSERT INTO snapshots SELECT n, 4, 0, convert_to(repeat('x', 700), 'UTF8')
FROM generate_series($1::bigint, $2::bigint) n
"""
COUNTS = """
INSERT INTO state_counts SELECT 1, state, 7, count(*) FROM tasks GROUP BY state
ON CONFLICT (scope, state, node) DO UPDATE SET tasks = excluded.tasks
"""

Reading = Callable[[], Awaitable[object]]


def readings(database: PostgresDatabase, tasks: int) -> dict[str, Reading]:
    """What is read, by its name."""
    middle, page = tasks // 2, partial(database.run, reader.page)
    return {
        "GetTask": lambda: database.run(reader.task, f"task-{middle}"),
        "first page": lambda: page(TaskQuery(SCOPE, limit=PAGE)),
        "page in the middle": lambda: page(TaskQuery(SCOPE, limit=PAGE, after=Cursor(middle, middle))),
        "page of a state": lambda: page(TaskQuery(SCOPE, state=State.FAILED, limit=PAGE)),
        "page of a context": lambda: page(TaskQuery(SCOPE, context_id=f"context-{middle // 10}", limit=PAGE)),
    }


async def milliseconds(read: Reading, rounds: int) -> float:
    """The median time of a reading."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await read()
        times.append(time.perf_counter() - began)
    return 1000 * median(times)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_a_million_tasks_are_read_like_a_thousand(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    await database.open(())
    connection = await connect(postgres_url)
    await connection.execute("INSERT INTO scopes (agent, tenant, owner) VALUES ($1, $2, $3)", *SCOPE)
    results: dict[str, list[float]] = {}
    filled = 0
    for tasks in (SMALL, LARGE):
        await connection.execute(FILL, filled + 1, tasks)
        await connection.execute(SNAPSHOTS, filled + 1, tasks)
        await connection.execute(COUNTS)
        await connection.execute("VACUUM ANALYZE")
        filled = tasks
        for name, read in readings(database, tasks).items():
            await milliseconds(read, 20)
            results.setdefault(name, []).append(await milliseconds(read, ROUNDS))
        # A total that has to be counted takes longer the more there is to count.
        since = TaskQuery(SCOPE, since_ms=tasks // 2, limit=PAGE)
        counted = await milliseconds(lambda since=since: database.run(reader.page, since), 5)
        print(f"{tasks} tasks: a page whose total is counted over half of them takes {counted:.2f} ms")
    for name, (small, large) in results.items():
        print(f"{name}: {small:.2f} ms with {SMALL} tasks, {large:.2f} ms with {LARGE}: {large / small:.2f}x")
    page = await database.run(reader.page, TaskQuery(SCOPE, limit=PAGE))
    assert (page.total, len(page.tasks)) == (LARGE, PAGE)
    await connection.close()
    await database.close()
    slow = {name: times for name, times in results.items() if times[1] > 2 * times[0]}
    assert not slow, f"more than twice as long: {slow}"
