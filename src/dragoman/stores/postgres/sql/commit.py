"""The group commit: the changes of many tasks in one statement, each task checked by its own row."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from dragoman.engine.ports.store import Scope
from dragoman.stores.postgres.database import ChangeOutcome
from dragoman.stores.postgres.sql.change import TaskChange, note_key
from dragoman.stores.postgres.sql.retention import delete_task
from dragoman.stores.postgres.sql.schema import ALL_SCOPES, DRAFT
from dragoman.stores.postgres.sql.statement import BUSY, COLUMNS, REPEATED, commit_statement
from dragoman.stores.postgres.sql.tables import table_statements
from dragoman.stores.state_numbers import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.engine.ports.rows import TaskTable
    from dragoman.engine.ports.store import Push, Write
    from dragoman.net.postgres import PostgresConnection

_COMMITTED, _REFUSED = ChangeOutcome("committed"), ChangeOutcome("refused")
_QUEUE = ChangeOutcome("committed", queue=True)
_OTHERS = {BUSY: ChangeOutcome("busy"), REPEATED: ChangeOutcome("repeated")}
_MOST_SCOPES = 10_000
# A plan that was made for an empty table reads all of it. So plans are made again after this many new tasks, after
# twice as many, and so on.
_PLAN_AGAIN = 100


class BatchCommit:
    """Writes batches of changes, on one connection."""

    def __init__(self, tables: Sequence[TaskTable]) -> None:
        self._tables = tables
        # What this connection has read: behind another one there may be another server, which never got some of them.
        self._scopes: dict[Scope, int] = {}
        self._connection: PostgresConnection | None = None
        self._created = 0
        self._plan_again_at = _PLAN_AGAIN

    async def commit(
        self, connection: PostgresConnection, node: int, sequences: Sequence[Sequence[Write]], now_ms: int
    ) -> list[ChangeOutcome]:
        """Apply the changes of many tasks, and return what became of each.

        Changes that would write the same row twice, such as two of one context, need several statements. Then these are
        a transaction, so that nothing is applied when one of them fails.
        """
        changes = [TaskChange(sequence) for sequence in sequences]
        if connection is not self._connection:
            self._connection = connection
            self._scopes.clear()
        await self._number_scopes(connection, {change.row.scope for change in changes})
        # In this order rows are locked: two commits never wait for each other.
        valid = sorted((change for change in changes if change.is_valid), key=lambda change: change.number)
        statements, deleted = _divide(valid)
        outcomes: dict[int, ChangeOutcome] = {}
        if len(statements) + len(deleted) == 1:
            await self._apply(connection, node, statements, deleted, outcomes, now_ms)
        elif valid:
            async with connection.transaction():
                await self._apply(connection, node, statements, deleted, outcomes, now_ms)
        return [outcomes.get(change.number, _REFUSED) for change in changes]

    async def _apply(
        self,
        connection: PostgresConnection,
        node: int,
        statements: list[list[TaskChange]],
        deleted: list[TaskChange],
        outcomes: dict[int, ChangeOutcome],
        now_ms: int,
    ) -> None:
        for changes in statements:
            batch = _CommitRows(self._scopes, node)
            for change in changes:
                batch.add(change)
            if batch.has_rows:
                await self._plan_again(connection, batch.created)
                text, values = batch.statement()
                for number, code, queue in await connection.fetch(text, node, now_ms, *values):
                    outcomes[number] = _OTHERS.get(code) or (_QUEUE if queue else _COMMITTED)
            for number in batch.webhooks:
                outcomes[number] = _COMMITTED
        for change in deleted:
            queue = await delete_task(connection, node, change.row, self._tables)
            outcomes[change.number] = _QUEUE if queue else _COMMITTED

    async def _plan_again(self, connection: PostgresConnection, created: int) -> None:
        self._created += created
        if self._created > self._plan_again_at:
            self._plan_again_at = 2 * self._created
            await connection.execute("DISCARD PLANS")

    async def _number_scopes(self, connection: PostgresConnection, scopes: set[Scope]) -> None:
        """Look up the numbers of scopes, and number new ones. They are never deleted."""
        missing = [scope for scope in scopes if scope not in self._scopes]
        if not missing:
            return
        if len(self._scopes) + len(missing) > _MOST_SCOPES:
            self._scopes.clear()
            missing = list(scopes)
        columns = [list(column) for column in zip(*sorted(missing), strict=True)]
        given = "unnest($1::text[], $2::text[], $3::text[]) AS i (agent, tenant, owner)"
        lookup = f"SELECT i.agent, i.tenant, i.owner, s.scope FROM {given} JOIN scopes s USING (agent, tenant, owner)"
        rows = await connection.fetch(lookup, *columns)
        if len(rows) < len(missing):
            await connection.execute(
                f"INSERT INTO scopes (agent, tenant, owner) SELECT * FROM {given} ON CONFLICT DO NOTHING",
                *columns,
            )
            rows = await connection.fetch(lookup, *columns)
        self._scopes.update((Scope(agent, tenant, owner), number) for agent, tenant, owner, number in rows)


def _divide(changes: list[TaskChange]) -> tuple[list[list[TaskChange]], list[TaskChange]]:
    """Divide changes into those of each statement, and deletions."""
    deleted = [change for change in changes if change.kind == "delete"]
    waiting = [change for change in changes if change.kind != "delete"] if deleted else changes
    statements: list[list[TaskChange]] = []
    while waiting:
        rules = _Collisions()
        admitted: list[TaskChange] = []
        rest: list[TaskChange] = []
        for change in waiting:
            (admitted if rules.admits(change) else rest).append(change)
        statements.append(admitted)
        waiting = rest
    return statements, deleted


class _Collisions:
    """Keeps changes apart that would write the same row: of a context, a dedupe key or a plug-in table."""

    def __init__(self) -> None:
        # Contexts that changes in this statement belong to; True when nothing else of it may be in the statement.
        self._contexts: dict[tuple[Scope, str], bool] = {}
        self._keys: set[bytes] = set()

    def admits(self, change: TaskChange) -> bool:
        """True when the change can be in the statement with those before."""
        is_alone = change.changes_context or change.waits
        occupied = self._contexts.get(change.context)
        if occupied or (is_alone and occupied is not None):
            return False
        key = change.dedupe_key
        if key is not None:
            if key.digest in self._keys:
                return False
            self._keys.add(key.digest)
        self._contexts[change.context] = is_alone
        return True


class _CommitRows:
    """The rows of all parts of one statement."""

    def __init__(self, scopes: dict[Scope, int], node: int) -> None:
        self._scopes = scopes
        self._node = node
        self._rows: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._extras: defaultdict[TaskTable, dict[int, tuple[Any, ...]]] = defaultdict(dict)
        self.webhooks: list[int] = []

    @property
    def has_rows(self) -> bool:
        """True when there is something to write."""
        return bool(self._rows)

    @property
    def created(self) -> int:
        """How many tasks are created."""
        return len(self._rows.get("creates", ()))

    def statement(self) -> tuple[str, list[list[Any]]]:
        """The text of the statement and its arrays."""
        extras = tuple((table_statements(table).put, table_statements(table).columns) for table in self._extras)
        text = commit_statement(frozenset(self._rows), extras)
        tables = [rows for part in COLUMNS if (rows := self._rows.get(part))]
        tables += [list(rows.values()) for rows in self._extras.values()]
        return text, [list(column) for rows in tables for column in zip(*rows, strict=True)]

    def add(self, change: TaskChange) -> None:
        """Add the rows of one task."""
        if change.kind == "webhooks":
            self.webhooks.append(change.number)
        else:
            self._add_task(change)
            self._add_content(change)
        if change.has_pushes:
            self._add_pushes(change)

    def _add_task(self, change: TaskChange) -> None:
        row, number, scope = change.row, change.number, self._scopes[change.row.scope]
        key, turn, kind = change.dedupe_key, change.needs_turn, change.kind
        keyed, inserts = key is not None, change.kind in ("create", "draft")
        # -1 for what has to be a draft, 1 for what must be none; notes are for both.
        draft = -1 if kind in ("open", "discard") else 1 if change.has_records else 0
        expected = change.expected if kind == "update" else None
        if inserts:
            is_free = change.settles or (change.queued and kind == "create")
            state = DRAFT if kind == "draft" else NUMBERS[row.state]
            columns = (number, row.id, scope, row.context_id, row.origin, state, row.status_ms, row.generation)
            owner = None if is_free else self._node
            begun = change.begins and owner is not None
            self._rows["creates"].append((*columns, row.created_ms, owner, begun, keyed, turn))
        else:
            if keyed or turn:
                self._rows["locks"].append((number, change.epoch, expected, draft))
            if kind == "discard":
                self._rows["discards"].append((number, change.epoch, keyed, not change.changes_context))
            else:
                written = (row.generation, NUMBERS[row.state], row.status_ms) if change.has_records else (None,) * 3
                clears = change.settles and not change.changes_context
                flags = _flags(change.settles, change.queued, change.begins, clears, keyed, turn)
                self._rows["updates"].append((number, expected, *written, change.epoch, draft, flags))
        if key is not None:
            self._rows["keys"].append((key.digest, number, row.id, key.expires_ms, change.first.reply, inserts, turn))
        if turn:
            running = None if change.settles else number
            context = (number, scope, row.context_id, running, change.context_state, change.pins)
            self._rows["turns"].append((*context, inserts, row.id))
        elif change.changes_context:
            settled = number if change.settles or kind == "discard" else None
            context = (number, scope, row.context_id, change.context_state, change.pins, settled)
            self._rows["contexts"].append(context)
        if change.waits:
            self._rows["marks"].append((number, scope, row.context_id))

    def _add_content(self, change: TaskChange) -> None:
        number, scope = change.number, self._scopes[change.row.scope]
        for write in change.writes:
            for record in write.records:
                self._rows["events"].append((number, record.generation, record.body))
            for place, note in enumerate(write.notes):
                columns = (note.generation, note.kind, note.mail, note.body)
                self._rows["notes"].append((number, note_key(write, place), *columns))
        if change.snapshot is not None and change.kind != "discard":
            self._rows["snapshots"].append((number, *change.snapshot))
        elif change.kind == "open":
            self._rows["opened"].append((number,))
        for state, tasks in change.counts():
            self._rows["counts"].append((number, scope, NUMBERS[state], tasks))
            if state.final:
                self._rows["counts"].append((number, ALL_SCOPES, NUMBERS[state], tasks))
        if change.has_rows:
            for (_, key), row in change.rows().items():
                self._extras[row.table][key] = (number, change.row.scope.owner, *row.values)

    def _add_pushes(self, change: TaskChange) -> None:
        alone = change.kind == "webhooks"
        written, progress, deleted = change.pushes()
        for push in written.values():
            columns = (push.task, push.id, push.dialect, push.url, push.secrets, push.cursor, push.created_ms)
            self._rows["puts"].append((*columns, *_delivery(push), alone))
        for push in progress.values():
            self._rows["progress"].append((push.task, push.id, push.cursor, push.created_ms, *_delivery(push)))
        for push_id in deleted:
            self._rows["unhooks"].append((change.number, push_id, alone))


def _flags(*flags: bool) -> int:
    """Several values of one row in one array: arrays cost more than anything else in a commit."""
    return sum(1 << place for place, flag in enumerate(flags) if flag)


def _delivery(push: Push) -> tuple[int, int, int, int, str, int]:
    return (push.tries, push.failing_ms, push.due_ms, int(push.state), push.error, push.epoch)
