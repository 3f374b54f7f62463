"""Three nodes under load are updated one after the other: from the version before, and from this one to itself.

No request fails that is repeated once, with the same message id; no task is lost, none begins twice that must not, and
none fails that has time to end.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from cluster.processes.callers import Callers
from cluster.processes.checker import IN_DOUBT
from cluster.processes.cluster import Cluster, running_cluster
from cluster.processes.nodes import SOURCE, effects_of
from cluster.processes.scale import SCALE, SEED
from postgres_server import PostgresServer

from dragoman import Client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

REPOSITORY = SOURCE.parent
# The last commit with version 3 of the tables.
BEFORE = "4a1d7434"
# How much callers do before a node is replaced, and after it.
ACTS = max(10, int(60 * SCALE))


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The sources of the version before."""
    archive = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", BEFORE, "src"], capture_output=True, check=False, timeout=60
    )
    if archive.returncode:
        pytest.skip(f"the clone does not have commit {BEFORE}")
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=archive.stdout, check=True, timeout=60)
    return tmp_path / "src"


class Probe:
    """One more caller, which sends small messages one after the other and notes when each is acknowledged."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def longest_gap(self, since: float = 0.0, until: float = float("inf")) -> float:
        """The longest time between two acknowledgments of which one is in this time, in seconds."""
        gaps = [later - earlier for earlier, later in pairwise(self.times) if later >= since and earlier <= until]
        return max(gaps, default=0.0)


@asynccontextmanager
async def probing(callers: Callers) -> AsyncIterator[Probe]:
    """Probe as long as the block lasts."""
    probe = Probe()

    async def work() -> None:
        while True:
            probe.times.append(await callers.write_at(callers.url))

    working = asyncio.ensure_future(work())
    try:
        yield probe
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


@asynccontextmanager
async def clients(cluster: Cluster, callers: Callers, number: int = 4) -> AsyncIterator[list[str]]:
    """Callers with Dragoman's client, which repeats by itself, as long as the block lasts. Yields what they read."""
    over, texts = asyncio.Event(), list[str]()

    async def work() -> None:
        async with Client(cluster.url) as client:
            while not over.is_set():
                send = callers.note_message("talk")
                data, metadata = {"nonce": send.nonce, "ms": 1500}, {"skillId": "talk"}
                stream = client.stream(data=data, metadata=metadata, message_id=send.message_id)
                text = "".join([piece async for piece in stream.text()])
                assert text == "".join(f"{send.nonce}.{word} " for word in range(12)), text
                callers.records.accepted(send.nonce, stream.task.id)
                texts.append(text)

    working = asyncio.gather(*(work() for _ in range(number)))
    try:
        yield texts
        over.set()
        await working
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def tables_of_nodes(cluster: Cluster) -> list[int]:
    """The version of the tables that each live node was made for."""
    rows = await cluster.tables.fetch("SELECT tables FROM nodes WHERE NOT dead ORDER BY tables")
    return [row["tables"] for row in rows]


async def update(cluster: Cluster, callers: Callers, source: Path, *, take_out: bool) -> list[float]:
    """Replace one node after the other. Returns how long each took to stop."""
    seconds: list[float] = []
    for node in cluster.nodes:
        seconds.append(await cluster.replace(node, source, take_out=take_out))
        await callers.until_done(ACTS)
    return seconds


def check(callers: Callers, probe: Probe) -> None:
    """No request has failed that was repeated once."""
    times = probe.times
    print(f"\nprobe: {len(times)} messages, the longest gap between two {probe.longest_gap() * 1000:.0f} ms")
    print(f"repeated: {dict(sorted(callers.retries.items()))}", *callers.reasons.most_common(8), sep="\n  ")
    print(f"load: {os.getloadavg()}")
    assert max(callers.retries, default=0) <= 1


async def test_nodes_are_updated_from_the_version_before(
    tmp_path: Path, postgres: PostgresServer, before: Path
) -> None:
    async with running_cluster(tmp_path, postgres, source=before) as cluster:
        random = Random(SEED)
        async with cluster.load(random, nodes_stop=True) as callers, probing(callers) as probe:
            await callers.until_done(ACTS)
            first, *others = cluster.nodes
            # A node of the version before refuses messages while it stops, so that no proxy may send it any.
            began = time.monotonic()
            await cluster.replace(first, SOURCE, take_out=True)
            migrated = time.monotonic()
            print(
                f"\nwhile the tables were migrated, writes stalled {probe.longest_gap(began, migrated) * 1000:.0f} ms"
            )
            assert await tables_of_nodes(cluster) == [3, 3, 4]
            await callers.until_done(ACTS)
            for node in others:
                await cluster.replace(node, SOURCE, take_out=True)
                await callers.until_done(ACTS)
            assert await tables_of_nodes(cluster) == [4, 4, 4]
            # The way back is open: a node of the version before works with the tables of this one.
            await cluster.replace(first, before)
            await callers.until_done(ACTS)
            assert await tables_of_nodes(cluster) == [3, 4, 4]
            await cluster.replace(first, SOURCE, take_out=True)
            await callers.until_done(ACTS)
        check(callers, probe)
        await cluster.verdict(may_fail=False)


async def test_nodes_are_restarted_one_after_the_other(tmp_path: Path, postgres: PostgresServer) -> None:
    async with running_cluster(tmp_path, postgres) as cluster:
        async with cluster.load(Random(SEED), nodes_stop=True) as callers, probing(callers) as probe:
            async with clients(cluster, callers) as texts:
                await callers.until_done(ACTS)
                seconds = await update(cluster, callers, SOURCE, take_out=False)
            print(f"\n{len(texts)} streams were read with Dragoman's client, without a retry by its caller")
        print(f"\nseconds until each had stopped: {', '.join(f'{each:.1f}' for each in seconds)}")
        check(callers, probe)
        await cluster.verdict(may_fail=False)


async def test_nodes_without_time_to_finish_hand_over_what_may_begin_again(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    async with running_cluster(tmp_path, postgres, flags=["--drain", "0.5"]) as cluster:
        async with cluster.load(Random(SEED), nodes_stop=True) as callers, probing(callers) as probe:
            await callers.until_done(ACTS)
            seconds = await update(cluster, callers, SOURCE, take_out=False)
        print(f"\nseconds until each had stopped: {', '.join(f'{each:.1f}' for each in seconds)}")
        check(callers, probe)
        failed = await cluster.verdict(may_fail=True)
        begun = [line for line in effects_of(tmp_path) if (line["kind"], line["key"]) == ("begin", "run")]
        again = Counter(line["nonce"] for line in begun if cluster.records.sends[line["nonce"]].skill == "again")
        print(f"{sum(number > 1 for number in again.values())} tasks were handed over")
        # An effect under `ctx.once` that was interrupted may not be repeated either.
        assert not [one for one in failed if one.nonce in again and IN_DOUBT not in one.reason]
