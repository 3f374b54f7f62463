"""A million tasks are forgotten while callers go on sending."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from dragoman.stores.sqlite.schema import migrate

pytestmark = pytest.mark.soak

TASKS, KEYS = 1_000_000, 200_000
LONG_AGO, LATER = 1_700_000_000_000, 4_000_000_000_000
SECONDS = 120  # of sending beside the sweep, which takes about four minutes
# Made after the rows are there, which is quicker.
INDEXES = ("tasks_newest", "tasks_by_state", "tasks_by_context", "tasks_ended", "repeats_of_task")


def build(path: Path, tasks: int, keys: int) -> None:
    """A store of ended tasks, each with four events, a note and a snapshot, and dedupe keys of the first of them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, path)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -300000"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("BEGIN")
        made = [
            db.execute("SELECT sql FROM sqlite_master WHERE type = 'index' AND name = ?", (name,)).fetchone()[0]
            for name in INDEXES
        ]
        for name in INDEXES:
            db.execute(f"DROP INDEX {name}")
        db.execute("INSERT INTO scopes VALUES (1, 'faulty', '', '')")
        db.execute(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :tasks) "
            "INSERT INTO tasks SELECT n, lower(hex(randomblob(16))), 1, lower(hex(randomblob(16))), '1.0', "
            "3, :long_ago + n, 4, :long_ago + n, 0 FROM numbers",
            {"tasks": tasks, "long_ago": LONG_AGO},
        )
        db.execute(
            "INSERT INTO events SELECT number, column1, randomblob(150), 0 FROM tasks, (VALUES (1), (2), (3), (4))"
        )
        db.execute(
            "INSERT INTO notes (task, generation, kind, body) SELECT number, 1, 'request', randomblob(99) FROM tasks"
        )
        db.execute("INSERT INTO snapshots SELECT number, 4, randomblob(400), 0 FROM tasks")
        db.execute("INSERT INTO state_counts VALUES (0, 3, ?), (1, 3, ?)", (tasks, tasks))
        db.execute(
            "INSERT INTO repeats (key, task_id, until_ms) "
            "SELECT randomblob(32), id, ? FROM tasks ORDER BY number LIMIT ?",
            (LATER, keys),
        )
        for statement in made:
            db.execute(statement)
        db.execute("COMMIT")


def left(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return int(db.execute("SELECT tasks FROM state_counts WHERE scope = 0 AND state = 3").fetchone()[0])


def at(times: list[float], part: float) -> float:
    return times[min(len(times) - 1, int(part * len(times)))] * 1000


def send(server: Any, until: Callable[[int], bool]) -> list[float]:
    """Send messages one at a time until there are enough. Gives how long they took, the quickest first."""
    times: list[float] = []
    with httpx2.Client(timeout=60, headers={"A2A-Version": "1.0"}) as client:
        while not until(len(times)):
            for _ in range(50):
                params = server.params("echo", "hello", message_id=str(uuid4()))
                body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
                began = time.monotonic()
                answer = client.post(server.url + "/", json=body).json()
                times.append(time.monotonic() - began)
                assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    times.sort()
    return times


@pytest.mark.timeout(900)
def test_a_send_is_hardly_slower_while_a_million_tasks_are_swept(launch: Any, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    build(path, TASKS, KEYS)
    quiet = launch()
    alone = send(quiet, lambda sent: sent >= 1000)
    quiet.stop()
    assert quiet.wait() == 0
    server = launch("--limits-keep", "3600")
    end = time.monotonic() + SECONDS
    beside = send(server, lambda sent: time.monotonic() > end or left(path) < TASKS // 100)
    gone = TASKS - left(path)
    print(f"\n{gone} tasks were deleted while {len(beside)} were sent, one at a time")
    for name, times in (("without a sweep", alone), ("beside the sweep", beside)):
        print(f"{name}: p50 {at(times, 0.5):.1f} ms, p90 {at(times, 0.9):.1f} ms, p99 {at(times, 0.99):.1f} ms")
    assert gone > TASKS // 50
    # On a machine that has nothing else to do it is about 30 ms.
    assert at(beside, 0.99) < 250
