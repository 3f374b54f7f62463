"""The store in memory, beyond what every store does: it is read in slices while others write."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from dragoman.engine.ports.store import Cursor, ScopeFilter, TaskSearch
from dragoman.model.state import State
from dragoman.stores import memory
from dragoman.stores.memory import MemoryStore
from dragoman.testing.store_writes import NOW, append, create, row_of


async def test_a_search_in_slices_loses_and_repeats_no_task_that_stays_while_others_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_SLICE", 3)
    store = MemoryStore()
    rows = [
        await create(store, row_of(store, f"t{place}", state=State.WORKING, status_ms=NOW + place))
        for place in range(20)
    ]
    moving = rows[3::4]

    async def move() -> None:
        time = NOW + 100
        while True:
            for place, row in enumerate(moving):
                time += 1
                moving[place] = await append(store, structs.replace(row, status_ms=time), previous_state=State.WORKING)

    writer = asyncio.create_task(move())
    found: list[str] = []
    cursor, more = None, True
    while more:
        page = await store.search(TaskSearch(limit=4, after=cursor))
        found += [stored.row.id for stored in page.tasks]
        last = page.tasks[-1].row
        cursor, more = Cursor(last.status_ms, last.number), page.more
    writer.cancel()
    assert len(found) == len(set(found)), "a task was there twice"
    staying = {row.id for row in rows} - {row.id for row in moving}
    assert [task_id for task_id in found if task_id in staying] == [
        row.id for row in reversed(rows) if row.id in staying
    ]
    assert sum((await store.counts(ScopeFilter())).values()) == 20
