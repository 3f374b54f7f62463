"""The search over several scopes, and counts of their tasks.

There is no index over all tasks of all scopes, because each one makes every commit slower. The newest tasks of a page
are in those scopes whose newest task is newest: so the newest task of each scope is looked up, and then only as many
scopes are read as the page has tasks, one index scan each, merged as far as the page goes.

Where every caller has a scope, that is too many look-ups for a list of everything: it is read from the index of ended
tasks, merged with the few tasks that have not ended, whose scopes and states the counts tell.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

from dragoman.engine.ports.store import ScopeFilter, SearchPage, StoredTask, TaskSearch
from dragoman.model.state import State
from dragoman.stores.sqlite.reader import TASK, stored_task, task_filter
from dragoman.stores.sqlite.schema import ALL_SCOPES, ENDED
from dragoman.stores.state_numbers import STATES

# Each of them is read with a cursor of its own.
_MAX_OPEN_COUNTS = 500
_NEWEST = "ORDER BY t.status_ms DESC, t.number DESC"


def search(connection: sqlite3.Connection, query: TaskSearch) -> SearchPage:
    """One page of the tasks of several scopes, newest status first."""
    where, values = _task_filter(query)
    with ExitStack() as cursors:
        # Of one moment, though several cursors read.
        connection.execute("BEGIN")
        cursors.callback(connection.rollback)
        scans: list[Iterator[tuple[int, int]]] = []

        def scan(condition: str, *given: int) -> None:
            rows = connection.execute(
                f"SELECT t.status_ms, t.number FROM tasks t WHERE {condition}{where} {_NEWEST}",  # noqa: S608
                (*given, *values),
            )
            cursors.enter_context(closing(rows))
            scans.append(rows)

        open_counts = _open_counts(connection) if _is_for_everything(query) else None
        if open_counts is None:
            for scope in _newest_scopes(connection, query):
                scan("t.scope = ?", scope)
        else:
            scan(f"t.{ENDED}")
            for scope, state in open_counts:
                scan("t.scope = ? AND t.state = ?", scope, state)
        return SearchPage.of(_stored_tasks(connection, heapq.merge(*scans, reverse=True)), query)


def _is_for_everything(query: TaskSearch) -> bool:
    scopes = query.scopes
    is_open = scopes.agents is None and scopes.tenant is None and scopes.owner is None
    return is_open and query.context_id is None and query.state is None


def _open_counts(connection: sqlite3.Connection) -> list[tuple[int, int]] | None:
    """The scopes and states of the tasks that have not ended; None when there are too many to read each."""
    rows = connection.execute(
        f"SELECT scope, state FROM state_counts WHERE tasks > 0 AND NOT {ENDED} LIMIT ?",  # noqa: S608
        (_MAX_OPEN_COUNTS + 1,),
    ).fetchall()
    return rows if len(rows) <= _MAX_OPEN_COUNTS else None


def _newest_scopes(connection: sqlite3.Connection, query: TaskSearch) -> list[int]:
    """The scopes that the tasks of a page may be in."""
    scopes, scope_values = _scope_filter(query.scopes)
    where, values = _task_filter(query)
    rows = connection.execute(
        f"SELECT t.scope FROM scopes s CROSS JOIN tasks t ON t.number = "  # noqa: S608 - fixed texts only
        f"(SELECT t.number FROM tasks t WHERE t.scope = s.scope{where} {_NEWEST} LIMIT 1) "
        f"WHERE {scopes} {_NEWEST} LIMIT ?",
        (*values, *scope_values, query.limit + 1),
    )
    return [scope for (scope,) in rows]


def _stored_tasks(connection: sqlite3.Connection, keys: Iterator[tuple[int, int]]) -> Iterator[StoredTask]:
    for _, number in keys:
        yield stored_task(connection.execute(f"{TASK} WHERE t.number = ?", (number,)).fetchone())


def _task_filter(query: TaskSearch) -> tuple[str, list[Any]]:
    """What is required of a task `t`, beside its scope. Only fixed texts are joined: every value is a parameter."""
    where, values = task_filter(query)
    if query.until_ms is not None:
        where.append("t.status_ms < ?")
        values.append(query.until_ms)
    if query.after is not None:
        where.append("(t.status_ms, t.number) < (?, ?)")
        values.extend(query.after)
    return "".join(f" AND {condition}" for condition in where), values


def _scope_filter(scopes: ScopeFilter) -> tuple[str, list[Any]]:
    """What is required of a scope `s`."""
    where = ["true"]
    values: list[Any] = []
    if scopes.agents is not None:
        where.append(f"s.agent IN ({', '.join('?' * len(scopes.agents))})")
        values.extend(scopes.agents)
    if scopes.tenant is not None:
        where.append("s.tenant = ?")
        values.append(scopes.tenant)
    if scopes.owner is not None:
        where.append("s.owner = ?")
        values.append(scopes.owner)
    return " AND ".join(where), values


def counts(connection: sqlite3.Connection, scopes: ScopeFilter) -> dict[State, int]:
    """How many tasks of these scopes are in each state."""
    where, values = _scope_filter(scopes)
    if values or scopes.agents is not None:
        rows = connection.execute(
            "SELECT n.state, sum(n.tasks) FROM state_counts n JOIN scopes s USING (scope) "  # noqa: S608
            f"WHERE {where} GROUP BY n.state",
            values,
        )
    else:
        # The ended tasks of all scopes, which are nearly all, are counted already.
        rows = connection.execute(
            f"SELECT state, tasks FROM state_counts WHERE scope = {ALL_SCOPES} UNION ALL "  # noqa: S608
            f"SELECT state, sum(tasks) FROM state_counts WHERE scope <> {ALL_SCOPES} AND NOT {ENDED} GROUP BY state"
        )
    return {STATES[state]: tasks for state, tasks in rows if tasks}
