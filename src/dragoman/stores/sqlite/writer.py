"""The writer thread: group commit, many changes with one fsync."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
from collections import Counter, deque
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dragoman.clock import SystemClock
from dragoman.model.error import ServerError, TaskGenerationMismatch
from dragoman.stores.commits import CONFLICTS, commit_time, record_commits
from dragoman.stores.sole import MailWrite
from dragoman.stores.sqlite.changes import Changes
from dragoman.stores.sqlite.file import FileLock
from dragoman.stores.sqlite.schema import migrate
from dragoman.stores.sqlite.tables import create_tables
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman.clock import Clock
    from dragoman.engine.ports.rows import TaskTable
    from dragoman.engine.ports.store import Scope, Write
    from dragoman.stores.commits import CommitTime
    from dragoman.stores.sqlite.file import StoreFile

logger = logging.getLogger("dragoman.store")
T = TypeVar("T")

BATCH_WRITES = 2000
BATCH_BYTES = 8_000_000
CHECKPOINT_BYTES = 4_000_000
# While writes are waiting the log may grow to this size: a checkpoint takes as long as many commits.
CHECKPOINT_MAX_BYTES = 16_000_000
# A change above this size is large: it takes much longer than others, which must not wait behind several of them.
LARGE_BYTES = 256_000
# How often the log repeats why changes are refused.
REFUSAL_LOG_MS = 60_000
# Log bytes per row of a change, until a checkpoint has told how many there are: a small change writes whole pages of
# the table and of its indexes, and in a large one many rows share a page. What a checkpoint tells is believed between
# limits.
ROW_BYTES, MIN_ROW_BYTES, MAX_ROW_BYTES = 12_000, 50, 20_000
# Log bytes per row that a job deletes: about 2.3 kB were measured, as keys are random and few rows share a page.
# Doubled, so that the checkpoints of a sweep take a few milliseconds each, as its steps do.
JOB_ROW_BYTES = 4600


class Writer:
    """Applies all waiting changes in one transaction; changes of one task keep their order.

    Large changes take turns with all others, so that a small one waits for at most one of them. This is the only
    connection of the server that writes or checkpoints. With `synchronous=FULL` each commit survives a power loss;
    batching makes that cheap.
    """

    def __init__(
        self,
        file: StoreFile,
        tables: Sequence[TaskTable] = (),
        clock: Clock | None = None,
        agents: Sequence[str] = (),
        *,
        report: Callable[[Write, BaseException | None], None],
    ) -> None:
        self._report = report
        self._agents = agents
        self._clock = clock or SystemClock()
        self._file = file
        self._tables = tables
        self._file_error: ServerError | None = None
        self._queue: SimpleQueue[Write | Callable[[sqlite3.Connection], None] | None] = SimpleQueue()
        self._postponed: Callable[[sqlite3.Connection], None] | None = None
        # Large changes and the later ones of the same tasks, and how many there are per task.
        self._large: deque[Write] = deque()
        self._large_tasks: Counter[int] = Counter()
        self._is_large_next = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scopes: dict[Scope, int] = {}
        self._checkpoint_lock = FileLock(file.sibling(".ckpt"))
        # Bytes of the log since the last checkpoint. SQLite does not say how long the log is, except in a checkpoint:
        # so they are estimated from the rows, with what the last checkpoint has found for each row.
        self._since_checkpoint = 0
        self._row_bytes = ROW_BYTES
        self._rows = 0
        self._ran_job = False
        self._frames = 0  # in the log after the last checkpoint; 0 when the next change begins it anew
        self._page_bytes = 4096
        self._connection: sqlite3.Connection | None = None
        # What was refused since it was last logged, why, and when that was.
        self._refused: int = 0
        self._refusal: str = ""
        self._refusal_ms: int = 0
        # Of the commits of one batch, while metrics are on: normally one.
        self._times: list[CommitTime] = []

    def open(self, loop: asyncio.AbstractEventLoop) -> int:
        """Open the file and start the thread. Return the largest task number so far.

        Raises:
            ConfigError: the file is not a store, or a newer one.
            sqlite3.Error: it cannot be opened, read or written.
        """
        path = self._file.path
        self._checkpoint_lock = FileLock(self._file.sibling(".ckpt"))
        self._file_error = None
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
        try:
            migrate(connection, path)
            create_tables(connection, self._tables)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            # Some builds of SQLite overwrite deleted pages with zeros, which doubles what retention writes.
            connection.execute("PRAGMA secure_delete = FAST")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA busy_timeout = 5000")
            self._record_path(connection, os.fsencode(path))
            self._record_agents(connection)
            self._page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])
            self._frames = 0
            last = connection.execute(
                "SELECT max(n) FROM (SELECT max(number) AS n FROM tasks UNION ALL SELECT max(number) FROM drafts "
                "UNION ALL SELECT value FROM meta WHERE key = 'last_number')"
            ).fetchone()[0]
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._loop = loop
        self._thread = threading.Thread(target=self._run_thread, name="dragoman-writer", daemon=True)
        self._thread.start()
        return int(last or 0)

    def _record_agents(self, connection: sqlite3.Connection) -> None:
        """Note whose file it is: another agent that is started in this folder has a file of its own."""
        for agent in self._agents:
            if connection.execute("SELECT 1 FROM scopes WHERE agent = ?", (agent,)).fetchone() is None:
                connection.execute("INSERT INTO scopes (agent, tenant, owner) VALUES (?, '', '')", (agent,))

    def _record_path(self, connection: sqlite3.Connection, path: bytes) -> None:
        if connection.execute("SELECT path FROM home").fetchall() != [(path,)]:
            connection.executescript("BEGIN IMMEDIATE; DELETE FROM home;")
            connection.execute("INSERT INTO home VALUES (?)", (path,))
            connection.execute("COMMIT")
            self._checkpoint(connection)  # a process that opens the file by another path does not see its log

    def put(self, write: Write) -> None:
        """Queue a change. On a closed store, `write.done` is called with a ServerError instead."""
        if self._thread is None:
            asyncio.get_running_loop().call_soon(self._report, write, ServerError("the store is closed"))
            return
        self._queue.put(write)

    def has_waiting(self) -> bool:
        """True when changes or jobs are waiting in the queue."""
        return not self._queue.empty()

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in the writer thread, between two batches, in its own transaction.

        Raises:
            sqlite3.Error: a statement fails, and the transaction is rolled back; or the store is closed.
            ServerError: the file was moved, or is used by another server.
            Exception: whatever `job` raises; the transaction is rolled back.
        """
        if self._thread is None:
            raise sqlite3.ProgrammingError("it is closed")
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def resolve(result: T | None, error: Exception | None) -> None:
            if outcome.done():
                return
            if error is None:
                outcome.set_result(cast("T", result))
            else:
                outcome.set_exception(error)

        def work(connection: sqlite3.Connection) -> None:
            result, error, changes = None, None, connection.total_changes
            try:
                if self._file_error is not None:
                    self._check_file(connection)
                connection.execute("BEGIN IMMEDIATE")
                result = job(connection)
                connection.execute("COMMIT")
                self._check_file(connection)
            except Exception as problem:  # noqa: BLE001 - it is raised to the caller
                error = problem
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            self._since_checkpoint += (connection.total_changes - changes) * JOB_ROW_BYTES
            self._ran_job = True
            self._on_loop(resolve, result, error)

        self._queue.put(work)
        return await outcome

    async def close(self) -> None:
        """Finish what is queued, stop the thread and close the connection."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(thread.join)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        connection = self._connection
        assert connection is not None
        try:
            while batch := self._next_batch(connection):
                outcomes = self._commit_to_file(connection, batch)
                times, self._times = self._times, []
                self._on_loop(self._report_all, batch, outcomes, times)
                self._checkpoint_when_due(connection)
        finally:
            self._checkpoint(connection)
            connection.close()

    def _next_batch(self, connection: sqlite3.Connection) -> list[Write]:
        """Run waiting jobs; return the next small changes or, in turn, a large one. Empty when the thread must stop."""
        if self._large and self._is_large_next:
            return self._next_large()
        batch: list[Write] = []
        size = 0
        while len(batch) < BATCH_WRITES and size < BATCH_BYTES:
            if self._postponed is not None:
                if batch or self._large:  # they were queued before the job
                    break
                job, self._postponed = self._postponed, None
                job(connection)
                self._checkpoint_when_due(connection)
            try:
                item = self._queue.get(block=not (batch or self._large))
            except Empty:
                break
            if item is None:
                if batch or self._large:
                    self._queue.put(None)
                break
            if callable(item):
                self._postponed = item
                continue
            item_size = item.size
            if item_size > LARGE_BYTES or item.row.number in self._large_tasks:
                self._large.append(item)
                self._large_tasks[item.row.number] += 1
            else:
                batch.append(item)
                size += item_size
        if not batch and self._large:
            return self._next_large()
        self._is_large_next = True
        return batch

    def _next_large(self) -> list[Write]:
        """Return one large change, with the small ones that wait behind it."""
        self._is_large_next = False
        batch: list[Write] = []
        while self._large and len(batch) < BATCH_WRITES and not (batch and self._large[0].size > LARGE_BYTES):
            write = self._large.popleft()
            batch.append(write)
            self._large_tasks[write.row.number] -= 1
            if not self._large_tasks[write.row.number]:
                del self._large_tasks[write.row.number]
        return batch

    def _commit_to_file(self, connection: sqlite3.Connection, batch: list[Write]) -> list[BaseException | None]:
        """Commit, and check that the file is still in place: nothing is acknowledged that the next start would miss."""
        try:
            if self._file_error is not None:
                self._check_file(connection)
            outcomes = self._commit(connection, batch)
            self._check_file(connection)
        except ServerError as error:
            return [error] * len(batch)
        return outcomes

    def _check_file(self, connection: sqlite3.Connection) -> None:
        try:
            self._file.check()
        except ServerError as error:
            if self._file_error is None:
                logger.error("nothing is written into %s any more: %s", self._file.path, error)
                self._file_error = error
                self._checkpoint(connection)  # moves the content of the log into the file, wherever that is
            self._file_error = error
            raise
        if self._file_error is not None:
            logger.warning("%s is there again", self._file.path)
            self._file_error = None

    def _commit(self, connection: sqlite3.Connection, batch: list[Write]) -> list[BaseException | None]:
        error = self._try_commit(connection, batch)
        if error is not None and _is_full(error) and self._since_checkpoint:
            # A checkpoint may free space in the log.
            self._checkpoint(connection)
            error = self._try_commit(connection, batch)
        if error is None:
            return [None] * len(batch)
        # One bad change must not fail the others of its batch.
        outcomes = [error if len(batch) == 1 else self._try_commit(connection, [write]) for write in batch]
        refused = [outcome for outcome in outcomes if outcome and not isinstance(outcome, CONFLICTS)]
        if refused:
            self._log_refusal(len(refused), str(refused[-1]))
        return outcomes

    def _log_refusal(self, changes: int, reason: str) -> None:
        """Log what is refused, at most once a minute for one reason: on a full disk, that is every message."""
        self._refused += changes
        now = self._clock.now()
        if reason != self._refusal or abs(now - self._refusal_ms) >= REFUSAL_LOG_MS:
            logger.error("the store refused %d changes: %s", self._refused, reason)
            self._refused, self._refusal, self._refusal_ms = 0, reason, now

    def _try_commit(self, connection: sqlite3.Connection, batch: list[Write]) -> BaseException | None:
        measured = METRICS.on
        started = perf_counter() if measured else 0.0
        try:
            connection.execute("BEGIN IMMEDIATE")
            rows = connection.total_changes
            changes = Changes(self._tables, self._clock.now())
            for write in batch:
                if isinstance(write, MailWrite):
                    changes.post(connection, write)
                    continue
                scope = self._scopes.get(write.row.scope)
                changes.add(write, self._scope_number(connection, write.row.scope) if scope is None else scope)
            changes.apply(connection)
            rows = connection.total_changes - rows
            self._rows += rows
            self._since_checkpoint += max(rows * self._row_bytes, changes.size)
            synced = perf_counter() if measured else 0.0
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the thread must go on; the error is reported to the writer
            self._scopes.clear()
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.IntegrityError):
                return TaskGenerationMismatch("there is a task with this id or number already")
            return error
        if measured:
            now = perf_counter()
            self._times.append(commit_time(batch, now - started, now - synced))
        return None

    def _scope_number(self, connection: sqlite3.Connection, scope: Scope) -> int:
        connection.execute("INSERT OR IGNORE INTO scopes (agent, tenant, owner) VALUES (?, ?, ?)", scope)
        query = "SELECT scope FROM scopes WHERE agent = ? AND tenant = ? AND owner = ?"
        number = self._scopes[scope] = int(connection.execute(query, scope).fetchone()[0])
        return number

    def _on_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _report_all(self, batch: list[Write], outcomes: list[BaseException | None], times: list[CommitTime]) -> None:
        if METRICS.on:
            record_commits(times, outcomes)
        report = self._report
        for write, outcome in zip(batch, outcomes, strict=True):
            try:
                # Most changes are reported to their callers alone.
                if write.dedupe_key is None and not write.delete:
                    write.done(outcome)
                else:
                    report(write, outcome)
            except Exception:
                logger.exception("a change could not be reported")

    def _learn(self, written: int) -> None:
        """Learn from a checkpoint how many bytes of the log a row takes, unless they are those of a job as well."""
        if self._rows and not self._ran_job:
            self._row_bytes = min(max(written // self._rows, MIN_ROW_BYTES), MAX_ROW_BYTES)
        self._rows, self._ran_job = 0, False

    def _checkpoint_when_due(self, connection: sqlite3.Connection) -> None:
        is_free = self._queue.empty() and not self._large
        if self._since_checkpoint > (CHECKPOINT_BYTES if is_free else CHECKPOINT_MAX_BYTES):
            self._checkpoint(connection)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        # Other processes hold this lock to write: before SQLite 3.51.3 a write and a checkpoint must not overlap.
        try:
            if not self._checkpoint_lock.try_acquire():
                return
            self._since_checkpoint = 0  # a failed checkpoint is retried after as many bytes, not with every batch
            _, frames, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._learn((frames - self._frames) * self._page_bytes)
            # When all of it is in the file, the next change begins the log anew, unless somebody reads there.
            self._frames = 0 if frames == done else frames
        except (sqlite3.Error, OSError, MemoryError) as error:
            self._since_checkpoint = 0
            logger.warning("the store could not be checkpointed: %s", error)
        finally:
            self._checkpoint_lock.release()


def _is_full(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
