"""Reads everything that a store has, for its migration into another one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

from dragoman.engine.ports.rows import Column, TaskTable
from dragoman.engine.ports.store import Scope
from dragoman.model.error import ConfigError, DragomanError
from dragoman.stores.migration import CONTENTS, CopiedRows, MigrationPosition, Row, StoreCounts
from dragoman.stores.sqlite.admin.health import schema_version
from dragoman.stores.sqlite.file import LOCK_TIMEOUT, FileLock, StoreFile, StoreInUse
from dragoman.stores.sqlite.schema import (
    ENDED,
    VERSION,
    check_last_page,
    mark_moved,
    migrate,
    read_moved,
    unusable_error,
)
from dragoman.stores.state_numbers import STATES

# The bytes and the rows that are read at a time, about: a row is never divided.
BATCH_BYTES = 4_000_000
BATCH_ROWS = 10_000
_MOST_FETCHED = 256

# Rows of tasks that were deleted, whose leftovers retention has not removed yet, are left out. Notes and webhooks may
# belong to drafts. Which attempt a run was, its last note says, unless an answer has started the count anew.
_OF_TASK = "{0} x CROSS JOIN tasks t ON t.number = x.task"
_OF_ANY = """{0} x LEFT JOIN tasks t ON t.number = x.task LEFT JOIN drafts d ON d.number = x.task
WHERE coalesce(t.number, d.number) IS NOT NULL"""
_CREATED = "coalesce(t.created_ms, d.created_ms)"
_ATTEMPTS = """
CASE WHEN t.state = 2 THEN coalesce((
    SELECT CAST(n.body AS INTEGER) FROM notes n WHERE n.task = t.number AND n.kind = 'attempt' AND n.note > coalesce((
        SELECT max(a.note) FROM notes a WHERE a.task = t.number AND a.kind IN ('answer', 'resumed')
    ), 0) ORDER BY n.note DESC LIMIT 1
), 1) ELSE 0 END
"""
# What is selected, from where, and in which order.
_QUERIES: dict[str, tuple[str, str, str]] = {
    "scopes": ("scope, agent, tenant, owner", "scopes", "scope"),
    "users": (
        "user, name, password, created_ms, epoch, revoked",
        "users",
        "user",
    ),
    "grants": ("user, permission, until_ms", "grants", "user, permission"),
    "api_keys": ("digest, user, hint, created_ms, until_ms", "api_keys", "digest"),
    "tasks": (
        "t.number, t.created_ms, t.id, t.scope, s.agent, t.context_id, t.origin, t.state, t.status_ms, t.generation, "
        f"t.mail, {_ATTEMPTS}",
        "tasks t JOIN scopes s ON s.scope = t.scope",
        "t.number",
    ),
    "drafts": (
        "t.number, t.created_ms, t.id, t.scope, s.agent, t.context_id, t.origin, 1",
        "drafts t JOIN scopes s ON s.scope = t.scope",
        "t.number",
    ),
    "draft_snapshots": ("number, created_ms, 1, 0, body", "drafts", "number"),
    "snapshots": ("x.task, t.created_ms, x.generation, x.mail, x.body", _OF_TASK.format("snapshots"), "x.task"),
    "events": (
        "x.task, t.created_ms, x.generation, x.at_ms, x.body",
        _OF_TASK.format("events"),
        "x.task, x.generation",
    ),
    "notes": (f"x.task, {_CREATED}, x.note, x.generation, x.kind, x.mail, x.body", _OF_ANY.format("notes"), "x.note"),
    "contexts": ("scope, context_id, state", "contexts", "scope, context_id"),
    "repeats": (
        f"x.key, coalesce(t.number, d.number), {_CREATED}, x.task_id, x.until_ms, x.reply",
        "repeats x LEFT JOIN tasks t ON t.id = x.task_id LEFT JOIN drafts d ON d.id = x.task_id",
        "x.key",
    ),
    "pushes": (
        f"x.push, x.task, {_CREATED}, x.id, x.dialect, x.url, x.secrets, x.cursor, x.created_ms, x.tries, "
        "x.failing_ms, x.due_ms, x.state, x.error",
        _OF_ANY.format("pushes"),
        "x.push",
    ),
}
assert tuple(_QUERIES) == tuple(CONTENTS)
# Tables that only this kind of store has: counters are counted again, and the rest is its own.
_OWN = {"meta", "state_counts", "context_counts", "leftovers", "home", "drafts", *CONTENTS}


class SqliteExport:
    """The contents of the store in a file, as they are while it is open. Servers and commands cannot change it then.

    A file of an older version is brought up to date, as a server would do; apart from that it is only read. `moved_ms`
    is when its contents were moved before, if they were.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # What tells the file from itself after a change.
        self.fingerprint = ""
        self.is_outdated = False
        self.moved_ms: int | None = None
        self.plugin_tables: tuple[TaskTable, ...] = ()
        # Tables that are not those of a plug-in.
        self.foreign_tables: tuple[str, ...] = ()
        self._file = StoreFile(path)
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def opened(self) -> Generator[SqliteExport]:
        """Lock the file. After that, `is_outdated` tells whether an older version has written it.

        Raises:
            ConfigError: it is no store, or a server uses it.
            DragomanError: it cannot be read, or a command does not stop writing to it.
        """
        if not self.path.is_file():
            raise ConfigError(f"there is no store {self.path}: name the SQLite file of the server")
        try:
            self._file.open()
        except StoreInUse as error:
            raise ConfigError(f"{error.subject} is in use by {error.holder}: stop that server first") from None
        except OSError as error:
            raise ConfigError(f"the store {self.path} cannot be opened: {error.strerror}") from None
        lock = FileLock(self._file.sibling(".ckpt"))
        try:
            _acquire(lock, self.path)
            check_last_page(self._file.path)
            self._connection = connection = sqlite3.connect(
                self._file.path, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA busy_timeout = 5000")
            self.is_outdated = schema_version(connection, self.path) < VERSION
            yield self
        except sqlite3.Error as error:
            raise unusable_error(self.path, error) from None
        finally:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            lock.release()
            self._file.close()

    def begin(self) -> None:
        """Bring the file up to date, and read it from now on as it is then. Raises ConfigError."""
        connection = self._reader
        migrate(connection, self.path, moved=True)
        self.moved_ms = read_moved(connection)
        # After this, everything is in the file itself, which changes with the next write.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        stat = self._file.path.stat()
        self.fingerprint = f"{stat.st_size}-{stat.st_mtime_ns}"
        connection.execute("BEGIN")
        self.plugin_tables, self.foreign_tables = _find_tables(connection)

    def interrupt(self) -> None:
        """End what another thread reads."""
        self._reader.interrupt()

    @property
    def _reader(self) -> sqlite3.Connection:
        assert self._connection is not None, "it is not open"
        return self._connection

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables in the order they are copied."""
        return (*CONTENTS, *(table.name for table in self.plugin_tables))

    def counts(self) -> StoreCounts:
        """Count everything. Blocks."""
        rows = {name: self._value(f"SELECT count(*) FROM {self._query(name)[1]}") for name in self.tables}  # noqa: S608
        states = self._reader.execute("SELECT state, count(*) FROM tasks GROUP BY state ORDER BY state")
        return StoreCounts(rows, {STATES[state]: tasks for state, tasks in states})

    def days(self, ms_per_day: int) -> list[int]:
        """The days, counted from 1970, on which tasks were created that have events, or may get some."""
        query = (
            f"SELECT max(created_ms, 0) / ? AS day FROM tasks t WHERE NOT t.{ENDED} "  # noqa: S608
            "OR EXISTS (SELECT 1 FROM events e WHERE e.task = t.number) "
            "UNION SELECT max(created_ms, 0) / ? FROM drafts ORDER BY day"
        )
        return [day for (day,) in self._reader.execute(query, (ms_per_day, ms_per_day))]

    def contexts(self) -> Iterator[tuple[int, Scope, str]]:
        """The conversations, each with the number of its scope."""
        query = (
            "SELECT DISTINCT t.scope, s.agent, s.tenant, s.owner, t.context_id "
            "FROM tasks t JOIN scopes s ON s.scope = t.scope"
        )
        for number, agent, tenant, owner, context_id in self._reader.execute(query):
            yield number, Scope(agent, tenant, owner), context_id

    def sealed(self) -> Iterator[bytes]:
        """The sealed secrets of all webhooks that are still delivered to."""
        for (secrets,) in self._reader.execute("SELECT secrets FROM pushes WHERE state = 0"):
            yield secrets

    def read_from(self, position: MigrationPosition) -> Iterator[CopiedRows]:
        """Read all tables from a position on. Blocks."""
        for name in self.tables[self.tables.index(position.table) :]:
            yield from self.read(name, position.rows if name == position.table else 0)

    def read(self, name: str, skip: int = 0) -> Iterator[CopiedRows]:
        """Read a table in its order, from its row `skip` on, some megabytes at a time. Blocks."""
        columns, source, order = self._query(name)
        cursor = self._reader.execute(
            f"SELECT {columns} FROM {source} ORDER BY {order} LIMIT -1 OFFSET ?",  # noqa: S608
            (skip,),
        )
        rows: list[Row] = []
        size, count = 0, 1
        while fetched := cursor.fetchmany(count):
            rows += fetched
            # The last column is the large one, where there is one.
            size += sum(len(value) for row in fetched if isinstance(value := row[-1], bytes | str))
            # Few at first, and after large ones: nobody knows how large the next are.
            count = max(1, min(2 * count, _MOST_FETCHED, (BATCH_BYTES - size) * len(rows) // (size + 1)))
            if size >= BATCH_BYTES or len(rows) >= BATCH_ROWS:
                yield CopiedRows(name, skip, rows)
                skip += len(rows)
                rows, size = [], 0
        if rows:
            yield CopiedRows(name, skip, rows)

    def close_as_moved(self) -> None:
        """Write into the file that its contents are elsewhere now: no server uses it any more."""
        self._reader.execute("COMMIT")
        mark_moved(self._reader, int(time.time() * 1000))
        self._reader.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._reader.execute("BEGIN")

    def _query(self, name: str) -> tuple[str, str, str]:
        if name in _QUERIES:
            return _QUERIES[name]
        table = next(table for table in self.plugin_tables if table.name == name)
        columns = [_quoted(column.name) for column in table.columns]
        return ", ".join(columns), _quoted(name), columns[0]

    def _value(self, query: str) -> int:
        return int(self._reader.execute(query).fetchone()[0])


def _acquire(lock: FileLock, path: Path) -> None:
    """Keep commands such as `dragoman users` from writing. Raises DragomanError when one does not end."""
    deadline = time.monotonic() + LOCK_TIMEOUT
    while not lock.try_acquire():
        if time.monotonic() > deadline:
            raise DragomanError(f"another command writes to the store {path}: try again when it has ended")
        time.sleep(0.02)


def _find_tables(connection: sqlite3.Connection) -> tuple[tuple[TaskTable, ...], tuple[str, ...]]:
    """The tables of plug-ins, whether they are loaded or not, and all others that are not of this store."""
    tables: list[TaskTable] = []
    foreign: list[str] = []
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    for (name,) in names:
        if name in _OWN:
            continue
        columns = connection.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (name,)).fetchall()
        if _is_plugin_table(columns):
            tables.append(_plugin_table(connection, name, columns))
        else:
            foreign.append(name)
    return tuple(tables), tuple(foreign)


def _is_plugin_table(columns: list[Any]) -> bool:
    """True for a table as `TaskTable` describes it: its first column is an integer and the key."""
    (_, key_type, _, is_key), *others = columns
    return (key_type, is_key) == ("INTEGER", 1) and all(
        column_type in ("INTEGER", "TEXT") and not is_key for _, column_type, _, is_key in others
    )


def _plugin_table(connection: sqlite3.Connection, name: str, columns: list[Any]) -> TaskTable:
    indexes: list[tuple[str, str]] = []
    for (index,) in connection.execute("SELECT name FROM pragma_index_list(?) ORDER BY name", (name,)).fetchall():
        covered = connection.execute("SELECT name FROM pragma_index_info(?)", (index,)).fetchall()
        if len(covered) == 1 and not index.startswith("sqlite_"):
            indexes.append((index, covered[0][0]))
    definitions = tuple(
        Column(column, cast("Literal['INTEGER', 'TEXT']", column_type), required=bool(required))
        for column, column_type, required, _ in columns
    )
    # Nothing here depends on which columns are the version and the owner: only the plug-in knows.
    key = definitions[0].name
    return TaskTable(name, definitions, version=key, owner=key, key_of=lambda _: None, indexes=tuple(indexes))


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
