"""Builds the statement of a commit from the parts that its changes need.

A part is a common table expression over arrays, one per column. All parts see the database as it was when the statement
began; only the row that an UPDATE or ON CONFLICT locks is seen as it is then. So every decision is made by a condition
on such a row, and what is true of other rows is passed to it as a value:

- A claim is checked where the task's row is updated, or locked for it.
- A turn is granted by the context's row, and a dedupe key by its own row. Whether a turn or a key was left behind by a
  task that never began, or is gone, is read before; it is taken over if it is still the same.
- Whoever has to wait for another task marks that task's row, so that its end announces work even if that statement
  began before the waiting task was there.

A condition on the output of another part has to be in a part of its own: PostgreSQL cannot repeat it after it has
waited for a lock. EXISTS with IS TRUE is looked up for each row and never made a join, which could begin with the other
table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

# The arrays of each part: names and types of columns, in the order of the statement's parameters.
COLUMNS: dict[str, tuple[str, ...]] = {
    "locks": ("number bigint", "epoch integer", "expected integer", "draft smallint"),
    "turns": (
        "number bigint",
        "scope bigint",
        "context_id text",
        "running bigint",
        "state bytea",
        "pins boolean",
        "creates boolean",
        "id text",
    ),
    "keys": (
        "key bytea",
        "number bigint",
        "id text",
        "until_ms bigint",
        "reply bytea",
        "creates boolean",
        "turn boolean",
    ),
    "creates": (
        "number bigint",
        "id text",
        "scope bigint",
        "context_id text",
        "origin text",
        "state smallint",
        "status_ms bigint",
        "generation integer",
        "created_ms bigint",
        "owner bigint",
        "begun boolean",
        "keyed boolean",
        "turn boolean",
    ),
    "updates": (
        "number bigint",
        "expected integer",
        "generation integer",
        "state smallint",
        "status_ms bigint",
        "epoch integer",
        "draft smallint",
        "flags smallint",
    ),
    "discards": ("number bigint", "epoch integer", "keyed boolean", "clears boolean"),
    "marks": ("number bigint", "scope bigint", "context_id text"),
    "events": ("task bigint", "generation integer", "body bytea"),
    "notes": ("task bigint", "key bigint", "generation integer", "kind text", "mail integer", "body bytea"),
    "snapshots": ("task bigint", "generation integer", "mail integer", "body bytea"),
    "opened": ("task bigint",),
    "contexts": (
        "task bigint",
        "scope bigint",
        "context_id text",
        "state bytea",
        "pins boolean",
        "settled bigint",
    ),
    "counts": ("task bigint", "scope bigint", "state smallint", "tasks integer"),
    "puts": (
        "task bigint",
        "id text",
        "dialect text",
        "url text",
        "secrets bytea",
        "cursor integer",
        "created_ms bigint",
        "tries integer",
        "failing_ms bigint",
        "due_ms bigint",
        "state smallint",
        "error text",
        "epoch integer",
        "alone boolean",
    ),
    "progress": (
        "task bigint",
        "id text",
        "cursor integer",
        "created_ms bigint",
        "tries integer",
        "failing_ms bigint",
        "due_ms bigint",
        "state smallint",
        "error text",
        "epoch integer",
    ),
    "unhooks": ("task bigint", "id text", "alone boolean"),
}
# The first two parameters.
_NODE, _NOW = "$1::bigint", "$2::bigint"
# Whether a task with this claim may be changed; `{0}` is the change, `t` the task.
_FENCE = (
    f"({{0}}.epoch = 0 OR (t.owner = {_NODE} AND t.epoch = {{0}}.epoch)) "
    "AND t.generation = coalesce({0}.expected, t.generation) "
    "AND ({0}.draft = 0 OR ({0}.draft < 0) = (t.state < 0))"
)
_HOME = f"CASE WHEN i.pins THEN (SELECT name FROM nodes WHERE id = {_NODE}) END"
_SET_HOME = "home = coalesce(excluded.home, c.home)"
# Not a join: the planner would make it a nested loop.
_DONE = "(i.task IN (SELECT number FROM done)) IS TRUE"

# Whether the task of a change is behind task `{0}` of its context. A task that is created now is behind all others.
_IS_BEHIND = (
    "({0}.begun OR ({0}.queued_at, {0}.number) < "
    "(coalesce((SELECT m.queued_at FROM tasks m WHERE m.number = i.number), 'infinity'), i.number))"
)

# Whether there is no task with the id or the number of one that is created. A number is somebody else's after a standby
# was promoted that had forgotten who reserved it.
_IS_NEW = (
    "NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = i.id) "
    "AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.number = i.number)"
)
# The flags of an update, by their bits.
_FLAGS = ", ".join(
    f"(i.flags & {1 << place}) <> 0 AS {name}"
    for place, name in enumerate(("settles", "queued", "begins", "clears", "keyed", "turn"))
)
# Gives the turns of tasks back: `{0}` has the tasks, `{1}` a condition on them.
_CLEAR = """INSERT INTO contexts AS c (scope, context_id, given) SELECT i.scope, i.context_id, i.number FROM {0} i
    WHERE {1} AND (EXISTS (
        SELECT 1 FROM contexts c WHERE c.scope = i.scope AND c.context_id = i.context_id AND c.running = i.number
    )) IS TRUE
    ON CONFLICT (scope, context_id) DO UPDATE SET running = NULL, given = NULL WHERE c.running = excluded.given"""

_PARTS: dict[str, str] = {
    # Tasks whose change needs a key or a turn as well. From here on, nobody else changes them.
    "locks": f"""
locked AS MATERIALIZED (
    SELECT t.number FROM {{input}} JOIN tasks t ON t.number = i.number WHERE {_FENCE.format("i")} FOR NO KEY UPDATE OF t
)""",
    "turns": f"""
turn_input AS MATERIALIZED (SELECT i.* FROM {{input}}),
allowed AS MATERIALIZED (
    SELECT i.*, (
        SELECT c.turn FROM contexts c WHERE c.scope = i.scope AND c.context_id = i.context_id AND c.running IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM tasks b WHERE b.number = c.running AND b.begun)
    ) AS abandoned
    FROM turn_input i
    WHERE CASE WHEN i.creates THEN {_IS_NEW} ELSE {{is_locked}} END
    AND (EXISTS (
        SELECT 1 FROM tasks b WHERE b.scope = i.scope AND b.context_id = i.context_id AND b.state IN (1, 2)
        AND b.number <> i.number AND {_IS_BEHIND.format("b")}
    )) IS NOT TRUE
),
granted AS (
    INSERT INTO contexts AS c (scope, context_id, running, turn, state, home, given)
    SELECT i.scope, i.context_id, i.running, 0, i.state, {_HOME}, i.abandoned FROM allowed i
    ON CONFLICT (scope, context_id) DO UPDATE SET running = excluded.running, turn = c.turn + 1, given = NULL,
        state = coalesce(excluded.state, c.state), {_SET_HOME}
    WHERE c.running IS NULL OR c.running = excluded.running OR c.turn = excluded.given
    RETURNING c.scope, c.context_id
),
turned AS MATERIALIZED (
    SELECT i.number FROM turn_input i JOIN granted g ON g.scope = i.scope AND g.context_id = i.context_id
)""",
    "keys": f"""
key_input AS MATERIALIZED (SELECT i.* FROM {{input}}),
usable AS MATERIALIZED (
    SELECT i.* FROM key_input i
    WHERE CASE WHEN i.creates THEN {_IS_NEW} ELSE {{is_locked}} END
    AND {{has_turn}}
),
-- The draft of a message that has its reply does not come back: that is a statement which arrives after all.
kept AS (
    INSERT INTO repeats AS r (key, task, task_id, until_ms, reply, given)
    SELECT i.key, i.number, i.id, i.until_ms, i.reply, (
        SELECT v.task FROM repeats v WHERE v.key = i.key AND v.reply IS NULL
        AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.number = v.task)
    ) FROM usable i
    ON CONFLICT (key) DO UPDATE SET task = excluded.task, task_id = excluded.task_id, until_ms = excluded.until_ms,
        reply = excluded.reply, given = NULL
    WHERE (r.task = excluded.task AND (r.reply IS NULL OR excluded.reply IS NOT NULL))
    OR r.until_ms <= {_NOW} OR r.task = excluded.given
    RETURNING r.task AS number
)""",
    "creates": """
create_input AS MATERIALIZED (SELECT i.* FROM {input} WHERE {has_key} AND {has_turn}),
created AS (
    INSERT INTO tasks (number, id, scope, context_id, origin, state, status_ms, generation, created_ms, owner, epoch,
        begun, claimed_at, agent)
    SELECT i.number, i.id, i.scope, i.context_id, i.origin, i.state, i.status_ms, i.generation, i.created_ms, i.owner,
        1, i.begun, CASE WHEN i.owner IS NOT NULL THEN clock_timestamp() END,
        (SELECT s.agent FROM scopes s WHERE s.scope = i.scope)
    FROM create_input i
    ON CONFLICT DO NOTHING RETURNING number
)""",
    "updates": f"""
update_input AS MATERIALIZED (SELECT * FROM (SELECT i.*, {_FLAGS} FROM {{input}}) i WHERE {{has_key}} AND {{has_turn}}),
updated AS (
    UPDATE tasks t SET state = coalesce(i.state, t.state), status_ms = coalesce(i.status_ms, t.status_ms),
        generation = coalesce(i.generation, t.generation),
        owner = CASE WHEN i.settles OR i.queued THEN NULL ELSE t.owner END,
        begun = (t.begun OR i.begins) AND NOT (i.settles OR i.queued),
        attempts = CASE WHEN i.settles THEN 0 ELSE t.attempts END,
        queued_at = CASE WHEN t.state IN (6, 8) THEN clock_timestamp() ELSE t.queued_at END
    FROM update_input i WHERE t.number = i.number AND {_FENCE.format("i")}
    RETURNING t.number, t.scope, t.context_id, i.settles, i.clears, t.followed
)""",
    "discards": f"""
discard_input AS MATERIALIZED (SELECT i.* FROM {{input}} WHERE {{has_key}}),
discarded AS (
    DELETE FROM tasks t USING discard_input i WHERE t.number = i.number AND t.state < 0
    AND (i.epoch = 0 OR (t.owner = {_NODE} AND t.epoch = i.epoch))
    RETURNING t.number, t.scope, t.context_id, t.followed, i.clears
),
returned AS (
    {_CLEAR.format("discarded", "i.clears")}
),
discarded_notes AS (DELETE FROM notes n USING discarded i WHERE n.task = i.number),
discarded_pushes AS (DELETE FROM pushes p USING discarded i WHERE p.task = i.number),
discarded_snapshots AS (DELETE FROM snapshots s USING discarded i WHERE s.task = i.number)""",
    # Who waits, waits for the one before it, which waits for the one before that; and for the one whose turn it is: it
    # may be a draft. (BETWEEN: the index of unfinished tasks looks small when there are none.)
    "marks": """
blockers AS MATERIALIZED (
    SELECT b.number FROM {input} CROSS JOIN LATERAL (
        (
            SELECT b.number FROM tasks b WHERE b.scope = i.scope AND b.context_id = i.context_id AND b.state IN (1, 2)
            AND b.number <> i.number AND (b.queued_at, b.number) < (coalesce((
                SELECT m.queued_at FROM tasks m WHERE m.number = i.number AND m.state BETWEEN 1 AND 2
            ), 'infinity'), i.number)
            ORDER BY b.queued_at DESC, b.number DESC LIMIT 1
        )
        UNION ALL SELECT c.running FROM contexts c WHERE c.scope = i.scope AND c.context_id = i.context_id
        OFFSET 0
    ) b WHERE b.number <> i.number
),
marked AS (
    UPDATE tasks t SET followed = true FROM blockers b
    WHERE t.number = b.number AND t.state BETWEEN -1 AND 2 AND NOT t.followed
)""",
    "events": f"""
new_events AS (INSERT INTO events SELECT i.task, i.generation, i.body FROM {{input}} WHERE {_DONE})""",
    "notes": f"""
new_notes AS (
    INSERT INTO notes (task, key, generation, kind, mail, body)
    SELECT i.task, i.key, i.generation, i.kind, i.mail, i.body FROM {{input}} WHERE {_DONE} ON CONFLICT DO NOTHING
)""",
    "snapshots": f"""
new_snapshots AS (
    INSERT INTO snapshots AS s (task, generation, mail, body)
    SELECT i.task, i.generation, i.mail, i.body FROM {{input}} WHERE {_DONE}
    ON CONFLICT (task) DO UPDATE SET generation = excluded.generation, mail = excluded.mail, body = excluded.body
    WHERE s.generation <= excluded.generation
)""",
    "opened": f"""
opened_input AS MATERIALIZED (SELECT i.task FROM {{input}} WHERE {_DONE}),
old_snapshots AS (DELETE FROM snapshots s USING opened_input i WHERE s.task = i.task)""",
    "contexts": f"""
new_contexts AS (
    INSERT INTO contexts AS c (scope, context_id, state, home, given)
    SELECT i.scope, i.context_id, i.state, {_HOME}, i.settled FROM {{input}} WHERE {_DONE}
    ON CONFLICT (scope, context_id) DO UPDATE SET state = coalesce(excluded.state, c.state), {_SET_HOME}, given = NULL,
        running = CASE WHEN c.running = excluded.given THEN NULL ELSE c.running END
)""",
    "counts": f"""
new_counts AS (
    INSERT INTO state_counts AS s (scope, state, node, tasks)
    SELECT i.scope, i.state, {_NODE}, sum(i.tasks) FROM {{input}} WHERE {_DONE}
    GROUP BY i.scope, i.state HAVING sum(i.tasks) <> 0 ORDER BY i.scope, i.state
    ON CONFLICT (scope, state, node) DO UPDATE SET tasks = s.tasks + excluded.tasks
)""",
    "puts": f"""
new_pushes AS (
    INSERT INTO pushes AS p (task, id, dialect, url, secrets, cursor, created_ms, tries, failing_ms, due_ms, state,
        error, owner, epoch)
    SELECT i.task, i.id, i.dialect, i.url, i.secrets, i.cursor, i.created_ms, i.tries, i.failing_ms, i.due_ms, i.state,
        i.error, CASE WHEN i.state = 0 THEN {_NODE} END, i.epoch
    FROM {{input}}
    WHERE CASE WHEN i.alone THEN EXISTS (SELECT 1 FROM tasks t WHERE t.number = i.task) ELSE {_DONE} END
    ON CONFLICT (task, id) DO UPDATE SET dialect = excluded.dialect, url = excluded.url, secrets = excluded.secrets,
        cursor = excluded.cursor, created_ms = excluded.created_ms, tries = excluded.tries,
        failing_ms = excluded.failing_ms, due_ms = excluded.due_ms, state = excluded.state, error = excluded.error,
        owner = excluded.owner, epoch = excluded.epoch
)""",
    # A webhook that is done or dead has no owner, and may be opened again by any node.
    "progress": f"""
new_progress AS (
    UPDATE pushes p SET cursor = i.cursor, tries = i.tries, failing_ms = i.failing_ms, due_ms = i.due_ms,
        state = i.state, error = i.error, owner = CASE WHEN i.state = 0 THEN {_NODE} END
    FROM {{input}} WHERE p.task = i.task AND p.id = i.id AND p.created_ms = i.created_ms
    AND p.epoch = i.epoch AND (p.owner = {_NODE} OR p.state <> 0)
)""",
    "unhooks": f"""
unhook_input AS MATERIALIZED (SELECT i.task, i.id FROM {{input}} WHERE i.alone OR {_DONE}),
old_pushes AS (DELETE FROM pushes p USING unhook_input i WHERE p.task = i.task AND p.id = i.id)""",
}
_HAS_QUEUED = """EXISTS (
    SELECT 1 FROM tasks q WHERE q.scope = i.scope AND q.context_id = i.context_id AND q.state IN (1, 2)
    AND coalesce(q.owner, 0) = 0 AND q.number <> i.number
)"""
# The results: whether others wait for a task that has settled, or for a draft that was answered without a task.
_QUEUES = {
    "updated": f"SELECT i.number, 0, i.settles AND (i.followed OR {_HAS_QUEUED}) FROM updated i",
    "discarded": f"SELECT i.number, 0, i.followed OR {_HAS_QUEUED} FROM discarded i",
}
# The codes of outcomes in the result.
COMMITTED, BUSY, REPEATED = 0, 1, 2


@cache
def commit_statement(parts: frozenset[str], extras: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    """The statement for these parts. `extras` are the parts of plug-in tables: their text and their columns."""
    numbers = _Numbers()
    has_lock, has_turns, has_keys = "locks" in parts, "turns" in parts, "keys" in parts
    gates = {
        "is_locked": "i.number IN (SELECT number FROM locked)" if has_lock else "false",
        "has_turn": "(NOT i.turn OR i.number IN (SELECT number FROM turned))" if has_turns else "true",
        "has_key": "(NOT i.keyed OR i.number IN (SELECT number FROM kept))" if has_keys else "true",
    }
    texts = [f"given AS (SELECT {_NODE}, {_NOW})"]
    tables = [table for part, table in _TABLES.items() if part in parts]
    is_done_due = True
    for part, text in _PARTS.items():
        if part not in parts:
            continue
        if part not in _FIRST_PARTS and is_done_due:
            texts.append(_done(tables))
            is_done_due = False
        texts.append(text.format(input=numbers.input(COLUMNS[part]), **gates).strip())
    if is_done_due:
        texts.append(_done(tables))
    if "updates" in parts:
        texts.append(f"cleared AS ({_CLEAR.format('updated', 'i.clears')})")
    for text, columns in extras:
        texts.append(text.format(input=numbers.input(columns), done=_DONE))
    results = [_QUEUES.get(table, f"SELECT number, {COMMITTED}, false FROM {table}") for table in tables]
    if has_turns:
        results.append(
            f"SELECT i.number, {BUSY}, false FROM turn_input i WHERE NOT (i.number IN (SELECT number FROM turned)) AND "
            "CASE WHEN i.creates THEN NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = i.id) "
            f"ELSE {gates['is_locked']} END"
        )
    if has_keys:
        results.append(
            f"SELECT i.number, {REPEATED}, false FROM usable i WHERE NOT (i.number IN (SELECT number FROM kept))"
        )
    end = "\nUNION ALL ".join(result.strip() for result in results) or f"SELECT 0::bigint, {COMMITTED}, false"
    return f"WITH {f',{chr(10)}'.join(texts)}\n{end}"


# The parts that change tasks, by the output that has the numbers of those that were changed.
_TABLES = {"creates": "created", "updates": "updated", "discards": "discarded"}
_FIRST_PARTS = ("locks", "turns", "keys", *_TABLES, "marks")


def _done(tables: Iterable[str]) -> str:
    numbers = " UNION ALL ".join(f"SELECT number FROM {table}" for table in tables)
    return f"done AS MATERIALIZED ({numbers or 'SELECT 0::bigint AS number'})"


class _Numbers:
    """Numbers the parameters of a statement; the first two are taken."""

    def __init__(self) -> None:
        self._last = 2

    def input(self, columns: tuple[str, ...]) -> str:
        """The arrays of a part as a table `i`."""
        arrays: list[str] = []
        for column in columns:
            self._last += 1
            arrays.append(f"${self._last}::{column.rpartition(' ')[2]}[]")
        names = ", ".join(column.rpartition(" ")[0] for column in columns)
        return f"unnest({', '.join(arrays)}) AS i ({names})"
