"""Every store keeps the same contract."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from dragoman.engine.ports import Write
from dragoman.model.record import Record
from dragoman.stores.memory import MemoryStore
from dragoman.testing import durable_store_contract, store_contract
from dragoman.testing.store_durability import many_writers_and_readers_at_once_lose_nothing
from dragoman.testing.store_writes import create, row_of

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

    store.write(Write(row_of(store, "a"), fail, create=True, record=Record(1, b"{}")))
    await create(store, row_of(store, "b"))
    assert told == ["a caller's mistake"]
    assert await store.task("a") is not None
