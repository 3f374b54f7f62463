"""The table `a2a_tasks`: some tasks as other programs read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from dragoman.engine.projection import Projection

# The users of this file are known here by the key of their own table, all others by the number they come with.
_PUT = """
INSERT INTO a2a_tasks (id, updated_at, user_id, state, history, artifacts)
VALUES (?, ?, coalesce((SELECT user FROM users WHERE name = ?), ?), ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at, state = excluded.state, history = excluded.history,
    artifacts = excluded.artifacts
"""


def write_projections(connection: sqlite3.Connection, rows: Iterable[tuple[Projection, str]]) -> None:
    """Write rows, each with the owner of its task."""
    connection.executemany(
        _PUT,
        [
            (row.id, row.updated_at, owner, row.user_id, row.state, row.history.decode(), row.artifacts.decode())
            for row, owner in rows
        ],
    )


def change(connection: sqlite3.Connection, changed: Projection, expected: int) -> bool:
    """Change state and time of a row, if its time is still the one expected."""
    done = connection.execute(
        "UPDATE a2a_tasks SET state = ?, updated_at = ? WHERE id = ? AND updated_at = ?",
        (changed.state, changed.updated_at, changed.id, expected),
    )
    return done.rowcount == 1


def projection(connection: sqlite3.Connection, number: int) -> Projection | None:
    """The row with this number."""
    row = connection.execute(
        "SELECT id, updated_at, user_id, state, history, artifacts FROM a2a_tasks WHERE id = ?", (number,)
    ).fetchone()
    if row is None:
        return None
    task, updated_at, user, state, history, artifacts = row
    return Projection(task, updated_at, user, state, history.encode(), artifacts.encode())


def last(connection: sqlite3.Connection) -> int:
    """The largest number; 0 when there is none."""
    return int(connection.execute("SELECT max(id) FROM a2a_tasks").fetchone()[0] or 0)
