"""A large store is moved, killed three times on the way, and equal record by record."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from migration.comparer import compared_stores
from migration.filled_file import read
from migration.many_tasks import fill_many
from migration.programs import Dragoman
from postgres_server import Databases

from dragoman.net.postgres import PostgresConnection, connect
from dragoman.stores.migration import CONTENTS

SECONDS = 600


class Mover:
    """Moves a file, and kills the command when it has come to certain places."""

    def __init__(self, dragoman: Dragoman, file: Path, url: str) -> None:
        self._dragoman = dragoman
        self._file = file
        self._url = url
        self.killed: list[str] = []

    async def move(self, places: list[tuple[str, int]], *options: str) -> str:
        """Move the file; at each place of a table the command is killed and started again. Returns its last output."""
        for table, row in places:
            process = self._dragoman.start("migrate", str(self._file), self._url, *options)
            reached = await self._until(process, table, row)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            self.killed.append(reached)
        ended = await asyncio.to_thread(self._dragoman, "migrate", str(self._file), self._url, *options)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    async def _until(self, process: subprocess.Popen[str], table: str, row: int) -> str:
        """Wait until so many rows of a table, or of a later one, are committed."""
        order = list(CONTENTS)
        connection = await connect(self._url)
        try:
            async with asyncio.timeout(SECONDS):
                while process.poll() is None:
                    at_table, at_row = await self._position(connection)
                    if (order.index(at_table), at_row) >= (order.index(table), row):
                        return f"{at_table} {at_row}"
        finally:
            await connection.close()
        raise AssertionError(f"it has ended before {row} {table}: {process.communicate()}")

    async def _position(self, connection: PostgresConnection) -> tuple[str, int]:
        is_there = "SELECT to_regclass('moved_stores') IS NOT NULL"
        if not await connection.fetchval(is_there):
            return "scopes", 0
        row = await connection.fetchrow("SELECT at_table, at_row FROM moved_stores")
        return ("scopes", 0) if row is None else tuple(row)


async def check_moved(folder: Path, url: str, tasks: int, *, kills: bool) -> None:
    """Fill a file with so many tasks, move it, with `kills` killed three times on the way, and compare.

    Prints times and sizes.
    """
    file = folder / "many.db"
    began = time.perf_counter()
    await fill_many(file, tasks)
    events = read(file, "SELECT count(*) FROM events")[0][0]
    print(
        f"\n{tasks} tasks with {events} events, {file.stat().st_size / 1e6:.0f} MB: "
        f"made in {time.perf_counter() - began:.1f} s, load {os.getloadavg()[0]:.1f}"
    )
    mover = Mover(Dragoman(folder), file, url)
    places = [("tasks", tasks // 2), ("events", events // 4), ("events", 3 * events // 4)]
    began = time.perf_counter()
    output = await mover.move(places if kills else [])
    print(
        f"moved and compared in {time.perf_counter() - began:.1f} s, killed at {', '.join(mover.killed) or 'no place'}"
    )
    assert "every record was compared" in output
    (backup,) = await asyncio.to_thread(lambda: list(folder.glob("many.db.*.backup")))
    began = time.perf_counter()
    async with compared_stores(backup, url) as comparer:
        await comparer.compare()
        assert (comparer.tasks, comparer.records) == (tasks, events)
    print(f"compared through the ports of both stores in {time.perf_counter() - began:.1f} s: equal")
    connection = await connect(url)
    try:
        size = await connection.fetchval("SELECT pg_database_size(current_database())")
    finally:
        await connection.close()
    print(f"the database has {size / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f}")


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_100_000_tasks_are_moved_and_equal_although_it_was_killed_three_times(
    tmp_path: Path, empty_postgres_url: str, postgres_databases: Databases
) -> None:
    await check_moved(tmp_path, empty_postgres_url, 100_000, kills=True)
    another = postgres_databases.create(empty=True)
    began = time.perf_counter()
    await Mover(Dragoman(tmp_path), tmp_path / "many.db", another).move([], "--no-backup", "--no-verify")
    seconds = time.perf_counter() - began
    print(
        f"copied once more, without a backup, a kill and the comparison, in {seconds:.1f} s: "
        f"{100_000 / seconds:,.0f} tasks per second, load {os.getloadavg()[0]:.1f}"
    )
    postgres_databases.drop(another)


async def test_a_thousand_tasks_are_moved_and_equal(tmp_path: Path, empty_postgres_url: str) -> None:
    await check_moved(tmp_path, empty_postgres_url, 1000, kills=False)
