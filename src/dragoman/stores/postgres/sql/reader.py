"""The queries of the store in PostgreSQL. A task is read with its last snapshot in one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.engine.ports.store import (
    WOKEN,
    Cursor,
    JournalRecord,
    Note,
    Push,
    PushState,
    Scope,
    ScopeFilter,
    SearchPage,
    StoredTask,
    TaskPage,
    TaskQuery,
    TaskRow,
    TaskSearch,
)
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.net.postgres import is_missing, is_unstorable
from dragoman.stores.postgres.grouped_calls import TOO_LARGE
from dragoman.stores.postgres.sql.partition import day_of, partition_of
from dragoman.stores.postgres.sql.schema import DRAFT, LISTED, UNFINISHED
from dragoman.stores.state_numbers import NUMBERS, STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman.net.postgres import PostgresConnection
    from dragoman.stores.postgres.grouped_calls import LargeResult

ROW = """
t.number, t.id, s.agent, s.tenant, s.owner, t.context_id, t.origin, t.state, t.status_ms, t.generation, t.created_ms
"""
# The columns of a stored task; `t` is the task, `s` its scope and `p` its snapshot.
STORED = f"{ROW}, p.body, p.generation, t.mail, p.mail, t.epoch"
_COLUMNS = 16
_FROM = "FROM tasks t JOIN scopes s ON s.scope = t.scope LEFT JOIN snapshots p ON p.task = t.number"
# In the order of the fields of `Push`.
_PUSH = """
w.task, w.id, w.dialect, w.url, w.secrets, w.cursor, w.created_ms, w.tries, w.failing_ms, w.due_ms, w.state, w.error,
w.epoch
"""
_PUSHES = f"""
SELECT {_PUSH}, {ROW} FROM pushes w JOIN tasks t ON t.number = w.task JOIN scopes s ON s.scope = t.scope
WHERE t.{LISTED} AND w.state <> {int(PushState.DONE)}
"""
# Whether what a dedupe key leads to is still there.
_VALID = "(r.reply IS NOT NULL OR EXISTS (SELECT 1 FROM tasks t WHERE t.number = r.task))"


# Of many reads in one statement: the rows of each, and the bytes of each row. What has more is read alone.
_FEW, _SMALL = 16, 16_384
_RECORDS_OF_MANY = f"""
SELECT q.position, e.generation, CASE WHEN octet_length(e.body) <= {_SMALL} THEN e.body END
FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY q(task, after, position) CROSS JOIN LATERAL (
    SELECT generation, body FROM {{0}} WHERE task = q.task AND generation > q.after ORDER BY generation LIMIT {_FEW}
) e ORDER BY q.position, e.generation
"""
_NOTES_OF_MANY = f"""
SELECT q.task, n.generation, n.kind, CASE WHEN octet_length(n.body) <= {_SMALL} THEN n.body END, n.mail
FROM unnest($1::bigint[]) q(task) CROSS JOIN LATERAL (
    SELECT generation, kind, body, mail, note FROM notes WHERE task = q.task LIMIT {_FEW}
) n ORDER BY q.task, n.note
"""
_SIZE = _COLUMNS
_TASKS = f"""
SELECT {STORED.replace("p.body", f"CASE WHEN octet_length(p.body) <= {_SMALL} THEN p.body END")},
    coalesce(octet_length(p.body), 0) {_FROM} WHERE t.id = ANY($1::text[]) AND t.{LISTED}
"""


async def _find(
    connection: PostgresConnection, finds_nothing: Callable[[BaseException], bool], query: str, *values: Any
) -> Sequence[Any]:
    """The rows of a query: none when it fails because what it asks for cannot be there."""
    try:
        return await connection.fetch(query, *values)
    except Exception as error:
        if not finds_nothing(error):
            raise
        return ()


async def task(connection: PostgresConnection, task_id: str) -> StoredTask | None:
    """Read a task by its id; None when there is none, or only a draft."""
    query = f"SELECT {STORED} {_FROM} WHERE t.id = $1 AND t.{LISTED}"
    rows = await _find(connection, is_unstorable, query, task_id)
    return stored_task(rows[0]) if rows else None


async def tasks(
    connection: PostgresConnection, requests: Sequence[tuple[str]]
) -> list[StoredTask | LargeResult | None]:
    """Many tasks, each as `task` reads it."""
    rows = await connection.fetch(_TASKS, [task_id for (task_id,) in requests])
    found = {row[1]: TOO_LARGE if row[_SIZE] > _SMALL else stored_task(row) for row in rows}
    return [found.get(task_id) for (task_id,) in requests]


async def generations(connection: PostgresConnection, task_ids: Sequence[str]) -> list[tuple[str, int]]:
    """The generations of many tasks, for the poll of the bus."""
    query = f"SELECT t.id, t.generation FROM tasks t WHERE t.id = ANY($1::text[]) AND t.{LISTED}"
    return [(task_id, generation) for task_id, generation in await connection.fetch(query, list(task_ids))]


async def records(connection: PostgresConnection, number: int, after: int, limit: int) -> list[Record]:
    """The records of a task with a generation above `after`, in order, at most `limit`."""
    query = (
        f"SELECT generation, body FROM {partition_of(day_of(number))} "
        "WHERE task = $1 AND generation > $2 ORDER BY generation LIMIT $3"
    )
    rows = await _find(connection, is_missing, query, number, after, limit)  # its day may have been dropped
    return [Record(generation, body) for generation, body in rows]


async def records_of_many(
    connection: PostgresConnection, requests: Sequence[tuple[int, int, int]]
) -> list[list[Record] | LargeResult]:
    """The records of many tasks, each as `records` reads them with a number, a generation and a limit."""
    by_day: dict[int, list[int]] = {}
    for place, (number, _, _) in enumerate(requests):
        by_day.setdefault(day_of(number), []).append(place)
    found: list[list[Record] | LargeResult] = [[] for _ in requests]
    for day, places in by_day.items():
        numbers, after = [requests[place][0] for place in places], [requests[place][1] for place in places]
        query = _RECORDS_OF_MANY.format(partition_of(day))
        for position, generation, body in await _find(connection, is_missing, query, numbers, after):
            place = places[int(position) - 1]
            records, limit = found[place], requests[place][2]
            if records is TOO_LARGE or len(records) == limit:
                continue
            if body is None or (len(records) == _FEW - 1 and limit > _FEW):
                found[place] = TOO_LARGE
            else:
                records.append(Record(generation, body))
    return found


async def journal(
    connection: PostgresConnection, number: int, after: int, limit: int, budget: int
) -> list[JournalRecord]:
    """The records of a task with the times of their commits by the database's clock, up to `budget` bytes."""
    query = f"""
SELECT generation, at_ms, body FROM (
    SELECT generation, at_ms, body, sum(octet_length(body)) OVER (ORDER BY generation) - octet_length(body) AS before
    FROM (
        SELECT generation, at_ms, body FROM {partition_of(day_of(number))}
        WHERE task = $1 AND generation > $2 ORDER BY generation LIMIT $3
    ) e
) e WHERE before < $4 ORDER BY generation
"""
    return [JournalRecord(*row) for row in await _find(connection, is_missing, query, number, after, limit, budget)]


async def notes(connection: PostgresConnection, number: int) -> list[Note]:
    """All notes of a task, in the order they were written."""
    rows = await connection.fetch(
        "SELECT generation, kind, body, mail FROM notes WHERE task = $1 ORDER BY note", number
    )
    return [Note(generation, kind, body, mail) for generation, kind, body, mail in rows]


async def notes_of_many(
    connection: PostgresConnection, requests: Sequence[tuple[int]]
) -> list[list[Note] | LargeResult]:
    """The notes of many tasks, each as `notes` reads them."""
    found: dict[int, list[Note] | LargeResult] = {number: [] for (number,) in requests}
    for number, generation, kind, body, mail in await connection.fetch(_NOTES_OF_MANY, list(found)):
        notes = found[number]
        if body is None or notes is TOO_LARGE or len(notes) == _FEW - 1:
            found[number] = TOO_LARGE
        else:
            notes.append(Note(generation, kind, body, mail))
    return [found[number] for (number,) in requests]


# Of the queries that thousands of streams make when they are woken together: the one for many, by the one for one.
GROUPED = {task: tasks, records: records_of_many, notes: notes_of_many}


async def mail(connection: PostgresConnection, number: int, after: int) -> list[tuple[int, bytes]]:
    """The messages that were added to a task with `post`, with their numbers, after number `after`."""
    rows = await connection.fetch(
        "SELECT mail, body FROM notes WHERE task = $1 AND mail > 0 AND mail > $2 ORDER BY mail", number, after
    )
    return [(position, body) for position, body in rows]


class _Parameters:
    """The values of a statement, each with its place in the text."""

    def __init__(self, *values: Any) -> None:
        self.values = [*values]

    def add(self, value: Any) -> str:
        """Add a value, and return its place."""
        self.values.append(value)
        return f"${len(self.values)}"


def _task_filter(query: TaskQuery | TaskSearch, parameters: _Parameters) -> list[str]:
    """Return the conditions on a task `t` of the scope `s`, without the cursor: totals have none."""
    where = ["t.scope = s.scope", f"t.{LISTED}"]
    if query.context_id is not None:
        where.append(f"t.context_id = {parameters.add(query.context_id)}")
    if query.state is not None:
        where.append(f"t.state = {parameters.add(NUMBERS[query.state])}")
    if query.since_ms is not None:
        where.append(f"t.status_ms >= {parameters.add(query.since_ms)}")
    return where


def _before(cursor: Cursor, parameters: _Parameters) -> str:
    return f"(t.status_ms, t.number) < ({parameters.add(cursor.status_ms)}, {parameters.add(cursor.number)})"


async def page(connection: PostgresConnection, query: TaskQuery) -> TaskPage:
    """One page of tasks, newest status first, and how many there are: in one statement."""
    parameters = _Parameters(*query.scope)
    where = _task_filter(query, parameters)
    filters = " AND ".join(where)
    if query.context_id is None and query.since_ms is None:
        state = "" if query.state is None else f" AND n.state = ${len(parameters.values)}"
        total = f"SELECT sum(n.tasks) FROM state_counts n WHERE n.scope = s.scope{state}"
    else:
        total = f"SELECT count(*) FROM tasks t WHERE {filters}"
    if query.after is not None:
        where.append(_before(query.after, parameters))
    # Only fixed texts are joined here; every value is a parameter.
    text = f"""
WITH own AS MATERIALIZED (SELECT * FROM scopes WHERE agent = $1 AND tenant = $2 AND owner = $3),
counted AS MATERIALIZED (SELECT s.*, ({total})::bigint AS total FROM own s)
SELECT s.total, q.* FROM counted s LEFT JOIN LATERAL (
    SELECT {STORED} FROM tasks t LEFT JOIN snapshots p ON p.task = t.number
    WHERE {" AND ".join(where)} ORDER BY t.status_ms DESC, t.number DESC LIMIT {parameters.add(query.limit + 1)}
) q ON true ORDER BY q.status_ms DESC, q.number DESC
"""
    rows = await _find(connection, is_unstorable, text, *parameters.values)
    if not rows:
        return TaskPage((), more=False, total=0)
    found = (stored_task(row[1:]) for row in map(tuple, rows) if row[1] is not None)
    return TaskPage.of(found, query, rows[0][0] or 0)


async def context_state(connection: PostgresConnection, scope: Scope, context_id: str) -> bytes | None:
    """The saved `ctx.state` of a conversation as JSON, or None."""
    return await connection.fetchval(
        "SELECT c.state FROM scopes s JOIN contexts c ON c.scope = s.scope AND c.context_id = $4 "
        "WHERE s.agent = $1 AND s.tenant = $2 AND s.owner = $3",
        *scope,
        context_id,
    )


async def duplicate_of(connection: PostgresConnection, key: bytes, now_ms: int) -> str | None:
    """The id of the task that accepted a message with this dedupe key; None when none did, or the key expired."""
    query = f"SELECT r.task_id FROM repeats r WHERE r.key = $1 AND r.until_ms > $2 AND {_VALID}"
    return await connection.fetchval(query, key, now_ms)


async def reply(connection: PostgresConnection, key: bytes, now_ms: int) -> bytes | None:
    """The bare message that answered a message with this dedupe key; None when there is none, or it expired."""
    return await connection.fetchval("SELECT reply FROM repeats WHERE key = $1 AND until_ms > $2", key, now_ms)


async def dedupe_keys(connection: PostgresConnection, now_ms: int) -> list[bytes]:
    """The digests of all dedupe keys that have not expired."""
    rows = await connection.fetch("SELECT key FROM repeats WHERE until_ms > $1", now_ms)
    return [key for (key,) in rows]


async def unfinished(connection: PostgresConnection, agent: str) -> list[StoredTask]:
    """The submitted and working tasks of an agent, oldest first."""
    rows = await connection.fetch(
        f"SELECT {STORED} {_FROM} WHERE t.{UNFINISHED} AND s.agent = $1 ORDER BY t.number",
        agent,
    )
    return [stored_task(row) for row in rows]


async def drafts(connection: PostgresConnection, agent: str) -> list[StoredTask]:
    """The drafts of an agent, oldest first."""
    rows = await connection.fetch(
        f"SELECT {STORED} {_FROM} WHERE t.state = {DRAFT} AND s.agent = $1 ORDER BY t.number",
        agent,
    )
    return [stored_task(row) for row in rows]


async def pushes(connection: PostgresConnection, number: int) -> list[Push]:
    """The webhooks of a task, oldest first."""
    rows = await connection.fetch(f"SELECT {_PUSH} FROM pushes w WHERE w.task = $1 ORDER BY w.push", number)
    return [_push_of(row) for row in rows]


async def undelivered_pushes(connection: PostgresConnection, node: int, *, woken: bool) -> list[tuple[Push, TaskRow]]:
    """The open webhooks that a node delivers and all dead ones, oldest first; or only those WOKEN of the node.

    With their tasks; those of drafts are left out.
    """
    which = f"w.owner = $1 AND w.state = 0 AND w.due_ms = {WOKEN}" if woken else "(w.state <> 0 OR w.owner = $1)"
    rows = await connection.fetch(f"{_PUSHES} AND {which} ORDER BY w.push", node)
    return [(_push_of(row), task_row(tuple(row)[13:])) for row in rows]


def _push_of(row: Any) -> Push:
    columns = tuple(row)
    return Push(*columns[:10], state=PushState(columns[10]), error=columns[11], epoch=columns[12])


def task_row(columns: Sequence[Any]) -> TaskRow:
    """Build a row of a task from the columns of `ROW`."""
    number, task_id, agent, tenant, owner, context_id, origin, state, status_ms, generation, created_ms = columns
    task_state = State.SUBMITTED if state == DRAFT else STATES[int(state)]
    scope = Scope(agent, tenant, owner)
    return TaskRow(number, task_id, scope, context_id, origin, task_state, status_ms, generation, created_ms)


def stored_task(row: Any) -> StoredTask:
    """Build a stored task from the columns of `STORED`."""
    columns = tuple(row)
    body, generation, mail_number, folded, epoch = columns[11:_COLUMNS]
    return StoredTask(task_row(columns[:11]), body, generation or 0, mail_number, folded or 0, epoch)


# -- several scopes ----------------------------------------------------------------------------------------------------
#
# There is no index over all scopes, because each one makes every commit slower. The newest tasks of a page are in those
# scopes whose newest task is newest: so the newest task of each scope is looked up, and then only as many scopes are
# read as the page has tasks.

# More than a page may have.
_NO_BUDGET = 1 << 40


def _scope_filter(scopes: ScopeFilter, parameters: _Parameters) -> str:
    """What is required of a scope `s`."""
    where = ["true"]
    if scopes.agents is not None:
        where.append(f"s.agent = ANY({parameters.add(list(scopes.agents))}::text[])")
    if scopes.tenant is not None:
        where.append(f"s.tenant = {parameters.add(scopes.tenant)}")
    if scopes.owner is not None:
        where.append(f"s.owner = {parameters.add(scopes.owner)}")
    return " AND ".join(where)


def _search_filter(query: TaskSearch, parameters: _Parameters) -> str:
    """What is required of a task `t` of the scope `s`."""
    where = _task_filter(query, parameters)
    if query.until_ms is not None:
        where.append(f"t.status_ms < {parameters.add(query.until_ms)}")
    if query.after is not None:
        where.append(_before(query.after, parameters))
    return " AND ".join(where)


async def search(connection: PostgresConnection, query: TaskSearch) -> SearchPage:
    """One page of the tasks of several scopes, newest status first, in one statement.

    Of what is above the query's bytes, only the row is read.
    """
    parameters = _Parameters()
    scopes, tasks = _scope_filter(query.scopes, parameters), _search_filter(query, parameters)
    limit = parameters.add(query.limit + 1)
    budget = parameters.add(_NO_BUDGET if query.budget is None else query.budget)
    newest = "ORDER BY t.status_ms DESC, t.number DESC"
    # Only fixed texts are joined here; every value is a parameter.
    text = f"""
WITH own AS MATERIALIZED (SELECT * FROM scopes s WHERE {scopes}),
newest AS MATERIALIZED (
    SELECT s.* FROM own s CROSS JOIN LATERAL (
        SELECT t.status_ms, t.number FROM tasks t WHERE {tasks} {newest} LIMIT 1
    ) t {newest} LIMIT {limit}
),
found AS MATERIALIZED (
    SELECT t.number, s.agent, s.tenant, s.owner FROM newest s CROSS JOIN LATERAL (
        SELECT t.status_ms, t.number FROM tasks t WHERE {tasks} {newest} LIMIT {limit}
    ) t {newest} LIMIT {limit}
)
SELECT {STORED.replace("p.body", "CASE WHEN p.before + octet_length(p.body) <= $B OR p.before = 0 THEN p.body END")},
    coalesce(p.before + octet_length(p.body) > $B AND p.before > 0, false)
FROM found s JOIN tasks t ON t.number = s.number LEFT JOIN (
    SELECT p.*, sum(octet_length(p.body)) OVER ({newest}) - octet_length(p.body) AS before
    FROM found f JOIN tasks t ON t.number = f.number JOIN snapshots p ON p.task = f.number
) p ON p.task = t.number {newest}
""".replace("$B", budget)
    rows = [tuple(row) for row in await _find(connection, is_unstorable, text, *parameters.values)]
    end = next((place for place, row in enumerate(rows) if row[-1]), query.limit)
    return SearchPage([stored_task(row[:-1]) for row in rows[: min(end, query.limit)]], more=len(rows) > end)


async def counts(connection: PostgresConnection, scopes: ScopeFilter) -> dict[State, int]:
    """How many tasks of these scopes are in each state."""
    parameters = _Parameters()
    text = f"""
SELECT n.state, sum(n.tasks)::bigint FROM state_counts n JOIN scopes s ON s.scope = n.scope
WHERE {_scope_filter(scopes, parameters)} GROUP BY n.state
"""
    rows = await _find(connection, is_unstorable, text, *parameters.values)
    return {STATES[state]: tasks for state, tasks in rows if tasks}
