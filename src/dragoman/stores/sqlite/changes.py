"""Batches the changes of one transaction into few SQL statements."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

from dragoman.engine.ports.ownership import MessageRepeated
from dragoman.model.error import TaskGenerationMismatch
from dragoman.stores.sqlite.retention import Sweeper, TaskToDelete, reserve_numbers
from dragoman.stores.sqlite.schema import ALL_SCOPES
from dragoman.stores.sqlite.tables import write_rows
from dragoman.stores.sqlite.webhooks import write_pushes
from dragoman.stores.state_numbers import NUMBERS, STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.engine.ports.rows import ExtraRow, TaskTable
    from dragoman.engine.ports.store import TaskRow, Write
    from dragoman.model.state import State
    from dragoman.stores.sole import MailWrite


class Changes:
    """The changes of one transaction. A task's row is written once, however many of its events are in the batch.

    All of its events have the time `at_ms`.
    """

    def __init__(self, tables: Sequence[TaskTable], at_ms: int) -> None:
        # About how many bytes the transaction adds to the log.
        self.size = 0
        self._tables = tables
        self._at_ms = at_ms
        self._created: dict[int, tuple[TaskRow, int]] = {}
        self._changed: dict[int, tuple[TaskRow, int]] = {}
        self._events: list[tuple[int, int, bytes, int]] = []
        self._notes: list[tuple[int, int, str, bytes, int]] = []
        # Tasks with notes that came without a record.
        self._noted: set[int] = set()
        # How many messages were posted to a task, with those of this transaction.
        self._mail: dict[int, int] = {}
        self._snapshots: dict[int, tuple[int, int, bytes, int]] = {}
        self._contexts: dict[tuple[int, str], bytes] = {}
        self._repeats: list[tuple[bytes, str, int, bytes | None, int]] = []
        self._digests: set[bytes] = set()
        self._drafts: dict[int, tuple[int, str, int, str, str, int, bytes]] = {}
        # Drafts whose row is deleted: those that became tasks, and those that were discarded.
        self._closed_drafts: list[tuple[int]] = []
        self._discarded_drafts: list[tuple[int]] = []
        self._deleted: list[tuple[TaskRow, int]] = []
        self._counts: dict[tuple[int, int], int] = {}
        self._joined_contexts: Counter[tuple[int, str]] = Counter()
        self._pushes: list[Write] = []
        self._extra_rows: dict[tuple[str, int], tuple[ExtraRow, str]] = {}

    def add(self, write: Write, scope: int) -> None:
        """Add a change; `scope` is the number of its row's scope.

        Raises:
            TaskGenerationMismatch: its records do not follow each other, or those of an earlier change.
        """
        row = write.row
        if write.delete and not write.draft:
            self._deleted.append((row, scope))
            return
        self.size += write.size + 200
        if write.draft:
            self._add_draft(write, scope)
        elif write.records:
            self._add_records(write, scope)
        for note in write.notes:
            self._notes.append((row.number, note.generation, note.kind, note.body, note.mail))
        if write.notes and not (write.records or write.draft):
            self._noted.add(row.number)
        if write.snapshot is not None and not write.draft:
            self._snapshots[row.number] = (row.number, row.generation, write.snapshot, write.mail)
        if write.context_state is not None:
            self._contexts[scope, row.context_id] = write.context_state
        if write.dedupe_key is not None:
            digest, expires_ms, at_ms = write.dedupe_key
            self._repeats.append((digest, row.id, expires_ms, write.reply, at_ms or row.status_ms))
            self._digests.add(digest)
        if write.pushes or write.deleted_pushes or write.push_progress:
            self._pushes.append(write)
        for extra in write.rows:
            self.size += sum(len(value) for value in extra.values if isinstance(value, str))
            self._extra_rows[extra.table.name, extra.key] = (extra, row.scope.owner)

    def post(self, connection: sqlite3.Connection, post: MailWrite) -> None:
        """Add a message to a task as it is after the changes so far, and fill the outcome of the post.

        Raises:
            sqlite3.Error: the task cannot be read.
        """
        outcome, number, key = post.outcome, post.row.number, post.dedupe_key
        # It may be tried again, alone.
        outcome.number, outcome.is_repeated = 0, False
        now_ms = 0 if key is None else key.at_ms or post.row.status_ms
        if key is not None and self._is_taken(connection, key.digest, now_ms):
            outcome.is_repeated = True
            return
        found = self._find_task(connection, number)
        if found is None or not post.fits(found[0], found[1]):
            return
        _, generation, mail = found
        outcome.number = self._mail[number] = mail + 1
        self.size += post.size + 200
        note = post.numbered_note(generation, mail + 1)
        self._notes.append((number, generation, note.kind, note.body, note.mail))
        if key is not None:
            self._repeats.append((key.digest, post.row.id, key.expires_ms, None, now_ms))
            self._digests.add(key.digest)

    def _find_task(self, connection: sqlite3.Connection, number: int) -> tuple[State, int, int] | None:
        """State, generation and last mail number of a task after the changes so far; None when it is not there."""
        query = "SELECT state, generation, mail FROM tasks WHERE number = ?"
        stored: tuple[int, int, int] | None = connection.execute(query, (number,)).fetchone()
        written = self._created.get(number) or self._changed.get(number)
        if any(row.number == number for row, _ in self._deleted) or (stored is None and number not in self._created):
            return None
        mail = self._mail.get(number, 0 if stored is None else stored[2])
        if written is not None:
            return written[0].state, written[0].generation, mail
        return None if stored is None else (STATES[stored[0]], stored[1], mail)

    def _is_taken(self, connection: sqlite3.Connection, digest: bytes, now_ms: int) -> bool:
        """True when a message with this dedupe key was accepted, perhaps in this transaction."""
        query = "SELECT 1 FROM repeats WHERE key = ? AND until_ms > ?"
        return digest in self._digests or connection.execute(query, (digest, now_ms)).fetchone() is not None

    def _add_draft(self, write: Write, scope: int) -> None:
        row = write.row
        if write.delete:
            self._closed_drafts.append((row.number,))
            self._discarded_drafts.append((row.number,))
        else:
            columns = (row.number, row.id, scope, row.context_id, row.origin, row.created_ms)
            self._drafts[row.number] = (*columns, write.snapshot or b"")

    def _add_records(self, write: Write, scope: int) -> None:
        row, records = write.row, write.records
        if write.opens_draft:
            self._closed_drafts.append((row.number,))
        created = self._created.get(row.number)
        before = created or self._changed.get(row.number)
        expected = 1 if write.create else before[0].generation + 1 if before else records[0].generation
        for record in records:
            if record.generation != expected:
                raise TaskGenerationMismatch("a record does not follow its task's last one")
            expected += 1
            self._events.append((row.number, record.generation, record.body, self._at_ms))
        if row.generation != expected - 1:
            raise TaskGenerationMismatch("a record does not follow its task's last one")
        if write.create:
            self._add_count(scope, row.state, 1)
            if write.joins_context:
                self._joined_contexts[scope, row.context_id] += 1
        elif write.previous_state is not None and write.previous_state is not row.state:
            self._add_count(scope, write.previous_state, -1)
            self._add_count(scope, row.state, 1)
        if write.create or created:
            self._created[row.number] = (row, scope)
        else:
            self._changed[row.number] = (row, before[1] if before else records[0].generation - 1)

    def _add_count(self, scope: int, state: State, tasks: int) -> None:
        key = (scope, NUMBERS[state])
        self._counts[key] = self._counts.get(key, 0) + tasks
        if state.final:
            key = (ALL_SCOPES, NUMBERS[state])
            self._counts[key] = self._counts.get(key, 0) + tasks

    def apply(self, connection: sqlite3.Connection) -> None:
        """Write all changes within the open transaction.

        Raises:
            TaskGenerationMismatch: a change does not follow the stored generation of its task.
            MessageRepeated: another task has its dedupe key.
            sqlite3.Error: a statement fails; IntegrityError for a task that exists already.
        """
        if self._created:
            self._insert_tasks(connection)
        if self._changed:
            self._update_tasks(connection)
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", self._events)
        if self._notes:
            self._write_notes(connection)
        if self._snapshots:
            connection.executemany("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", self._snapshots.values())
        if self._contexts:
            contexts = [(scope, context, state) for (scope, context), state in self._contexts.items()]
            connection.executemany("INSERT OR REPLACE INTO contexts VALUES (?, ?, ?)", contexts)
        if self._repeats:
            self._write_repeats(connection)
        if self._counts:
            self._write_counts(connection)
        for write in self._pushes:
            write_pushes(connection, write)
        if self._drafts or self._closed_drafts:
            self._write_drafts(connection)
        if self._extra_rows:
            write_rows(connection, self._extra_rows.values())
        for row, scope in self._deleted:
            self._delete(connection, row, scope)

    def _write_notes(self, connection: sqlite3.Connection) -> None:
        for number in self._noted.difference(self._created, self._changed, self._drafts):
            query = "SELECT 1 FROM tasks WHERE number = ? UNION ALL SELECT 1 FROM drafts WHERE number = ?"
            if connection.execute(query, (number, number)).fetchone() is None:
                raise TaskGenerationMismatch("a note belongs to a task that is not there")
        connection.executemany(
            "INSERT INTO notes (task, generation, kind, body, mail) VALUES (?, ?, ?, ?, ?)", self._notes
        )
        if self._mail:
            last_numbers = [(mail, number) for number, mail in self._mail.items()]
            connection.executemany("UPDATE tasks SET mail = ? WHERE number = ?", last_numbers)

    def _write_repeats(self, connection: sqlite3.Connection) -> None:
        """Write the dedupe keys. One that has expired may be written again, and so may one of the same task."""
        written = connection.executemany(
            "INSERT INTO repeats VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "task_id = excluded.task_id, until_ms = excluded.until_ms, reply = excluded.reply "
            "WHERE task_id = excluded.task_id OR until_ms <= ?",
            self._repeats,
        )
        if written.rowcount != len(self._repeats):
            raise MessageRepeated("another task has accepted this message")

    def _write_drafts(self, connection: sqlite3.Connection) -> None:
        # A draft that is opened or answered in the same batch is never inserted.
        deleted = [number for number in self._closed_drafts if self._drafts.pop(number[0], None) is None]
        connection.executemany("INSERT INTO drafts VALUES (?, ?, ?, ?, ?, ?, ?)", self._drafts.values())
        connection.executemany("DELETE FROM drafts WHERE number = ?", deleted)
        if self._discarded_drafts:
            connection.executemany("DELETE FROM notes WHERE task = ?", self._discarded_drafts)
            connection.executemany("DELETE FROM pushes WHERE task = ?", self._discarded_drafts)
            reserve_numbers(connection, max(number for (number,) in self._discarded_drafts))

    def _insert_tasks(self, connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
            [
                (
                    row.number,
                    row.id,
                    scope,
                    row.context_id,
                    row.origin,
                    NUMBERS[row.state],
                    row.status_ms,
                    row.generation,
                    row.created_ms,
                )
                for row, scope in self._created.values()
            ],
        )

    def _update_tasks(self, connection: sqlite3.Connection) -> None:
        updated = connection.executemany(
            "UPDATE tasks SET state = ?, status_ms = ?, generation = ? WHERE number = ? AND generation = ?",
            [
                (NUMBERS[row.state], row.status_ms, row.generation, number, expected)
                for number, (row, expected) in self._changed.items()
            ],
        )
        if updated.rowcount != len(self._changed):
            raise TaskGenerationMismatch("a record does not follow its task's last one")

    def _write_counts(self, connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO state_counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET tasks = tasks + excluded.tasks",
            [(scope, state, tasks) for (scope, state), tasks in self._counts.items() if tasks],
        )
        if self._joined_contexts:
            self._write_joined(connection)

    def _write_joined(self, connection: sqlite3.Connection) -> None:
        # When a context is first joined its tasks are counted; from then on the row is updated.
        connection.executemany(
            "INSERT INTO context_counts VALUES "
            "(?, ?, (SELECT count(*) FROM tasks WHERE scope = ? AND context_id = ?)) "
            "ON CONFLICT DO UPDATE SET tasks = tasks + ?",
            [(scope, context, scope, context, tasks) for (scope, context), tasks in self._joined_contexts.items()],
        )

    def _delete(self, connection: sqlite3.Connection, row: TaskRow, scope: int) -> None:
        state_row = connection.execute("SELECT state FROM tasks WHERE number = ?", (row.number,)).fetchone()
        if state_row is None:
            return
        Sweeper(self._tables).delete(
            connection, TaskToDelete(row.number, row.id, scope, row.context_id, int(state_row[0]))
        )
