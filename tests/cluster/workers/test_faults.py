"""Two workers on one port under load, while workers, and their supervisor, are killed: nothing acknowledged is lost,
nothing happens twice, and callers whose connection was cut need to ask only once more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from statistics import median

import pytest
from cluster.processes.callers import Callers
from cluster.processes.cluster import Cluster
from cluster.processes.nodes import effects_of
from cluster.processes.scale import SEED, times
from cluster.processes.tables import Takeover
from cluster.workers.supervised import Supervised, running_workers
from postgres_server import PostgresServer

from dragoman.cli.serve.slot import WELL_SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

# A worker that is started again need not wait for the end of a lease, unless it takes longer than that to start.
LEASE_SECONDS, MAX_TAKEOVER_SECONDS = 6, 10


@pytest.fixture
async def workers(tmp_path: Path, postgres: PostgresServer) -> AsyncIterator[tuple[Cluster, Supervised]]:
    async with running_workers(tmp_path, postgres) as workers:
        yield workers


def check_asked_once_more(callers: Callers, faults: list[float]) -> None:
    """Whose connection was cut by a fault got an answer when it asked once more, unless there was another fault."""
    print(f"{callers.retries[1]} were asked once more, for {dict(callers.reasons)}")
    print(f"{len(callers.lost_again)} of them were cut by the next fault as well")
    for before, now in callers.lost_again:
        assert any(before < fault < now for fault in faults), "it was lost twice for one fault"


def print_shares(server: Supervised) -> None:
    """How many runs each process had, the shortest-lived first."""
    began = Counter(
        line["pid"] for line in effects_of(server.folder) if line["key"] == "run" and line["kind"] == "begin"
    )
    print(f"runs of each process: {sorted(began.values())}")


async def kill_a_worker(cluster: Cluster, server: Supervised, faults: list[float]) -> list[Takeover]:
    """Kill the worker that has served for longest, wait until it is back, and give the tasks that were taken over."""
    tables = cluster.tables
    before = await server.until_workers(tables)

    async def served_well() -> bool:
        return bool(
            await tables.fetch(
                "SELECT 1 FROM nodes WHERE id = ANY($1) AND joined < clock_timestamp() - $2 * interval '1 second'",
                list(before.values()),
                WELL_SECONDS,
            )
        )

    # Otherwise it would be started later and later.
    await tables.until("one has served well", served_well)
    faults.append(time.monotonic())
    os.kill(server.worker_pids()[0], signal.SIGKILL)
    owned = {node: await tables.owned_by(node) for node in before.values()}
    (dead,) = await server.until_replaced(tables, before)
    return await tables.takeovers(dead, owned[dead])


async def test_workers_are_killed(workers: tuple[Cluster, Supervised]) -> None:
    cluster, server = workers
    random, takeovers, faults = Random(SEED), list[Takeover](), list[float]()
    async with cluster.load(random) as callers:
        for _ in times(30):
            await callers.until_done(random.randint(1, 30))
            takeovers += await kill_a_worker(cluster, server, faults)
    await cluster.verdict(may_fail=True)
    check_asked_once_more(callers, faults)
    print_shares(server)
    seconds = sorted(each.seconds for each in takeovers)
    print(f"takeover of {len(seconds)} tasks: p50 {median(seconds):.2f} s, max {seconds[-1]:.2f} s")
    assert median(seconds) < LEASE_SECONDS
    assert seconds[-1] <= MAX_TAKEOVER_SECONDS
    assert "".join(server.process.output).count("was killed by SIGKILL and is started again") == len(times(30))


async def test_the_supervisor_is_killed_and_another_one_is_started_at_once(workers: tuple[Cluster, Supervised]) -> None:
    cluster, server = workers
    random, outages = Random(SEED), list[float]()
    async with cluster.load(random, nodes_stop=True) as callers:
        for _ in times(20):
            await callers.until_done(random.randint(1, 40))
            before = await server.until_workers(cluster.tables)
            os.kill(server.supervisor, signal.SIGKILL)
            killed_at = time.monotonic()
            await asyncio.to_thread(server.launch)
            outages.append(time.monotonic() - killed_at)
            await server.until_workers(cluster.tables, before.values())
    print(f"\nready again: p50 {median(outages):.2f} s, max {max(outages):.2f} s")
    # What the workers had begun, they have finished.
    await cluster.verdict(may_fail=False)


async def test_workers_are_restarted_one_after_the_other(workers: tuple[Cluster, Supervised]) -> None:
    cluster, server = workers
    random = Random(SEED)
    async with cluster.load(random, nodes_stop=True) as callers:
        for _ in times(5):
            await callers.until_done(random.randint(1, 40))
            before = await server.until_workers(cluster.tables)
            os.kill(server.supervisor, signal.SIGHUP)
            await server.until_workers(cluster.tables, before.values())
    await cluster.verdict(may_fail=False)
    assert max(callers.retries, default=0) <= 1, callers.lost_again
    print_shares(server)
