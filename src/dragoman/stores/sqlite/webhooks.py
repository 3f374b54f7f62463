"""Webhook rows: writing, reading, and waking dead webhooks."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.engine.ports.store import WOKEN, Push, PushState

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Write

# In the order of the fields of `Push`. Its last one, `epoch`, is for stores that several processes share.
COLUMNS = """
w.task, w.id, w.dialect, w.url, w.secrets, w.cursor, w.created_ms, w.tries, w.failing_ms, w.due_ms, w.state, w.error
"""
_PUT = """
INSERT INTO pushes (task, id, dialect, url, secrets, cursor, created_ms, tries, failing_ms, due_ms, state, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task, id) DO UPDATE SET dialect = excluded.dialect, url = excluded.url, secrets = excluded.secrets,
    cursor = excluded.cursor, created_ms = excluded.created_ms, tries = excluded.tries,
    failing_ms = excluded.failing_ms, due_ms = excluded.due_ms, state = excluded.state, error = excluded.error
"""
_PROGRESS = """
UPDATE pushes SET cursor = ?, tries = ?, failing_ms = ?, due_ms = ?, state = ?, error = ?
WHERE task = ? AND id = ? AND created_ms = ?
"""


def write_pushes(connection: sqlite3.Connection, write: Write) -> None:
    """Write the new, deleted and updated webhooks of a change."""
    for push in write.pushes:
        connection.execute(_PUT, structs.astuple(push)[:-1])
    for push_id in write.deleted_pushes:
        connection.execute("DELETE FROM pushes WHERE task = ? AND id = ?", (write.row.number, push_id))
    for push in write.push_progress:
        state = (push.cursor, push.tries, push.failing_ms, push.due_ms, int(push.state), push.error)
        connection.execute(_PROGRESS, (*state, push.task, push.id, push.created_ms))


# Webhooks that do not fail are not touched.
_WAKE = f"""
UPDATE pushes SET state = {int(PushState.OPEN)}, tries = 0, failing_ms = 0, due_ms = {WOKEN}
WHERE state <> {int(PushState.DONE)} AND (state = {int(PushState.DEAD)} OR tries > 0)
AND (:task IS NULL OR task = (SELECT number FROM tasks WHERE id = :task)) AND (:id IS NULL OR id = :id)
"""  # noqa: S608 - fixed numbers only


def wake(connection: sqlite3.Connection, task_id: str | None, push_id: str | None) -> int:
    """Schedule dead and failing webhooks for a retry: all, those of a task, or one. Returns how many.

    A running server picks them up within seconds.
    """
    return connection.execute(_WAKE, {"task": task_id, "id": push_id}).rowcount


def pushes(connection: sqlite3.Connection, number: int) -> list[Push]:
    """The webhooks of a task, oldest first."""
    rows = connection.execute(f"SELECT {COLUMNS} FROM pushes w WHERE w.task = ? ORDER BY w.push", (number,))  # noqa: S608
    return [push_of(row) for row in rows]


def push_of(row: tuple[Any, ...]) -> Push:
    """Build a webhook from its columns."""
    return Push(*row[:10], state=PushState(row[10]), error=row[11])
