"""The queries of the store, each on a read-only connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from dragoman.engine.ports.store import (
    JournalRecord,
    Note,
    Push,
    Scope,
    StoredTask,
    TaskPage,
    TaskQuery,
    TaskRow,
    TaskSearch,
)
from dragoman.model.record import Record
from dragoman.stores.sqlite.webhooks import COLUMNS, push_of
from dragoman.stores.state_numbers import NUMBERS, STATES

_ROW = """
t.number, t.id, s.agent, s.tenant, s.owner, t.context_id, t.origin, t.state, t.status_ms, t.generation, t.created_ms
"""
TASK = f"""
SELECT {_ROW}, p.body, p.generation, t.mail, p.mail
FROM tasks t JOIN scopes s USING (scope) LEFT JOIN snapshots p ON p.task = t.number
"""  # noqa: S608 - fixed texts only
_COLUMNS = 15
_PUSHES = f"""
SELECT {_ROW}, NULL, NULL, 0, 0, {COLUMNS} FROM pushes w JOIN tasks t ON t.number = w.task JOIN scopes s USING (scope)
"""  # noqa: S608 - fixed texts only


def task(connection: sqlite3.Connection, task_id: str) -> StoredTask | None:
    """Read a task by its id; None when there is none, or only a draft."""
    row = connection.execute(f"{TASK} WHERE t.id = ?", (task_id,)).fetchone()
    return None if row is None else stored_task(row)


def records(connection: sqlite3.Connection, number: int, after: int, limit: int) -> list[Record]:
    """The records of a task with a generation above `after`, in order, at most `limit`."""
    rows = connection.execute(
        "SELECT generation, body FROM events WHERE task = ? AND generation > ? ORDER BY generation LIMIT ?",
        (number, after, limit),
    )
    return [Record(generation, body) for generation, body in rows]


def journal(connection: sqlite3.Connection, number: int, after: int, limit: int, budget: int) -> list[JournalRecord]:
    """The records of a task with the times of their commits, up to `budget` bytes."""
    entries: list[JournalRecord] = []
    rows = connection.execute(
        "SELECT generation, at_ms, body FROM events WHERE task = ? AND generation > ? ORDER BY generation LIMIT ?",
        (number, after, limit),
    )
    with closing(rows):
        for row in rows:
            entries.append(entry := JournalRecord(*row))
            budget -= len(entry.body)
            if budget <= 0:
                break
    return entries


def notes(connection: sqlite3.Connection, number: int) -> list[Note]:
    """All notes of a task, in the order they were written."""
    rows = connection.execute("SELECT generation, kind, body, mail FROM notes WHERE task = ? ORDER BY note", (number,))
    return [Note(*row) for row in rows]


def mail(connection: sqlite3.Connection, number: int, after: int) -> list[tuple[int, bytes]]:
    """The messages that were added to a task with `post`, with their numbers, after number `after`."""
    # The kind is looked at first: `mail` lies behind the body, which may take many pages.
    query = "SELECT mail, body FROM notes WHERE task = ? AND kind = 'message' AND mail > ? ORDER BY note"
    return connection.execute(query, (number, after)).fetchall()


def page(connection: sqlite3.Connection, query: TaskQuery) -> TaskPage:
    """One page of tasks, newest status first, and how many there are."""
    scope = _value(connection, "SELECT scope FROM scopes WHERE agent = ? AND tenant = ? AND owner = ?", query.scope)
    if scope is None:
        return TaskPage((), more=False, total=0)
    where, values = task_filter(query)
    where, values = ["t.scope = ?", *where], [scope, *values]
    total = _maintained_total(connection, query, scope)
    if total is None:
        # Only fixed texts are joined here; every value is a parameter.
        counting = f"SELECT count(*) FROM tasks t WHERE {' AND '.join(where)}"  # noqa: S608
        total = int(_value(connection, counting, values))
    if query.after is not None:
        where.append("(t.status_ms, t.number) < (?, ?)")
        values.extend(query.after)
    rows = connection.execute(
        f"{TASK} WHERE {' AND '.join(where)} ORDER BY t.status_ms DESC, t.number DESC LIMIT ?",
        (*values, query.limit + 1),
    )
    with closing(rows):  # the page may be full before the last row
        return TaskPage.of(map(stored_task, rows), query, total)


def task_filter(query: TaskQuery | TaskSearch) -> tuple[list[str], list[Any]]:
    """Return the conditions on a task `t` beside its scope, and their values, without the cursor: totals have none."""
    where: list[str] = []
    values: list[Any] = []
    if query.context_id is not None:
        where.append("t.context_id = ?")
        values.append(query.context_id)
    if query.state is not None:
        where.append("t.state = ?")
        values.append(NUMBERS[query.state])
    if query.since_ms is not None:
        where.append("t.status_ms >= ?")
        values.append(query.since_ms)
    return where, values


def _maintained_total(connection: sqlite3.Connection, query: TaskQuery, scope: int) -> int | None:
    """Return the total from the counter tables: without filters, by state, by context. None for other filters."""
    if query.since_ms is not None or (query.state is not None and query.context_id is not None):
        return None
    if query.context_id is not None:
        by_context = "SELECT tasks FROM context_counts WHERE scope = ? AND context_id = ?"
        return _value(connection, by_context, (scope, query.context_id))
    if query.state is not None:
        by_state = "SELECT tasks FROM state_counts WHERE scope = ? AND state = ?"
        return _value(connection, by_state, (scope, NUMBERS[query.state])) or 0
    return _value(connection, "SELECT sum(tasks) FROM state_counts WHERE scope = ?", (scope,)) or 0


def context_state(connection: sqlite3.Connection, scope: Scope, context_id: str) -> bytes | None:
    """The saved `ctx.state` of a conversation as JSON, or None."""
    query = (
        "SELECT c.state FROM contexts c JOIN scopes s USING (scope) "
        "WHERE s.agent = ? AND s.tenant = ? AND s.owner = ? AND c.context_id = ?"
    )
    return _value(connection, query, (*scope, context_id))


def duplicate_of(connection: sqlite3.Connection, key: bytes, now_ms: int) -> str | None:
    """The id of the task that accepted a message with this dedupe key; None when none did, or the key expired."""
    return _value(connection, "SELECT task_id FROM repeats WHERE key = ? AND until_ms > ?", (key, now_ms))


def reply(connection: sqlite3.Connection, key: bytes, now_ms: int) -> bytes | None:
    """The bare message that answered a message with this dedupe key; None when there is none, or it expired."""
    return _value(connection, "SELECT reply FROM repeats WHERE key = ? AND until_ms > ?", (key, now_ms))


def dedupe_keys(connection: sqlite3.Connection, now_ms: int) -> list[bytes]:
    """The digests of all dedupe keys that have not expired."""
    return [row[0] for row in connection.execute("SELECT key FROM repeats WHERE until_ms > ?", (now_ms,))]


def undelivered_pushes(connection: sqlite3.Connection, woken: bool = False) -> list[tuple[Push, TaskRow]]:
    """The webhooks that are not done, with their tasks, oldest first; or only those that were woken."""
    where = "WHERE w.state <> 1 AND (w.due_ms = -1 OR NOT ?) ORDER BY w.push"
    return _with_tasks(connection.execute(f"{_PUSHES} {where}", (woken,)))


def undelivered_or_refused(connection: sqlite3.Connection) -> list[tuple[Push, TaskRow]]:
    """The webhooks of `undelivered_pushes`, and those that are done although their receivers refused an event."""
    return _with_tasks(connection.execute(f"{_PUSHES} WHERE w.state <> 1 OR w.error <> '' ORDER BY w.push"))


def _with_tasks(rows: sqlite3.Cursor) -> list[tuple[Push, TaskRow]]:
    return [(push_of(row[_COLUMNS:]), stored_task(row[:_COLUMNS]).row) for row in rows.fetchall()]


def unfinished(connection: sqlite3.Connection, agent: str) -> list[StoredTask]:
    """Submitted and working tasks of an agent, oldest first."""
    rows = connection.execute(f"{TASK} WHERE t.state IN (1, 2) AND s.agent = ? ORDER BY t.number", (agent,))
    return [stored_task(row) for row in rows]


def drafts(connection: sqlite3.Connection, agent: str) -> list[StoredTask]:
    """The drafts of an agent, oldest first."""
    rows = connection.execute(
        "SELECT d.number, d.id, s.agent, s.tenant, s.owner, d.context_id, d.origin, 1, d.created_ms, 1, d.created_ms, "
        "d.body, 1, 0, 0 FROM drafts d JOIN scopes s USING (scope) WHERE s.agent = ? ORDER BY d.number",
        (agent,),
    )
    return [stored_task(row) for row in rows]


def _value(connection: sqlite3.Connection, query: str, values: Sequence[Any]) -> Any:
    """The first column of the first row; None when there is no row."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def stored_task(row: tuple[Any, ...]) -> StoredTask:
    """Build a stored task from the columns of `TASK`."""
    (
        number,
        task_id,
        agent,
        tenant,
        owner,
        context,
        origin,
        state,
        status_ms,
        generation,
        created,
        body,
        snapshot_generation,
        last_mail,
        snapshot_mail,
    ) = row
    scope = Scope(agent, tenant, owner)
    task_state = STATES[int(state)]
    task_row = TaskRow(number, task_id, scope, context, origin, task_state, status_ms, generation, created)
    return StoredTask(task_row, body, snapshot_generation or 0, last_mail, snapshot_mail or 0)
