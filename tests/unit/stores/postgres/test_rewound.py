"""A standby that was behind has taken over: what the database has forgotten is over, and is mixed with nothing new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs
from unit.stores.postgres.changes import NOW, Change, created
from unit.stores.postgres.cluster import Cluster, ClusterNode, draft_of

from dragoman.bus.local import LocalBus
from dragoman.clock import SystemClock
from dragoman.engine.journal.follow import Batch, Follower
from dragoman.engine.ports.store import DedupeKey, Sweep, TaskRow
from dragoman.model.error import ServerError
from dragoman.model.state import State
from dragoman.stores.postgres.database import ConnectionLost, NodeInfo
from dragoman.stores.postgres.heartbeat import Heartbeat
from dragoman.stores.postgres.lease import NodeLease
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.stores.postgres.store import PostgresStore
from dragoman.stores.postgres.writer import GroupCommit

KEY = DedupeKey(b"key", NOW + 60_000)


class LostOnce:
    """A database whose first commit does not arrive, so that it is sent again."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def commit(self, *arguments: object) -> object:
        if not self._is_lost:
            self._is_lost = True
            raise ConnectionLost("it was not sent")
        return await self._database.commit(*arguments)  # type: ignore[arg-type]


async def written(node: ClusterNode, change: Change, *, again: bool) -> str:
    """Write a change as a node does, and say what became of it."""
    database = LostOnce(node.database) if again else node.database
    writer = GroupCommit(database, SystemClock(), lambda: None)  # type: ignore[arg-type]
    writer.open(node.id)
    writer.put(change.write)
    await writer.close()
    return change.outcome


def namesake(row: TaskRow) -> TaskRow:
    """Another task with the same number, which was reserved twice."""
    return structs.replace(row, id="another", context_id="another")


@pytest.mark.parametrize("again", [False, True], ids=["at once", "sent again"])
@pytest.mark.parametrize("kind", ["task", "draft"])
async def test_a_number_that_was_given_to_another_task_is_not_used(
    cluster: Cluster, one: ClusterNode, two: ClusterNode, kind: str, again: bool
) -> None:
    theirs = await two.create()
    mine = namesake(theirs)
    change = created(mine, dedupe_key=KEY) if kind == "task" else draft_of(mine, dedupe_key=KEY, begins=True)
    assert await written(one, change, again=again) == "ServerError"
    assert "another task has the number of this one" in str(change.reported[0])
    # Nothing is left of it that would be in the way when the caller tries again.
    assert await cluster.value("SELECT count(*) FROM repeats") == 0
    assert await cluster.value("SELECT count(*) FROM contexts WHERE context_id = 'another'") == 0
    assert await cluster.value("SELECT id FROM tasks") == theirs.id


async def test_a_run_whose_task_is_gone_writes_nothing_into_another_one(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    theirs = await two.create()
    change = Change(structs.replace(namesake(theirs), generation=2), records=created(theirs).write.records, epoch=1)
    change.write.records = (structs.replace(change.write.records[0], generation=2),)
    assert await written(one, change, again=True) == "OwnershipLost"
    assert await cluster.value("SELECT generation FROM tasks") == 1


async def test_a_stream_of_lost_events_ends_so_that_its_caller_asks_again(cluster: Cluster) -> None:
    node, clock = await cluster.node(), SystemClock()
    row = await node.create()
    assert await node.append(row, State.WORKING) == "committed"
    bus = LocalBus(clock)
    follower = Follower(PostgresStore(node.database, node.nodes), bus, lambda _: None, 60)
    stream = follower.follow(row, 2, ends_on_input_required=False)
    assert await anext(stream) == Batch(())
    waiting: asyncio.Task[Batch] = asyncio.ensure_future(anext(stream))  # type: ignore[arg-type]
    await until_watched(bus, row, 2)
    await cluster.value("DELETE FROM events WHERE task = $1 AND generation = 2", row.number)
    await cluster.value("UPDATE tasks SET generation = 1 WHERE number = $1", row.number)
    bus.observe(row.id, 1)
    assert await waiting == Batch(())
    with pytest.raises(ServerError, match="has lost the last events of the task: subscribe again"):
        await anext(stream)


async def until_watched(bus: LocalBus, row: TaskRow, generation: int) -> None:
    async with asyncio.timeout(10):
        while any(listener.generation < generation for listener in bus.listeners[row.id]):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_what_a_forgotten_node_has_claimed_is_taken_over(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    """It joined when the standby was behind, and went on to write until it noticed that it is not known any more."""
    row = await one.create()
    await cluster.value("DELETE FROM nodes WHERE id = $1", one.id)
    assert await two.take() == []
    while await two.database.sweep(Sweep(NOW)):
        pass
    assert await two.take() == [row.number]


async def test_a_forgotten_node_says_itself_that_it_is_dead(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    info = NodeInfo(one.id, "one", ("agent",), "1")
    heartbeat = Heartbeat(one.nodes, info, NodeLease(6))
    await heartbeat.start()
    row = await one.create()
    await cluster.value("DELETE FROM nodes WHERE id = $1", one.id)
    await heartbeat.start()  # it renews its lease, and goes on as a new node
    assert heartbeat.node != one.id
    assert await two.take() == [row.number]
    await heartbeat.stop()
