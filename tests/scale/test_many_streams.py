"""Many open streams on one node, half of them of another node's tasks, and a rolling restart of both nodes."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster.processes.postgres import crashable_postgres
from postgres_server import PostgresServer
from scale.streams.audience import Audience
from scale.streams.fleet import FirstChoice, Peak, TickingNode, Usage, family_of
from scale.streams.readers import RETRY_SECONDS, ClientReader, PlainReader

from dragoman import Client

# Streams of one of our clients.
PER_CLIENT = 100


class Show:
    """Two nodes, all tasks and their readers."""

    def __init__(self, first: TickingNode, second: TickingNode, balancer: str) -> None:
        self.nodes = (first, second)
        self._balancer = balancer
        self._clients: list[Client] = []
        self._reading: list[asyncio.Task[None]] = []
        self.audience = Audience()
        self.tasks: list[str] = []

    async def begin(self, count: int) -> None:
        """Begin so many tasks, every other one on the second node."""
        half = count // 2
        first, second = await asyncio.gather(*(node.begin(half) for node in self.nodes))
        self.tasks = [task_id for pair in zip(first, second, strict=True) for task_id in pair]

    async def open_streams(self, ours: int, retry: float) -> None:
        """Open a stream of each task on the first node: so many with our client, the others with plain SSE."""
        ports = [node.port for node in self.nodes]
        plain = len(self.tasks) - ours
        readers: list[PlainReader | ClientReader] = []
        for number, task_id in enumerate(self.tasks):
            # Evenly, so that either kind has tasks of either node.
            if number * plain // len(self.tasks) != (number + 1) * plain // len(self.tasks):
                readers.append(PlainReader(self.audience, task_id, ports, retry))
            else:
                readers.append(ClientReader(self.audience, task_id, self._client(len(readers))))
        for start in range(0, len(readers), 200):
            some = readers[start : start + 200]
            self._reading += [asyncio.ensure_future(reader.read()) for reader in some]
            await self.audience.until(lambda some=some: all(reader.seat.generation for reader in some))

    def _client(self, number: int) -> Client:
        while len(self._clients) <= number // PER_CLIENT:
            self._clients.append(Client(self._balancer, reconnect=60))
        return self._clients[number // PER_CLIENT]

    async def restart(self, node: TickingNode, tasks: int) -> None:
        """Stop a node, and start it again once the other one has begun its tasks: so many."""
        begins = self.audience.begins
        node.process.stop()
        assert await asyncio.to_thread(node.process.wait) == 0
        await self.audience.until(lambda: self.audience.begins == begins + tasks)
        await asyncio.to_thread(node.launch)

    async def end(self) -> None:
        """Complete all tasks, and let everybody read to the end."""
        for node in self.nodes:
            node.tell("end")
        await self.audience.until(lambda: self.audience.ended == len(self.tasks))
        await asyncio.gather(*self._reading)

    async def close(self) -> None:
        for reading in self._reading:
            reading.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def running_show(folder: Path, store: str, flags: Sequence[str] = (), period: float = 0) -> AsyncIterator[Show]:
    nodes = [TickingNode(number, folder, store, flags, period) for number in (1, 2)]
    try:
        for node in nodes:
            node.launch(ready=False)
        for node in nodes:
            await asyncio.to_thread(node.process.ready)
        async with FirstChoice([node.port for node in nodes]) as balancer:
            show = Show(nodes[0], nodes[1], balancer.url)
            try:
                yield show
            finally:
                await show.close()
    finally:
        for node in nodes:
            node.close()
            for process in node.processes:
                print(f"{node.name} {process.pid}:", *process.output[-30:])
                assert not process.tracebacks


@pytest.mark.cluster
@pytest.mark.timeout(60)
async def test_every_stream_goes_on_where_it_was_over_a_rolling_restart(tmp_path: Path, postgres_url: str) -> None:
    async with running_show(tmp_path, postgres_url, ["--drain", "0"]) as show:
        audience, (first, second) = show.audience, show.nodes
        await show.begin(40)
        await show.open_streams(ours=10, retry=0.02)
        for node in show.nodes:
            node.tell("tick")
        await audience.until(lambda: audience.ticks == 40)
        await show.restart(first, tasks=20)
        second.tell("tick")  # it has all tasks now
        await audience.until(lambda: audience.ticks == 80)
        await show.restart(second, tasks=40)
        first.tell("tick")
        await audience.until(lambda: audience.ticks == 120)
        await show.end()


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with crashable_postgres() as server:
        yield server


SIZE = int(os.environ.get("STREAMS", "10000"))
# So many of a hundred readers use our client.
OURS = 15
# Seconds between two events of a stream, and how long is measured.
PERIOD = 10.0
MEASURED = float(os.environ.get("SECONDS", "60"))


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_ten_thousand_streams_on_one_node(tmp_path: Path, postgres: PostgresServer) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"\n{SIZE} streams, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    limits = {"streams": 2 * SIZE, "caller-streams": 0, "tasks": 2 * SIZE, "caller-tasks": 0}
    flags = [word for name, value in limits.items() for word in (f"--limits-{name}", str(value))]
    async with running_show(tmp_path, postgres.url(), [*flags, "--drain", "0"], PERIOD) as show:
        loop, audience, (first, second) = asyncio.get_running_loop(), show.audience, show.nodes
        before = loop.time()
        await show.begin(SIZE)
        print(f"{SIZE} tasks begun in {loop.time() - before:.1f} s; A is {first.process.pid}, B {second.process.pid}")
        await asyncio.sleep(PERIOD)
        pids = {"A": [first.process.pid], "B": [second.process.pid], "PostgreSQL": family_of(postgres.pid)}
        start = {name: Usage.of(*each) for name, each in pids.items()}
        before = loop.time()
        await show.open_streams(ours=SIZE * OURS // 100, retry=RETRY_SECONDS)
        print(f"streams open after {loop.time() - before:.1f} s")
        opened = {name: Usage.of(*each) for name, each in pids.items()}
        audience.delays.clear()
        await asyncio.sleep(MEASURED)
        measured = {name: Usage.of(*each) for name, each in pids.items()}
        for name in pids:
            print(
                f"{name}: CPU {measured[name].percent_since(opened[name]):.0f} % of a core, "
                f"memory (PSS) {start[name].pss / 1e6:.0f} MB, with streams {opened[name].pss / 1e6:.0f} MB, "
                f"after {MEASURED:g} s {measured[name].pss / 1e6:.0f} MB"
            )
        grown = {
            kind: (getattr(opened["A"], kind) - getattr(start["A"], kind)) / SIZE / 1000 for kind in ("rss", "pss")
        }
        more = measured["A"].rss - opened["A"].rss - (measured["B"].rss - opened["B"].rss)
        print(
            f"memory of a stream: {grown['rss']:.1f} KB RSS, {grown['pss']:.1f} KB PSS; after {MEASURED:g} s of events "
            f"{grown['rss'] + more / SIZE / 1000:.1f} KB RSS, without what its tasks hold"
        )
        ticks = len(audience.delays)
        print(
            f"{ticks / MEASURED:.0f} events a second, delay p50 {1000 * audience.percentile(0.5):.1f} ms, "
            f"p99 {1000 * audience.percentile(0.99):.1f} ms, longest {1000 * audience.percentile(1):.1f} ms"
        )
        await roll(show, "A", first, second, tasks=SIZE // 2)
        await roll(show, "B", second, first, tasks=SIZE)
        await show.end()
        print(audience)
        assert audience.ended == SIZE
        assert grown["rss"] < 40


async def roll(show: Show, name: str, node: TickingNode, other: TickingNode, *, tasks: int) -> None:
    """Stop a node, let the other one take its tasks over, so many, start it again, and print how that went."""
    loop, audience = asyncio.get_running_loop(), show.audience
    plain, begins, before = SIZE - SIZE * OURS // 100, audience.begins, loop.time()
    audience.longest_silence, audience.attempts = 0.0, 0
    audience.failures.clear()
    usage = Usage.of(other.process.pid)
    async with Peak(other.process.pid) as peak:
        node.process.stop()
        await asyncio.to_thread(node.process.wait)
        stopped = loop.time() - before
        audience.behind = set(audience.seats)
        await audience.until(lambda: audience.open == plain, 180)
        resumed = loop.time() - before
        await audience.until(lambda: audience.begins >= begins + tasks, 180)
        begun = loop.time() - before
        await audience.until(lambda: not audience.behind, 180)
        all_read = loop.time() - before
    after = Usage.of(other.process.pid)
    print(
        f"{name} stopped in {stopped:.1f} s; all plain streams were resumed after {resumed:.1f} s, {tasks} tasks "
        f"begun again after {begun:.1f} s, and every stream had its next event after {all_read:.1f} s. "
        f"{audience.attempts} connections of plain readers, failed: {audience.failures}. The other node: "
        f"{after.cpu - usage.cpu:.1f} s of CPU, at most {peak.percent:.0f} % of a core and {peak.rss / 1e6:.0f} MB"
    )
    await asyncio.to_thread(node.launch)
    ticks = audience.ticks
    await audience.until(lambda: audience.ticks >= ticks + 2 * SIZE, 180)
    print(f"longest silence of a stream {audience.longest_silence:.1f} s")
