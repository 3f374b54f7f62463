"""Three nodes on a PostgreSQL with a standby, under load, while the primary dies and the standby is promoted.

The figures are printed with `pytest -m cluster -s tests/cluster/processes/test_standby.py`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median

import pytest
from cluster.processes.callers import Callers
from cluster.processes.cluster import Cluster, running_cluster
from cluster.processes.replicas import PostgresPair, replicated_postgres
from cluster.processes.scale import SCALE, SEED

from dragoman.stores.postgres.sql.nodes import SILENCE_SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

ROUNDS = max(2, int(8 * SCALE))
# Until somebody has noticed that the primary is dead: shorter and longer than a lease.
UNNOTICED_SECONDS = (0.0, 1.0, 3.0, 8.0)
MAX_SECONDS = 2.0


@pytest.fixture
def pair() -> Iterator[PostgresPair]:
    with replicated_postgres() as pair:
        yield pair


@pytest.fixture
async def cluster(tmp_path: Path, pair: PostgresPair) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, pair.primary, store=pair.url) as cluster:
        yield cluster


class Promotions:
    """The figures of all rounds, in seconds."""

    def __init__(self) -> None:
        self.dead: list[float] = []
        self.promoted: list[float] = []
        self.all_nodes: list[float] = []

    async def time(
        self, cluster: Cluster, callers: Callers, pair: PostgresPair, end: Callable[[], None], unnoticed: float
    ) -> None:
        """End the primary somehow, promote the standby, and write at every node."""
        ended = time.monotonic()
        await asyncio.to_thread(end)
        await asyncio.sleep(unnoticed)
        writes = [asyncio.ensure_future(callers.write_at(node.url)) for node in cluster.nodes]
        await asyncio.to_thread(pair.promote)
        promoted = time.monotonic()
        written = await asyncio.gather(*writes)
        self.dead.append(min(written) - ended - unnoticed)
        self.promoted.append(max(0.0, min(written) - promoted))
        self.all_nodes.append(max(0.0, max(written) - promoted))
        print(
            f"{end.__name__}, unnoticed for {unnoticed:g} s: written {min(written) - ended:.2f} s after it, "
            f"{min(written) - promoted:.2f} s after the promotion, at every node {max(written) - promoted:.2f} s"
        )

    def __str__(self) -> str:
        figures = {"the noticed death": self.dead, "the promotion": self.promoted, "it, at every node": self.all_nodes}
        parts = [f"{name}: p50 {median(each):.2f} s, max {max(each):.2f} s" for name, each in figures.items()]
        return f"load {os.getloadavg()[0]:.1f}; first write after {'; '.join(parts)}"


async def test_a_synchronous_standby_is_promoted_and_nothing_is_lost(cluster: Cluster, pair: PostgresPair) -> None:
    random, promotions = Random(SEED), Promotions()
    async with cluster.load(random) as callers:
        for number in range(ROUNDS):
            await asyncio.to_thread(pair.synchronize)
            await callers.until_done(random.randint(5, 40))
            await promotions.time(cluster, callers, pair, pair.kill, UNNOTICED_SECONDS[number % len(UNNOTICED_SECONDS)])
            await asyncio.to_thread(pair.attach)
    print(f"\n{ROUNDS} promotions, {promotions}")
    await cluster.verdict(may_fail=False)
    assert max(promotions.promoted) < MAX_SECONDS


async def test_a_primary_falls_silent_and_comes_back_when_it_has_been_replaced(
    cluster: Cluster, pair: PostgresPair
) -> None:
    random, promotions = Random(SEED), Promotions()
    async with cluster.load(random) as callers:
        for number in range(ROUNDS // 2):
            await asyncio.to_thread(pair.synchronize)
            await callers.until_done(random.randint(5, 40))
            unnoticed = UNNOTICED_SECONDS[number % len(UNNOTICED_SECONDS)]
            await promotions.time(cluster, callers, pair, pair.freeze, unnoticed)
            pair.thaw()
            await callers.until_done(random.randint(5, 40))
            await asyncio.to_thread(pair.attach)
    print(f"\n{ROUNDS // 2} promotions, {promotions}")
    await cluster.verdict(may_fail=False)
    assert max(promotions.promoted) < MAX_SECONDS + SILENCE_SECONDS


async def test_an_asynchronous_standby_is_promoted_and_what_it_has_is_whole(
    cluster: Cluster, pair: PostgresPair
) -> None:
    random = Random(SEED)
    async with cluster.load(random, lossy=True) as callers:
        for _ in range(ROUNDS // 2):
            await callers.until_done(random.randint(20, 60))
            await asyncio.to_thread(pair.standby.stop)
            # From here on, everything will be lost: also that a node reserves task numbers when it starts.
            first, second = random.sample(cluster.nodes, 2)
            await asyncio.to_thread(first.process.kill)
            await cluster.launch(first)
            await callers.until_done(random.randint(20, 60))
            await asyncio.to_thread(pair.kill)
            await asyncio.to_thread(pair.standby.start)
            await asyncio.to_thread(pair.promote)
            # One that starts now reserves the same numbers.
            await asyncio.to_thread(second.process.kill)
            await cluster.launch(second)
            await callers.until_done(random.randint(20, 60))
            await asyncio.to_thread(pair.attach)
    await cluster.verdict_after_loss()
    async with cluster.load(random) as callers:
        await callers.until_done(200)
    await cluster.verdict(may_fail=False)
