"""The store of a single server, in one SQLite file."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from dragoman.clock import SystemClock
from dragoman.model.error import ConfigError, ServerError
from dragoman.stores.sole import DedupeKeys, SoleWriter
from dragoman.stores.sqlite import reader, search, tables
from dragoman.stores.sqlite import webhooks as pushing
from dragoman.stores.sqlite.file import StoreFile
from dragoman.stores.sqlite.retention import Sweeper, write_probe
from dragoman.stores.sqlite.schema import check_last_page, unusable_error
from dragoman.stores.sqlite.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman.clock import Clock
    from dragoman.engine.ports.rows import ExtraRow, TaskTable, Value
    from dragoman.engine.ports.store import (
        JournalRecord,
        Note,
        Push,
        Scope,
        ScopeFilter,
        SearchPage,
        StoredTask,
        Sweep,
        TaskPage,
        TaskQuery,
        TaskRow,
        TaskSearch,
    )
    from dragoman.model.record import Record
    from dragoman.model.state import State

logger = logging.getLogger("dragoman.store")
P = ParamSpec("P")
T = TypeVar("T")
READERS = 2


class SqliteStore(SoleWriter):
    """A durable store in one SQLite file, which one server uses at a time.

    One thread writes; reads run in a small pool of threads and raise ServerError when the file cannot be read. `agents`
    are those that are served from it: the file says so from now on, before they have any task.
    """

    durable: bool = True

    def __init__(self, path: Path, clock: Clock | None = None, agents: Sequence[str] = ()) -> None:
        super().__init__()
        self._path = path
        self._file = StoreFile(path)
        self._tables: list[TaskTable] = []
        self._sweeper = Sweeper(self._tables)
        self._clock = clock or SystemClock()
        self._writer = Writer(self._file, self._tables, self._clock, agents, report=self.report)
        self.next_number = itertools.count(1).__next__
        self.queue = self._writer.put
        self._pool: ThreadPoolExecutor | None = None
        # One connection per reader thread, all opened at the start: later there may be no free file descriptor.
        self._idle_readers: SimpleQueue[sqlite3.Connection] = SimpleQueue()

    def add_table(self, table: TaskTable) -> None:
        """Add a plug-in table, effective at the next `open`."""
        if table not in self._tables:
            self._tables.append(table)

    async def open(self) -> None:
        """Lock and open the file, creating it when it is not there.

        Raises:
            ConfigError: another server uses it, or it cannot be used.
        """
        try:
            self._file.open()
        except OSError as error:
            advice = "make room" if error.errno == errno.ENOSPC else "let this user write there"
            problem = f"the store {self._path} cannot be opened: {error.strerror}"
            raise ConfigError(f"{problem}: {advice}, or use another --store") from None
        try:
            check_last_page(self._file.path)
            last = self._writer.open(asyncio.get_running_loop())
            for _ in range(READERS):
                self._idle_readers.put(self._open_reader())
            await asyncio.to_thread(self._load_keys)
            self._file.watch()
        except BaseException as error:
            await self._close_file()
            if isinstance(error, sqlite3.Error):
                raise unusable_error(self._path, error) from None
            raise
        self.next_number = itertools.count(last + 1).__next__
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="dragoman-reader")

    def _load_keys(self) -> None:
        self._keys = DedupeKeys()
        connection = self._idle_readers.get()
        try:
            for digest in reader.dedupe_keys(connection, self._clock.now()):
                self._keys.load(digest)
        finally:
            self._idle_readers.put(connection)

    async def close(self) -> None:
        """Finish all queued writes and release the file."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await asyncio.to_thread(pool.shutdown)
        await self._close_file()

    async def _close_file(self) -> None:
        # The readers first: the last connection to close checkpoints the log and removes it.
        while not self._idle_readers.empty():
            self._idle_readers.get().close()
        await self._writer.close()
        self._file.close()

    async def task(self, task_id: str) -> StoredTask | None:
        """Read a task by its id; None when there is none, or only a draft."""
        return await self._read(reader.task, task_id)

    async def records(self, number: int, after: int, limit: int) -> list[Record]:
        """The records of a task with a generation above `after`, in order, at most `limit`."""
        return await self._read(reader.records, number, after, limit)

    async def journal(self, number: int, after: int, limit: int, budget: int) -> list[JournalRecord]:
        """The records of a task with the times of their commits, up to `budget` bytes."""
        return await self._read(reader.journal, number, after, limit, budget)

    async def notes(self, number: int) -> list[Note]:
        """All notes of a task, in the order they were written."""
        return await self._read(reader.notes, number)

    async def mail(self, number: int, after: int) -> list[tuple[int, bytes]]:
        """The messages that were added to a task with `post`, with their numbers, after number `after`."""
        return await self._read(reader.mail, number, after)

    async def page(self, query: TaskQuery) -> TaskPage:
        """One page of tasks."""
        return await self._read(reader.page, query)

    async def search(self, query: TaskSearch) -> SearchPage:
        """One page of the tasks of several scopes."""
        return await self._read(search.search, query)

    async def counts(self, scopes: ScopeFilter) -> dict[State, int]:
        """How many tasks of these scopes are in each state."""
        return await self._read(search.counts, scopes)

    async def context_state(self, scope: Scope, context_id: str) -> bytes | None:
        """The saved `ctx.state` of a conversation as JSON, or None."""
        return await self._read(reader.context_state, scope, context_id)

    async def read_duplicate(self, key: bytes, now_ms: int) -> str | None:
        return await self._read(reader.duplicate_of, key, now_ms)

    async def read_reply(self, key: bytes, now_ms: int) -> bytes | None:
        return await self._read(reader.reply, key, now_ms)

    async def dedupe_keys(self, now_ms: int) -> list[bytes]:
        """The digests of all dedupe keys that have not expired."""
        return await self._read(reader.dedupe_keys, now_ms)

    async def pushes(self, number: int) -> list[Push]:
        """The webhooks of a task, oldest first."""
        return await self._read(pushing.pushes, number)

    async def undelivered_pushes(self, *, woken: bool = False) -> list[tuple[Push, TaskRow]]:
        """The webhooks that are not done, with their tasks, oldest first; or only those that were woken."""
        return await self._read(reader.undelivered_pushes, woken)

    async def unfinished(self, agent: str) -> list[StoredTask]:
        """The tasks of an agent that are submitted or working, oldest first."""
        return await self._read(reader.unfinished, agent)

    async def drafts(self, agent: str) -> list[StoredTask]:
        """The drafts of an agent, oldest first."""
        return await self._read(reader.drafts, agent)

    async def read_row(self, table: TaskTable, key: int) -> ExtraRow | None:
        """Read a row of a plug-in table."""
        return await self._read(tables.read_row, table, key)

    async def last_key(self, table: TaskTable) -> int:
        """The largest key in a plug-in table; 0 when it is empty."""
        return await self._read(tables.last_key, table)

    async def wake_pushes(self, task_id: str, push_id: str) -> int:
        """Wake a webhook that is dead or fails. Returns how many were woken. Raises ServerError."""
        return await self._change(lambda connection: pushing.wake(connection, task_id, push_id))

    async def replace_row(self, row: ExtraRow, version: Value) -> bool:
        """Replace a row of a plug-in table if it still has that version. Return whether it had.

        Raises:
            ServerError: the store cannot write now.
        """
        return await self._change(lambda connection: tables.replace_row(connection, row, version))

    async def _change(self, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._writer.run(job)
        except sqlite3.Error as error:
            raise ServerError(f"the store does not work now: {error}") from None

    async def sweep(self, rules: Sweep) -> int:
        """Run one step of retention. Returns how many tasks were touched, and 0 when all is done.

        Raises:
            sqlite3.Error: a statement fails, or the store is closed.
            ServerError: the file was moved, or is used by another server.
        """
        has_waiting = self._writer.has_waiting
        touched = await self._writer.run(lambda connection: self._sweeper.step(connection, rules, has_waiting))
        for digest in self._sweeper.take_deleted_keys():
            self._keys.forget(digest)
        return touched

    async def check(self) -> None:
        """Write a row and read one. Raises ServerError when that fails, or the disk is nearly full."""

        def work(connection: sqlite3.Connection) -> None:
            self._file.check_room()
            write_probe(connection)

        await self._change(work)
        await self._read(reader.task, "")

    async def _read(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._pool is None:
            raise ServerError("the store is closed")

        def work() -> T:
            connection = self._idle_readers.get()
            try:
                return query(connection, *args, **kwargs)
            finally:
                self._idle_readers.put(connection)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except sqlite3.Error as error:
            logger.error("the store %s could not be read: %s", self._path, error)
            raise ServerError("the store cannot be read now: the log says why") from error

    def _open_reader(self) -> sqlite3.Connection:
        connection = sqlite3.connect(f"{self._file.path.as_uri()}?mode=ro", uri=True, check_same_thread=False)
        try:
            connection.execute("PRAGMA busy_timeout = 5000")
            connection.execute("SELECT 1 FROM tasks LIMIT 1").fetchone()  # so that SQLite opens the log too
        except BaseException:
            connection.close()
            raise
        return connection
