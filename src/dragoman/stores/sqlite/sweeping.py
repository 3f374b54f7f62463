"""Forgetting what is old: bounded steps between the batches of the writer."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from dragoman.engine.projection import number_of
from dragoman.stores.sqlite.schema import ENDED

if TYPE_CHECKING:
    from dragoman.engine.ports import Sweep

_OLDEST = f"SELECT number, id, scope, context_id, state FROM tasks WHERE {ENDED}"  # noqa: S608 - fixed texts only

_COMPACTABLE = f"""
SELECT t.status_ms, t.number, p.generation = t.generation FROM tasks t LEFT JOIN snapshots p ON p.task = t.number
WHERE t.{ENDED} AND t.status_ms < ? AND (t.status_ms, t.number) > (?, ?) ORDER BY t.status_ms, t.number LIMIT ?
"""  # noqa: S608 - fixed texts only


def probe(connection: sqlite3.Connection) -> None:
    """Write something for real."""
    connection.execute("INSERT INTO meta VALUES ('probe', 1) ON CONFLICT DO UPDATE SET value = value + 1")


def sweep(connection: sqlite3.Connection, rules: Sweep) -> int:
    """Delete and compact at most `rules.limit` ended tasks. Gives how many were touched."""
    touched = 0
    if rules.ended_before_ms is not None:
        touched += _delete_aged(connection, rules.ended_before_ms, rules.limit)
    if rules.keep_tasks is not None and touched < rules.limit:
        touched += _delete_surplus(connection, rules.keep_tasks, rules.limit - touched)
    if rules.compact_before_ms is not None and touched < rules.limit:
        touched += _compact(connection, rules.compact_before_ms, rules.limit - touched)
    return touched


def _delete_aged(connection: sqlite3.Connection, before_ms: int, limit: int) -> int:
    rows = connection.execute(
        f"{_OLDEST} AND status_ms < ? ORDER BY status_ms, number LIMIT ?", (before_ms, limit)
    ).fetchall()
    return _delete(connection, rows)


def _delete_surplus(connection: sqlite3.Connection, keep: int, limit: int) -> int:
    found = connection.execute(f"SELECT sum(tasks) FROM state_counts WHERE {ENDED}").fetchone()  # noqa: S608
    surplus = int(found[0] or 0) - keep
    if surplus <= 0:
        return 0
    rows = connection.execute(f"{_OLDEST} ORDER BY status_ms, number LIMIT ?", (min(surplus, limit),)).fetchall()
    return _delete(connection, rows)


def _delete(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> int:
    for number, task_id, scope, context_id, state in rows:
        delete_task(connection, number, task_id, scope, context_id, state)
    return len(rows)


def delete_task(
    connection: sqlite3.Connection, number: int, task_id: str, scope: int, context_id: str, state: int
) -> None:
    """Delete a task and all that belongs to it."""
    forget_events(connection, number)
    connection.execute("DELETE FROM snapshots WHERE task = ?", (number,))
    connection.execute("DELETE FROM pushes WHERE task = ?", (number,))
    projected = number_of(task_id)
    if projected is not None:
        connection.execute("DELETE FROM a2a_tasks WHERE id = ?", (projected,))
    connection.execute("UPDATE state_counts SET tasks = tasks - 1 WHERE scope = ? AND state = ?", (scope, state))
    connection.execute(
        "UPDATE context_counts SET tasks = tasks - 1 WHERE scope = ? AND context_id = ?", (scope, context_id)
    )
    keep_numbers(connection, number)
    connection.execute("DELETE FROM tasks WHERE number = ?", (number,))
    connection.execute("DELETE FROM repeats WHERE task_id = ?", (task_id,))
    left = connection.execute("SELECT 1 FROM tasks WHERE scope = ? AND context_id = ? LIMIT 1", (scope, context_id))
    if left.fetchone() is None:  # the conversation is over: nobody can go on with it
        connection.execute("DELETE FROM contexts WHERE scope = ? AND context_id = ?", (scope, context_id))
        connection.execute("DELETE FROM context_counts WHERE scope = ? AND context_id = ?", (scope, context_id))


def keep_numbers(connection: sqlite3.Connection, number: int) -> None:
    """Never give this number to a task again, nor any before it: late notes would end up with a stranger."""
    connection.execute(
        "INSERT INTO meta VALUES ('last_number', ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
        (number,),
    )


def forget_events(connection: sqlite3.Connection, number: int) -> None:
    """Delete the journal of a task, but not the task."""
    connection.execute("DELETE FROM events WHERE task = ?", (number,))
    connection.execute("DELETE FROM notes WHERE task = ?", (number,))


def _compact(connection: sqlite3.Connection, before_ms: int, limit: int) -> int:
    done = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('compacted_ms', 'compacted_number')"))
    after = (done.get("compacted_ms", -1), done.get("compacted_number", -1))
    if after[0] >= before_ms:  # the clock has been put back since: what ended then stands before the mark
        after = (-1, -1)
    rows = connection.execute(_COMPACTABLE, (before_ms, *after, limit)).fetchall()
    for _, number, has_snapshot in rows:
        if has_snapshot:
            forget_events(connection, number)
    if rows:
        connection.executemany(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)",
            [("compacted_ms", rows[-1][0]), ("compacted_number", rows[-1][1])],
        )
    return len(rows)
