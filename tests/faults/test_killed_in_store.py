"""Processes that are killed while they migrate, back up or restore a store: it is old or new, never half of each."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from postgres_server import database, programs_path

from dragoman.model.error import ConfigError
from dragoman.net.postgres import connect
from dragoman.stores.postgres.admin.backup import back_up as back_up_postgres
from dragoman.stores.postgres.sql.schema import VERSION, check_version, migrate
from dragoman.stores.sqlite.admin.backup import back_up
from dragoman.stores.sqlite.schema import OLDEST
from dragoman.stores.sqlite.schema import VERSION as SQLITE_VERSION
from dragoman.stores.sqlite.store import SqliteStore

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

SRC = Path(__file__).resolve().parents[2] / "src"
OLD = Path(__file__).parents[1] / "contract" / "golden" / "store-v7.db"
SECONDS = 60

# Migrates a file, and is killed after so many pieces of work; 0 is never. Prints how many there were.
MIGRATE_FILE = """
import os, signal, sqlite3, sys
from pathlib import Path
from dragoman.stores.sqlite.schema import migrate

count, last = 0, int(sys.argv[2])

def step():
    global count
    count += 1
    if count == last:
        os.kill(os.getpid(), signal.SIGKILL)

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.set_progress_handler(step, 2)
migrate(connection, Path(sys.argv[1]))
print(count)
"""

# The same for a database, after so many statements.
MIGRATE_DATABASE = """
import asyncio, os, signal, sys
from dragoman.net.postgres import connect
from dragoman.stores.postgres.sql.schema import migrate

count, last = 0, int(sys.argv[2])

def step(_):
    global count
    count += 1
    if count == last:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    connection = await connect(sys.argv[1])
    connection.add_query_logger(step)
    await migrate(connection, "the database")
    await connection.close()
    print(count)

asyncio.run(main())
"""

# Backs a file up, and is killed when some pages of it have been copied.
BACK_UP = """
import os, signal, sys
from pathlib import Path
from dragoman.stores.sqlite.admin.backup import back_up

back_up(Path(sys.argv[1]), Path(sys.argv[2]), progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
"""


def run(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def count_of(program: str, where: object) -> int:
    done = run(program, where, 0)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def places(total: int, number: int) -> list[int]:
    """So many places of a work, the first and the last among them."""
    return sorted({1, total, *range(1, total, max(1, total // number))})


def rows_of(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


async def test_a_file_whose_migration_was_killed_is_whole_and_is_migrated_by_the_next_server(tmp_path: Path) -> None:
    path = Path(shutil.copy(OLD, tmp_path / "whole.db"))
    total, versions = count_of(MIGRATE_FILE, path), set[int]()
    for place in places(total, 10):
        path = Path(shutil.copy(OLD, tmp_path / f"{place}.db"))
        assert run(MIGRATE_FILE, path, place).returncode == -signal.SIGKILL
        with closing(sqlite3.connect(path)) as connection:
            versions.add(connection.execute("PRAGMA user_version").fetchone()[0])
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert rows_of(path, "tasks") == rows_of(OLD, "tasks")
        store = SqliteStore(path)
        await store.open()
        await store.close()
        assert rows_of(path, "events") == rows_of(OLD, "events")
    assert {OLDEST, SQLITE_VERSION} <= versions <= {*range(OLDEST, SQLITE_VERSION + 1)}


async def test_a_database_whose_migration_was_killed_is_migrated_by_the_next_server(
    tmp_path: Path, empty_postgres_url: str
) -> None:
    total, versions = await asyncio.to_thread(count_of, MIGRATE_DATABASE, empty_postgres_url), set[int]()
    for place in places(total, 6):
        connection = await connect(empty_postgres_url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()
        done = await asyncio.to_thread(run, MIGRATE_DATABASE, empty_postgres_url, place)
        assert done.returncode == -signal.SIGKILL, done.stderr
        connection = await connect(empty_postgres_url)
        versions.add(await check_version(connection, "the database"))
        async with asyncio.timeout(SECONDS):  # the lock of the one that is gone holds nobody up
            await migrate(connection, "the database")
        assert await check_version(connection, "the database") == VERSION
        await connection.close()
    assert versions == {0, VERSION}


async def test_a_killed_backup_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    source, target, part = tmp_path / "tasks.db", tmp_path / "copy.db", tmp_path / "copy.db.part"
    shutil.copy(OLD, source)
    store = SqliteStore(source)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(source)) as connection:  # more than one step
        note = "INSERT INTO notes (task, generation, kind, body) VALUES (1, 1, 'request', ?)"
        connection.executemany(note, ((b"r" * 2000,) for _ in range(5000)))
        connection.commit()
    assert run(BACK_UP, source, target).returncode == -signal.SIGKILL
    assert (target.exists(), part.exists()) == (False, True)
    with pytest.raises(ConfigError, match="another backup is running, or one was interrupted"):
        back_up(source, target)
    assert part.stat().st_size > 1_000_000
    with pytest.raises(ConfigError, match="is not a store of Dragoman"):  # its first page is written last
        await SqliteStore(part).open()
    assert back_up(source, target, force=True).tasks == rows_of(source, "tasks")
    assert not part.exists()
    copy = SqliteStore(target)
    await copy.open()
    await copy.close()


def test_a_restore_that_was_killed_leaves_an_empty_database(
    tmp_path: Path, postgres_url: str, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs_path())
    if shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed")
    database(postgres_url, "INSERT INTO users (name, password, created_ms) VALUES ('ada', '', 0)", "SELECT")
    restore = back_up_postgres(postgres_url, tmp_path / "copy.dump").restore[2]
    name = urlsplit(empty_postgres_url).path[1:]
    words = restore.replace("/restored", f"/{name}")
    # The end of the archive is missing, as the end of a restore is that was killed.
    whole = (tmp_path / "copy.dump").read_bytes()
    tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    for size in (len(whole) // 2, len(whole) - 100):
        (tmp_path / "copy.dump").write_bytes(whole[:size])
        assert subprocess.run(words, shell=True, capture_output=True, timeout=SECONDS, check=False).returncode
        assert database(empty_postgres_url, tables) == [(0,)]
    (tmp_path / "copy.dump").write_bytes(whole)
    subprocess.run(words, shell=True, check=True, timeout=SECONDS)
    assert database(empty_postgres_url, "SELECT name FROM users") == [("ada",)]
