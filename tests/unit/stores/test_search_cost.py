"""What a list of everything costs on SQLite: the task of each caller is not looked up for it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dragoman.engine.ports.store import Cursor, ScopeFilter, TaskSearch
from dragoman.model.state import State
from dragoman.stores.sqlite.schema import migrate
from dragoman.stores.sqlite.search import counts, search

SCOPES = 4000


def fill(path: Path) -> sqlite3.Connection:
    """Every caller has a task that has ended; every thousandth has one more, which waits for an answer."""
    db = sqlite3.connect(path, isolation_level=None)
    migrate(db, path)
    numbers = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
    task = "INSERT INTO tasks {} SELECT n + ?, 'task-' || (n + ?), n, 'c', '1.0', ?, n, 1, n, 0 FROM numbers {}"
    db.execute("BEGIN")
    db.execute(f"INSERT INTO scopes {numbers} SELECT n, 'agent', '', 'user' || n FROM numbers", (SCOPES,))
    db.execute(task.format(numbers, ""), (SCOPES, 0, 0, 3))
    db.execute(task.format(numbers, "WHERE n % 1000 = 0"), (SCOPES, SCOPES, SCOPES, 6))
    db.execute("INSERT INTO state_counts SELECT scope, state, count(*) FROM tasks GROUP BY 1, 2")
    db.execute("INSERT INTO state_counts SELECT 0, state, count(*) FROM tasks WHERE state = 3 GROUP BY 2")
    db.execute("COMMIT")
    return db


def page_of(db: sqlite3.Connection, after: Cursor | None) -> list[tuple[int, int]]:
    found = search(db, TaskSearch(ScopeFilter(), None, None, None, None, 10, after, 1_000_000))
    return [(stored.row.status_ms, stored.row.number) for stored in found.tasks]


def test_a_page_of_all_tasks_looks_at_few_of_them_and_misses_none(tmp_path: Path) -> None:
    with closing(fill(tmp_path / "tasks.db")) as db:
        expected = db.execute("SELECT status_ms, number FROM tasks ORDER BY 1 DESC, 2 DESC").fetchall()
        steps = 0

        def count_steps() -> int:
            nonlocal steps
            steps += 1
            return 0

        db.set_progress_handler(count_steps, 100)
        first = page_of(db, None)
        second = page_of(db, Cursor(*first[-1]))
        assert first + second == expected[:20]
        # In hundreds of instructions of SQLite: to look up the newest task of each caller took 2,325.
        assert steps < 1500
        db.set_progress_handler(None, 0)
        found: list[tuple[int, int]] = []
        while page := page_of(db, Cursor(*found[-1]) if found else None):
            found += page
        assert found == expected
        assert counts(db, ScopeFilter()) == {State.COMPLETED: SCOPES, State.INPUT_REQUIRED: SCOPES // 1000}
