"""Users with their permissions and API keys, in the file of the store."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from dragoman.clock import Clock
from dragoman.model.error import ServerError
from dragoman.model.user import Account
from dragoman.stores.sqlite.admin.health import open_read_only, schema_version
from dragoman.stores.sqlite.file import real_path, short_write
from dragoman.stores.sqlite.schema import VERSION, migrate, refuse_moved
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.stores.users import T, Users, Work


class SqliteUsers(Users):
    """The users of one store.

    The administration methods raise ServerError when the file stays busy, and sqlite3.Error when it cannot be used.
    Without a path the users are in memory and last as long as this object.
    """

    _row_lock = ""

    def __init__(self, path: Path | None, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._path = path
        self._stamp = 0
        self._change_file: int | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._reader: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._memory = _in_memory() if path is None else None
        if self._memory is not None:
            weakref.finalize(self, self._memory.close)

    async def open(self) -> None:
        """Open a connection and a thread for lookups. The store must be open, so that the file exists."""
        if self._path is not None:
            path = real_path(self._path)
            self._change_file = os.open(path.with_name(path.name + ".ckpt"), os.O_RDONLY | os.O_CREAT, 0o600)
            uri = f"{path.as_uri()}?mode=ro"
            self._reader = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            self._reader.execute("PRAGMA busy_timeout = 5000")
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dragoman-users")

    async def close(self) -> None:
        """Close the file. Users in memory stay, and can be opened again."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await asyncio.to_thread(pool.shutdown)
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._change_file is not None:
            os.close(self._change_file)
            self._change_file = None
        self._cache.clear()

    def prepare(self) -> None:
        """Create the file, or migrate an older one, if no server has done so.

        Raises:
            ConfigError: it cannot be used, or an older server has it open.
        """
        if self._path is not None and not _is_migrated(self._path):
            asyncio.run(_open_once(self._path))

    async def _look_up(self, query: str, key: str | bytes) -> Account | None:
        # On every call: it takes less than a microsecond, and a change can be written in half a millisecond.
        stamp = self._stamp if self._change_file is None else os.fstat(self._change_file).st_mtime_ns
        if stamp != self._stamp:
            self._stamp = stamp
            self._has_changed = True
        return await super()._look_up(query, key)

    async def _fetch(self, query: str, *values: Any) -> Sequence[Any]:
        if self._pool is None:
            raise ServerError("the store of users is closed")

        def work() -> Sequence[Any]:
            return self._read(lambda statements: statements.fetch(query, *values))

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except sqlite3.Error as error:
            raise ServerError(f"the users cannot be looked up now: {error}") from error

    def _read(self, work: Work[T]) -> T:
        shared = self._memory or self._reader
        if shared is not None:
            with self._lock:
                return _run(work, shared)
        assert self._path is not None
        with closing(open_read_only(self._path)) as reader:
            reader.execute("PRAGMA busy_timeout = 5000")
            return _run(work, reader)

    def _write(self, work: Work[None]) -> None:
        if self._memory is not None:
            with self._lock, self._memory:
                self._memory.execute("BEGIN")
                _run(work, self._memory)
        else:
            assert self._path is not None
            with short_write(self._path) as connection:
                refuse_moved(connection, self._path)
                _run(work, connection)


class _Statements:
    """Carries out statements on a connection of SQLite, to which $1 is a name."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        values = {str(number): value for number, value in enumerate(args, 1)}
        return self._connection.execute(query, values).fetchall()


def _run(work: Work[T], connection: sqlite3.Connection) -> T:
    """Do all of it at once: it never waits, and so needs no event loop."""
    try:
        work(_Statements(connection)).send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("work on a file has waited")


def _in_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    migrate(connection, Path("memory"))
    return connection


def _is_migrated(path: Path) -> bool:
    if not path.exists():
        return False
    with closing(open_read_only(path)) as reader:
        return schema_version(reader, path) == VERSION


async def _open_once(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
