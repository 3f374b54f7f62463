"""Backup of a store into one file, also while a server is writing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from dragoman.model.error import ConfigError, DragomanError
from dragoman.stores.administration import BackupResult
from dragoman.stores.backup_file import check_target, part_of, write_backup
from dragoman.stores.sqlite.admin.health import NO_SPACE, open_read_only, schema_version
from dragoman.stores.sqlite.file import real_path
from dragoman.telemetry.printable import format_bytes

# Pages per step. Between two steps the interpreter runs, so that Ctrl-C works.
STEP_PAGES = 1000
_SIBLING_SUFFIXES = ("", "-wal", "-shm", "-journal", ".lock", ".ckpt", ".key")


def back_up(
    source: Path, target: Path, *, force: bool = False, progress: Callable[[int, int], None] | None = None
) -> BackupResult:
    """Copy a snapshot of the store `source` to `target`, which appears once the copy is complete, checked and synced.

    The source is only read, and a server that has it open continues to write. `force` replaces an existing `target`
    and the leftover of an interrupted backup. `progress` is called with the number of remaining pages and of all.

    Raises:
        ConfigError: the source is not a store, or the target cannot be written.
        DragomanError: there is no room, or the copy failed or is damaged. Nothing is left of it then.
    """
    _check_target(source, target, force=force)
    try:
        with _open_source(source) as store:
            check_space(_size_of(store), source, target.absolute().parent)
            return write_backup(target, lambda part: _copy(store, part, progress), force=force)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise DragomanError(f"the store {source} is damaged: {error}: run `dragoman doctor --full`") from error
        raise DragomanError(f"the backup failed, {target} is not written: {error}") from error
    except OSError as error:
        raise DragomanError(f"the backup failed, {target} is not written: {error.strerror}") from error


def check_space(required: int, source: Path, folder: Path) -> None:
    """Raise DragomanError when a copy of that size does not fit, or would leave the server no free space."""
    shared = source.stat().st_dev == folder.stat().st_dev
    free = shutil.disk_usage(folder).free
    if free < required + (NO_SPACE if shared else 0):
        problem = f"{folder} has {format_bytes(free)} free and the copy takes {format_bytes(required)}"
        raise DragomanError(f"{problem}: make room, or name another folder")


def _check_target(source: Path, target: Path, *, force: bool) -> None:
    if not source.exists():
        raise ConfigError(f"there is no store {source}: name the one to copy with --store")
    real = real_path(source)
    own_files = {real.with_name(real.name + suffix) for suffix in _SIBLING_SUFFIXES}
    if own_files & {target.resolve(), part_of(target).resolve()} or (target.exists() and target.samefile(source)):
        raise ConfigError(f"{target} belongs to the store itself: use another name")
    check_target(target, source.name, force=force)
    for suffix in ("-wal", "-journal"):
        # SQLite would replay such a log into the copy.
        foreign_log = target.with_name(target.name + suffix)
        if foreign_log.exists() and foreign_log.stat().st_size:
            raise ConfigError(f"{foreign_log} is there, so {target} is a database somebody uses: use another name")


@contextmanager
def _open_source(source: Path) -> Generator[sqlite3.Connection]:
    with ExitStack() as stack:
        try:
            store = stack.enter_context(closing(open_read_only(source)))
            # One read transaction for the whole backup: every step copies pages of the same snapshot.
            store.execute("BEGIN")
            version = schema_version(store, source)
        except sqlite3.OperationalError as error:
            problem = f"the store {source} cannot be read: {error}: run this as the user that serves"
            raise ConfigError(problem) from None
        if version == 0:
            raise ConfigError(f"{source} is empty: there is nothing to copy until a server has used it")
        yield store


def _size_of(store: sqlite3.Connection) -> int:
    pages = int(store.execute("PRAGMA page_count").fetchone()[0])
    return pages * int(store.execute("PRAGMA page_size").fetchone()[0])


def _copy(store: sqlite3.Connection, part: Path, progress: Callable[[int, int], None] | None) -> int:
    def step(_: int, remaining: int, pages: int) -> None:
        if progress is not None:
            progress(remaining, pages)

    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        copy.execute("PRAGMA locking_mode = EXCLUSIVE")  # so that no -shm file is created
        copy.execute("PRAGMA journal_mode = OFF")  # a copy that fails is thrown away, not rolled back
        copy.execute("PRAGMA synchronous = OFF")  # it is synced once, when it is complete
        store.backup(copy, pages=STEP_PAGES, progress=step)
        # Without WAL the copy is a single file that can be read anywhere; a server that uses it switches back to WAL.
        copy.execute("PRAGMA journal_mode = DELETE")
        damage = str(copy.execute("PRAGMA quick_check(1)").fetchone()[0])
        if damage != "ok":
            raise DragomanError(f"the copy is damaged, so the store is: {damage}: run `dragoman doctor --full`")
        return int(copy.execute("SELECT count(*) FROM tasks").fetchone()[0])
