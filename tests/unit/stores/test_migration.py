"""Files of older versions open, and are brought up to date."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dragoman import Agent, Context
from dragoman.engine.call import CallContext
from dragoman.model.error import ConfigError
from dragoman.model.message import Message
from dragoman.model.operation import GetTaskRequest, ListTasksRequest, Operation, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.server.agent.in_process import connect
from dragoman.stores.sqlite import schema
from dragoman.stores.sqlite.admin.health import examine
from dragoman.stores.sqlite.schema import OLDEST, VERSION
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock
from dragoman.testing.store_writes import NOW, append, read_task

GOLDEN = Path(__file__).parents[2] / "contract" / "golden" / "store-v7.db"


def golden_agent() -> Agent:
    agent = Agent("golden", description="What wrote the golden file")

    @agent.skill
    async def echo(text: str) -> str:
        """Echo."""
        return text

    @agent.skill
    async def name(ctx: Context):
        """Ask."""
        answer = await ctx.ask("Your name?")
        yield f"Hello {answer}"

    @agent.skill
    async def slow(ctx: Context):
        """Never end."""

    return agent


async def test_a_store_of_version_7_opens_with_all_its_tasks(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(GOLDEN, path)
    connection = connect(golden_agent(), store=SqliteStore(path))
    await connection.open()
    try:
        listed = await connection.service.list(CallContext(), ListTasksRequest(include_artifacts=True))
        talk = await connection.service.list(CallContext(), ListTasksRequest(context_id="talk"))
        done = await connection.service.list(
            CallContext(), ListTasksRequest(status=State.COMPLETED, include_artifacts=True)
        )
        parked = next(task for task in listed.tasks if task.state is State.INPUT_REQUIRED)
        answer = Message("m", Role.USER, (Part(text="Ada"),), task_id=parked.id)
        answered = await connection.perform(Operation.SEND, SendMessageRequest(answer))
        again = await connection.perform(Operation.GET, GetTaskRequest(parked.id))
    finally:
        await connection.close()

    assert (listed.total_size, talk.total_size, done.total_size) == (5, 2, 3)
    assert sorted(task.text for task in done.tasks) == ["text 0", "text 1", "text 2"]
    # The one that was at work when that server stopped was decided about at this start.
    assert [task.error for task in listed.tasks if task.state is State.FAILED] == ["interrupted by a restart"]
    assert answered.text == "Hello Ada"
    assert again == answered


def version_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


async def test_an_old_file_becomes_one_of_this_version(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(GOLDEN, path)
    assert version_of(path) == OLDEST == 7

    store = SqliteStore(path)
    await store.open()
    await store.close()

    assert version_of(path) == VERSION
    with closing(sqlite3.connect(path)) as migrated, closing(sqlite3.connect(":memory:")) as new:
        schema.migrate(new, path)
        assert columns(migrated) == columns(new)
    assert all(finding.level != "FAIL" for finding in examine(path, full=True))


async def test_a_file_of_version_8_gets_room_for_posted_messages(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(GOLDEN, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"{schema._MIGRATIONS[0]}PRAGMA user_version = 8")
        number, task_id = connection.execute("SELECT number, id FROM tasks WHERE state = 2").fetchone()
        kinds = [
            kind for (kind,) in connection.execute("SELECT kind FROM notes WHERE task = ? ORDER BY note", [number])
        ]
    store = SqliteStore(path)
    await store.open()
    try:
        stored = await read_task(store, task_id)
        assert (stored.mail, stored.snapshot_mail) == (0, 0)
        assert await store.post(stored.row, b"hello") == 1
        assert [(note.kind, note.mail) for note in await store.notes(number)] == [
            *((kind, 0) for kind in kinds),
            ("message", 1),
        ]
        assert await store.mail(number, 0) == [(1, b"hello")]
        assert (await read_task(store, task_id)).mail == 1
    finally:
        await store.close()
    assert version_of(path) == VERSION


def columns(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    """The columns of all tables, and the texts of all indexes."""
    tables = "SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
    indexes = "SELECT name, tbl_name, coalesce(sql, '') FROM sqlite_master WHERE type = 'index'"
    return {*connection.execute(tables), *connection.execute(indexes)}


@pytest.mark.parametrize("version", [1, OLDEST - 1])
async def test_a_file_from_before_the_first_release_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"CREATE TABLE tasks (number INTEGER PRIMARY KEY); PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=rf"before its first release \(schema {version}, .*: use another --store"):
        await SqliteStore(path).open()
    assert path.read_bytes() == before
    assert [finding.level for finding in examine(path) if finding.check == "schema"] == ["FAIL"]


async def test_events_of_an_older_file_have_no_time_and_later_ones_have(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(GOLDEN, path)
    with closing(sqlite3.connect(path)) as connection:
        number, task_id = connection.execute("SELECT number, id FROM tasks WHERE state = 2").fetchone()
    clock = Clock(NOW + 7)
    store = SqliteStore(path, clock)
    await store.open()
    try:
        row = (await read_task(store, task_id)).row
        await append(store, row)
        entries = await store.journal(number, 0, 9, 10_000)
    finally:
        await store.close()
    assert {entry.at_ms for entry in entries[:-1]} == {None}
    assert entries[-1].at_ms == NOW + 7
