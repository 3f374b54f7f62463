"""Retention in PostgreSQL: deletes and compacts old tasks in short steps, by one node at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.stores.postgres.sql.schema import ALL_SCOPES, ENDED, LOCK_SPACE, SWEEP_LOCK
from dragoman.stores.postgres.sql.tables import delete_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.engine.ports.rows import TaskTable
    from dragoman.engine.ports.store import Sweep, TaskRow
    from dragoman.net.postgres import PostgresConnection

# Records of all tasks in one step, about; it has at least one task.
STEP_RECORDS = 5000
# Dedupe keys in one step.
STEP_KEYS = 2000

_LOCK = f"SELECT pg_try_advisory_xact_lock({LOCK_SPACE}, {SWEEP_LOCK})"
_EXPIRED = """
WITH old AS (DELETE FROM repeats r USING (
    SELECT key FROM repeats WHERE until_ms < $1 ORDER BY until_ms LIMIT $2 FOR UPDATE SKIP LOCKED
) o WHERE r.key = o.key RETURNING 1) SELECT count(*) FROM old
"""
# Everything of some tasks. `$2` is the node whose counters change.
_DELETE = f"""
gone AS (DELETE FROM tasks t USING doomed d WHERE t.number = d.number RETURNING t.number, t.id, t.scope, t.context_id,
    t.state, t.followed),
old_events AS (DELETE FROM events e USING gone g WHERE e.task = g.number),
old_notes AS (DELETE FROM notes n USING gone g WHERE n.task = g.number),
old_snapshots AS (DELETE FROM snapshots s USING gone g WHERE s.task = g.number),
old_pushes AS (DELETE FROM pushes p USING gone g WHERE p.task = g.number),
empty_contexts AS MATERIALIZED (
    SELECT c.scope, c.context_id, c.turn FROM (SELECT DISTINCT scope, context_id FROM gone) g
    JOIN contexts c ON c.scope = g.scope AND c.context_id = g.context_id
    WHERE NOT EXISTS (
        SELECT 1 FROM tasks t WHERE t.scope = c.scope AND t.context_id = c.context_id AND t.state >= 0
        AND t.number NOT IN (SELECT number FROM doomed)
    ) AND NOT EXISTS (SELECT 1 FROM tasks b WHERE b.number = c.running AND b.begun)
),
-- Not if a task has got its turn meanwhile.
old_contexts AS (
    DELETE FROM contexts c USING empty_contexts e
    WHERE c.scope = e.scope AND c.context_id = e.context_id AND c.turn = e.turn
),
counts AS (
    INSERT INTO state_counts AS s (scope, state, node, tasks)
    SELECT scope, state, $2::bigint, -count(*) FROM (
        SELECT scope, state FROM gone UNION ALL SELECT {ALL_SCOPES}, state FROM gone WHERE {ENDED}
    ) c WHERE state >= 0 GROUP BY scope, state ORDER BY scope, state
    ON CONFLICT (scope, state, node) DO UPDATE SET tasks = s.tasks + excluded.tasks
)
"""
_DELETE_ONE = f"""
WITH doomed AS MATERIALIZED (SELECT number FROM tasks WHERE number = $1 FOR UPDATE), {_DELETE}
SELECT g.followed OR EXISTS (
    SELECT 1 FROM tasks q WHERE q.scope = g.scope AND q.context_id = g.context_id AND q.state IN (1, 2)
    AND coalesce(q.owner, 0) = 0 AND q.number <> g.number
) FROM gone g
"""
_DELETE_OLDEST = f"""
WITH doomed AS MATERIALIZED (
    SELECT number FROM (
        SELECT number, row_number() OVER w AS position, sum(generation) OVER w AS records FROM (
            SELECT number, generation, status_ms FROM tasks WHERE {ENDED} AND status_ms < $1
            ORDER BY status_ms, number LIMIT $3 FOR UPDATE SKIP LOCKED
        ) o WINDOW w AS (ORDER BY status_ms, number)
    ) o WHERE position = 1 OR records <= {STEP_RECORDS}
), {_DELETE}
SELECT id FROM gone
"""
_ENDED_TASKS = f"SELECT coalesce(sum(tasks), 0)::bigint FROM state_counts WHERE scope = {ALL_SCOPES}"
# A task with a message that its snapshot does not have keeps it.
_COMPACT = f"""
WITH old AS MATERIALIZED (
    SELECT t.number, t.status_ms, t.generation, p.generation = t.generation AS has_snapshot, p.mail
    FROM tasks t LEFT JOIN snapshots p ON p.task = t.number
    WHERE t.{ENDED} AND t.status_ms < $1 AND (t.status_ms, t.number) > ($2, $3)
    ORDER BY t.status_ms, t.number LIMIT $4
), step AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, row_number() OVER w AS position, sum(generation) OVER w AS records FROM old
        WINDOW w AS (ORDER BY status_ms, number)
    ) o WHERE position = 1 OR records <= {STEP_RECORDS}
), old_events AS (DELETE FROM events e USING step s WHERE s.has_snapshot AND e.task = s.number),
old_notes AS (DELETE FROM notes n USING step s WHERE s.has_snapshot AND n.task = s.number AND n.mail <= s.mail)
SELECT status_ms, number FROM step ORDER BY status_ms, number
"""
_POSITION = "SELECT key, value FROM dragoman_meta WHERE key IN ('compacted_ms', 'compacted_number')"
_SET_POSITION = """
INSERT INTO dragoman_meta VALUES ('compacted_ms', $1), ('compacted_number', $2)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""
# The counters of nodes that are gone become those of node 0, which is nobody.
_FOLD = """
WITH old AS (
    DELETE FROM state_counts s USING (
        SELECT s.scope, s.state, s.node FROM nodes n JOIN state_counts s ON s.node = n.id WHERE n.dead
        LIMIT 1000 FOR UPDATE OF s SKIP LOCKED
    ) d WHERE s.scope = d.scope AND s.state = d.state AND s.node = d.node RETURNING s.*
)
INSERT INTO state_counts AS s (scope, state, node, tasks)
SELECT scope, state, 0, sum(tasks) FROM old GROUP BY scope, state ORDER BY scope, state
ON CONFLICT (scope, state, node) DO UPDATE SET tasks = s.tasks + excluded.tasks
"""
# A dead node is forgotten when nothing refers to it any more.
_FORGET_NODES = """
DELETE FROM nodes n WHERE n.dead AND n.seen < clock_timestamp() - interval '1 day'
AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.owner = n.id)
AND NOT EXISTS (SELECT 1 FROM pushes p WHERE p.owner = n.id AND p.state = 0)
AND NOT EXISTS (SELECT 1 FROM state_counts s WHERE s.node = n.id)
"""
_FORGET_PROBES = "DELETE FROM probes p WHERE NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = p.node)"


async def delete_task(connection: PostgresConnection, node: int, row: TaskRow, tables: Sequence[TaskTable]) -> bool:
    """Delete a task with all that belongs to it. Returns whether others of its context wait for it."""
    async with connection.transaction():
        queue = await connection.fetchval(_DELETE_ONE, row.number, node)
        if queue is not None:
            await delete_rows(connection, tables, [row.id])
    return bool(queue)


async def sweep(connection: PostgresConnection, rules: Sweep, tables: Sequence[TaskTable]) -> int:
    """Run one step. Returns how many tasks were touched, at least 1 while there is more to do.

    It returns 0 also while another node sweeps.
    """
    async with connection.transaction():
        if not await connection.fetchval(_LOCK):
            return 0
        has_worked = False
        if rules.expired_before_ms is not None:
            has_worked = bool(await connection.fetchval(_EXPIRED, rules.expired_before_ms, STEP_KEYS))
        touched = await _delete_aged(connection, rules, tables, rules.limit)
        touched += await _delete_surplus(connection, rules, tables, rules.limit - touched)
        touched += await _compact(connection, rules, rules.limit - touched)
        if not touched and not has_worked:
            await connection.execute(_FOLD)
            await connection.execute(_FORGET_NODES)
            await connection.execute(_FORGET_PROBES)
        return max(touched, int(has_worked))


async def _delete_aged(connection: PostgresConnection, rules: Sweep, tables: Sequence[TaskTable], limit: int) -> int:
    if rules.ended_before_ms is None:
        return 0
    return await _delete_oldest(connection, rules.ended_before_ms, limit, tables)


async def _delete_surplus(connection: PostgresConnection, rules: Sweep, tables: Sequence[TaskTable], limit: int) -> int:
    if rules.keep_tasks is None:
        return 0
    surplus = await connection.fetchval(_ENDED_TASKS) - rules.keep_tasks
    return await _delete_oldest(connection, 1 << 62, min(surplus, limit), tables)


async def _delete_oldest(
    connection: PostgresConnection, before_ms: int, limit: int, tables: Sequence[TaskTable]
) -> int:
    if limit <= 0:
        return 0
    rows = await connection.fetch(_DELETE_OLDEST, before_ms, 0, limit)
    await delete_rows(connection, tables, [task_id for (task_id,) in rows])
    return len(rows)


async def _compact(connection: PostgresConnection, rules: Sweep, limit: int) -> int:
    before_ms = rules.compact_before_ms
    if before_ms is None or limit <= 0:
        return 0
    position = dict(await connection.fetch(_POSITION))
    after = (position.get("compacted_ms", -1), position.get("compacted_number", -1))
    if after[0] >= before_ms:  # the clock was set back since: tasks that ended then are before this position
        after = (-1, -1)
    rows = await connection.fetch(_COMPACT, before_ms, *after, limit)
    if rows:
        await connection.execute(_SET_POSITION, *rows[-1])
    return len(rows)
