"""The metrics of the journal: commits, how long they take, what is in them, and what the store refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cluster.simulated_database import SimulatedDatabase
from unit.stores.postgres.changes import NOW, appended, created, new_row

from dragoman import Agent, Client
from dragoman.model.record import Record
from dragoman.stores.postgres.database import NodeInfo
from dragoman.stores.postgres.writer import GroupCommit
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing.clock import ManualClock
from dragoman.testing.store_writes import append, create, outcome, row_of

from .conftest import Recorded


async def echo(_: object) -> AsyncIterator[str]:
    yield "done"


async def test_a_commit_of_sqlite_is_recorded_with_its_sync_its_changes_and_its_bytes(
    recorded: Recorded, tmp_path: Path
) -> None:
    metrics = recorded.metrics
    async with Client(Agent("a", run=echo).app(store=f"sqlite:///{tmp_path / 'tasks.db'}")) as client:
        await client.send("go")
        commits = recorded.counts(metrics.commits)[()]
    assert commits >= 1
    assert recorded.counts(metrics.syncs)[()] == recorded.counts(metrics.commit_records)[()] >= commits
    assert 0 < recorded.sums(metrics.syncs)[()] < recorded.sums(metrics.commits)[()] < 10
    assert recorded.sums(metrics.commit_records)[()] >= 2
    assert recorded.counts(metrics.commit_bytes)[()] > 100
    assert not recorded.counts(metrics.refused_writes)


async def test_changes_that_wait_together_are_one_commit(recorded: Recorded, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.open()
    try:
        row = await create(store, row_of(store, "t"))
        before = recorded.counts(recorded.metrics.commits)[()]
        assert (before, recorded.sums(recorded.metrics.commit_records)[()]) == (1, 1)
        await asyncio.gather(*(create(store, row_of(store, f"t{number}")) for number in range(50)))
        assert recorded.sums(recorded.metrics.commit_records)[()] == 51
        assert recorded.counts(recorded.metrics.commits)[()] <= 51
        assert row.id == "t"
    finally:
        await store.close()


async def test_a_change_that_sqlite_refuses_is_counted(recorded: Recorded, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await store.open()
    try:
        row = await create(store, row_of(store, "t"))
        after = await append(store, row)
        assert await outcome(store, after, records=(Record(2, b"{}"),)) is not None
    finally:
        await store.close()
    assert recorded.counts(recorded.metrics.refused_writes) == {("conflict",): 1}


async def test_a_store_whose_file_is_gone_refuses_with_an_error(recorded: Recorded, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SqliteStore(path)
    await store.open()
    try:
        await create(store, row_of(store, "t"))
        path.rename(tmp_path / "elsewhere.db")
        assert await outcome(store, row_of(store, "u"), create=True) is not None
    finally:
        await store.close()
    assert recorded.counts(recorded.metrics.refused_writes) == {("error",): 1}


async def test_a_statement_to_postgres_is_recorded(recorded: Recorded, postgres_url: str) -> None:
    metrics = recorded.metrics
    app = Agent("a", run=echo).app(store=postgres_url, secret="s" * 32, drain=0)
    async with Client(app) as client:
        await client.send("go")
        assert recorded.counts(metrics.commits)[()] >= 1
    assert recorded.counts(metrics.commit_records)[()] == recorded.counts(metrics.commits)[()]
    assert recorded.counts(metrics.commit_bytes)[()] > 100
    # How much of it the disk took, only the server knows.
    assert not recorded.counts(metrics.syncs)


async def test_changes_of_a_node_that_was_declared_dead_are_lost(recorded: Recorded) -> None:
    clock = ManualClock(NOW)
    database: Any = SimulatedDatabase(lambda: clock.now() / 1000)
    await database.join(NodeInfo(1, "one", (), "1"))
    writer = GroupCommit(database, clock, lambda: None)
    writer.open(1)
    first, later = created(row := new_row()), appended(row, 2)
    writer.put(first.write)
    await clock.advance(0)
    writer.put(later.write)
    writer.lose_all()
    await clock.advance(0)
    await writer.close()
    assert (first.outcome, later.outcome) == ("committed", "OwnershipLost")
    assert recorded.counts(recorded.metrics.refused_writes) == {("lost",): 1}
    assert recorded.counts(recorded.metrics.commits) == {(): 1}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_nothing_is_recorded_in_memory_or_while_metrics_are_off(
    unrecorded: Recorded, tmp_path: Path, kind: str
) -> None:
    store = "memory:" if kind == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}"
    async with Client(Agent("a", run=echo).app(store=store)) as client:
        await client.send("go")
    assert not unrecorded.names()


async def test_a_store_in_memory_commits_nothing(recorded: Recorded) -> None:
    async with Client(Agent("a", run=echo).app(store="memory:")) as client:
        await client.send("go")
    assert not recorded.counts(recorded.metrics.commits)
