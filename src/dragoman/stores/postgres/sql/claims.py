"""Claims in PostgreSQL: who may write a task, who takes unowned work, and messages for tasks of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.engine.ports.ownership import Claim, ClaimedTask, TaskClaim
from dragoman.engine.ports.store import WOKEN, PushState
from dragoman.stores.postgres.database import ChangeOutcome, TaskOwner
from dragoman.stores.postgres.sql.reader import STORED, stored_task
from dragoman.stores.postgres.sql.schema import DRAFT, ENDED, NOTED, UNFINISHED, WAITING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.engine.ports.store import DedupeKey, TaskRow
    from dragoman.net.postgres import PostgresConnection

# A node that is dead never lives again, so that it does not matter how old this answer is.
_IS_DEAD = "EXISTS (SELECT 1 FROM nodes d WHERE d.id = {0} AND d.dead)"
# A node that was stopped is probably being restarted: its sessions are waited for.
RETURN_SECONDS = 30
_MAY_HAVE_SESSIONS = f"""(
    NOT n.dead OR (n.stopped AND n.seen > clock_timestamp() - interval '{RETURN_SECONDS} seconds')
)"""
# The claimed tasks `t` with what is stored about them. The home of a session is told when that node is gone.
_CLAIMED = f"""
SELECT {STORED}, t.attempts, t.begun, (
    SELECT c.home FROM contexts c WHERE c.scope = t.scope AND c.context_id = t.context_id AND c.home IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.name = c.home AND NOT n.dead)
) FROM {{0}} t JOIN scopes s ON s.scope = t.scope LEFT JOIN snapshots p ON p.task = t.number ORDER BY t.number
"""
_SET_CLAIM = "owner = $1, epoch = t.epoch + 1, claimed_at = clock_timestamp()"
_CLAIM = f"""
WITH claimed AS (
    UPDATE tasks t SET {_SET_CLAIM} WHERE t.number = $2 AND t.generation = $3 AND NOT t.{ENDED}
    AND (t.state >= 0 OR t.owner = $1)
    AND (CASE WHEN t.owner IS NULL THEN t.{WAITING} ELSE t.owner = $1 OR {_IS_DEAD.format("t.owner")} END)
    RETURNING t.*
) {_CLAIMED.format("claimed")}
"""
_REVOKE = f"""
WITH claimed AS (
    UPDATE tasks t SET {_SET_CLAIM} WHERE t.number = $2 AND t.state >= 0 AND NOT t.{ENDED} RETURNING t.*
) {_CLAIMED.format("claimed")}
"""
_RELEASE = """
UPDATE tasks t SET owner = NULL
WHERE t.number = $2 AND t.owner = $1 AND t.epoch = $3 AND ($4 OR NOT t.begun) AND t.state >= 0 RETURNING 1
"""
# In the order of their numbers, as everywhere: so that nobody waits for somebody who waits for him.
_RELEASE_MANY = """
WITH given AS MATERIALIZED (
    SELECT t.number, t.owner, t.epoch
    FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::boolean[]) q(node, task, epoch, begun)
    JOIN tasks t ON t.number = q.task
    WHERE t.owner = q.node AND t.epoch = q.epoch AND (q.begun OR NOT t.begun) AND t.state >= 0
    ORDER BY t.number FOR NO KEY UPDATE OF t
)
UPDATE tasks t SET owner = NULL FROM given g WHERE t.number = g.number AND t.owner = g.owner AND t.epoch = g.epoch
RETURNING t.number, t.epoch
"""
# Tasks of dead nodes. Looked up node by node: the planner would rather read all tasks in order.
_ORPHANS = """
SELECT t.number FROM nodes n CROSS JOIN LATERAL (
    SELECT t.number FROM tasks t WHERE t.owner = n.id AND {0} OFFSET 0
) t WHERE n.dead"""
# What dead nodes had claimed and not begun. A waiting task, claimed to be answered, waits again.
_REQUEUE = f"""
WITH orphans AS MATERIALIZED ({_ORPHANS.format(f"NOT t.begun AND t.state <> {DRAFT}")} ORDER BY t.number),
lost AS MATERIALIZED (
    SELECT t.number, t.owner FROM orphans o JOIN tasks t ON t.number = o.number FOR UPDATE OF t SKIP LOCKED
)
UPDATE tasks t SET owner = NULL FROM lost q WHERE t.number = q.number AND t.owner = q.owner AND NOT t.begun
AND {_IS_DEAD.format("t.owner")}
"""
# A queued task of a context waits for the older ones and for one that has begun, and for the node that has its session.
_ORDER = f"""AND (EXISTS (
    SELECT 1 FROM tasks b WHERE b.scope = t.scope AND b.context_id = t.context_id AND b.{UNFINISHED}
    AND b.number <> t.number AND (b.begun OR (b.queued_at, b.number) < (t.queued_at, t.number))
)) IS NOT TRUE AND (EXISTS (
    SELECT 1 FROM contexts c JOIN tasks d ON d.number = c.running WHERE c.scope = t.scope
    AND c.context_id = t.context_id AND c.running <> t.number AND d.begun
)) IS NOT TRUE"""
# The session of a run is on a live node, which takes it itself: the node that died had only begun to cancel it.
_IS_AT_HOME = """NOT EXISTS (
    SELECT 1 FROM contexts c JOIN nodes h ON h.name = c.home AND NOT h.dead
    WHERE c.scope = t.scope AND c.context_id = t.context_id AND c.home <> (SELECT name FROM nodes WHERE id = $1)
)"""
_TAKE = f"""
WITH queued AS MATERIALIZED (
    SELECT t.number FROM tasks t WHERE t.{UNFINISHED} AND t.owner IS NULL AND t.agent = $2 {{0}}
    AND NOT EXISTS (
        SELECT 1 FROM contexts c JOIN nodes n ON n.name = c.home AND {_MAY_HAVE_SESSIONS}
        WHERE c.scope = t.scope AND c.context_id = t.context_id AND c.home <> (SELECT name FROM nodes WHERE id = $1)
    )
    ORDER BY t.number LIMIT $4 FOR UPDATE OF t SKIP LOCKED
), orphans AS MATERIALIZED (
    {_ORPHANS.format(f"t.agent = $2 AND (t.begun OR t.state = {DRAFT}) AND {_IS_AT_HOME}")} ORDER BY t.number LIMIT $3
), lost AS MATERIALIZED (
    SELECT t.number FROM orphans o JOIN tasks t ON t.number = o.number WHERE t.begun OR t.state = {DRAFT}
    FOR UPDATE OF t SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT number, false AS is_lost FROM queued UNION ALL SELECT number, true FROM lost ORDER BY number LIMIT $3
),
claimed AS (
    UPDATE tasks t SET {_SET_CLAIM}, attempts = t.attempts + (
        w.is_lost AND NOT EXISTS (SELECT 1 FROM nodes l WHERE l.id = t.owner AND l.stopped)
    )::int
    FROM chosen w WHERE t.number = w.number
    AND (CASE WHEN w.is_lost THEN {_IS_DEAD.format("t.owner")} ELSE t.owner IS NULL AND t.{UNFINISHED} END)
    RETURNING t.*
) {_CLAIMED.format("claimed")}
"""
# The number comes from the locked row, and is taken only with the note: a statement that was sent twice, and waited for
# itself, takes no second one.
_POST = f"""
WITH locked AS MATERIALIZED (
    SELECT t.number, t.generation, t.mail FROM tasks t
    WHERE t.number = $1 AND t.{NOTED} AND t.generation = coalesce($2, t.generation) FOR NO KEY UPDATE
), kept AS (
    INSERT INTO repeats AS r (key, task, task_id, until_ms) SELECT $3::bytea, $1, $4::text, $5::bigint FROM locked
    WHERE $3::bytea IS NOT NULL
    ON CONFLICT (key) DO UPDATE SET task = excluded.task, task_id = excluded.task_id, until_ms = excluded.until_ms,
        reply = NULL WHERE r.until_ms <= $6::bigint
    RETURNING r.task
), noted AS (
    INSERT INTO notes (task, key, generation, kind, mail, body)
    SELECT number, $7::bigint, generation, 'message', mail + 1, $8::bytea FROM locked
    WHERE $3::bytea IS NULL OR EXISTS (SELECT 1 FROM kept)
    ON CONFLICT DO NOTHING RETURNING task, mail
), posted AS (
    UPDATE tasks t SET mail = n.mail FROM noted n WHERE t.number = n.task
)
SELECT EXISTS (SELECT 1 FROM locked), EXISTS (SELECT 1 FROM noted)
"""
_IS_POSTED = "SELECT EXISTS (SELECT 1 FROM notes WHERE task = $1 AND key = $2)"
# Those without an owner, and those of dead nodes: each found by the index on owners, however many the live nodes have.
# With `=` instead of BETWEEN the planner may prefer the index without owners, because it has the order.
_TAKE_PUSHES = f"""
WITH free AS MATERIALIZED (
    (SELECT w.task, w.id FROM pushes w WHERE w.state = 0 AND w.owner IS NULL ORDER BY w.push LIMIT $2)
    UNION ALL (
        SELECT l.task, l.id FROM nodes n CROSS JOIN LATERAL (
            SELECT w.task, w.id FROM pushes w WHERE w.state = 0 AND w.owner BETWEEN n.id AND n.id
            ORDER BY w.owner, w.push LIMIT $2
        ) l WHERE n.dead
    )
), chosen AS MATERIALIZED (
    SELECT w.task, w.id FROM free f JOIN pushes w ON w.task = f.task AND w.id = f.id JOIN tasks t ON t.number = w.task
    WHERE w.state = 0 AND t.state >= 0 AND (w.owner IS NULL OR {_IS_DEAD.format("w.owner")})
    ORDER BY w.push LIMIT $2 FOR UPDATE OF w SKIP LOCKED
), taken AS (
    UPDATE pushes w SET owner = $1, epoch = w.epoch + 1, due_ms = {WOKEN} FROM chosen c
    WHERE w.task = c.task AND w.id = c.id AND w.state = 0 RETURNING 1
)
SELECT count(*) FROM taken
"""
PROBE = "INSERT INTO probes AS p VALUES ($1, 1) ON CONFLICT (node) DO UPDATE SET value = p.value + 1"
# Without an owner, so that the first node that looks for webhooks takes it. Those that do not fail are not touched.
_WAKE_PUSHES = f"""
UPDATE pushes SET state = {int(PushState.OPEN)}, tries = 0, failing_ms = 0, due_ms = {WOKEN}, owner = NULL,
    epoch = epoch + 1
WHERE state <> {int(PushState.DONE)} AND (state = {int(PushState.DEAD)} OR tries > 0)
AND ($1::text IS NULL OR task = (SELECT number FROM tasks WHERE id = $1)) AND ($2::text IS NULL OR id = $2)
RETURNING 1
"""


async def claim(
    connection: PostgresConnection, node: int, number: int, generation: int, *, revoke: bool
) -> ClaimedTask | None:
    """Claim one task, as `Database.claim` says."""
    if revoke:
        row = await connection.fetchrow(_REVOKE, node, number)
    else:
        row = await connection.fetchrow(_CLAIM, node, number, generation)
    return None if row is None else _claimed_task(row)


async def release(connection: PostgresConnection, node: int, number: int, epoch: int, begun: bool) -> bool:
    """Give up a claim of a node, unless its task has begun; with `begun`, also then. False when it was not so."""
    return await connection.fetchval(_RELEASE, node, number, epoch, begun) is not None


async def release_many(connection: PostgresConnection, requests: Sequence[tuple[int, int, int, bool]]) -> list[bool]:
    """Give up many claims, each as `release` does."""
    columns = zip(*requests, strict=True)
    released = {(number, epoch) for number, epoch in await connection.fetch(_RELEASE_MANY, *map(list, columns))}
    return [(number, epoch) in released for _, number, epoch, _ in requests]


async def take(
    connection: PostgresConnection, node: int, agent: str, *, parallel: bool, limit: int, queued: bool = True
) -> list[ClaimedTask]:
    """Claim tasks of an agent that no live node works on, oldest first."""
    await connection.execute(_REQUEUE)
    rows = await connection.fetch(_TAKE.format("" if parallel else _ORDER), node, agent, limit, limit if queued else 0)
    return [_claimed_task(row) for row in rows]


def _claimed_task(row: Any) -> ClaimedTask:
    *columns, attempts, begun, home = row
    stored = stored_task(columns)
    return ClaimedTask(stored, Claim(stored.row.number, stored.epoch, attempts), begun, columns[7] == DRAFT, home)


async def owned(connection: PostgresConnection, node: int) -> dict[int, TaskClaim]:
    """The tasks and drafts that a node owns."""
    rows = await connection.fetch(
        "SELECT t.number, t.epoch, t.mail, s.agent, t.id FROM tasks t JOIN scopes s ON s.scope = t.scope "
        "WHERE t.owner = $1",
        node,
    )
    return {number: TaskClaim(*claim) for number, *claim in rows}


async def owners(connection: PostgresConnection, node: int, numbers: Sequence[int]) -> dict[int, TaskOwner]:
    """Who owns these tasks and drafts now.

    It writes a row first, so that with a synchronous standby it waits for the commits before it.
    """
    await connection.execute(PROBE, node)
    rows = await connection.fetch(
        "SELECT number, owner, epoch, CASE WHEN state >= 0 THEN generation ELSE 0 END, id "
        "FROM tasks WHERE number = ANY($1::bigint[])",
        list(numbers),
    )
    return {number: TaskOwner(*owner) for number, *owner in rows}


async def post(
    connection: PostgresConnection,
    row: TaskRow,
    body: bytes,
    dedupe_key: DedupeKey | None,
    generation: int | None,
    key: int,
    now_ms: int,
) -> ChangeOutcome:
    """Add a message to a task that is submitted, working or waits for a login. The same `key` is added once."""
    digest, until_ms = (None, None) if dedupe_key is None else dedupe_key[:2]
    is_there, is_added = await connection.fetchrow(
        _POST, row.number, generation, digest, row.id, until_ms, now_ms, key, body
    )
    if is_added:
        return ChangeOutcome("committed")
    # Asked again: a statement that is repeated does not see what the first has written while it waited for it.
    if await connection.fetchval(_IS_POSTED, row.number, key):
        return ChangeOutcome("committed")
    return ChangeOutcome("repeated" if is_there else "refused")


async def take_pushes(connection: PostgresConnection, node: int, limit: int) -> int:
    """Claim open webhooks that no live node delivers, oldest first, and mark them WOKEN. Returns how many.

    A claim, and whatever else takes a webhook from its node, adds 1 to its `epoch`; one that is stored or replaced
    has the epoch it comes with. Progress requires node, epoch and `created_ms`. Those of drafts are left alone.
    """
    return await connection.fetchval(_TAKE_PUSHES, node, limit)


async def wake_pushes(connection: PostgresConnection, task_id: str | None, push_id: str | None) -> int:
    """Make webhooks that are dead or fail WOKEN and nobody's: all, those of a task, or one. Returns how many."""
    return len(await connection.fetch(_WAKE_PUSHES, task_id, push_id))
