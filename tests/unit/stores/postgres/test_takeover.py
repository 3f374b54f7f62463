"""What a dead node leaves behind is taken by the living, once; and nodes are dead only by common consent."""

from __future__ import annotations

import asyncio

from msgspec import structs
from unit.stores.postgres.changes import NOW, SCOPE, Change, created, new_row
from unit.stores.postgres.cluster import Cluster, ClusterNode

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import DedupeKey, Push, Sweep, TaskQuery
from dragoman.model.state import State
from dragoman.net.postgres import connect
from dragoman.stores.postgres.sql import claims, reader
from dragoman.stores.postgres.sql.claims import RETURN_SECONDS
from dragoman.stores.postgres.sql.schema import LOCK_SPACE, SWEEP_LOCK


async def test_work_is_taken_oldest_first_by_one_node_and_only_of_its_agent(one: ClusterNode, two: ClusterNode) -> None:
    rows = [new_row() for _ in range(6)]
    foreign = structs.replace(new_row(), scope=SCOPE._replace(agent="another"))
    await one.commit(*(created(row, queued=True) for row in [*rows, foreign]))
    assert await one.take(2) == [row.number for row in rows[:2]]
    taken = await asyncio.gather(one.take(2), two.take(2))
    assert sorted(number for numbers in taken for number in numbers) == [row.number for row in rows[2:]]
    assert await one.take() == []


async def test_a_node_that_has_left_is_not_waited_for_for_ever(cluster: Cluster) -> None:
    home, other = await cluster.node(), await cluster.node()
    first = await home.create("talk", pins=True)
    await home.append(first, State.COMPLETED)
    second = new_row("talk")
    await other.commit(created(second, queued=True, joins_context=True, serial=True))
    await home.nodes.leave(home.id)
    assert await other.take() == []
    connection = await connect(cluster.url)
    await connection.execute(
        "UPDATE nodes SET seen = seen - make_interval(secs => $1) WHERE id = $2", float(RETURN_SECONDS), home.id
    )
    await connection.close()
    (task,) = await other.database.take(other.id, "agent", parallel=False, limit=1)
    assert (task.claim.task, task.home) == (second.number, f"node {home.id}")


# -- webhooks ----------------------------------------------------------------------------------------------------------


async def test_of_nodes_that_take_over_a_webhook_at_once_one_gets_it(one: ClusterNode, two: ClusterNode) -> None:
    row = await one.create()
    push = Push(row.number, "p", V1_0, "https://hooks/", b"sealed", 1, NOW)
    await one.kinds(Change(row, pushes=(push,)))
    await one.die()
    taken = await asyncio.gather(*(two.database.run(claims.take_pushes, two.id, 10) for _ in range(3)))
    assert sorted(taken) == [0, 0, 1]


# -- counting and forgetting -------------------------------------------------------------------------------------------


async def test_counters_of_a_dead_node_are_folded_and_the_sum_stays(
    cluster: Cluster, one: ClusterNode, two: ClusterNode
) -> None:
    for node in (one, two):
        for _ in range(3):
            await node.append(await node.create(), State.COMPLETED)
        await node.create()
    query = TaskQuery(SCOPE, state=State.COMPLETED)
    assert (await two.database.run(reader.page, query)).total == 6
    await one.die()
    await two.database.sweep(Sweep())
    nodes = await cluster.value("SELECT array_agg(DISTINCT node ORDER BY node) FROM state_counts")
    assert nodes == [0, two.id]
    assert (await two.database.run(reader.page, query)).total == 6
    assert (await two.database.run(reader.page, TaskQuery(SCOPE))).total == 8
    assert await two.database.sweep(Sweep(keep_tasks=2)) == 4
    assert (await two.database.run(reader.page, TaskQuery(SCOPE))).total == 4


async def test_one_node_sweeps_at_a_time_and_nothing_is_left(cluster: Cluster, node: ClusterNode) -> None:
    row = await node.create("talk", dedupe_key=DedupeKey(b"key", NOW + 1))
    await node.append(row, State.COMPLETED, snapshot=b"s", context_state=b"{}")
    rules = Sweep(ended_before_ms=NOW + 1, expired_before_ms=NOW + 10)
    stranger = await cluster.stranger()
    async with stranger.transaction():
        await stranger.execute(f"SELECT pg_advisory_xact_lock({LOCK_SPACE}, {SWEEP_LOCK})")
        assert await node.database.sweep(rules) == 0
    assert await node.database.sweep(rules) == 1
    assert await node.database.sweep(rules) == 0
    for table in ("tasks", "events", "notes", "snapshots", "contexts", "repeats", "pushes"):
        assert await cluster.value(f"SELECT count(*) FROM {table}") == 0, table


async def test_a_context_in_which_a_task_gets_its_turn_is_not_forgotten(cluster: Cluster, node: ClusterNode) -> None:
    row = await node.create("talk")
    await node.append(row, State.COMPLETED, context_state=b"{}")
    stranger = await cluster.stranger()
    async with stranger.transaction():
        await stranger.execute("UPDATE contexts SET running = 4711, turn = turn + 1")
        sweeping = asyncio.create_task(node.database.sweep(Sweep(ended_before_ms=NOW + 1)))
        await cluster.until_waiting()
    assert await sweeping == 1
    assert await cluster.value("SELECT running FROM contexts") == 4711


async def test_a_message_that_the_snapshot_does_not_have_survives_compaction(node: ClusterNode) -> None:
    row = await node.create()
    await node.database.post(row, b"in the snapshot", None, None, 1)
    await node.database.post(row, b"too late for it", None, None, 2)
    await node.append(row, State.COMPLETED, snapshot=b"s", mail=1)
    await node.database.sweep(Sweep(compact_before_ms=NOW + 1))
    assert await node.database.run(reader.records, row.number, 0, 9) == []
    assert await node.database.run(reader.mail, row.number, 0) == [(2, b"too late for it")]


async def test_numbers_are_reserved_once(cluster: Cluster) -> None:
    nodes = [await cluster.node() for _ in range(3)]
    firsts = await asyncio.gather(*(node.database.numbers(10) for node in nodes for _ in range(4)))
    assert sorted(firsts) == list(range(min(firsts), min(firsts) + 120, 10))


async def test_a_dead_node_is_forgotten_after_a_day_unless_something_is_left_of_it(cluster: Cluster) -> None:
    living, gone, needed = [await cluster.node() for _ in range(3)]
    await needed.create()
    for node in (living, gone, needed):
        await node.database.check(node.id)
    await gone.die()
    await needed.die()
    await cluster.value("UPDATE nodes SET seen = seen - interval '25 hours'")
    await living.database.sweep(Sweep())
    assert await cluster.value("SELECT array_agg(id ORDER BY id) FROM nodes") == [living.id, needed.id]
    assert await cluster.value("SELECT array_agg(node ORDER BY node) FROM probes") == [living.id, needed.id]
