"""The metrics of several workers: one address has them all, and no counter goes back, whatever becomes of a worker."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from uuid import uuid4

import pytest
from cluster.processes.caller import Caller
from cluster.processes.nodes import effects_of
from cluster.processes.tables import Tables
from cluster.workers.supervised import Supervised
from prometheus_client.parser import text_string_to_metric_families
from support.processes import until_ended

pytestmark = pytest.mark.timeout(60)
CALLS = "a2a_server_operation_duration_seconds_count"
GROWS = ("_total", "_count", "_bucket", "_sum")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scrapes:
    """Scrapes again and again, and compares each with the one before."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.last: Samples = {}
        self.count = 0

    async def scrape(self) -> Samples:
        text = await asyncio.to_thread(self._get)
        samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        for key, value in self.last.items():
            if key[0].endswith(GROWS):
                assert samples[key] >= value, f"{key} went back from {value} to {samples[key]}"
        self.last = samples
        self.count += 1
        return samples

    def _get(self) -> str:
        with urllib.request.urlopen(self._url, timeout=10) as response:
            return response.read().decode()

    async def calls(self) -> float:
        """How many messages were sent to all workers."""
        samples = await self.scrape()
        return sum(
            value
            for (name, labels), value in samples.items()
            if name == CALLS and ("a2a_method_name", "SendMessage") in labels
        )

    async def until_calls(self, count: float) -> None:
        while await self.calls() < count:
            pass

    async def during(self, what: Awaitable[object]) -> None:
        """Scrape until something is done."""
        done = asyncio.ensure_future(what)
        while not done.done():
            await self.scrape()
        await done


@pytest.fixture
async def server(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervised]:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    server = Supervised(tmp_path, postgres_url, ["--lease", "300", "--metrics", "0"])
    await asyncio.to_thread(server.launch)
    yield server
    await asyncio.to_thread(server.close)
    print(*server.process.output)


@pytest.fixture
async def tables(postgres_url: str) -> AsyncIterator[Tables]:
    async with Tables(postgres_url) as tables:
        yield tables


def metrics_address(server: Supervised) -> str:
    [url] = re.findall(r"metrics +(http://\S+)", "".join(server.process.output))
    return url


def files(server: Supervised) -> list[Path]:
    return [path for folder in (server.folder / "temporary").glob("dragoman-metrics-*") for path in folder.iterdir()]


async def send(server: Supervised, count: int) -> None:
    """Send so many messages, each until it has been answered."""
    caller = Caller(server.url, repeats=1000)
    await asyncio.gather(*(caller.send("quick", str(uuid4())) for _ in range(count)))


async def test_one_address_has_the_numbers_of_all_workers_and_no_counter_goes_back(
    server: Supervised, tables: Tables
) -> None:
    scrapes = Scrapes(metrics_address(server))
    await scrapes.during(send(server, 30))
    await scrapes.until_calls(30)
    assert len({line["pid"] for line in effects_of(server.folder)}) == len(files(server)) == 2
    assert scrapes.last["process_resident_memory_bytes", ()] > 3 * 20_000_000
    await a_worker_that_is_killed_has_lost_nothing(server, tables, scrapes)
    await workers_that_are_restarted_go_on_counting(server, tables, scrapes)
    await a_supervisor_that_is_stopped_leaves_no_file(server, scrapes)


async def a_worker_that_is_killed_has_lost_nothing(server: Supervised, tables: Tables, scrapes: Scrapes) -> None:
    before, calls = await server.until_workers(tables), await scrapes.calls()
    os.kill(server.worker_pids()[0], signal.SIGKILL)
    await scrapes.during(server.until_replaced(tables, before))
    assert await scrapes.calls() == calls
    await send(server, 10)
    await scrapes.until_calls(calls + 10)
    assert len(files(server)) == 2


async def workers_that_are_restarted_go_on_counting(server: Supervised, tables: Tables, scrapes: Scrapes) -> None:
    before, calls, count = await server.until_workers(tables), await scrapes.calls(), scrapes.count
    os.kill(server.supervisor, signal.SIGHUP)
    await scrapes.during(asyncio.gather(server.until_workers(tables, before.values()), send(server, 20)))
    await scrapes.until_calls(calls + 20)
    assert scrapes.count > count + 2
    assert len(files(server)) == 2


async def a_supervisor_that_is_stopped_leaves_no_file(server: Supervised, scrapes: Scrapes) -> None:
    server.process.stop()
    assert await asyncio.to_thread(server.process.wait) == 0
    assert list((server.folder / "temporary").glob("dragoman-metrics-*")) == []
    with pytest.raises(urllib.error.URLError):
        await scrapes.scrape()
    assert not server.process.tracebacks


async def test_a_supervisor_that_is_killed_leaves_no_file_when_its_workers_have_ended(server: Supervised) -> None:
    workers = server.worker_pids()
    os.kill(server.supervisor, signal.SIGKILL)
    for worker in workers:
        await asyncio.to_thread(until_ended, worker)
    assert list((server.folder / "temporary").glob("dragoman-metrics-*")) == []
