"""The SQLite store of the registry, in the database file of a server or a new one."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from dragoman.mcp.registry import AgentRecord, TaskRecord, Webhook
from dragoman.model.error import ConfigError, DragomanError
from dragoman.model.json import decode_task, encode
from dragoman.stores.sqlite.admin.health import schema_version
from dragoman.stores.sqlite.file import LOCK_TIMEOUT, FileLock, real_path, short_write
from dragoman.stores.sqlite.schema import migrate, unusable_error

logger = logging.getLogger("dragoman.mcp")
RegistryRecord = AgentRecord | TaskRecord | Webhook
NEVER_ANSWERED = "The server was stopped before the agent had answered. Send the message again."
_NAMES = ("mcp_agents", "mcp_tasks", "mcp_webhooks")
_TABLES = (
    "CREATE TABLE IF NOT EXISTS mcp_agents (id TEXT PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS mcp_tasks (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, remote_id TEXT, "
    "changed_ms INTEGER NOT NULL, problem TEXT NOT NULL, task BLOB)",
    "CREATE TABLE IF NOT EXISTS mcp_webhooks (id TEXT PRIMARY KEY, body BLOB NOT NULL)",
)
_COLUMNS = "id, agent_id, remote_id, changed_ms, problem, task"
_AGENT = "INSERT INTO mcp_agents VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body"
_WEBHOOK = "INSERT INTO mcp_webhooks VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body"
_TASK = (
    "INSERT INTO mcp_tasks VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET remote_id = excluded.remote_id, "
    "changed_ms = excluded.changed_ms, problem = excluded.problem, task = excluded.task "
    # Another MCP server may have a newer state of the task.
    "WHERE excluded.changed_ms >= mcp_tasks.changed_ms"
)
# Writes are coalesced: a task that streams changes often.
_WRITE_INTERVAL = 0.02
_RETRY_SECONDS = 1.0
_LOCK_POLL_SECONDS = 0.005


class RegistryFile:
    """A `RegistryStore` in a SQLite file. A thread writes, so no tool waits for the disk; `close` writes the rest.

    A record is written as it is when its turn comes, so it must be saved again after every change. A server and other
    MCP servers may have the same file open; what they add is visible after the next start.

    Raises:
        ConfigError: the file cannot be opened, is another program's, or a newer Dragoman's.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._condition = threading.Condition()
        self._pending: dict[tuple[type, str], RegistryRecord | None] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        self._is_failing = False
        try:
            self._path = real_path(path)
            _create_file(self._path)
        except OSError as error:
            what = f"the store {path} cannot be opened: {error.strerror}"
            raise ConfigError(f"{what}: let this user write there, or use another --store") from None
        except sqlite3.Error as error:
            raise unusable_error(path, error) from None

    def load(self) -> tuple[list[AgentRecord], list[TaskRecord], list[Webhook]]:
        """Return all records; undecodable ones are skipped. Raises ConfigError when the file is unusable."""
        try:
            with closing(_connect(self._path, "ro")) as connection:
                agents = connection.execute("SELECT id, body FROM mcp_agents ORDER BY rowid").fetchall()
                tasks = connection.execute(f"SELECT {_COLUMNS} FROM mcp_tasks ORDER BY changed_ms, rowid").fetchall()  # noqa: S608
                hooks = connection.execute("SELECT id, body FROM mcp_webhooks ORDER BY rowid").fetchall()
        except sqlite3.Error as error:
            raise unusable_error(self._path, error) from None
        return (
            [each for row in agents if isinstance(each := _decode_record(AgentRecord, *row), AgentRecord)],
            [each for row in tasks if (each := _decode_task(*row)) is not None],
            [each for row in hooks if isinstance(each := _decode_record(Webhook, *row), Webhook)],
        )

    def save(self, record: RegistryRecord) -> None:
        """Queue a record to be written."""
        self._enqueue(record, record)

    def delete(self, record: TaskRecord) -> None:
        """Queue a task to be deleted."""
        self._enqueue(record, None)

    def close(self) -> None:
        """Write what is queued and stop the thread; what cannot be written is logged."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _enqueue(self, record: RegistryRecord, value: RegistryRecord | None) -> None:
        with self._condition:
            if self._closed:
                return
            self._pending[type(record), _record_id(record)] = value
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_loop, name="dragoman-registry", daemon=True)
                self._thread.start()
            self._condition.notify()

    def _write_loop(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._pending or self._closed)
                batch, self._pending = self._pending, {}
                is_last = self._closed
            if not batch:
                return
            is_written = self._write_batch(batch)
            with self._condition:
                if not is_written:
                    if is_last:
                        logger.error("%d changes of the registry are not in the file", len(batch))
                        return
                    # Newer changes take precedence over the failed batch.
                    self._pending = {**batch, **self._pending}
                self._condition.wait_for(lambda: self._closed, _WRITE_INTERVAL if is_written else _RETRY_SECONDS)

    def _write_batch(self, batch: dict[tuple[type, str], RegistryRecord | None]) -> bool:
        try:
            with short_write(self._path) as connection:
                for (_, key), record in batch.items():
                    try:
                        _apply(connection, key, record)
                    except (ValueError, TypeError, OverflowError, RecursionError):
                        # A lone surrogate or an infinite number can never be written; the other records can.
                        logger.exception("%s of the registry cannot be written, and is left out", key)
        except (DragomanError, sqlite3.Error, OSError) as error:
            if not self._is_failing:
                logger.error("the registry cannot be written now, and is tried again: %s", error)
            self._is_failing = True
            return False
        except Exception:
            # The thread must survive, or all later writes would be lost silently.
            if not self._is_failing:
                logger.exception("the registry cannot be written now, and is tried again")
            self._is_failing = True
            return False
        self._is_failing = False
        return True


def _record_id(record: RegistryRecord) -> str:
    if isinstance(record, AgentRecord):
        return record.agent_id
    return record.id if isinstance(record, TaskRecord) else record.config_id


def _apply(connection: sqlite3.Connection, key: str, record: RegistryRecord | None) -> None:
    if record is None:
        connection.execute("DELETE FROM mcp_tasks WHERE id = ?", (key,))
    elif isinstance(record, TaskRecord):
        task = None if record.task is None else encode(record.task)
        row = (record.id, record.agent_id, record.remote_id, record.changed_ms, record.problem, task)
        connection.execute(_TASK, row)
    else:
        connection.execute(_AGENT if isinstance(record, AgentRecord) else _WEBHOOK, (key, encode(record)))


def _decode_record(kind: type[AgentRecord | Webhook], key: str, body: bytes) -> AgentRecord | Webhook | None:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        logger.warning("%s of the registry cannot be read and is left out: %s", key, error)
        return None


def _decode_task(
    key: str, agent_id: str, remote_id: str | None, changed_ms: int, problem: str, body: bytes | None
) -> TaskRecord | None:
    try:
        task = None if body is None else decode_task(body)
    except msgspec.DecodeError as error:
        logger.warning("task %s of the registry cannot be read and is left out: %s", key, error)
        return None
    if task is None and remote_id is None and not problem:
        problem = NEVER_ANSWERED  # the process that waited for it has ended
    return TaskRecord(id=key, agent_id=agent_id, task=task, remote_id=remote_id, changed_ms=changed_ms, problem=problem)


# -- the file ----------------------------------------------------------------------------------------------------------


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


def _create_file(path: Path) -> None:
    """Create the file and the tables if they are missing."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.name == ".dragoman":
            (path.parent / ".gitignore").write_text("*\n")
    # Conversations are private: the file is created with mode 600 before anything is written to it.
    with suppress(FileExistsError):  # an existing file is not opened: closing it would drop SQLite's POSIX locks
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if not path.stat().st_size:
        _create_store(path)
    with closing(_connect(path, "ro")) as connection:
        schema_version(connection, path)  # raises for a file that is not a store
        row: Any = connection.execute("SELECT count(*) FROM sqlite_master WHERE name IN (?, ?, ?)", _NAMES).fetchone()
    if row[0] < len(_NAMES):
        with short_write(path) as connection:
            for table in _TABLES:
                connection.execute(table)


def _create_store(path: Path) -> None:
    """Create an empty store. With the registry's tables alone, a server would reject the file as foreign."""
    with _store_lock(path), closing(_connect(path, "rw")) as connection:
        if not schema_version(connection, path):
            migrate(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _store_lock(path: Path) -> Generator[None]:
    """Hold the lock that a server holds on its store, unless another process creates the file first.

    After `LOCK_TIMEOUT` seconds it goes on without the lock.
    """
    lock = FileLock(path.with_name(path.name + ".lock"))
    end = time.monotonic() + LOCK_TIMEOUT
    while not lock.try_acquire():
        if path.stat().st_size or time.monotonic() > end:
            break
        time.sleep(_LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()
