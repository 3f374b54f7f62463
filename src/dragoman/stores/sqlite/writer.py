"""The one thread that writes: many changes, one fsync."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from dragoman.stores.sqlite.lock import FileLock
from dragoman.stores.sqlite.schema import NUMBERS, prepare

if TYPE_CHECKING:
    from dragoman.engine.ports import Scope, TaskRow, Write

logger = logging.getLogger("dragoman.store")

BATCH_WRITES = 2000
BATCH_BYTES = 8_000_000
CHECKPOINT_BYTES = 4_000_000


class Conflict(Exception):
    """A record does not follow the task's last one: somebody else wrote, or wrote twice."""


class Writer:
    """Applies changes in order, as many as are waiting in one transaction.

    It is the only connection that writes or checkpoints. `synchronous=FULL` makes each commit survive a power
    loss; the batch makes that cheap.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: SimpleQueue[Write | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scopes: dict[Scope, int] = {}
        self._checkpoint_lock = FileLock(path.with_name(path.name + ".ckpt"))
        self._since_checkpoint = 0
        self._connection: sqlite3.Connection | None = None
        self.last_error: BaseException | None = None

    def open(self, loop: asyncio.AbstractEventLoop) -> int:
        """Open the file and start the thread. Gives the largest task number so far. Raises ConfigError."""
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=64)
        try:
            prepare(connection, self._path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA busy_timeout = 5000")
            last = connection.execute("SELECT max(number) FROM tasks").fetchone()[0]
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._loop = loop
        self._thread = threading.Thread(target=self._work, name="dragoman-writer", daemon=True)
        self._thread.start()
        return int(last or 0)

    def put(self, write: Write) -> None:
        """Queue a change."""
        self._queue.put(write)

    async def close(self) -> None:
        """Finish what is queued and close the file."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        connection = self._connection
        assert connection is not None
        try:
            while batch := self._next_batch():
                self._report(batch, self._commit(connection, batch))
                if self._since_checkpoint > CHECKPOINT_BYTES:
                    self._checkpoint(connection)
        finally:
            self._checkpoint(connection)
            connection.close()

    def _next_batch(self) -> list[Write]:
        """All that waits, in order; empty when the writer is to stop."""
        first = self._queue.get()
        batch: list[Write] = []
        size = 0
        while first is not None:
            batch.append(first)
            size += first.size()
            if len(batch) >= BATCH_WRITES or size >= BATCH_BYTES:
                return batch
            try:
                first = self._queue.get_nowait()
            except Empty:
                return batch
        if batch:
            self._queue.put(None)
        return batch

    def _commit(self, connection: sqlite3.Connection, batch: list[Write]) -> list[BaseException | None]:
        error = self._try(connection, batch)
        self.last_error = error
        if error is None:
            return [None] * len(batch)
        if len(batch) == 1:
            return [error]
        # One bad change must not fail its neighbours.
        return [self._try(connection, [write]) for write in batch]

    def _try(self, connection: sqlite3.Connection, batch: list[Write]) -> BaseException | None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._since_checkpoint += self._apply(connection, batch)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the thread must live; the error goes to whoever wrote
            self._scopes.clear()
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if not isinstance(error, (Conflict, sqlite3.IntegrityError)):
                logger.error("the store refused %d changes: %s", len(batch), error)
            return error
        return None

    def _apply(self, connection: sqlite3.Connection, batch: list[Write]) -> int:
        created: dict[int, TaskRow] = {}
        changed: dict[int, tuple[TaskRow, int]] = {}
        events: list[tuple[int, int, bytes]] = []
        notes: list[tuple[int, int, str, bytes]] = []
        snapshots: dict[int, tuple[int, int, bytes]] = {}
        contexts: dict[tuple[int, str], bytes] = {}
        repeats: list[tuple[bytes, str, int]] = []
        size = 0
        deleted: list[TaskRow] = []
        for write in batch:
            row, record = write.row, write.record
            if write.delete:
                deleted.append(row)
                continue
            size += write.size() + 200
            if record is not None:
                events.append((row.number, record.generation, record.body))
                if write.create:
                    created[row.number] = row
                elif row.number in created:
                    created[row.number] = row
                else:
                    before = changed.get(row.number)
                    changed[row.number] = (row, before[1] if before else record.generation - 1)
            for note in write.notes:
                notes.append((row.number, note.generation, note.kind, note.body))
            if write.snapshot is not None:
                snapshots[row.number] = (row.number, row.generation, write.snapshot)
            if write.context_state is not None:
                contexts[self._scope(connection, row.scope), row.context_id] = write.context_state
            if write.repeat is not None:
                repeats.append((write.repeat.key, row.id, write.repeat.until_ms))
        self._insert_tasks(connection, created)
        self._update_tasks(connection, changed)
        connection.executemany("INSERT INTO events VALUES (?, ?, ?)", events)
        if notes:
            connection.executemany("INSERT INTO notes (task, generation, kind, body) VALUES (?, ?, ?, ?)", notes)
        if snapshots:
            connection.executemany("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", snapshots.values())
        if contexts:
            rows = [(scope, context, state) for (scope, context), state in contexts.items()]
            connection.executemany("INSERT OR REPLACE INTO contexts VALUES (?, ?, ?)", rows)
        if repeats:
            connection.executemany("INSERT OR REPLACE INTO repeats VALUES (?, ?, ?)", repeats)
        for row in deleted:
            _delete(connection, row)
        return size

    def _insert_tasks(self, connection: sqlite3.Connection, created: dict[int, TaskRow]) -> None:
        rows: list[tuple[Any, ...]] = [
            (
                row.number,
                row.id,
                self._scope(connection, row.scope),
                row.context_id,
                row.origin,
                NUMBERS[row.state],
                row.status_ms,
                row.generation,
                row.created_ms,
            )
            for row in created.values()
        ]
        if rows:
            connection.executemany("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _update_tasks(self, connection: sqlite3.Connection, changed: dict[int, tuple[TaskRow, int]]) -> None:
        if not changed:
            return
        done = connection.executemany(
            "UPDATE tasks SET state = ?, status_ms = ?, generation = ? WHERE number = ? AND generation = ?",
            [
                (NUMBERS[row.state], row.status_ms, row.generation, number, expected)
                for number, (row, expected) in changed.items()
            ],
        )
        if done.rowcount != len(changed):
            raise Conflict("a record does not follow its task's last one")

    def _scope(self, connection: sqlite3.Connection, scope: Scope) -> int:
        known = self._scopes.get(scope)
        if known is None:
            connection.execute("INSERT OR IGNORE INTO scopes (agent, tenant, owner) VALUES (?, ?, ?)", scope)
            found = connection.execute(
                "SELECT scope FROM scopes WHERE agent = ? AND tenant = ? AND owner = ?", scope
            ).fetchone()
            known = self._scopes[scope] = int(found[0])
        return known

    def _report(self, batch: list[Write], outcomes: list[BaseException | None]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waited
            self._loop.call_soon_threadsafe(_tell, batch, outcomes)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        # Foreign writers hold this lock: before SQLite 3.51.3 a write and a checkpoint must never meet.
        if not self._checkpoint_lock.try_take():
            return
        try:
            connection.execute("DELETE FROM repeats WHERE until_ms < ?", (time.time_ns() // 1_000_000,))
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._since_checkpoint = 0
        except sqlite3.Error as error:
            logger.warning("the store could not be checkpointed: %s", error)
        finally:
            self._checkpoint_lock.release()


def _delete(connection: sqlite3.Connection, row: TaskRow) -> None:
    for table in ("events", "notes", "snapshots"):
        connection.execute(f"DELETE FROM {table} WHERE task = ?", (row.number,))  # noqa: S608 - three fixed names
    connection.execute("DELETE FROM tasks WHERE number = ?", (row.number,))
    connection.execute("DELETE FROM repeats WHERE task_id = ?", (row.id,))


def _tell(batch: list[Write], outcomes: list[BaseException | None]) -> None:
    for write, outcome in zip(batch, outcomes, strict=True):
        write.done(outcome)
