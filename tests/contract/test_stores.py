"""Every store keeps the same contract."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from dragoman.engine.ports import Sweep, Write
from dragoman.engine.projection import Projection
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores.memory import MemoryStore
from dragoman.testing import durable_store_contract, store_contract
from dragoman.testing.store_durability import many_writers_and_readers_at_once_lose_nothing
from dragoman.testing.store_writes import NOW, append, create, outcome, row_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from dragoman.engine.ports import Store
    from dragoman.testing.store_writes import Check, OpenStore

CHECKS = [check for check in store_contract if check is not many_writers_and_readers_at_once_lose_nothing]


def opener(make: Callable[[], Store]) -> OpenStore:
    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store]:
        store = make()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    return open_store


def sqlite(folder: Path) -> Store:
    from dragoman.stores.sqlite.store import SqliteStore

    return SqliteStore(folder / "tasks.db")


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    return opener({"memory": MemoryStore, "sqlite": lambda: sqlite(tmp_path)}[request.param])


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
async def test_a_file_keeps_everything_across_a_restart(check: Check, tmp_path: Path) -> None:
    await check(opener(lambda: sqlite(tmp_path)))


async def test_a_caller_that_fails_to_take_its_report_keeps_no_other_waiting() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    store = MemoryStore()

    def fail(error: BaseException | None) -> None:
        raise ValueError("a caller's mistake")

    store.write(Write(row_of(store, "a"), fail, create=True, records=(Record(1, b"{}"),)))
    await create(store, row_of(store, "b"))
    assert told == ["a caller's mistake"]
    assert await store.task("a") is not None


# -- the table other programs read -------------------------------------------------------------------------------------


def projection_of(number: int, state: str = "working", updated_at: int = NOW) -> Projection:
    return Projection(number, updated_at, 7, state, '[{"role":"user","parts":["é 🐪"]}]'.encode(), b"[]")


async def test_a_projection_is_kept_with_the_record_it_came_with(open_store: OpenStore) -> None:
    async with open_store() as store:
        row = await create(store, row_of(store, "12"))
        assert (await store.projection(12), await store.last_projection()) == (None, 0)
        row = await append(store, row, projection=projection_of(12))
        assert await store.projection(12) == projection_of(12)
        ended = structs.replace(projection_of(12, "completed", NOW + 5), artifacts=b"[1]")
        await append(store, row, projection=ended)
        assert await store.projection(12) == ended
        await create(store, row_of(store, "9"), projection=projection_of(9))
        assert (await store.projection(9), await store.last_projection()) == (projection_of(9), 12)


async def test_a_write_that_is_refused_leaves_the_projection_alone(open_store: OpenStore) -> None:
    async with open_store() as store:
        row = await append(store, await create(store, row_of(store, "12")), projection=projection_of(12))
        late = {"record": Record(2, b"{}"), "projection": projection_of(12, "completed", NOW + 1)}
        assert await outcome(store, row, **late) is not None
        assert await store.projection(12) == projection_of(12)


@pytest.mark.requirement("S0-45")
async def test_a_projection_changes_for_those_who_have_seen_its_last_change(open_store: OpenStore) -> None:
    async with open_store() as store:
        await create(store, row_of(store, "12"), projection=projection_of(12, "completed"))
        canceled = projection_of(12, "canceled", NOW + 3)
        assert await store.project(canceled, NOW - 1) is False
        assert await store.projection(12) == projection_of(12, "completed")
        assert await store.project(canceled, NOW) is True
        assert await store.project(canceled, NOW) is False
        assert await store.projection(12) == canceled
        assert await store.project(projection_of(13), NOW) is False
        assert await store.projection(13) is None


async def test_of_many_who_change_a_projection_at_once_one_succeeds(open_store: OpenStore) -> None:
    async with open_store() as store:
        await create(store, row_of(store, "12"), projection=projection_of(12, "completed"))
        tries = [store.project(projection_of(12, "canceled", NOW + number), NOW) for number in range(1, 21)]
        assert sum(await asyncio.gather(*tries)) == 1


async def test_a_projection_goes_with_its_task(open_store: OpenStore) -> None:
    async with open_store() as store:
        for number in (1, 2, 3):
            row = await create(store, row_of(store, str(number)), projection=projection_of(number))
        assert await outcome(store, row, delete=True) is None
        ended = structs.replace(row_of(store, "4"), state=State.COMPLETED, status_ms=NOW - 10)
        await create(store, ended, projection=projection_of(4, "completed"))
        assert await store.sweep(Sweep(ended_before_ms=NOW)) == 1
        assert [await store.projection(number) is None for number in (1, 2, 3, 4)] == [False, False, True, True]


async def test_a_projection_is_there_after_a_restart(tmp_path: Path) -> None:
    open_store = opener(lambda: sqlite(tmp_path))
    async with open_store() as store:
        await create(store, row_of(store, "12"), projection=projection_of(12))
    async with open_store() as store:
        assert (await store.projection(12), await store.last_projection()) == (projection_of(12), 12)
