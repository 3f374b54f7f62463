"""A day of a million events goes while a server works, and hardly anybody notices.

make soak ARGS, or: pytest -m soak -s tests/scale/test_dropped_day.py
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles
from uuid import uuid4

import aiohttp
import pytest
from cluster.processes.nodes import SOURCE, NodeProcess
from cluster.processes.postgres import crashable_postgres
from support.ports import free_port

from dragoman.net.postgres import PostgresConnection, connect
from dragoman.stores.postgres.sql.partition import READ_TODAY, attach_days, first_number, partition_of
from dragoman.stores.postgres.sql.schema import migrate

TASKS, EVENTS = 250_000, 4
RATE = 200
# How long the load is measured before and after, in seconds.
SECONDS = 20.0
DAYS_AGO = 2
AGENT = """
from dragoman import Agent

agent = Agent("echo", description="Answers")


@agent.skill(default=True)
async def echo(text: str):
    \"\"\"Answer in four events.\"\"\"
    yield text
"""
FILL = (
    """
INSERT INTO tasks (number, id, scope, context_id, origin, state, status_ms, generation, created_ms, epoch, agent)
SELECT n, 'task-' || n, 1, 'context-' || n, '1.0', 3, $3, 4, $3, 1, 'old' FROM generate_series($1::bigint, $2) n
""",
    "INSERT INTO snapshots SELECT n, 4, 0, convert_to(repeat('x', 700), 'UTF8') FROM generate_series($1::bigint, $2) n",
    "INSERT INTO notes (task, key, generation, kind, mail, body) "
    "SELECT n, 1, 1, 'request', 0, convert_to(repeat('x', 200), 'UTF8') FROM generate_series($1::bigint, $2) n",
)
FILL_EVENTS = """
INSERT INTO events SELECT n, g, convert_to(repeat('x', 280), 'UTF8')
FROM generate_series($1::bigint, $2) n, generate_series(1, $3::int) g
"""
COUNT = """
INSERT INTO state_counts SELECT s, 3, 0, $1::bigint FROM unnest(ARRAY[0, 1]) s
ON CONFLICT (scope, state, node) DO UPDATE SET tasks = excluded.tasks
"""


class Load:
    """Sends at a fixed rate, whatever the answers take: what waits counts from when it should have been sent."""

    def __init__(self, url: str) -> None:
        self._url = url
        # When each was due, and how long it took, in seconds.
        self.times: list[tuple[float, float]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
            asyncio.TaskGroup() as all_,
        ):
            sender = all_.create_task(self._send_all(session, all_))
            yield
            sender.cancel()

    async def _send_all(self, session: aiohttp.ClientSession, sends: asyncio.TaskGroup) -> None:
        due = time.monotonic()
        while True:
            due += 1 / RATE
            await asyncio.sleep(max(0, due - time.monotonic()))
            sends.create_task(self._send(session, due))

    async def _send(self, session: aiohttp.ClientSession, due: float) -> None:
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        async with session.post(f"{self._url}/message:send", json={"message": message}) as response:
            assert (await response.json())["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        self.times.append((due, time.monotonic() - due))

    def percentiles(self, begin: float, end: float) -> tuple[int, float, float]:
        """How many were due between two times, and the median and the 99th percentile in ms."""
        times = [1000 * seconds for due, seconds in self.times if begin <= due < end]
        cuts = quantiles(times, n=100)
        return len(times), cuts[49], cuts[98]


@asynccontextmanager
async def server(folder: Path, store: str, **settings: str) -> AsyncIterator[str]:
    """A node on a store; its address."""
    (folder / "echo.py").write_text(AGENT)
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "DRAGOMAN_SECRET": "s" * 40, **settings}
    command = [sys.executable, "-m", "dragoman.cli.main", "serve", "echo.py", "--port", str(port), "--store", store]
    process = NodeProcess(command, folder, environment)
    try:
        await asyncio.to_thread(process.ready)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()


async def fill(connection: PostgresConnection) -> int:
    """A past day with tasks that have ended, and one that waits and holds the day. Returns the day."""
    await migrate(connection, "it")
    day = await connection.fetchval(READ_TODAY) - DAYS_AGO
    await attach_days(connection, [day])
    await connection.execute("INSERT INTO scopes (agent, tenant, owner) VALUES ('old', '', '')")
    first, last = first_number(day) + 1, first_number(day) + TASKS
    for statement in FILL:
        values = (first, last, 86_400_000 * day) if "$3" in statement else (first, last)
        await connection.execute(statement, *values)
    await connection.execute(FILL_EVENTS, first, last, EVENTS)
    await connection.execute(COUNT, TASKS)
    await connection.execute("UPDATE tasks SET state = 6 WHERE number = $1", last)
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("CHECKPOINT")
    return day


async def dropped(connection: PostgresConnection, day: int) -> tuple[float, float]:
    """Wait until a day is dropped; when that began and ended."""
    began = None
    async with asyncio.timeout(300):
        while True:
            is_dropped = await connection.fetchval("SELECT dropped FROM days WHERE day = $1", day)
            if is_dropped is None:
                return began or time.monotonic(), time.monotonic()
            began = began or (time.monotonic() if is_dropped else None)
            await connection.execute("SELECT pg_sleep(0.02)")


async def until_deleted(connection: PostgresConnection) -> None:
    """Wait until the tasks of the day are deleted."""
    async with asyncio.timeout(300):
        while await connection.fetchval("SELECT EXISTS (SELECT 1 FROM tasks WHERE agent = 'old')"):
            await connection.execute("SELECT pg_sleep(0.5)")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("keeps_tasks", [True, False], ids=["events", "events-and-tasks"])
async def test_a_day_of_a_million_events_is_dropped_under_load(tmp_path: Path, keeps_tasks: bool) -> None:
    with crashable_postgres() as postgres:
        connection = await connect(postgres.url())
        day = await fill(connection)
        settings = {} if keeps_tasks else {"DRAGOMAN_LIMITS_KEEP": "86400"}
        if not keeps_tasks:  # nothing is deleted before the load has been measured
            await connection.execute("UPDATE tasks SET status_ms = status_ms + 10 * 86400000")
        async with server(tmp_path, postgres.url(), **settings) as url:
            load = Load(url)
            async with load.running():
                await asyncio.sleep(5)
                begin = time.monotonic()
                await asyncio.sleep(SECONDS)
                quiet = load.percentiles(begin, time.monotonic())
                events = await connection.fetchval(f"SELECT count(*) FROM {partition_of(day)}")
                old = "status_ms = created_ms, state = 3"
                await connection.execute(f"UPDATE tasks SET {old} WHERE agent = 'old'" + " AND state = 6" * keeps_tasks)
                changed = time.monotonic()
                began, ended = await dropped(connection, day)
                if not keeps_tasks:
                    await until_deleted(connection)
                    began, ended = changed, time.monotonic()
                await asyncio.sleep(3)
            busy = load.percentiles(began - 0.5, ended + 1)
            after = load.percentiles(ended, ended + 3)
        await connection.close()
    what = "dropped" if keeps_tasks else "dropped, its tasks deleted"
    print(f"\n{events} events {what} in {ended - began:.2f} s at {RATE} sends a second:")
    for name, (count, median, slow) in {"before": quiet, "meanwhile": busy, "after": after}.items():
        print(f"  {name:9} {count:6} sends, p50 {median:6.1f} ms, p99 {slow:6.1f} ms ({slow / quiet[2]:.2f}x)")
    assert events == TASKS * EVENTS
    # The tasks are deleted row by row, and were changed before: vacuum and checkpoints are in this figure too.
    limit = 2 if keeps_tasks else 4
    assert busy[2] <= limit * quiet[2], f"the 99th percentile is more than {limit} times as high"
