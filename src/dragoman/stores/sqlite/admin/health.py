"""Health checks of a store for `dragoman doctor`: the file, its siblings and the disk. Nothing is written."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from dragoman.model.error import ConfigError
from dragoman.stores.administration import HealthFinding, check_schema
from dragoman.stores.sqlite.file import real_path, try_lock
from dragoman.stores.sqlite.schema import OLDEST, VERSION, migrate, read_moved
from dragoman.stores.state_numbers import STATES
from dragoman.telemetry.printable import format_bytes

LOW_SPACE = 1_000_000_000
NO_SPACE = 50_000_000
LARGE_WAL = 64_000_000
# A larger file is not read for damage by default: that would take too long for a quick check.
QUICK_BYTES = 2_000_000_000
MAX_DAMAGE_LINES = 3

_STATE_COUNTS = """
SELECT count(*) FROM (
    SELECT scope, state FROM (
        SELECT scope, state, count(*) AS tasks FROM tasks GROUP BY scope, state
        UNION ALL SELECT 0, state, count(*) FROM tasks WHERE state IN (3, 4, 5, 7) GROUP BY state
        UNION ALL SELECT scope, state, -tasks FROM state_counts
    ) GROUP BY scope, state HAVING sum(tasks) <> 0
)
"""
_CONTEXT_COUNTS = """
SELECT count(*) FROM context_counts c
WHERE c.tasks <> (SELECT count(*) FROM tasks t WHERE t.scope = c.scope AND t.context_id = c.context_id)
"""
# A context without a row in context_counts is counted on demand, so its rows may simply be deleted.
RECOUNT = (
    "BEGIN; DELETE FROM context_counts; DELETE FROM state_counts; "
    "INSERT INTO state_counts SELECT scope, state, count(*) FROM tasks GROUP BY scope, state; "
    "INSERT INTO state_counts SELECT 0, state, count(*) FROM tasks WHERE state IN (3, 4, 5, 7) GROUP BY state; COMMIT"
)


def examine(path: Path, *, full: bool = False, quick_bytes: int = QUICK_BYTES) -> list[HealthFinding]:
    """Check a store, its folder and its disk, also while a server runs. Problems are findings; nothing is raised.

    `full` reads everything, however long that takes; otherwise a file above `quick_bytes` is not read for damage.
    """
    findings: list[HealthFinding] = []
    try:
        findings.extend(_check_folder(path.parent))
        findings.append(_check_file(path))
        if path.is_file() and os.access(path, os.R_OK):
            findings.append(_check_permissions(path))
            findings.extend(_check_contents(path, full=full, quick_bytes=quick_bytes))
    except OSError as error:
        findings.append(HealthFinding("FAIL", "file", f"{path} cannot be reached: {error.strerror}", _AS_SERVER))
    return findings


def open_read_only(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """Open a read-only connection. With `immutable`, SQLite creates no files beside it, and nobody may write meanwhile.

    Raises:
        sqlite3.Error: it cannot be opened.
        OSError: the links to it lead nowhere.
    """
    uri = f"{real_path(path).as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version: 0 for an empty file, less than VERSION when the next start migrates it.

    Raises:
        ConfigError: the file is not a store, or is too old or too new.
        sqlite3.Error: it cannot be read.
    """
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise ConfigError(f"{path} is not a store of Dragoman: use another --store") from None
    if version > VERSION or 0 < version < OLDEST or (version == 0 and tables):
        migrate(connection, path)  # raises the same error as `serve`
    return version


def format_task_count(number: int) -> str:
    """Format a number of tasks: `1 task`, `2 tasks`."""
    return "1 task" if number == 1 else f"{number} tasks"


# -- the disk --------------------------------------------------------------------------------------------------------

_AS_SERVER = "run this as the user that serves"


def _check_folder(folder: Path) -> Iterator[HealthFinding]:
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        yield HealthFinding("FAIL", "folder", f"{existing} is not a folder", "use another --store")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        says = f"{existing} may not be written by this user"
        yield HealthFinding("FAIL", "folder", says, f"{_AS_SERVER}, or use another --store")
    elif existing == folder.absolute():
        yield HealthFinding("ok", "folder", f"{existing} may be written")
    else:
        yield HealthFinding("ok", "folder", f"{folder.absolute()} is not there yet, the server makes it")
    yield check_free_space(shutil.disk_usage(existing).free)


def check_free_space(free: int) -> HealthFinding:
    """Check whether this many free bytes are enough."""
    says = f"{format_bytes(free)} free"
    if free < NO_SPACE:
        return HealthFinding("FAIL", "space", says, "make room now: soon nothing can be stored")
    if free < LOW_SPACE:
        return HealthFinding("warn", "space", says, "make room, or move the store to a larger disk")
    return HealthFinding("ok", "space", says)


def _check_file(path: Path) -> HealthFinding:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return HealthFinding("ok", "file", f"{path} is not there yet, the server makes it")
    if not stat.S_ISREG(mode):
        return HealthFinding("FAIL", "file", f"{path} is not a file", "use another --store")
    if not os.access(path, os.R_OK | os.W_OK):
        return HealthFinding("FAIL", "file", f"{path} may not be read and written by this user", _AS_SERVER)
    return HealthFinding("ok", "file", f"{path} is there")


def _check_permissions(path: Path) -> HealthFinding:
    files = [_sibling(path, suffix) for suffix in ("", "-wal", ".key")]
    open_files = [file for file in files if os.name == "posix" and file.exists() and file.stat().st_mode & 0o004]
    # Others cannot read a file in a folder that they may not enter.
    if not open_files or not all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents):
        return HealthFinding("ok", "permissions", "other users cannot read it")
    names = " ".join(shlex.quote(str(file)) for file in open_files)
    return HealthFinding("warn", "permissions", "every user of this machine can read it", f"chmod o-rwx {names}")


def _sibling(path: Path, suffix: str) -> Path:
    real = real_path(path)
    if real != path.absolute():  # a link: the siblings are beside the file itself
        path = real
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# -- the server ------------------------------------------------------------------------------------------------------


def find_server(path: Path) -> int | None:
    """Return the process id of the server that has the store open: 0 when it is not in the lock, None when none has.

    Raises:
        PermissionError: the lock cannot be read.
    """
    try:
        file = os.open(_sibling(path, ".lock"), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        try_lock(file, shared=True)
    except OSError:
        holder = os.read(file, 32).decode(errors="replace").strip()
        return int(holder) if holder.isdecimal() else 0
    finally:
        os.close(file)
    return None


def _check_lock(path: Path) -> tuple[bool, HealthFinding]:
    """Return whether a server may be running, and the finding about its lock."""
    try:
        server = find_server(path)
    except PermissionError:
        return True, HealthFinding("warn", "lock", "whether a server is running cannot be told", _AS_SERVER)
    if server is None:
        return False, HealthFinding("ok", "lock", "no server is running")
    return True, HealthFinding("ok", "lock", f"in use by {f'pid {server}' if server else 'another process'}")


# -- the content -----------------------------------------------------------------------------------------------------


def _check_contents(path: Path, *, full: bool, quick_bytes: int) -> list[HealthFinding]:
    running, lock = _check_lock(path)
    # Opened without `immutable`, SQLite would leave files beside a store that no server uses.
    at_rest = not running and not any(_size(_sibling(path, suffix)) for suffix in ("-wal", "-journal"))
    before = _stamp(path)
    limit = None if full else quick_bytes
    findings = list(_check_database(path, lock, running=running, at_rest=at_rest, limit=limit))
    if at_rest and _stamp(path) != before:  # a server has started meanwhile: the reads may be inconsistent
        running, lock = _check_lock(path)
        findings = list(_check_database(path, lock, running=running, at_rest=False, limit=limit))
    return findings


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, _size(_sibling(path, "-wal"))


def _check_database(
    path: Path, lock: HealthFinding, *, running: bool, at_rest: bool, limit: int | None
) -> Iterator[HealthFinding]:
    yield lock
    try:
        mode = _journal_mode_at_rest(path) if at_rest else None
        with closing(open_read_only(path, immutable=at_rest)) as connection:
            connection.execute("BEGIN")  # all checks see the same snapshot, also while a server writes
            version = schema_version(connection, path)
            yield check_schema(version, VERSION, "the file is empty, the next start makes the tables")
            if version == 0:
                return
            integrity = _check_integrity(connection, path, limit)
            yield integrity
            if integrity.level == "FAIL":  # the other checks would read damaged data
                return
            if read_moved(connection) is not None:
                do = "use --store postgresql://…, and delete the file when you do not need it"
                yield HealthFinding("warn", "moved", "what it had was moved to PostgreSQL", do)
            yield _check_journal_mode(mode or str(connection.execute("PRAGMA journal_mode").fetchone()[0]), running)
            yield _check_sizes(path, running)
            yield from _check_tasks(connection, running)
            if version == VERSION:
                yield _check_counters(connection, path)
    except ConfigError as error:
        yield HealthFinding("FAIL", "schema", str(error))
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
            yield _damage_finding(path, [str(error)])
        else:
            yield HealthFinding("FAIL", "read", f"{path} cannot be read: {error}", _AS_SERVER)


def _check_integrity(connection: sqlite3.Connection, path: Path, limit: int | None) -> HealthFinding:
    pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
    size = pages * int(connection.execute("PRAGMA page_size").fetchone()[0])
    if limit is not None and size > limit:
        says = f"not checked: reading {format_bytes(size)} takes a while"
        return HealthFinding("warn", "integrity", says, "use --full to check it")
    check = "quick_check" if limit is not None else "integrity_check"
    damage = [str(row[0]) for row in connection.execute(f"PRAGMA {check}({MAX_DAMAGE_LINES})")]
    if damage != ["ok"]:
        return _damage_finding(path, damage)
    return HealthFinding("ok", "integrity", f"{check} finds no damage")


def _damage_finding(path: Path, damage: list[str]) -> HealthFinding:
    says = f"{path} is damaged: {'; '.join(damage)}"
    return HealthFinding(
        "FAIL", "integrity", says, f"stop the server, keep {path} and {path}-wal, and restore a backup"
    )


def _journal_mode_at_rest(path: Path) -> str:
    # Not while a server in this process uses it: closing the file would drop SQLite's locks.
    with path.open("rb") as file:
        return "wal" if file.read(20)[18:] == b"\2\2" else "delete"


def _check_journal_mode(mode: str, running: bool) -> HealthFinding:
    if mode == "wal":
        return HealthFinding("ok", "journal", "WAL")
    if running:
        return HealthFinding("warn", "journal", f"{mode}, not WAL", "start the server again")
    return HealthFinding("ok", "journal", f"{mode}, as in a backup; the next start makes it WAL")


def _check_sizes(path: Path, running: bool) -> HealthFinding:
    wal = _size(_sibling(path, "-wal"))
    says = f"{format_bytes(_size(path))}, WAL {format_bytes(wal)}"
    if wal > LARGE_WAL and not running:
        return HealthFinding("warn", "size", says, "start the server once, it takes the WAL into the file")
    return HealthFinding("ok", "size", says)


def _check_tasks(connection: sqlite3.Connection, running: bool) -> Iterator[HealthFinding]:
    rows = connection.execute("SELECT state, count(*) FROM tasks GROUP BY state ORDER BY state")
    counts = {STATES[int(state)]: int(tasks) for state, tasks in rows}
    by_state = [f"{tasks} {_state_name(state)}" for state, tasks in counts.items()]
    yield HealthFinding("ok", "tasks", ", ".join(by_state) or "none yet")
    unfinished = sum(tasks for state, tasks in counts.items() if not (state.final or state.waiting))
    if unfinished and not running:
        says = f"{format_task_count(unfinished)} will be failed or run again at the next start"
        yield HealthFinding("warn", "recovery", says, "start the server")
    else:
        yield HealthFinding(
            "ok", "recovery", f"{format_task_count(unfinished)} at work" if unfinished else "nothing to recover"
        )
    parked = sum(tasks for state, tasks in counts.items() if state.waiting)
    yield HealthFinding("ok", "parked", f"{format_task_count(parked)} waiting for an answer")


def _state_name(state: str) -> str:
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def _check_counters(connection: sqlite3.Connection, path: Path) -> HealthFinding:
    wrong = sum(int(connection.execute(query).fetchone()[0]) for query in (_STATE_COUNTS, _CONTEXT_COUNTS))
    if not wrong:
        return HealthFinding("ok", "counters", "agree with the tasks")
    says = f"{wrong} do not agree with the tasks: lists tell wrong totals, no task is lost"
    return HealthFinding(
        "FAIL", "counters", says, f'stop the server, then run sqlite3 {shlex.quote(str(path))} "{RECOUNT}"'
    )
