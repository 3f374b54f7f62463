"""Undelivered webhooks of all nodes, for `dragoman push`."""

from __future__ import annotations

from typing import Any

from dragoman.engine.ports.store import Push, PushState, Scope, TaskRow
from dragoman.net.postgres import PostgresConnection
from dragoman.stores.state_numbers import STATES

_OWED = """
SELECT w.task, w.id, w.dialect, w.url, w.secrets, w.cursor, w.created_ms, w.tries, w.failing_ms, w.due_ms, w.state,
    w.error, t.number, t.id, s.agent, s.tenant, s.owner, t.context_id, t.origin, t.state, t.status_ms, t.generation,
    t.created_ms
FROM pushes w JOIN tasks t ON t.number = w.task JOIN scopes s ON s.scope = t.scope
WHERE (w.state <> 1 OR w.error <> '') AND t.state >= 0 ORDER BY w.push
"""


async def list_webhooks(connection: PostgresConnection) -> list[tuple[Push, TaskRow]]:
    """The webhooks with pending, failed or refused deliveries, oldest first, with their tasks."""
    return [_webhook(*row) for row in await connection.fetch(_OWED)]


def _webhook(*row: Any) -> tuple[Push, TaskRow]:
    push = Push(*row[:10], state=PushState(row[10]), error=row[11])
    number, task_id, agent, tenant, owner, context_id, origin, state, *times = row[12:]
    return push, TaskRow(number, task_id, Scope(agent, tenant, owner), context_id, origin, STATES[int(state)], *times)
