"""Three nodes on one PostgreSQL under load, while nodes, connections and the database fail: nothing acknowledged is
lost, nothing happens twice, and nothing is left at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from statistics import median

import pytest
from cluster.processes.cluster import Cluster, running_cluster
from cluster.processes.scale import SEED, times
from cluster.processes.tables import Takeover
from cluster.processes.wire_proxy import Trap, changes_tasks
from postgres_server import PostgresServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

MAX_TAKEOVER_SECONDS = 10
OUTAGE_SECONDS = 30


@pytest.fixture
async def cluster(tmp_path: Path, postgres: PostgresServer) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, postgres) as cluster:
        yield cluster


def check_takeovers(takeovers: list[Takeover]) -> None:
    seconds = sorted(each.seconds for each in takeovers)
    assert seconds, "no task was taken over"
    print(f"takeover of {len(seconds)} tasks: p50 {median(seconds):.2f} s, max {seconds[-1]:.2f} s")
    assert seconds[-1] <= MAX_TAKEOVER_SECONDS


async def test_nodes_are_killed(cluster: Cluster) -> None:
    random, takeovers = Random(SEED), list[Takeover]()
    async with cluster.load(random) as callers:
        for _ in times(50):
            node = random.choice(cluster.nodes)
            await callers.until_done(random.randint(1, 30))
            number = await cluster.id_of(node)
            await asyncio.to_thread(node.process.kill)
            tasks = await cluster.tables.owned_by(number)
            await cluster.launch(node)
            takeovers += await cluster.tables.takeovers(number, tasks)
    print(f"\n{await cluster.tables.count_dead()} nodes were declared dead, {len(times(50))} of them were")
    await cluster.verdict(may_fail=True)
    check_takeovers(takeovers)


async def test_nodes_are_stopped_until_they_are_dead_and_go_on(cluster: Cluster) -> None:
    random, takeovers = Random(SEED), list[Takeover]()
    async with cluster.load(random) as callers:
        for _ in times(20):
            node = random.choice(cluster.nodes)
            await callers.until_done(random.randint(1, 30))
            number = await cluster.id_of(node)
            node.process.pause()
            try:
                tasks = await cluster.tables.owned_by(number)
                takeovers += await cluster.tables.takeovers(number, tasks)
                await cluster.tables.until_dead(number)
            finally:
                node.process.resume()
            await cluster.until_joined(node, number)
    await cluster.verdict(may_fail=True)
    check_takeovers(takeovers)


async def test_replies_of_commits_are_swallowed(cluster: Cluster) -> None:
    random = Random(SEED)
    async with cluster.load(random) as callers:
        for number in times(200):
            cluster.proxy.traps.append(Trap(changes_tasks, random.choice(("swallow", "cut", "late"))))
            async with asyncio.timeout(60):
                await cluster.proxy.until_sprung(number + 1)
            await callers.until_done(random.randint(1, 4))
    print(f"\nswallowed: {dict(cluster.proxy.sprung)}")
    await cluster.verdict(may_fail=False)


async def test_connections_to_the_database_are_cut(cluster: Cluster) -> None:
    random = Random(SEED)
    async with cluster.load(random) as callers:
        for _ in times(20):
            await callers.until_done(random.randint(5, 30))
            assert cluster.proxy.cut()
    await cluster.verdict(may_fail=False)


async def test_the_database_crashes_and_recovers(cluster: Cluster) -> None:
    random = Random(SEED)
    async with cluster.load(random) as callers:
        for _ in times(10):
            await callers.until_done(random.randint(10, 60))
            await asyncio.to_thread(cluster.postgres.restart)
    await cluster.verdict(may_fail=False)


async def test_the_database_is_away_for_longer_than_a_lease(cluster: Cluster) -> None:
    async with cluster.load(Random(SEED)) as callers:
        await callers.until_done(60)
        ids = await cluster.tables.live_nodes()
        await asyncio.to_thread(cluster.postgres.stop)
        await asyncio.sleep(OUTAGE_SECONDS)  # this is the outage
        await asyncio.to_thread(cluster.postgres.start)
        await callers.until_done(60)
        assert await cluster.tables.live_nodes() == ids, "an outage of the database has killed a node"
    await cluster.verdict(may_fail=False)
