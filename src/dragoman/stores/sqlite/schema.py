"""The tables, and the migrations from older versions."""

from __future__ import annotations

import shlex
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from dragoman.model.error import ConfigError

# The tables of a new file.
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
-- The name a server opened the file by. SQLite's log lies beside that name, whatever other links there are.
CREATE TABLE home (path BLOB NOT NULL);
CREATE TABLE scopes (
    scope INTEGER PRIMARY KEY, agent TEXT NOT NULL, tenant TEXT NOT NULL, owner TEXT NOT NULL,
    UNIQUE (agent, tenant, owner)
);
-- `mail` is the number of the last posted message; 0 in a note that is none. That of a snapshot is the last one it has.
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scope INTEGER NOT NULL, context_id TEXT NOT NULL,
    origin TEXT NOT NULL, state INTEGER NOT NULL, status_ms INTEGER NOT NULL, generation INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, mail INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX tasks_newest ON tasks (scope, status_ms, number);
CREATE INDEX tasks_by_state ON tasks (scope, state, status_ms, number);
CREATE INDEX tasks_by_context ON tasks (scope, context_id, status_ms, number);
CREATE INDEX tasks_unfinished ON tasks (number) WHERE state IN (1, 2);
-- Ended tasks in the order they ended, for retention and compaction. They never change: rows are only appended.
CREATE INDEX tasks_ended ON tasks (status_ms, number) WHERE state IN (3, 4, 5, 7);
-- How many tasks there are, kept in the commit that changes it: a list tells its size without counting. Scope 0 is
-- nobody's: it counts the ended tasks of all scopes, so that retention need not add them up.
CREATE TABLE state_counts (
    scope INTEGER NOT NULL, state INTEGER NOT NULL, tasks INTEGER NOT NULL, PRIMARY KEY (scope, state)
) WITHOUT ROWID;
-- Only conversations that a second task joined have a row here; most have one task and need none.
CREATE TABLE context_counts (
    scope INTEGER NOT NULL, context_id TEXT NOT NULL, tasks INTEGER NOT NULL, PRIMARY KEY (scope, context_id)
) WITHOUT ROWID;
-- Tasks that nobody is shown yet, because they may be answered with a bare message. Their notes are among the others.
CREATE TABLE drafts (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, context_id TEXT NOT NULL,
    origin TEXT NOT NULL, created_ms INTEGER NOT NULL, body BLOB NOT NULL
);
-- `at_ms` is when the event was committed; NULL for events from before that column.
CREATE TABLE events (
    task INTEGER NOT NULL, generation INTEGER NOT NULL, body BLOB NOT NULL, at_ms INTEGER,
    PRIMARY KEY (task, generation)
) WITHOUT ROWID;
CREATE TABLE notes (
    note INTEGER PRIMARY KEY, task INTEGER NOT NULL, generation INTEGER NOT NULL, kind TEXT NOT NULL,
    body BLOB NOT NULL, mail INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX notes_of_task ON notes (task, note);
CREATE TABLE snapshots (
    task INTEGER PRIMARY KEY, generation INTEGER NOT NULL, body BLOB NOT NULL, mail INTEGER NOT NULL DEFAULT 0
);
-- Tasks that are deleted, but whose events, notes and snapshot are not all gone yet: those go in slices.
CREATE TABLE leftovers (task INTEGER PRIMARY KEY);
CREATE TABLE contexts (
    scope INTEGER NOT NULL, context_id TEXT NOT NULL, state BLOB NOT NULL, PRIMARY KEY (scope, context_id)
) WITHOUT ROWID;
-- Dedupe keys, which are deleted with their task. `reply` is the bare message that a repeat is answered with.
CREATE TABLE repeats (
    key BLOB PRIMARY KEY, task_id TEXT NOT NULL, until_ms INTEGER NOT NULL, reply BLOB
) WITHOUT ROWID;
CREATE INDEX repeats_old ON repeats (until_ms);
CREATE INDEX repeats_of_task ON repeats (task_id);
-- A webhook is owed the journal of its task after its cursor; state 1 is done.
CREATE TABLE pushes (
    push INTEGER PRIMARY KEY, task INTEGER NOT NULL, id TEXT NOT NULL, dialect TEXT NOT NULL, url TEXT NOT NULL,
    secrets BLOB NOT NULL, cursor INTEGER NOT NULL, created_ms INTEGER NOT NULL, tries INTEGER NOT NULL,
    failing_ms INTEGER NOT NULL, due_ms INTEGER NOT NULL, state INTEGER NOT NULL, error TEXT NOT NULL,
    UNIQUE (task, id)
);
CREATE INDEX pushes_owed ON pushes (push) WHERE state <> 1;
-- Who may call. Names are compared as they are; `password` is an argon2 hash, or empty for those who have keys only.
CREATE TABLE users (
    user INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, password TEXT NOT NULL, created_ms INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, revoked INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE grants (
    user INTEGER NOT NULL, permission TEXT NOT NULL, until_ms INTEGER, PRIMARY KEY (user, permission)
) WITHOUT ROWID;
CREATE TABLE api_keys (
    digest BLOB PRIMARY KEY, user INTEGER NOT NULL, hint TEXT NOT NULL, created_ms INTEGER NOT NULL, until_ms INTEGER
) WITHOUT ROWID;
CREATE INDEX api_keys_of ON api_keys (user);
"""

# The oldest version of a file that is migrated: those below were never released.
OLDEST = 7
# What each version after that one changes. Each migration runs in its own transaction.
_MIGRATIONS = (
    # Accounts are not locked: these columns had no use.
    "ALTER TABLE users DROP COLUMN failures; ALTER TABLE users DROP COLUMN locked_until_ms;",
    # Posted messages have numbers.
    "ALTER TABLE tasks ADD COLUMN mail INTEGER NOT NULL DEFAULT 0; "
    "ALTER TABLE notes ADD COLUMN mail INTEGER NOT NULL DEFAULT 0; "
    "ALTER TABLE snapshots ADD COLUMN mail INTEGER NOT NULL DEFAULT 0;",
)
VERSION = OLDEST + len(_MIGRATIONS)
# Must be spelled as in the index, or SQLite does not use it.
ENDED = "state IN (3, 4, 5, 7)"
# The scope under which `state_counts` counts the ended tasks of all scopes.
ALL_SCOPES = 0


def unusable_error(path: Path, error: sqlite3.Error) -> ConfigError:
    """Build the error for a file that cannot be opened."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
        return damaged_error(path, str(error))
    return ConfigError(f"the store {path} cannot be opened: {error}")


def damaged_error(path: Path, detail: str) -> ConfigError:
    """Build the error for a damaged file."""
    store = shlex.quote(f"sqlite:///{path.absolute()}")
    return ConfigError(
        f"the store {path} is damaged ({detail}): `dragoman doctor --store {store}` tells more; "
        f"keep {path} and {path}-wal, and restore a backup"
    )


def check_last_page(path: Path) -> None:
    """Check that the last page is complete: SQLite would read zeros for the missing part. Nobody may have it open.

    Raises:
        ConfigError: the last page is cut.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:  # the log may have the complete page
        return
    with path.open("rb") as file:
        header = file.read(18)
    page = int.from_bytes(header[16:], "big")
    page = 65536 if page == 1 else page
    if header.startswith(b"SQLite format 3") and page and path.stat().st_size % page:
        raise damaged_error(path, "its last page is cut")


def migrate(connection: sqlite3.Connection, path: Path, *, moved: bool = False) -> None:
    """Create the tables in a new file, or migrate those of an older version. With `moved`, it may be marked as moved.

    Raises:
        ConfigError: the file is not a store, or is too old or too new, or its contents were moved into another store.
    """
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:  # locked, damaged or not readable: it may still be a store
            raise
        raise ConfigError(f"{path} is not a store of Dragoman: use another --store") from None
    if version > VERSION:
        raise ConfigError(
            f"{path} was written by a newer Dragoman (schema {version}, this one knows {VERSION}): "
            "upgrade Dragoman, or use another --store"
        )
    if version == 0 and tables:
        raise ConfigError(f"{path} is another program's database: use another --store")
    if version == 0:
        connection.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {VERSION};COMMIT;")
    elif version < OLDEST:
        raise ConfigError(
            f"{path} was written by a Dragoman from before its first release (schema {version}, the oldest that this "
            f"one reads is {OLDEST}): use another --store"
        )
    else:
        for number, step in enumerate(_MIGRATIONS[version - OLDEST :], version + 1):
            connection.executescript(f"BEGIN IMMEDIATE;{step}PRAGMA user_version = {number};COMMIT;")
    if not moved:
        refuse_moved(connection, path)


def refuse_moved(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ConfigError when the contents of the file were moved into another store."""
    moved_ms = read_moved(connection)
    if moved_ms is not None:
        day = datetime.fromtimestamp(moved_ms / 1000, UTC).strftime("%Y-%m-%d")
        raise ConfigError(
            f"what {path} had was moved to PostgreSQL by `dragoman migrate` on {day}: use --store postgresql://…; to "
            "go back to SQLite, use the backup of the file that was made then"
        )


def mark_moved(connection: sqlite3.Connection, now_ms: int) -> None:
    """Mark the file as one whose contents were moved: a server that used it would go on where another has gone on."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('moved_ms', ?)", (now_ms,))


def read_moved(connection: sqlite3.Connection) -> int | None:
    """When the contents of the file were moved into another store; None when they were not."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'moved_ms'").fetchone()
    return None if row is None else int(row[0])
