"""Administration of a store in a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.model.error import ConfigError
from dragoman.stores.administration import BackupResult, HealthFinding, NodeReport, NodeStatus
from dragoman.stores.sqlite.admin.health import find_server, open_read_only, schema_version
from dragoman.stores.sqlite.schema import VERSION, refuse_moved, unusable_error

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Push, TaskRow
    from dragoman.stores.sqlite.admin.users import SqliteUsers


class SqliteAdministration:
    """Administers the store in the file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def location(self) -> str:
        return f"the file {self._path.absolute()}"

    @property
    def key_file(self) -> Path | None:
        return self._path.with_name(self._path.name + ".key")

    @contextmanager
    def users(self, *, create: bool = True) -> Generator[SqliteUsers]:
        from dragoman.stores.sqlite.admin.users import SqliteUsers

        users = SqliteUsers(self._path)
        try:
            if create:
                users.prepare()
            yield users
        except sqlite3.Error as error:
            raise unusable_error(self._path, error) from None

    def webhooks(self) -> list[tuple[Push, TaskRow]]:
        from dragoman.stores.sqlite.reader import undelivered_or_refused

        with self._checked(), closing(open_read_only(self._path)) as reader:
            reader.execute("PRAGMA busy_timeout = 5000")
            return undelivered_or_refused(reader)

    def retry_webhooks(self, task_id: str | None, push_id: str | None) -> int:
        from dragoman.stores.sqlite.file import short_write
        from dragoman.stores.sqlite.webhooks import wake

        with self._checked(), short_write(self._path) as connection:
            refuse_moved(connection, self._path)
            return wake(connection, task_id, push_id)

    def back_up(
        self, target: Path, *, force: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> BackupResult:
        from dragoman.stores.sqlite.admin.backup import back_up

        return back_up(self._path, target, force=force, progress=progress)

    def size(self) -> int:
        """How many bytes the file takes, with what is not written back to it yet."""
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def nodes(self, *, dead: bool = False) -> NodeReport:
        """The server of the file, of which there is one at most."""
        if not self._path.exists():
            raise ConfigError(f"there is no store {self._path}: name it with --store sqlite:///FILE")
        try:
            pid = find_server(self._path)
        except PermissionError:
            raise ConfigError(f"the lock of {self._path} cannot be read: run this as the user that serves") from None
        do = "a file has one server; for several nodes, use --store postgresql://…"
        if pid is None:
            return NodeReport((), None, (HealthFinding("ok", "nodes", "no server is running", do),))
        says = f"one server is running, process {pid}" if pid else "one server is running"
        node = NodeStatus("", "alive", pid=pid or None)
        return NodeReport((node,), None, (HealthFinding("ok", "nodes", says, do),))

    def examine(self, *, full: bool = False) -> list[HealthFinding]:
        from dragoman.stores.sqlite.admin.health import examine

        return examine(self._path, full=full)

    @contextmanager
    def _checked(self) -> Generator[None]:
        """Raise ConfigError unless the file is a store of this version."""
        path = self._path
        if not path.exists():
            raise ConfigError(f"there is no store {path}: name it with --store sqlite:///FILE")
        try:
            with closing(open_read_only(path)) as reader:
                if schema_version(reader, path) < VERSION:
                    raise ConfigError(
                        f"an older version of Dragoman wrote the store {path}: run `dragoman serve` once to upgrade it"
                    )
            yield
        except sqlite3.Error as error:
            raise unusable_error(path, error) from None
