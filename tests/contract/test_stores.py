"""Every store keeps the same contract."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from dragoman.engine.ports.rows import Column, ExtraRow, TaskTable
from dragoman.engine.ports.store import Sweep, Write
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.memory import MemoryStore
from dragoman.testing import durable_store_contract, store_contract
from dragoman.testing.store_durability import many_writers_and_readers_at_once_lose_nothing
from dragoman.testing.store_writes import NOW, append, create, outcome, row_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from dragoman.engine.ports.store import Store
    from dragoman.testing.store_writes import Check, OpenStore

CHECKS = [check for check in store_contract if check is not many_writers_and_readers_at_once_lose_nothing]


NOTES = TaskTable(
    "notes_of_tasks",
    (
        Column("id", "INTEGER"),
        Column("changed", "INTEGER"),
        Column("user", "INTEGER", required=True),
        Column("state", "TEXT"),
        Column("text", "TEXT"),
    ),
    version="changed",
    owner="user",
    key_of=lambda task_id: int(task_id) if task_id.isdigit() else None,
    indexes=(("notes_of_user", "user"),),
)


def opener(make: Callable[[], Store]) -> OpenStore:
    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store]:
        store = make()
        store.add_table(NOTES)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    return open_store


def sqlite(folder: Path) -> Store:
    from dragoman.stores.sqlite.store import SqliteStore

    return SqliteStore(folder / "tasks.db")


def postgres(url: str) -> Store:
    from dragoman.stores.postgres.sql.database import PostgresDatabase
    from dragoman.stores.postgres.sql.nodes import PostgresNodes
    from dragoman.stores.postgres.sql.retention import DaySweeper
    from dragoman.stores.postgres.store import PostgresStore

    # The contract's dedupe keys expire one second after NOW, and are then written again. Events of today are deleted
    # row by row.
    return PostgresStore(PostgresDatabase(url, lambda: NOW + 1500, DaySweeper(0, 0)), PostgresNodes(url))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        return opener(lambda: postgres(url))
    return opener({"memory": MemoryStore, "sqlite": lambda: sqlite(tmp_path)}[request.param])


@pytest.fixture(params=["sqlite", "postgres"])
def reopen_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Opens the same data again."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        return opener(lambda: postgres(url))
    return opener(lambda: sqlite(tmp_path))


def name(check: Check) -> str:
    return check.__name__


@pytest.mark.requirement("S2-45")
@pytest.mark.parametrize("check", CHECKS, ids=name)
async def test_a_store_keeps_the_contract(check: Check, open_store: OpenStore) -> None:
    await check(open_store)


@pytest.mark.requirement("S2-30")
async def test_fifty_writers_and_readers_at_once_lose_nothing(open_store: OpenStore) -> None:
    await many_writers_and_readers_at_once_lose_nothing(open_store)


@pytest.mark.parametrize("check", durable_store_contract, ids=name)
async def test_a_durable_store_keeps_everything_across_a_restart(check: Check, reopen_store: OpenStore) -> None:
    await check(reopen_store)


async def test_a_caller_that_fails_to_take_its_report_keeps_no_other_waiting() -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    store = MemoryStore()

    def fail(error: BaseException | None) -> None:
        raise ValueError("a caller's mistake")

    store.write(Write(row_of(store, "a"), fail, create=True, records=(Record(1, b"{}"),)))
    await create(store, row_of(store, "b"))
    assert reported == ["a caller's mistake"]
    assert await store.task("a") is not None


# -- the tables of plug-ins -------------------------------------------------------------------------------------------


def extra_row(number: int, state: str = "working", changed: int = NOW, text: str = "é 🐪") -> ExtraRow:
    return ExtraRow(NOTES, (number, changed, 7, state, text))


async def test_an_extra_row_is_stored_with_its_record(open_store: OpenStore) -> None:
    async with open_store() as store:
        row = await create(store, row_of(store, "12"))
        assert (await store.read_row(NOTES, 12), await store.last_key(NOTES)) == (None, 0)
        row = await append(store, row, rows=(extra_row(12),))
        assert await store.read_row(NOTES, 12) == extra_row(12)
        ended = extra_row(12, "completed", NOW + 5, "more")
        await append(store, row, rows=(ended,))
        assert await store.read_row(NOTES, 12) == ended
        await create(store, row_of(store, "9"), rows=(extra_row(9),))
        assert (await store.read_row(NOTES, 9), await store.last_key(NOTES)) == (extra_row(9), 12)


async def test_a_write_that_is_refused_leaves_the_extra_row_alone(open_store: OpenStore) -> None:
    async with open_store() as store:
        row = await append(store, await create(store, row_of(store, "12")), rows=(extra_row(12),))
        late = {"records": (Record(2, b"{}"),), "rows": (extra_row(12, "completed", NOW + 1),)}
        assert await outcome(store, row, **late) is not None
        assert await store.read_row(NOTES, 12) == extra_row(12)


@pytest.mark.requirement("S0-45")
async def test_an_extra_row_changes_for_those_who_have_seen_its_last_change(open_store: OpenStore) -> None:
    async with open_store() as store:
        await create(store, row_of(store, "12"), rows=(extra_row(12, "completed"),))
        canceled = extra_row(12, "canceled", NOW + 3)
        assert await store.replace_row(canceled, NOW - 1) is False
        assert await store.read_row(NOTES, 12) == extra_row(12, "completed")
        assert await store.replace_row(canceled, NOW) is True
        assert await store.replace_row(canceled, NOW) is False
        assert await store.read_row(NOTES, 12) == canceled
        assert await store.replace_row(extra_row(13), NOW) is False
        assert await store.read_row(NOTES, 13) is None


async def test_of_many_who_change_an_extra_row_at_once_one_succeeds(open_store: OpenStore) -> None:
    async with open_store() as store:
        await create(store, row_of(store, "12"), rows=(extra_row(12, "completed"),))
        tries = [store.replace_row(extra_row(12, "canceled", NOW + number), NOW) for number in range(1, 21)]
        assert sum(await asyncio.gather(*tries)) == 1


async def test_an_extra_row_goes_with_its_task(open_store: OpenStore) -> None:
    async with open_store() as store:
        for number in (1, 2, 3):
            row = await create(store, row_of(store, str(number)), rows=(extra_row(number),))
        assert await outcome(store, row, delete=True) is None
        ended = structs.replace(row_of(store, "4"), state=State.COMPLETED, status_ms=NOW - 10)
        await create(store, ended, rows=(extra_row(4, "completed"),))
        assert await store.sweep(Sweep(ended_before_ms=NOW)) == 1
        assert [await store.read_row(NOTES, number) is None for number in (1, 2, 3, 4)] == [False, False, True, True]


async def test_an_extra_row_is_there_after_a_restart(reopen_store: OpenStore) -> None:
    async with reopen_store() as store:
        await create(store, row_of(store, "12"), rows=(extra_row(12),))
    async with reopen_store() as store:
        assert (await store.read_row(NOTES, 12), await store.last_key(NOTES)) == (extra_row(12), 12)
