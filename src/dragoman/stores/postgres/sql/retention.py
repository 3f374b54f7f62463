"""Retention in PostgreSQL, by one node at a time.

Old tasks are deleted in short steps. Events are not deleted but dropped, day by day: a day goes when none of its tasks
needs its events any more. That costs the same for a thousand events and for a hundred million.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from dragoman.net.postgres import is_conflict
from dragoman.stores.postgres.sql.partition import (
    READ_TODAY,
    attach_ahead,
    date_of,
    detach_day,
    first_number,
    partition_of,
)
from dragoman.stores.postgres.sql.schema import ALL_SCOPES, DAYS_LOCK, ENDED, LOCK_SPACE, SWEEP_LOCK
from dragoman.stores.postgres.sql.tables import delete_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.engine.ports.rows import TaskTable
    from dragoman.engine.ports.store import Sweep, TaskRow
    from dragoman.net.postgres import PostgresConnection

logger = logging.getLogger("dragoman.store")

# Records or notes that are deleted in one step, about; it has at least one task.
STEP_RECORDS = 250
# Tasks that are looked at in one step.
STEP_TASKS = 5000
# After a step there is a pause, so many times as long as the step took: nobody waits for retention, and no caller must
# wait because of it.
PAUSE = 9.0
LATE_SECONDS = 600.0
# How long one call goes on with days, in seconds. What it has done is saved after each step.
DAYS_SECONDS = 60.0
# Dedupe keys in one step.
STEP_KEYS = 250
# Tasks that are deleted in one step at most.
STEP_DELETED = 50
# What is deleted need not be on the disk at once: after a crash it is deleted again.
UNHURRIED = "off"
# A day can be dropped when it ended a whole day ago: no node has task numbers of it any more.
DROP_AFTER = 2
# A day that cannot be dropped, because a task of it waits, is cleared row by row after so many days, and then in these
# intervals.
CLEAR_AFTER, CLEAR_SECONDS = 3, 86_400.0

_LOCK = f"SELECT pg_try_advisory_xact_lock({LOCK_SPACE}, {SWEEP_LOCK})"
_EXPIRED = """
WITH old AS (DELETE FROM repeats r USING (
    SELECT key FROM repeats WHERE until_ms < $1 ORDER BY until_ms LIMIT $2 FOR UPDATE SKIP LOCKED
) o WHERE r.key = o.key RETURNING 1) SELECT count(*) FROM old
"""
# Some tasks, without their events. `$2` is the node whose counters change.
_DELETE = f"""
gone AS (DELETE FROM tasks t USING doomed d WHERE t.number = d.number RETURNING t.number, t.id, t.scope, t.context_id,
    t.state, t.followed),
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
WITH doomed AS MATERIALIZED (SELECT number FROM tasks WHERE number = $1 FOR UPDATE), {_DELETE},
old_events AS (DELETE FROM events WHERE task = $1)
SELECT g.followed OR EXISTS (
    SELECT 1 FROM tasks q WHERE q.scope = g.scope AND q.context_id = g.context_id AND q.state IN (1, 2)
    AND coalesce(q.owner, 0) = 0 AND q.number <> g.number
) FROM gone g
"""
_DELETE_OLDEST = f"""
WITH doomed AS MATERIALIZED (
    SELECT number FROM tasks WHERE {ENDED} AND status_ms < $1
    ORDER BY status_ms, number LIMIT $3 FOR UPDATE SKIP LOCKED
), {_DELETE}
SELECT id FROM gone
"""
_ENDED_TASKS = f"SELECT coalesce(sum(tasks), 0)::bigint FROM state_counts WHERE scope = {ALL_SCOPES}"
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
# A standby that was behind when it took over may have forgotten a node whose claims it has: it counts as dead.
_BURY_FORGOTTEN = """
INSERT INTO nodes (id, name, agents, version, lease, keys, dead, stopped)
SELECT o.owner, '', '{}', '', 0, '{}', true, true FROM (
    SELECT t.owner FROM tasks t WHERE t.owner IS NOT NULL
    UNION SELECT p.owner FROM pushes p WHERE p.owner IS NOT NULL AND p.state = 0
) o WHERE NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.owner) ON CONFLICT (id) DO NOTHING
"""
# A dead node is forgotten when nothing refers to it any more.
_FORGET_NODES = """
DELETE FROM nodes n WHERE n.dead AND n.seen < clock_timestamp() - interval '1 day'
AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.owner = n.id)
AND NOT EXISTS (SELECT 1 FROM pushes p WHERE p.owner = n.id AND p.state = 0)
AND NOT EXISTS (SELECT 1 FROM state_counts s WHERE s.node = n.id)
"""
_FORGET_PROBES = "DELETE FROM probes p WHERE NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = p.node)"


class SweepPauses:
    """The pauses after the steps of retention. There are none when it has had no end for long: it does not keep up."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: float | None = None

    @asynccontextmanager
    async def step(self) -> AsyncGenerator[None]:
        """A step of work, and the pause after it."""
        began = self._now()
        self._since = began if self._since is None else self._since
        yield
        await asyncio.sleep(self.pause(self._now() - began))

    def pause(self, seconds: float) -> float:
        """How long to rest after a step that took so many seconds."""
        is_late = self._since is not None and self._now() - self._since > LATE_SECONDS
        return 0.0 if is_late else PAUSE * seconds

    def end(self) -> None:
        """There is nothing more to do."""
        self._since = None


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
        limit = min(rules.limit, STEP_DELETED)
        touched = await _delete_aged(connection, rules, tables, limit)
        touched += await _delete_surplus(connection, rules, tables, limit - touched)
        if touched or has_worked:
            await connection.execute(f"SET LOCAL synchronous_commit = {UNHURRIED}")
        else:
            await connection.execute(_BURY_FORGOTTEN)
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


# -- days --------------------------------------------------------------------------------------------------------------

_TRY_LOCK = f"SELECT pg_try_advisory_lock({LOCK_SPACE}, {DAYS_LOCK})"
_UNLOCK = f"SELECT pg_advisory_unlock({LOCK_SPACE}, {DAYS_LOCK})"
_DAYS = """
SELECT day, cutoff_ms, checked, cleared, dropped, extract(epoch FROM clock_timestamp() - cleared_at)::float8,
    (kept_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 day') IS TRUE
FROM days WHERE day <= $1 ORDER BY dropped DESC, day
"""
# Whether task `t` needs its events: it has not ended before `{0}`, or has no snapshot of its end.
_NEEDS_EVENTS = f"""NOT (t.{ENDED} AND t.status_ms < {{0}} AND EXISTS (
    SELECT 1 FROM snapshots p WHERE p.task = t.number AND p.generation = t.generation
))"""
_NEXT_TASKS = f"""
SELECT t.number, t.generation, t.state, t.status_ms FROM tasks t WHERE t.number >= $1 AND t.number < $2
ORDER BY t.number LIMIT {STEP_TASKS}
"""
# In one statement: others delete tasks meanwhile, and none may be passed over that was not looked at.
_CHECK_TASKS = f"""
WITH step AS MATERIALIZED ({_NEXT_TASKS})
SELECT (SELECT min(t.number) FROM step t WHERE {_NEEDS_EVENTS.format("$3::bigint")}), max(number), count(*) FROM step
"""
# Deletes the events and notes of the next tasks of a partition that do not need them. Tasks that were deleted have left
# their events here. A message that is not in the snapshot is kept.
_CLEAR = f"""
WITH step AS MATERIALIZED (
    SELECT DISTINCT e.task FROM (
        SELECT task FROM {{partition}} WHERE task > $1 ORDER BY task, generation LIMIT {STEP_RECORDS}
    ) e ORDER BY e.task LIMIT $3
), found AS MATERIALIZED (
    SELECT s.task, t.number IS NOT NULL AS exists, t.number IS NULL OR NOT {_NEEDS_EVENTS.format("$2::bigint")} AS goes
    FROM step s LEFT JOIN tasks t ON t.number = s.task
), old_events AS (DELETE FROM {{partition}} e USING found f WHERE f.goes AND e.task = f.task),
old_notes AS (
    DELETE FROM notes n USING found f JOIN snapshots p ON p.task = f.task
    WHERE f.goes AND n.task = f.task AND n.mail <= p.mail
)
SELECT max(task), count(*) FILTER (WHERE exists AND goes) FROM found
"""
_CLEAR_NOTES = f"""
WITH step AS MATERIALIZED (
    SELECT DISTINCT n.task FROM (
        SELECT task FROM notes WHERE task > $1 AND task < $2 ORDER BY task, key LIMIT {STEP_RECORDS}
    ) n
), old_notes AS (
    DELETE FROM notes n USING step s JOIN snapshots p ON p.task = s.task WHERE n.task = s.task AND n.mail <= p.mail
)
SELECT max(task) FROM step
"""


class _Day(NamedTuple):
    """A row of `days`, as in the schema.

    `cleared_seconds` is how long ago it was cleared, None for never. `is_kept` is True while nodes may have numbers of
    it.
    """

    day: int
    cutoff_ms: int
    checked: int
    cleared: int
    dropped: bool
    cleared_seconds: float | None
    is_kept: bool

    @property
    def end(self) -> int:
        """The first number after those of its tasks."""
        return first_number(self.day + 1)


class DaySweeper:
    """Makes partitions for the days ahead, and drops those of days whose events nobody needs.

    A task needs its events until it has ended before the time of a rule. A day with a task that waits for its caller
    cannot be dropped: after `clear_after` days the events of all others are deleted row by row, and what has ended
    since every `clear_seconds`.
    """

    def __init__(self, clear_after: int = CLEAR_AFTER, clear_seconds: float = CLEAR_SECONDS) -> None:
        self._clear_after = clear_after
        self._clear_seconds = clear_seconds
        self._pauses = SweepPauses()
        self._until = 0.0

    async def step(self, connection: PostgresConnection, rules: Sweep) -> int:
        """Drop what can be dropped, and run a step of clearing. Returns how many tasks lost their events by that.

        It returns at least 1 when there was no time to drop all that can be, and 0 also while another node is at it.
        The lock is that of the session, because a partition cannot be detached within a transaction: when a node dies
        in the middle, the lock ends with what it had begun. If this is canceled or raises an error, the session has to
        be closed.
        """
        if not await connection.fetchval(_TRY_LOCK):
            return 0
        self._until = time.monotonic() + DAYS_SECONDS
        try:
            cleared = await self._step(connection, rules)
            self._pauses.end()
        except _TimeOver:
            cleared = 1
        except Exception as error:
            if not is_conflict(error):
                raise  # the lock ends with the session
            logger.info("a day could not be dropped, because a transaction uses its events; the next sweep tries again")
            cleared = 0
        await connection.execute(_UNLOCK)
        return cleared

    async def _step(self, connection: PostgresConnection, rules: Sweep) -> int:
        await attach_ahead(connection)
        today: int = await connection.fetchval(READ_TODAY)
        cutoff_ms = max(rules.compact_before_ms or -1, rules.ended_before_ms or -1)
        keeps_all = cutoff_ms < 0 and rules.keep_tasks is None  # then there is nothing to clear in any day
        for row in await connection.fetch(_DAYS, today - min(DROP_AFTER, self._clear_after)):
            day = _Day(*row)
            may_drop = day.day <= today - DROP_AFTER and not day.is_kept
            if day.dropped or (may_drop and await self._is_unneeded(connection, day, cutoff_ms)):
                await self._drop(connection, day)
            elif day.day <= today - self._clear_after and not keeps_all:
                cleared = await self._clear(connection, day, cutoff_ms, rules.limit)
                if cleared:
                    return cleared
        return 0

    async def _clear(self, connection: PostgresConnection, day: _Day, cutoff_ms: int, limit: int) -> int:
        """Delete events row by row. Returns how many tasks had some; 0 when all have gone for now."""
        if not day.cleared and day.cleared_seconds is not None and day.cleared_seconds < self._clear_seconds:
            return 0
        query, position, tasks = _CLEAR.format(partition=partition_of(day.day)), day.cleared, 0
        update = "UPDATE days SET cleared = $2, cleared_at = clock_timestamp() WHERE day = $1"
        while position is not None and not tasks:
            async with self._step_and_pause():
                position, tasks = await connection.fetchrow(query, position, cutoff_ms, limit)
                await connection.execute(update, day.day, position or 0)
        return tasks

    async def _is_unneeded(self, connection: PostgresConnection, day: _Day, cutoff_ms: int) -> bool:
        """True when no task of a day needs its events.

        Each task is looked at once: what has ended does not change, and a past day gets no new tasks.
        """
        # If the rules have changed, and tasks are kept for longer now, all are looked at again.
        number = day.checked if cutoff_ms >= day.cutoff_ms else first_number(day.day)
        in_need, count, before = None, STEP_TASKS, (day.checked, day.cutoff_ms)
        while in_need is None and count == STEP_TASKS:
            async with self._step_and_pause():
                in_need, last, count = await connection.fetchrow(_CHECK_TASKS, number, day.end, cutoff_ms)
                number = in_need or (last + 1 if last else number)
                # After each step: a day with very many tasks takes longer than a sweep may.
                if (number, cutoff_ms) != before:
                    before = number, cutoff_ms
                    await connection.execute(
                        "UPDATE days SET checked = $2, cutoff_ms = $3 WHERE day = $1", day.day, *before
                    )
        return in_need is None

    async def _drop(self, connection: PostgresConnection, day: _Day) -> None:
        """Drop a day: first its events, then the notes, which give some of them their meaning."""
        had_events = day.dropped or await connection.fetchval(f"SELECT EXISTS (SELECT FROM {partition_of(day.day)})")
        # From here on it is decided, whoever finishes it.
        await connection.execute("UPDATE days SET dropped = true WHERE day = $1", day.day)
        await detach_day(connection, day.day)
        position: int | None = first_number(day.day) - 1
        while position is not None:
            async with self._step_and_pause():
                position = await connection.fetchval(_CLEAR_NOTES, position, day.end)
        await connection.execute("DELETE FROM days WHERE day = $1", day.day)
        if had_events:
            logger.info("the events of %s were dropped", date_of(day.day))

    @asynccontextmanager
    async def _step_and_pause(self) -> AsyncGenerator[None]:
        """A step whose result is saved. Raises _TimeOver when there is no time for another one."""
        async with self._pauses.step():
            yield
        if time.monotonic() > self._until:
            raise _TimeOver


class _TimeOver(Exception):
    """The rest is for the next call."""
