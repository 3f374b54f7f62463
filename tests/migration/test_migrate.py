"""`dragoman migrate`: all that a SQLite store has goes into PostgreSQL, also after it was interrupted."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from migration.comparer import compare_users, compared_stores
from migration.filled_file import FilledFile, read
from migration.programs import Dragoman
from migration.travel import LATER, build_agent
from postgres_server import database
from support.command import SECRET
from support.webhook_receiver import WebhookReceiver

from dragoman import Client
from dragoman.auth.inbound.passwords import key_digest
from dragoman.clock import SystemClock
from dragoman.engine.ports.store import Scope
from dragoman.engine.session_id import session_id
from dragoman.keys.ring import KeyRing
from dragoman.model.message import Message
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.net.postgres import connect
from dragoman.server.migration import StoreMigration
from dragoman.stores.migration import MigrationPosition
from dragoman.stores.postgres.admin.users import PostgresUsers
from dragoman.stores.sqlite.admin.export import SqliteExport
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import served
from dragoman.testing.store_writes import append, read_task

GOLDEN = Path(__file__).parents[1] / "contract" / "golden" / "store-v7.db"
SECONDS = 20


def backup_of(path: Path) -> Path:
    """The only backup of a file."""
    (backup,) = path.parent.glob(f"{path.name}.*.backup")
    return backup


def assert_equal(filled: FilledFile, url: str) -> None:
    """Compare the database with the backup of the file, which is as the file was."""
    backup = backup_of(filled.path)
    old, new = KeyRing.from_file(f"{filled.path}.key"), KeyRing.from_text(SECRET)

    def unseal(sealed: bytes) -> bytes:
        try:
            return new.unseal("push", sealed)
        except Exception:  # noqa: BLE001 - then it is one of the file
            return old.unseal("push", sealed)

    async def compare() -> None:
        async with compared_stores(backup, url, unseal) as comparer:
            await comparer.compare()
            assert comparer.tasks > 50

    asyncio.run(compare())
    compare_users(backup, url)


# -- all of it ---------------------------------------------------------------------------------------------------------


def test_everything_is_moved_and_counted(dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str) -> None:
    ended = dragoman("migrate", "tasks.db", empty_postgres_url)
    assert ended.returncode == 0, ended.stderr
    counts = {
        name.strip(): (file, stored) for name, file, stored in re.findall(r"(.+?) {2,}(\d+) +(\d+)", ended.stdout)
    }
    assert all(file == stored for file, stored in counts.values())
    assert counts["tasks"] == ("53", "53")
    assert {"submitted", "working", "drafts", "dedupe keys", "webhooks", "API keys", "mileage"} <= counts.keys()
    assert "every record was compared" in ended.stderr
    assert "1 text had a NUL" in ended.stderr
    assert_equal(filled, empty_postgres_url)
    rows = database(empty_postgres_url, "SELECT task, miles, note FROM mileage ORDER BY task")
    assert rows == [(-1, 3_000_000_000, "far"), (2, 0, None)], "the table of a plug-in that is not there"


def test_a_server_goes_on_where_the_one_on_the_file_has_stopped(
    dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str, receiver: WebhookReceiver
) -> None:
    assert dragoman("migrate", "sqlite:///tasks.db", empty_postgres_url).returncode == 0
    settings: dict[str, Any] = {"secret": SECRET, "push_allow": "127.0.0.1", "drain": 0}
    receiver.answer = 200
    with LATER.opened(), served(build_agent(), store=empty_postgres_url, **settings) as url:
        asyncio.run(_go_on(filled, url))
        receiver.wait_for(lambda: {"/question", "/done"} <= {each.path for each in receiver.accepted})
    question = next(each for each in receiver.accepted if each.path == "/question")
    assert question.headers["x-a2a-notification-token"] == "secret token"
    assert question.headers["authorization"] == "Bearer secret credentials"
    account = asyncio.run(_account(empty_postgres_url, filled.key))
    assert account.user.permissions == {"admin", "book", "fly"}


async def _go_on(filled: FilledFile, url: str) -> None:
    tasks, messages = filled.tasks, filled.messages
    async with Client(url) as client, asyncio.timeout(SECONDS):
        assert (await client.get_task(tasks["greeting"])).text == "Hello, you!"
        resumed = [event async for event in client.subscribe(tasks["large"], after=2)]
        assert resumed[-1].state is State.COMPLETED
        assert len(resumed[-1].task.text) == 1_500_000
        answered = await client.send("Rome", task=tasks["question"])
        assert isinstance(answered, Task)
        assert answered.text == "Looking. A trip to Rome, ticket 7."
        repeated = await client.send(tool="greet", message_id=messages["greeting"])
        assert isinstance(repeated, Task)
        assert repeated.id == tasks["greeting"].id
        bare = await client.send(tool="reply", arguments={"text": "now"}, message_id=messages["bare"])
        assert isinstance(bare, Message)
        assert bare.text == "to now"
        draft = await client.send(tool="reply", arguments={"text": "later"}, message_id=messages["draft"])
        assert isinstance(draft, Task)
        ended = {name: await client.wait(tasks[name]) for name in ("working", "queued", "report")}
        states = {name: task.state for name, task in ended.items()} | {"draft": (await client.wait(draft)).state}
        assert states == {
            "working": State.FAILED,
            "queued": State.COMPLETED,
            "report": State.COMPLETED,
            "draft": State.FAILED,
        }
        assert "the server that ran it is gone" in reason_of(ended["working"])
        assert ended["report"].text == "The report is done."
        new = await client.send(tool="greet")
        assert isinstance(new, Task)
        listed = [task.id async for task in client.list_tasks()]
        assert listed[0] == new.id


def reason_of(task: Task) -> str:
    """Why a task has failed."""
    assert task.status.message is not None
    return task.status.message.text


async def _account(url: str, key: str) -> Any:
    users = PostgresUsers(url, SystemClock())
    await users.open()
    try:
        return await users.by_key(key_digest(key))
    finally:
        await users.close()


def test_attempts_of_runs_that_may_be_repeated_go_on_and_the_keys_may_stay_the_same(
    dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str
) -> None:
    secret = dragoman.environment["DRAGOMAN_SECRET"] = Path(f"{filled.path}.key").read_text().strip()
    number, generation = read(
        filled.path, f"SELECT number, generation FROM tasks WHERE id = '{filled.tasks['report'].id}'"
    )[0]
    with closing(sqlite3.connect(filled.path)) as file:
        for attempt in (b"2", b"3"):
            file.execute(
                "INSERT INTO notes (task, generation, kind, body) VALUES (?, ?, 'attempt', ?)",
                (number, generation, attempt),
            )
        file.commit()
    ended = dragoman("migrate", "tasks.db", empty_postgres_url)
    assert (ended.returncode, "cookies" in ended.stderr) == (0, False)
    with LATER.opened(), served(build_agent(), store=empty_postgres_url, secret=secret, drain=0) as url:
        report = asyncio.run(_wait(url, filled.tasks["report"].id))
    assert report.state is State.FAILED
    assert "during each of 3 attempts" in reason_of(report)


async def _wait(url: str, task_id: str) -> Task:
    async with Client(url) as client:
        return await client.wait(task_id)


def test_posted_messages_keep_their_numbers_and_the_next_ones_follow(
    dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str
) -> None:
    working = filled.tasks["working"].id

    async def post() -> list[int]:
        store = SqliteStore(filled.path)
        await store.open()
        try:
            row = (await read_task(store, working)).row
            numbers = [await store.post(row, b'{"messageId": "%d", "role": "ROLE_USER"}' % place) for place in range(2)]
            await append(store, row, snapshot=b"{}", mail=1)
            return numbers
        finally:
            await store.close()

    assert asyncio.run(post()) == [1, 2]
    ended = dragoman("migrate", "tasks.db", empty_postgres_url)
    assert ended.returncode == 0, ended.stderr
    assert_equal(filled, empty_postgres_url)
    tasks = "SELECT t.mail, s.mail FROM tasks t JOIN snapshots s ON s.task = t.number WHERE t.mail > 0"
    assert database(empty_postgres_url, tasks) == [(2, 1)]
    assert database(empty_postgres_url, "SELECT mail FROM notes WHERE mail > 0 ORDER BY note") == [(1,), (2,)]


def test_conversations_with_programs_go_to_the_node_that_gets_their_folders(
    dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str
) -> None:
    context = filled.tasks["answered"].context_id
    assert context is not None
    folder = filled.path.with_name("tasks.db.sessions") / session_id(Scope("travel", "", ""), context)
    folder.mkdir(parents=True)
    refused = dragoman("migrate", "tasks.db", empty_postgres_url)
    assert refused.returncode == 2
    assert "--node NAME" in refused.stderr
    ended = dragoman("migrate", "tasks.db", empty_postgres_url, "--node", "one")
    assert ended.returncode == 0, ended.stderr
    assert f"move {folder.parent} to .dragoman/" in ended.stderr
    homes = "SELECT context_id, home, state IS NOT NULL FROM contexts WHERE home IS NOT NULL"
    assert database(empty_postgres_url, homes) == [(context, "one", True)]


def test_a_file_of_an_older_version_is_moved(dragoman: Dragoman, tmp_path: Path, empty_postgres_url: str) -> None:
    shutil.copy(GOLDEN, tmp_path / "old.db")
    ended = dragoman("migrate", "old.db", empty_postgres_url)
    assert ended.returncode == 0, ended.stderr
    assert read(backup_of(tmp_path / "old.db"), "PRAGMA user_version") == [(7,)], "it is as the file was"
    assert database(empty_postgres_url, "SELECT count(*) FROM tasks") == read(GOLDEN, "SELECT count(*) FROM tasks")


def test_no_server_uses_the_file_any_more(dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str) -> None:
    assert dragoman("migrate", "tasks.db", empty_postgres_url).returncode == 0
    for words in (("serve", "dragoman.examples.demo", "--port", "0"), ("users", "add", "zoe", "--no-password")):
        ended = dragoman(*words, "--store", "sqlite:///tasks.db")
        assert ended.returncode == 2
        assert "was moved to PostgreSQL by `dragoman migrate`" in ended.stderr
    assert "warn  moved" in dragoman("doctor", "--store", "sqlite:///tasks.db").stdout
    backup = backup_of(filled.path)
    assert dragoman("users", "add", "zoe", "--no-password", "--store", f"sqlite:///{backup.name}").returncode == 0


# -- interrupted -------------------------------------------------------------------------------------------------------


@contextmanager
def stopped_at_notes(dragoman: Dragoman, url: str) -> Iterator[Any]:
    """A migration that has copied the events and cannot go on, because somebody has locked the notes."""
    database(url, "SELECT")
    assert dragoman("users", "list", "--store", url).returncode == 0, "it creates the tables"
    loop = asyncio.new_event_loop()
    holder = loop.run_until_complete(connect(url))
    loop.run_until_complete(holder.execute("BEGIN; LOCK TABLE notes IN EXCLUSIVE MODE"))
    process = dragoman.start("migrate", "tasks.db", url)

    async def until_waiting() -> None:
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'notes'::regclass AND NOT granted"
        async with asyncio.timeout(SECONDS):
            while not await holder.fetchval(waiting):
                assert process.poll() is None, process.communicate()
                await asyncio.sleep(0.01)

    try:
        loop.run_until_complete(until_waiting())
        yield process
    finally:
        process.kill()
        process.communicate()
        loop.run_until_complete(holder.close())
        loop.close()


def test_a_migration_that_was_killed_goes_on_and_all_is_equal(
    dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str
) -> None:
    with stopped_at_notes(dragoman, empty_postgres_url) as process:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    ended = dragoman("serve", "dragoman.examples.demo", "--port", "0", "--store", empty_postgres_url)
    assert ended.returncode == 2
    assert f"{filled.path} is being moved into it, or that was interrupted" in ended.stderr
    ended = dragoman("migrate", "tasks.db", empty_postgres_url)
    assert ended.returncode == 0, ended.stderr
    assert "continuing after 249 events" in ended.stderr
    assert "backup:" not in ended.stderr
    assert_equal(filled, empty_postgres_url)


def test_ctrl_c_says_how_to_go_on_and_a_file_that_was_changed_then_does_not(
    dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str
) -> None:
    with stopped_at_notes(dragoman, empty_postgres_url) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "to go on, run the same command again" in err
    assert "Traceback" not in err
    with closing(sqlite3.connect(filled.path)) as file:
        file.execute("DELETE FROM notes")
        file.commit()
    ended = dragoman("migrate", "tasks.db", empty_postgres_url)
    assert ended.returncode == 2
    assert "changed since" in ended.stderr


def test_a_migration_that_was_complete_marks_the_file(
    dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str
) -> None:
    with SqliteExport(filled.path).opened() as source:
        source.begin()
        fingerprint = source.fingerprint
    assert dragoman("migrate", "tasks.db", empty_postgres_url).returncode == 0
    # As if it had been killed before the mark.
    backup_of(filled.path).replace(filled.path)
    with SqliteExport(filled.path).opened() as source:
        source.begin()
        database(empty_postgres_url, f"UPDATE moved_stores SET fingerprint = '{source.fingerprint}'", "SELECT")
        assert source.fingerprint != fingerprint
    ended = dragoman("migrate", "tasks.db", empty_postgres_url)
    assert (ended.returncode, "there is nothing to do" in ended.stderr) == (0, True)
    assert read(filled.path, "SELECT count(*) FROM meta WHERE key = 'moved_ms'") == [(1,)]


def test_a_file_that_was_moved_is_not_moved_again(
    dragoman: Dragoman, filled: FilledFile, empty_postgres_url: str, postgres_url: str
) -> None:
    assert dragoman("migrate", "tasks.db", empty_postgres_url).returncode == 0
    ended = dragoman("migrate", "tasks.db", empty_postgres_url)
    assert (ended.returncode, "there is nothing to do" in ended.stderr) == (0, True), ended.stderr
    # Into another database it may, perhaps because the first one is lost.
    ended = dragoman("migrate", "tasks.db", postgres_url)
    assert (ended.returncode, "this file was moved before" in ended.stderr) == (0, True), ended.stderr


class Interrupted(Exception):
    """Something happens in the middle."""


class Interrupter:
    """An observer that interrupts the migration after each batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def on_progress(self, activity: str, table: str, done: int, total: int) -> None:
        if activity == "copying":
            self.batches.append((table, done))
            raise Interrupted


def test_it_may_be_interrupted_after_every_batch(
    filled: FilledFile, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.stores.sqlite.admin.export.BATCH_ROWS", 60)
    interrupter = Interrupter()

    def move() -> bool:
        migration = StoreMigration(
            filled.path,
            empty_postgres_url,
            secret=SECRET,
            node=None,
            backup=not interrupter.batches,
            observer=interrupter,
        )
        try:
            return migration.run().target is not None
        except Interrupted:
            return False

    while not move():
        assert len(interrupter.batches) < 100
    counts = [done for _, done in interrupter.batches]
    assert counts == sorted(set(counts)), "nothing is copied twice"
    assert len({table for table, _ in interrupter.batches}) > 10
    assert_equal(filled, empty_postgres_url)


def test_reading_goes_on_at_any_row(filled: FilledFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.stores.sqlite.admin.export.BATCH_BYTES", 50_000)
    with SqliteExport(filled.path).opened() as source:
        source.begin()
        batches = list(source.read_from(MigrationPosition("scopes", 0)))
        assert len(batches) > len(source.tables)
        assert [len(batch.rows) for batch in batches if any(len(str(row[-1])) > 1_000_000 for row in batch.rows)]
        whole = {name: [row for batch in source.read(name) for row in batch.rows] for name in source.tables}
        for table, skip in (("events", 0), ("events", 500), ("notes", 3), ("a2a_tasks", 1), ("mileage", 2)):
            first, *others = [*source.tables[source.tables.index(table) :]]
            expected = whole[first][skip:] + [row for name in others for row in whole[name]]
            rest = [row for batch in source.read_from(MigrationPosition(table, skip)) for row in batch.rows]
            assert rest == expected


# -- refused -----------------------------------------------------------------------------------------------------------

NODE = """
INSERT INTO nodes (id, name, agents, version, lease, keys, seen) VALUES
    (7, 'web1', '{}', '0.1.0', 20, '{}', clock_timestamp()),
    (8, 'crashed', '{}', '0.1.0', 6, '{}', clock_timestamp() - interval '1 minute')
"""
USER = "INSERT INTO users (name, password, created_ms) VALUES ('ann', '', 0)"


def test_what_cannot_be_moved_is_refused_before_anything_changes(
    dragoman: Dragoman, filled: FilledFile, postgres_url: str, subtests: pytest.Subtests
) -> None:
    def refused(text: str, *words: str) -> None:
        with subtests.test(text):
            ended = dragoman("migrate", *words)
            assert (ended.returncode, text in ended.stderr) == (2, True), ended.stderr
            assert not list(filled.path.parent.glob("*.backup"))
            untouched = "SELECT (SELECT count(*) FROM tasks), to_regclass('moved_stores')::text"
            assert database(postgres_url, untouched) == [(0, None)]

    refused("there is no store nothing.db", "nothing.db", postgres_url)
    refused("is not a PostgreSQL database", "tasks.db", "sqlite:///other.db")
    refused("the file comes first", postgres_url, "tasks.db")
    refused("tasks.db.key is not a store of Dragoman", "tasks.db.key", postgres_url)
    with served(build_agent(), store=f"sqlite:///{filled.path}", drain=0):
        refused(f"tasks.db is in use by pid {os.getpid()}: stop that server first", "tasks.db", postgres_url)
    database(postgres_url, NODE, "SELECT")
    refused("has servers: stop them first: web1\n", "tasks.db", postgres_url)
    database(postgres_url, "DELETE FROM nodes WHERE id = 7", USER, "SELECT")
    refused("is not empty (tasks: 0, users: 1)", "tasks.db", postgres_url)
    database(postgres_url, "DELETE FROM users", "SELECT")
    dragoman.environment["DRAGOMAN_SECRET"] = ""
    refused("set DRAGOMAN_SECRET", "tasks.db", postgres_url)
    Path(f"{filled.path}.key").unlink()
    dragoman.environment["DRAGOMAN_SECRET"] = SECRET
    refused("sealed with a key that is neither in", "tasks.db", postgres_url)


# What the database does with a row that it gets, and what the command says to that.
TAMPERED = {
    "RETURN NULL": "the counts differ: notes: 8 in the file and 7 in the database",
    "NEW.body := 'other'::bytea; RETURN NEW": "1 rows of notes are not equal in the database",
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_difference_is_found_and_the_database_stays_unfinished(
    dragoman: Dragoman, filled: FilledFile, postgres_url: str, what: str
) -> None:
    database(
        postgres_url,
        f"CREATE FUNCTION tamper() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.note = 3 THEN {what}; END IF; "
        "RETURN NEW; END'".replace("'other'", "''other''"),
        "CREATE TRIGGER tamper BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION tamper()",
        "SELECT",
    )
    ended = dragoman("migrate", "tasks.db", postgres_url)
    assert (ended.returncode, TAMPERED[what] in ended.stderr) == (1, True), ended.stderr
    assert "incomplete" in dragoman("users", "list", "--store", postgres_url).stderr
