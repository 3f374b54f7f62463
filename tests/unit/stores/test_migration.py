"""Files of older versions open, and are brought up to date."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from dragoman import Agent, Context
from dragoman.engine.call import CallContext
from dragoman.engine.ports.store import Sweep
from dragoman.model.message import Message
from dragoman.model.operation import GetTaskRequest, ListTasksRequest, Operation, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.server.agent.in_process import connect
from dragoman.stores.sqlite import schema
from dragoman.stores.sqlite.admin.health import examine
from dragoman.stores.sqlite.schema import VERSION
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import Clock
from dragoman.testing.store_writes import NOW, SCOPE, append, read_task

GOLDEN = Path(__file__).parents[2] / "contract" / "golden" / "store-v1.db"


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


async def test_a_store_of_version_1_opens_with_all_its_tasks(tmp_path: Path) -> None:
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
    assert version_of(path) == 1

    store = SqliteStore(path)
    await store.open()
    await store.close()

    assert version_of(path) == VERSION


def store_of_version(path: Path, version: int) -> None:
    """A file as the Dragoman of that version made it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for step in (schema._VERSION_1, *schema._MIGRATIONS)[:version]:
        connection.executescript(step)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


async def test_a_file_of_the_version_before_keeps_its_tasks_and_can_be_swept(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    store_of_version(path, 4)
    connection = sqlite3.connect(path)
    with connection:
        connection.executemany(
            "INSERT INTO scopes VALUES (?, ?, ?, ?)", [(1, *SCOPE), (2, SCOPE.agent, SCOPE.tenant, "somebody else")]
        )
        tasks = [(1, "a", 1, 3, NOW - 2), (2, "b", 2, 4, NOW - 1), (3, "c", 1, 3, NOW), (4, "d", 1, 2, NOW)]
        connection.executemany("INSERT INTO tasks VALUES (?1, ?2, ?3, 'talk', '1.0', ?4, ?5, 1, ?5)", tasks)
        connection.execute("INSERT INTO state_counts SELECT scope, state, count(*) FROM tasks GROUP BY scope, state")
        connection.execute("INSERT INTO events SELECT number, 1, x'7b7d' FROM tasks")
        connection.execute(
            "INSERT INTO repeats (key, task_id, until_ms) SELECT CAST(id AS BLOB), id, ? FROM tasks", (NOW + 1,)
        )
    connection.close()

    store = SqliteStore(path)
    await store.open()
    try:
        assert [len(await store.records(number, 0, 9)) for number in (1, 2, 3, 4)] == [1, 1, 1, 1]
        assert await store.duplicate_of(b"a", NOW) == "a"
        assert await store.sweep(Sweep(keep_tasks=1)) == 2  # of both owners, the oldest that have ended
        assert [await store.task(name) is None for name in "abcd"] == [True, True, False, False]
        assert await store.duplicate_of(b"a", NOW) is None
        assert await store.duplicate_of(b"c", NOW) == "c"
    finally:
        await store.close()
    assert version_of(path) == VERSION
    assert all(finding.level != "FAIL" for finding in examine(path, full=True) if finding.check == "counters")


async def test_events_of_a_file_of_version_6_have_no_time_and_later_ones_have(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    store_of_version(path, 6)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("INSERT INTO scopes VALUES (1, ?, ?, ?)", SCOPE)
        connection.execute("INSERT INTO tasks VALUES (1, 'a', 1, 'talk', '1.0', 2, ?1, 2, ?1)", (NOW,))
        connection.execute("INSERT INTO state_counts VALUES (1, 2, 1)")
        connection.executemany("INSERT INTO events VALUES (1, ?, x'7b7d')", [(1,), (2,)])
    connection.close()

    clock = Clock(NOW + 7)
    store = SqliteStore(path, clock)
    await store.open()
    try:
        row = (await read_task(store, "a")).row
        await append(store, row)
        entries = await store.journal(1, 0, 9, 1000)
    finally:
        await store.close()
    assert entries == [(1, None, b"{}"), (2, None, b"{}"), (3, NOW + 7, b"{}")]


def test_the_times_can_be_taken_away_again_for_the_version_before(tmp_path: Path) -> None:
    """As the page about upgrades says."""
    path = tmp_path / "tasks.db"
    store_of_version(path, VERSION)
    connection = sqlite3.connect(path)
    connection.executescript("ALTER TABLE events DROP COLUMN at_ms; PRAGMA user_version = 6;")
    connection.executemany("INSERT INTO events VALUES (1, ?, x'7b7d')", [(1,)])
    connection.commit()
    schema.migrate(connection, path)
    assert connection.execute("SELECT generation, at_ms FROM events").fetchall() == [(1, None)]
    connection.close()
