"""One file: what it refuses, how it is opened, and how writes share a commit."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dragoman.engine.ports.store import Note, Scope, TaskQuery, TaskRow, Write
from dragoman.model.error import ConfigError, ServerError
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.sqlite import file as store_file
from dragoman.stores.sqlite import schema
from dragoman.stores.sqlite.file import real_path
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing.store_writes import SCOPE, append, create, outcome, read_task, row_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


class Gate:
    """Holds up the writer's thread, so that what is written meanwhile has to wait together."""

    def __init__(self, store: SqliteStore) -> None:
        self._started, self._released = threading.Event(), threading.Event()
        self._statements: list[str] = []
        self._store = store
        self._held = asyncio.ensure_future(store._writer.run(self._hold))

    def _hold(self, connection: sqlite3.Connection) -> None:
        self._started.set()
        self._released.wait(10)
        connection.set_trace_callback(self._statements.append)

    async def open(self) -> None:
        """Let it go on, once it has stopped and everything is queued."""
        await asyncio.to_thread(self._started.wait, 10)
        self._released.set()
        await self._held

    def count(self, statement: str) -> int:
        """How many statements since then begin like this."""
        return sum(text.startswith(statement) for text in self._statements)


SHOPPING_LIST = b"This is a shopping list. " * 100


def content(path: Path) -> bytes:
    return path.read_bytes()


def execute(path: Path, statement: str) -> bytes:
    """Make a database by hand. Gives what is in the file then."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    return content(path)


@pytest.fixture
def shopping_list(path: Path) -> Path:
    path.write_bytes(SHOPPING_LIST)
    return path


# Files that are refused


async def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        await SqliteStore(path).open()
    return str(caught.value)


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    before = execute(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    text = await refusal(path)
    assert f"written by a newer Dragoman (schema {schema.VERSION + 1}, this one knows {schema.VERSION})" in text
    assert "upgrade Dragoman" in text
    assert content(path) == before


async def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    before = execute(path, "CREATE TABLE theirs (x)")
    assert "is another program's database: use another --store" in await refusal(path)
    assert content(path) == before


async def test_what_is_no_database_is_refused_and_left_alone(shopping_list: Path) -> None:
    assert "is not a store of Dragoman: use another --store" in await refusal(shopping_list)
    assert content(shopping_list) == SHOPPING_LIST


async def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    assert "cannot be opened" in await refusal(tmp_path / "folder.db")
    (tmp_path / "file").write_text("x")
    assert "cannot be opened" in await refusal(tmp_path / "file" / "tasks.db")


async def test_a_refused_file_is_not_kept_locked(shopping_list: Path) -> None:
    await refusal(shopping_list)
    os.unlink(shopping_list)  # noqa: PTH108
    store = SqliteStore(shopping_list)
    await store.open()
    await store.close()


# One server


async def test_a_second_server_is_refused_with_the_owner_of_the_file(store: SqliteStore, path: Path) -> None:
    assert await refusal(path) == f"tasks.db is in use by pid {os.getpid()}: use another --store"
    await store.check()  # the first one does not notice


async def test_a_store_can_be_closed_and_opened_again(path: Path) -> None:
    store = SqliteStore(path)
    for name in ("a", "b"):
        await store.open()
        await create(store, row_of(store, name))
        await store.close()
    await store.open()
    assert [stored.row.id for stored in (await store.page(TaskQuery(SCOPE))).tasks] == ["b", "a"]
    await store.close()


async def test_a_lock_left_by_a_process_that_is_gone_holds_nobody_up(path: Path) -> None:
    path.with_name("tasks.db.lock").write_text("4711")
    store = SqliteStore(path)
    await store.open()
    assert path.with_name("tasks.db.lock").read_text() == str(os.getpid())
    await store.close()


@pytest.mark.parametrize("name", ["symlink_to", "hardlink_to"])
async def test_a_second_store_in_this_process_is_refused_by_every_name(
    store: SqliteStore, path: Path, tmp_path: Path, name: str
) -> None:
    link = tmp_path / "link.db"
    getattr(link, name)(path)
    assert await refusal(link) == f"link.db is in use by pid {os.getpid()}: use another --store"
    await create(store, row_of(store, "a"))
    # The locks of SQLite hold on: to another process the file is in use, and its log is not taken away.
    script = (
        f"import sqlite3; db = sqlite3.connect({str(path)!r}); db.execute('SELECT * FROM tasks').fetchall(); db.close()"
    )
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await done.wait() == 0
    assert path.with_name("tasks.db-wal").exists()
    await store.check()


async def test_a_new_store_by_a_link_is_where_the_link_leads(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "tasks.db")
    store = SqliteStore(tmp_path / "link.db")
    await store.open()
    await create(store, row_of(store, "a"))
    await store.close()
    assert sorted(file.name for file in (tmp_path / "data").iterdir()) == [
        "tasks.db",
        "tasks.db.ckpt",
        "tasks.db.lock",
    ]


async def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").symlink_to("b.db")
    (tmp_path / "b.db").symlink_to("a.db")
    assert "cannot be opened" in await refusal(tmp_path / "a.db")


async def test_a_store_that_was_copied_or_moved_is_at_home_where_it_is(path: Path, tmp_path: Path) -> None:
    for _ in range(2):
        store = SqliteStore(path)
        await store.open()
        await create(store, row_of(store, path.name))
        await store.close()
        path = path.rename(tmp_path / "moved.db")  # noqa: ASYNC240
    (tmp_path / "link.db").hardlink_to(path)
    assert real_path(tmp_path / "link.db") == path.resolve()
    path.unlink()
    assert real_path(tmp_path / "link.db") == (tmp_path / "link.db").resolve()


async def test_without_a_lock_on_the_file_itself_a_removed_lock_file_ends_all_writing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int) -> None:
        raise OSError(errno.ENOLCK, "not on this disk")

    monkeypatch.setattr(store_file, "_lock_bytes", refuse)
    store = SqliteStore(path)
    await store.open()
    row = await create(store, row_of(store, "a"))
    path.with_name("tasks.db.lock").unlink()
    assert "another server may have it" in str(await outcome(store, row, notes=(Note(1, "message", b"m"),)))
    with pytest.raises(ServerError, match="another server may have it"):
        await store.check()
    assert (await read_task(store, "a")).row == row
    await store.close()


# A closed store


async def test_a_closed_store_takes_nothing_and_says_so(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    row = await create(store, row_of(store, "a"))
    await store.close()
    assert isinstance(await outcome(store, row, notes=(Note(1, "message", b"m"),)), ServerError)
    with pytest.raises(ServerError):
        await store.task("a")
    with pytest.raises(ServerError):
        await store.check()


# Where it lies


async def test_its_own_folder_is_made_and_kept_out_of_git(tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".dragoman"
    store = SqliteStore(folder / "tasks.db")
    await store.open()
    await store.close()
    assert (folder / ".gitignore").read_text() == "*\n"


async def test_other_folders_are_made_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "deep"
    store = SqliteStore(folder / "tasks.db")
    await store.open()
    await store.close()
    assert not (folder / ".gitignore").exists()


async def test_nobody_else_may_read_the_locks(store: SqliteStore, path: Path) -> None:
    assert path.with_name("tasks.db.lock").stat().st_mode & 0o077 == 0


# How it is opened


async def test_commits_survive_a_power_loss(store: SqliteStore) -> None:
    def pragmas(connection: sqlite3.Connection) -> list[Any]:
        names = ("journal_mode", "synchronous", "wal_autocheckpoint", "busy_timeout")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert await store._writer.run(pragmas) == ["wal", 2, 0, 5000]  # 2 is FULL


async def test_readers_cannot_write(store: SqliteStore) -> None:
    def try_to_write(connection: sqlite3.Connection) -> None:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM tasks")

    await store._read(try_to_write)


# Many changes, one commit


async def test_changes_that_wait_share_one_commit(store: SqliteStore) -> None:
    gate = Gate(store)
    rows = [row_of(store, f"t{number}") for number in range(100)]
    writing = [asyncio.ensure_future(create(store, row)) for row in rows]
    await asyncio.sleep(0)  # all of them are queued
    await gate.open()
    await asyncio.gather(*writing)
    assert gate.count("BEGIN") == 1
    assert (await store.page(TaskQuery(SCOPE))).total == 100


async def test_a_task_is_written_once_per_commit_however_many_events_it_has(store: SqliteStore) -> None:
    row = await create(store, row_of(store, "a"))
    gate = Gate(store)
    rows = [structs.replace(row, generation=generation) for generation in range(2, 102)]
    writing = [asyncio.ensure_future(outcome(store, one, records=(Record(one.generation, b"{}"),))) for one in rows]
    await asyncio.sleep(0)
    await gate.open()
    assert set(await asyncio.gather(*writing)) == {None}
    assert gate.count("BEGIN") == 1
    assert gate.count("UPDATE tasks") == 1
    assert (await read_task(store, "a")).row.generation == 101


async def test_one_bad_change_does_not_harm_its_batch(store: SqliteStore) -> None:
    taken = await create(store, row_of(store, "taken"))
    gate = Gate(store)
    good = [row_of(store, f"t{number}") for number in range(4)]
    bad = row_of(store, "taken")
    writing = [
        asyncio.ensure_future(outcome(store, row, create=True, records=(Record(1, b"{}"),)))
        for row in (*good[:2], bad, *good[2:])
    ]
    gap = asyncio.ensure_future(outcome(store, structs.replace(taken, generation=5), records=(Record(5, b"{}"),)))
    await asyncio.sleep(0)
    await gate.open()
    outcomes = [error is None for error in await asyncio.gather(*writing, gap)]
    assert outcomes == [True, True, False, True, True, False]
    assert (await store.page(TaskQuery(SCOPE))).total == 5
    await store.check()


async def test_a_batch_is_not_endless(store: SqliteStore) -> None:
    gate = Gate(store)
    rows = [row_of(store, f"t{number}") for number in range(100)]
    body = b'{"x":"' + b"y" * 200_000 + b'"}'
    writing = [asyncio.ensure_future(outcome(store, row, create=True, records=(Record(1, body),))) for row in rows]
    await asyncio.sleep(0)
    await gate.open()
    assert set(await asyncio.gather(*writing)) == {None}
    assert gate.count("BEGIN") == 3  # two of eight megabytes, and the rest


async def test_a_small_change_waits_for_one_large_one_at_most(store: SqliteStore) -> None:
    gate, done = Gate(store), []
    body = b'{"x":"' + b"y" * 1_000_000 + b'"}'
    large = [row_of(store, f"large-{number}") for number in range(3)]
    small = [row_of(store, f"small-{number}") for number in range(3)]

    async def wrote(row: TaskRow, record: Record, *, new: bool = True) -> None:
        assert await outcome(store, row, create=new, records=(record,)) is None
        done.append((row.id, record.generation))

    writing = [asyncio.ensure_future(wrote(row, Record(1, body))) for row in large]
    follows = structs.replace(large[0], generation=2)
    writing.append(asyncio.ensure_future(wrote(follows, Record(2, b"{}"), new=False)))
    writing += [asyncio.ensure_future(wrote(row, Record(1, b"{}"))) for row in small]
    await asyncio.sleep(0)
    await gate.open()
    await asyncio.gather(*writing)
    # All small ones first, then one large one after the other; what belongs to a task is in its order.
    assert done[:3] == [(row.id, 1) for row in small]
    assert done[3:] == [("large-0", 1), ("large-1", 1), ("large-2", 1), ("large-0", 2)]
    assert gate.count("BEGIN") == 4


async def test_a_full_disk_is_an_error_for_the_writer_and_later_writes_succeed(store: SqliteStore, caplog: Any) -> None:
    def limit(pages: int) -> Any:
        return lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()[0]

    row = await create(store, row_of(store, "a"))
    before = await store._writer.run(limit(1))  # it cannot be less than there are
    body = b'{"x":"' + b"y" * 200_000 + b'"}'
    error = await outcome(store, structs.replace(row, generation=2), records=(Record(2, body),))
    assert isinstance(error, sqlite3.OperationalError)
    assert "full" in str(error)
    assert "the store refused" in caplog.text
    assert (await read_task(store, "a")).row == row
    await store._writer.run(limit(before + 10_000))
    await append(store, row, body)
    await store.check()


async def test_a_caller_whose_report_fails_keeps_nobody_waiting(store: SqliteStore, caplog: Any) -> None:
    def broken(error: BaseException | None) -> None:
        raise ZeroDivisionError

    gate = Gate(store)
    store.write(Write(row_of(store, "a"), broken, create=True, records=(Record(1, b"{}"),)))
    writing = asyncio.ensure_future(create(store, row_of(store, "b")))
    await asyncio.sleep(0)
    await gate.open()
    await writing
    assert "could not be reported" in caplog.text


async def test_the_log_stays_small_though_many_small_changes_each_write_whole_pages(
    store: SqliteStore, path: Path
) -> None:
    log = path.with_name("tasks.db-wal")
    largest = 0
    for number in range(1000):
        row = await create(store, row_of(store, f"task {number}"))
        await append(store, row, b"{}")
        largest = max(largest, log.stat().st_size)
    assert 4_000_000 < largest < 20_000_000  # of sixty megabytes written


async def test_a_long_journal_is_checkpointed_now_and_then(store: SqliteStore, path: Path) -> None:
    row = await create(store, row_of(store, "a"))
    body = b'{"x":"' + b"y" * 500_000 + b'"}'
    for _ in range(80):
        row = await append(store, row, body)
    assert path.with_name("tasks.db-wal").stat().st_size < 30_000_000  # of forty megabytes written
    assert len(content(path)) > 10_000_000


# How many there are

SCOPES = [SCOPE, Scope("agent", "tenant", "somebody else")]
Task = st.tuples(st.integers(0, 1), st.sampled_from(["a", "b", "c"]), st.booleans())
Change = st.tuples(st.integers(0, 9), st.sampled_from([State.WORKING, State.COMPLETED, State.FAILED]))


@settings(max_examples=15, deadline=None)
@given(tasks=st.lists(Task, max_size=10), changes=st.lists(Change, max_size=12), deleted=st.sets(st.integers(0, 9)))
def test_what_is_counted_beforehand_is_what_there_is(
    tmp_path_factory: Any, tasks: list[Any], changes: list[Any], deleted: set[int]
) -> None:
    path = tmp_path_factory.mktemp("counts") / "tasks.db"

    async def fill(store: SqliteStore) -> None:
        rows: list[TaskRow] = []
        contexts: set[tuple[int, str]] = set()
        for number, (scope, context, alone) in enumerate(tasks):
            context_id = f"{context}{number}" if alone else context
            row = row_of(store, f"t{number}", scope=SCOPES[scope], context_id=context_id)
            joins = (scope, context_id) in contexts or not alone
            contexts.add((scope, context_id))
            rows.append(await create(store, row, joins_context=joins))
        for number, state in changes:
            if number < len(rows):
                row = structs.replace(rows[number], state=state)
                rows[number] = await append(store, row, previous_state=rows[number].state)
        for number in deleted:
            if number < len(rows):
                assert await outcome(store, rows[number], delete=True) is None

    async def check() -> None:
        store = SqliteStore(path)
        await store.open()
        await fill(store)
        contexts = {None, "nobody", *(context for _, context, _ in tasks)}
        for scope in SCOPES:
            for state in (None, State.SUBMITTED, State.WORKING, State.COMPLETED, State.FAILED):
                for context in contexts:
                    page = await store.page(TaskQuery(scope, context, state, limit=100))
                    assert page.total == len(page.tasks), (scope, state, context)
        await store.close()

    asyncio.run(check())
