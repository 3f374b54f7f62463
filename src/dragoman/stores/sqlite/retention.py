"""Retention: deletes and compacts old tasks in short steps, so that writes never wait long.

A step is a sequence of slices, each with a bounded number of rows, whatever the tasks look like; it may end between
two slices. Every statement finds its rows by an index.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dragoman.stores.sqlite.schema import ALL_SCOPES, ENDED
from dragoman.stores.sqlite.tables import delete_rows

if TYPE_CHECKING:
    from dragoman.engine.ports.rows import TaskTable
    from dragoman.engine.ports.store import Sweep

# Seconds within which a step starts slices. With the last slice and the commit it stays under 10 ms.
STEP_SECONDS = 0.004
# Upper bounds of a slice: tasks, and rows of one table.
SLICE_TASKS = 16
SLICE_ROWS = 256
_FIRST_ROWS = 64
# After a slice that is quicker the next one is larger; after a slower one it is smaller.
_QUICK_SECONDS, _SLOW_SECONDS = 0.001, 0.002
# Bytes of large rows in a slice, which has at least one row: a row of 9 MB takes as long as thousands of small ones.
SLICE_BYTES = 250_000

_SLOTS = ", ".join("?" * SLICE_TASKS)
_OLDEST = f"SELECT number, id, scope, context_id, state FROM tasks WHERE {ENDED}"  # noqa: S608 - fixed texts only
_ENDED_TASKS = f"SELECT sum(tasks) FROM state_counts WHERE scope = {ALL_SCOPES} AND {ENDED}"  # noqa: S608
_COMPACTABLE = f"""
SELECT t.status_ms, t.number, p.generation = t.generation FROM tasks t LEFT JOIN snapshots p ON p.task = t.number
WHERE t.{ENDED} AND t.status_ms < ? AND (t.status_ms, t.number) > (?, ?) ORDER BY t.status_ms, t.number LIMIT ?
"""  # noqa: S608 - fixed texts only
_EXPIRED = "DELETE FROM repeats WHERE key IN (SELECT key FROM repeats WHERE until_ms < ? ORDER BY until_ms LIMIT ?)"
_KEYS = f"SELECT key FROM repeats WHERE task_id IN ({_SLOTS}) LIMIT ?"  # noqa: S608
_REPEATS = f"DELETE FROM repeats WHERE key IN ({_KEYS}) RETURNING key"  # noqa: S608
_ROW_BYTES = f"SELECT max(length(body) / generation) FROM snapshots WHERE task IN ({_SLOTS})"  # noqa: S608
# A journal loses its end first, so that a concurrent reader sees it stop and never a gap. Events are deleted before
# notes, which give some of them their meaning. (A note is found by its number alone: SQLite 3.40 does not use the index
# for the pair.)
_JOURNAL = {
    "events": f"""
DELETE FROM events WHERE (task, generation) IN (
    SELECT task, generation FROM events WHERE task IN ({_SLOTS}) ORDER BY task DESC, generation DESC LIMIT ?
)
""",  # noqa: S608 - fixed texts only
    "notes": f"DELETE FROM notes WHERE note IN (SELECT note FROM notes WHERE task IN ({_SLOTS}) LIMIT ?)",  # noqa: S608
}
# Compaction leaves the messages that were posted after the snapshot was made: they are nowhere else. (What it asks last
# lies behind the body of a note, or of a snapshot.)
_IN_SNAPSHOT = {
    **_JOURNAL,
    "notes": f"""
DELETE FROM notes WHERE note IN (
    SELECT n.note FROM notes n CROSS JOIN tasks t ON t.number = n.task WHERE n.task IN ({_SLOTS}) AND (
        t.mail = 0 OR n.kind <> 'message' OR n.mail = 0
        OR n.mail <= (SELECT p.mail FROM snapshots p WHERE p.task = n.task)
    ) LIMIT ?
)
""",  # noqa: S608 - fixed texts only
}
_ALL_OF_TASK = {
    **_JOURNAL,
    "snapshots": f"DELETE FROM snapshots WHERE task IN (SELECT task FROM snapshots WHERE task IN ({_SLOTS}) LIMIT ?)",  # noqa: S608
}


class TaskToDelete(NamedTuple):
    """What deleting a task needs to know; `state` is the number of its state."""

    number: int
    id: str
    scope: int
    context_id: str
    state: int


def write_probe(connection: sqlite3.Connection) -> None:
    """Write a row, to prove that the database takes writes."""
    connection.execute("INSERT INTO meta VALUES ('probe', 1) ON CONFLICT DO UPDATE SET value = value + 1")


class Sweeper:
    """Runs the steps of all sweeps of one store. The size of a slice adapts to how long the ones before took.

    A slice has at least one row, and a row cannot be divided: an event of 9 MB takes about 15 ms.
    """

    def __init__(self, tables: Sequence[TaskTable] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._plugin_tables = tables
        self._clock = clock
        self._rows = _FIRST_ROWS
        self._deleted_keys: list[bytes] = []

    def step(self, connection: sqlite3.Connection, rules: Sweep, has_waiting: Callable[[], bool]) -> int:
        """Run slices for these rules, for at most `rules.limit` tasks. Ends after the first one when `has_waiting()`.

        Returns how many tasks were touched, and at least 1 when a slice had work: 0 means that all is done.
        """
        touched, has_worked = 0, False
        began = now = self._clock()
        for part in (self._expire, self._clear_leftovers, self._delete_aged, self._delete_surplus, self._compact):
            while touched < rules.limit:
                done = part(connection, rules, min(self._slice_tasks(), rules.limit - touched))
                before, now = now, self._clock()
                if done is None:
                    break
                touched, has_worked = touched + done, True
                self._adapt_slice(now - before)
                if now - began >= STEP_SECONDS or has_waiting():
                    return max(touched, 1)
        return max(touched, int(has_worked))

    def take_deleted_keys(self) -> list[bytes]:
        """The dedupe keys that went with their tasks since the last call."""
        keys, self._deleted_keys = self._deleted_keys, []
        return keys

    def _slice_tasks(self) -> int:
        return max(1, min(SLICE_TASKS, self._rows // 4))

    def _adapt_slice(self, seconds: float) -> None:
        if seconds < _QUICK_SECONDS:
            self._rows = min(SLICE_ROWS, self._rows * 2)
        elif seconds > _SLOW_SECONDS:
            self._rows = max(1, self._rows // 2)

    def delete(self, connection: sqlite3.Connection, task: TaskToDelete) -> None:
        """Delete a task with a first slice of its journal; the next sweeps delete the rest."""
        _delete_tasks(connection, [task], self._plugin_tables)
        self._clear(connection, [task.number])

    # Each part runs one slice. It returns how many tasks it has finished, or None when it has nothing to do.

    def _expire(self, connection: sqlite3.Connection, rules: Sweep, limit: int) -> int | None:
        if rules.expired_before_ms is None:
            return None
        return 0 if connection.execute(_EXPIRED, (rules.expired_before_ms, self._rows)).rowcount else None

    def _clear_leftovers(self, connection: sqlite3.Connection, rules: Sweep, limit: int) -> int | None:
        rows = connection.execute("SELECT task FROM leftovers ORDER BY task LIMIT ?", (self._slice_tasks(),)).fetchall()
        if not rows:
            return None
        self._clear(connection, [number for (number,) in rows])
        return 0

    def _delete_aged(self, connection: sqlite3.Connection, rules: Sweep, limit: int) -> int | None:
        if rules.ended_before_ms is None:
            return None
        rows = connection.execute(
            f"{_OLDEST} AND status_ms < ? ORDER BY status_ms, number LIMIT ?", (rules.ended_before_ms, limit)
        ).fetchall()
        return self._delete(connection, [TaskToDelete(*row) for row in rows])

    def _delete_surplus(self, connection: sqlite3.Connection, rules: Sweep, limit: int) -> int | None:
        if rules.keep_tasks is None:
            return None
        surplus = int(connection.execute(_ENDED_TASKS).fetchone()[0] or 0) - rules.keep_tasks
        if surplus <= 0:
            return None
        rows = connection.execute(f"{_OLDEST} ORDER BY status_ms, number LIMIT ?", (min(surplus, limit),)).fetchall()
        return self._delete(connection, [TaskToDelete(*row) for row in rows])

    def _delete(self, connection: sqlite3.Connection, tasks: list[TaskToDelete]) -> int | None:
        if not tasks:
            return None
        # First: a dedupe key must never lead to a task that is not there.
        keys = connection.execute(_REPEATS, (*_padded([task.id for task in tasks]), self._rows)).fetchall()
        self._deleted_keys += [key for (key,) in keys]
        if len(keys) == self._rows:
            return 0
        _delete_tasks(connection, tasks, self._plugin_tables)
        self._clear(connection, [task.number for task in tasks])
        return len(tasks)

    def _compact(self, connection: sqlite3.Connection, rules: Sweep, limit: int) -> int | None:
        before_ms = rules.compact_before_ms
        if before_ms is None:
            return None
        done = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('compacted_ms', 'compacted_number')"))
        after = (done.get("compacted_ms", -1), done.get("compacted_number", -1))
        if after[0] >= before_ms:  # the clock was set back since: tasks that ended then are before this position
            after = (-1, -1)
        rows = connection.execute(_COMPACTABLE, (before_ms, *after, limit)).fetchall()
        if not rows:
            return None
        if not self._empty(connection, _IN_SNAPSHOT, [number for _, number, has_snapshot in rows if has_snapshot]):
            return 0
        connection.executemany(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)",
            [("compacted_ms", rows[-1][0]), ("compacted_number", rows[-1][1])],
        )
        return len(rows)

    def _clear(self, connection: sqlite3.Connection, numbers: list[int]) -> None:
        """Delete a slice of the leftovers of deleted tasks; forget the tasks when nothing is left."""
        if self._empty(connection, _ALL_OF_TASK, numbers):
            connection.execute(f"DELETE FROM leftovers WHERE task IN ({_SLOTS})", _padded(numbers))  # noqa: S608

    def _empty(self, connection: sqlite3.Connection, tables: dict[str, str], numbers: list[int]) -> bool:
        """Delete a slice of the tasks' rows, table by table. Return True when none are left."""
        parameters = _padded(numbers)
        # Estimated from the snapshot: the size of an event is only known by reading it.
        row_bytes = connection.execute(_ROW_BYTES, parameters).fetchone()[0] or 0
        rows = max(1, min(self._rows, SLICE_BYTES // (row_bytes + 1)))
        return all(connection.execute(delete, (*parameters, rows)).rowcount < rows for delete in tables.values())


def reserve_numbers(connection: sqlite3.Connection, number: int) -> None:
    """Make sure that this task number and those before it are never reused: late notes would join another task."""
    connection.execute(
        "INSERT INTO meta VALUES ('last_number', ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
        (number,),
    )


def _delete_tasks(connection: sqlite3.Connection, tasks: list[TaskToDelete], tables: Sequence[TaskTable]) -> None:
    """Delete at most SLICE_TASKS tasks. Their journals and snapshots become leftovers, which no query finds."""
    numbers = [task.number for task in tasks]
    connection.execute(f"DELETE FROM repeats WHERE task_id IN ({_SLOTS})", _padded([task.id for task in tasks]))  # noqa: S608
    connection.execute(f"DELETE FROM pushes WHERE task IN ({_SLOTS})", _padded(numbers))  # noqa: S608
    delete_rows(connection, tables, [task.id for task in tasks])
    reserve_numbers(connection, max(numbers))
    connection.execute(f"DELETE FROM tasks WHERE number IN ({_SLOTS})", _padded(numbers))  # noqa: S608
    connection.executemany("INSERT INTO leftovers VALUES (?)", [(number,) for number in numbers])
    _decrement_counts(connection, tasks)


def _decrement_counts(connection: sqlite3.Connection, deleted: list[TaskToDelete]) -> None:
    states = Counter((task.scope, task.state) for task in deleted)
    states.update((ALL_SCOPES, task.state) for task in deleted)  # which counts ended tasks only
    connection.executemany(
        "UPDATE state_counts SET tasks = tasks - ? WHERE scope = ? AND state = ?",
        [(tasks, scope, state) for (scope, state), tasks in states.items()],
    )
    contexts = Counter((task.scope, task.context_id) for task in deleted)
    connection.executemany(
        "UPDATE context_counts SET tasks = tasks - ? WHERE scope = ? AND context_id = ?",
        [(tasks, scope, context_id) for (scope, context_id), tasks in contexts.items()],
    )
    for table in ("contexts", "context_counts"):  # a context without tasks cannot be continued
        connection.executemany(
            f"DELETE FROM {table} AS c WHERE c.scope = ? AND c.context_id = ? "  # noqa: S608
            "AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = c.scope AND t.context_id = c.context_id)",
            list(contexts),
        )


def _padded(values: list[int] | list[str]) -> list[int | str | None]:
    """Pad with None to the number of parameters in _SLOTS; None matches no task."""
    return [*values, *[None] * (SLICE_TASKS - len(values))]
