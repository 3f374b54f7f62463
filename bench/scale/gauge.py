"""Measures unit costs on a PostgreSQL: each alone, by the CPU time of the processes that are part of it."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench import cores
from bench.postgres import Postgres
from bench.proc import children, cpu_exactly
from bench.scale import replay
from bench.scale.costs import CommitCost, Linear
from dragoman.bus.postgres import CHANNEL, PostgresBus
from dragoman.clock import SystemClock
from dragoman.engine.ports.store import Write
from dragoman.net.postgres import connect
from dragoman.stores.postgres.database import NodeInfo
from dragoman.stores.postgres.sql import claims, reader
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.stores.postgres.sql.nodes import PostgresNodes
from dragoman.stores.postgres.writer import GroupCommit

NODE = 1
# Tasks per commit, how many commits of each are measured, and the time between them. Statements with one task come from
# nodes that have little to do: what they need is not in the caches of the CPU any more.
SIZES = ((1, 400, 0.0005), (8, 300, 0.0), (32, 120, 0.0), (96, 60, 0.0))
LISTENERS = (0, 10, 40)
NOTICES = ((1, 400), (100, 200))
PEERS = (1, 200, 1000)
PROBES = 400
# Steps of a stream, and the time between them.
PACED, GAP = 150, 0.01


class Spent(Struct, frozen=True):
    """What one of many equal steps took, in seconds: of the clock, and of the CPU of both sides.

    `database` is that of all processes of PostgreSQL, `backend` that of the one which did the work.
    """

    seconds: float
    node: float
    database: float
    backend: float

    @property
    def pause(self) -> float:
        """The time in which nobody computed. The sides take turns, so the rest is the sum of their CPU times."""
        return max(0.0, self.seconds - self.node - self.backend)


class Gauge:
    """Takes the time of steps against one database, from inside of this process, which is the node's side."""

    def __init__(self, server: Postgres, url: str) -> None:
        self._server = server
        self._url = url
        self.database = PostgresDatabase(url)
        self.control: Any = None
        self._writer = GroupCommit(self.database, SystemClock(), lambda: None)

    async def open(self) -> None:
        """Connect, and create the tables."""
        await self.database.open(())
        self.control = await connect(self._url)
        self._writer.open(NODE)

    async def close(self) -> None:
        """Disconnect."""
        await self._writer.close()
        await self.database.close()
        await self.control.close()

    async def spent(self, steps: Sequence[Callable[[], Awaitable[object]]], gap: float = 0.0) -> Spent:
        """Do equal steps, one after the other; the first tenth does not count. The time is that of the median step.

        With a gap, there is nothing to do before each: what it needs is not in the caches of the CPU any more.
        """
        for step in steps[: len(steps) // 10]:
            await step()
        counted = steps[len(steps) // 10 :]
        seconds: list[float] = []
        node = 0.0
        before = cpu_by_process(self._server.pid)
        for step in counted:
            if gap:
                await asyncio.sleep(gap)
            began, cpu = time.perf_counter(), time.process_time()
            await step()
            node += time.process_time() - cpu
            seconds.append(time.perf_counter() - began)
        after = cpu_by_process(self._server.pid)
        database = [cpu - before.get(process, 0.0) for process, cpu in after.items()]
        each = 1 / len(counted)
        return Spent(statistics.median(seconds), node * each, sum(database) * each, max(database) * each)

    async def wal(self) -> int:
        """The bytes of WAL that were ever written."""
        return int(await self.control.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

    async def disk(self) -> int:
        """The bytes of this database."""
        return int(await self.control.fetchval("SELECT pg_database_size(current_database())"))

    # -- commits -------------------------------------------------------------------------------------------------------

    async def commits(self) -> tuple[CommitCost, CommitCost, CommitCost]:
        """The costs of the two commits of a send and of one with both, by the number of tasks that begin or end."""
        begins: dict[int, Spent] = {}
        ends: dict[int, Spent] = {}
        both: dict[int, Spent] = {}
        for size, count, gap in SIZES:
            old = await self._batches(size, count)
            begins[size] = await self.spent([self._commit(batch) for batch in old], gap)
            new = await self._batches(size, count)
            mixed = [[*map(_end, one), *two] for one, two in zip(old, new, strict=True)]
            both[size] = await self.spent([self._commit(batch) for batch in mixed], gap)
            ends[size] = await self.spent([self._commit([*map(_end, batch)]) for batch in new], gap)
        return _commit_cost(begins), _commit_cost(ends), _commit_cost(both)

    async def _batches(self, size: int, count: int) -> list[list[Write]]:
        first = await self.database.numbers(size * count)
        return [list(replay.begun(first + size * number, size)) for number in range(count)]

    async def event_seconds(self) -> float:
        """The time of the commit of one event, at the pace of a stream."""
        write = replay.begin(await self.database.numbers(1))
        await self._commit([write])()
        steps: list[Callable[[], Awaitable[object]]] = []
        for _ in range(PACED):
            write = replay.event(write.row)
            steps.append(self._commit([write]))
        return (await self.spent(steps, gap=GAP)).seconds

    def _commit(self, writes: Sequence[Write]) -> Callable[[], Awaitable[object]]:
        """Commit changes together, as the store of a node does it."""

        async def commit() -> None:
            written = asyncio.get_running_loop().create_future()
            left = len(writes)

            def on_done(error: BaseException | None) -> None:
                nonlocal left
                left -= 1
                if error is not None and not written.done():
                    written.set_exception(error)
                elif not left and not written.done():
                    written.set_result(None)

            for write in writes:
                write.done = on_done
                self._writer.put(write)
            await written

        return commit

    async def bytes_per_send(self, sends: int = 4096, size: int = 16) -> tuple[float, float, float]:
        """WAL per send, WAL per send right after a checkpoint, and bytes on disk. `sends` fill 8 commits at least."""
        await self.control.execute("CHECKPOINT")
        after_checkpoint = await self._wal_of(sends // 8, size)
        disk = await self.disk()
        wal = await self._wal_of(sends, size)
        return wal, after_checkpoint, (await self.disk() - disk) / sends

    async def _wal_of(self, sends: int, size: int) -> float:
        before = await self.wal()
        first = await self.database.numbers(sends)
        for number in range(first, first + sends, size):
            writes = list(replay.begun(number, size))
            await self._commit(writes)()
            await self._commit([replay.end(write.row) for write in writes])()
        return (await self.wal() - before) / sends

    async def read_seconds(self) -> float:
        """The time of a read of the new events of a task, at the pace of a stream."""
        write = replay.begin(await self.database.numbers(1))
        await self._commit([write])()
        return (
            await self.spent([lambda: self.database.run(reader.records, write.row.number, 1, 100)] * PACED, gap=GAP)
        ).seconds

    # -- what nodes do beside ------------------------------------------------------------------------------------------

    async def looks(self) -> Spent:
        """Look for tasks to take, and at those that are owned, when there are none."""

        async def look() -> None:
            assert not await self.database.take(NODE, "bench", parallel=False, limit=16)
            await self.database.run(claims.owned, NODE)

        return await self.spent([look] * PROBES)

    async def beats(self) -> tuple[Linear, Linear]:
        """Renew a lease, by the number of nodes: CPU of PostgreSQL and of the node."""
        nodes = PostgresNodes(self._url)
        found: dict[int, Spent] = {}
        joined = 0
        for count in PEERS:
            for number in range(joined, count):
                # Ids are large and random in real life; their rows have one agent and one key.
                node = NODE + number * 1_000_003
                await nodes.join(NodeInfo(node, f"web{number}:8080", ("bench",), "0", 6.0, ("0123456789abcdef",)))
            joined = count
            await self.control.execute("VACUUM ANALYZE nodes")
            found[count] = await self.spent([lambda: nodes.beat(NODE)] * (PROBES // 2))
        await nodes.close()
        database = {count: spent.database for count, spent in found.items()}
        return line(database), line({count: spent.node for count, spent in found.items()})

    # -- wake-ups ------------------------------------------------------------------------------------------------------

    async def notifies(self) -> tuple[Linear, float, float]:
        """CPU of PostgreSQL per NOTIFY by the number of listeners, that of the sender, and the time to a listener."""
        found: dict[int, Spent] = {}
        arrival = 0.0
        listeners: list[Any] = []
        arrived = asyncio.Semaphore(0)
        for count in LISTENERS:
            while len(listeners) < count:
                listener = await connect(self._url)
                await listener.add_listener(CHANNEL, lambda *_: arrived.release())
                listeners.append(listener)

            async def step(count: int = count) -> None:
                await self.control.execute("SELECT pg_notify($1, '[1,0,[]]')", CHANNEL)
                for _ in range(count):
                    await arrived.acquire()

            found[count] = await self.spent([step] * PROBES)
            if count == LISTENERS[1]:
                arrival = await self._arrival(arrived, count)
        for listener in listeners:
            await listener.close()
        return line({count: spent.database for count, spent in found.items()}), found[0].node, arrival

    async def _arrival(self, arrived: asyncio.Semaphore, count: int) -> float:
        """Seconds from a NOTIFY until the first listener has it."""
        seconds: list[float] = []
        for _ in range(PACED):
            await asyncio.sleep(GAP)
            began = time.perf_counter()
            sent = asyncio.ensure_future(self.control.execute("SELECT pg_notify($1, '[1,0,[]]')", CHANNEL))
            await arrived.acquire()
            seconds.append(time.perf_counter() - began)
            await sent
            for _ in range(count - 1):
                await arrived.acquire()
        return statistics.median(seconds)

    async def notices(self) -> Linear:
        """CPU of a node per notice of another one, by the number of tasks in it."""
        arrived = asyncio.Semaphore(0)
        connected = asyncio.Event()
        bus = PostgresBus(
            SystemClock(), self._url, _no_generations, on_foreign=lambda _: arrived.release(), on_work=connected.set
        )
        await bus.open()
        await connected.wait()
        found: dict[int, float] = {}
        for tasks, count in NOTICES:
            entries = ",".join(f'["127f4e31-9660-4898-9234-{number:012d}",4]' for number in range(tasks))
            payload = f"[1,0,[{entries}]]"

            async def send(channel: str, payload: str = payload) -> None:
                await self.control.execute("SELECT pg_notify($1, $2)", channel, payload)

            async def both(payload: str = payload) -> None:
                await self.control.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
                await arrived.acquire()

            received = await self.spent([both] * count)
            unheard = await self.spent([lambda: send("nobody")] * count)
            found[tasks] = max(0.0, received.node - unheard.node)
        await bus.close()
        return line(found)


async def _no_generations(_: Sequence[str]) -> Sequence[tuple[str, int]]:
    return ()


def _end(begun: Write) -> Write:
    return replay.end(begun.row)


def _commit_cost(found: dict[int, Spent]) -> CommitCost:
    return CommitCost(
        line({size: spent.node for size, spent in found.items()}),
        line({size: spent.database for size, spent in found.items()}),
        line({size: spent.pause for size, spent in found.items()}),
    )


def line(found: dict[int, float]) -> Linear:
    """The line through measured values, with the least relative error: small values count as much as large ones."""
    weights = {number: 1 / max(value, 1e-9) ** 2 for number, value in found.items()}
    total = sum(weights.values())
    middle = sum(weights[number] * number for number in found) / total
    height = sum(weights[number] * value for number, value in found.items()) / total
    spread = sum(weights[number] * (number - middle) ** 2 for number in found)
    slope = sum(weights[number] * (number - middle) * (value - height) for number, value in found.items()) / spread
    each = max(0.0, slope)
    return Linear(max(0.0, height - each * middle), each)


def cpu_by_process(pid: int) -> dict[int, float]:
    """CPU seconds of each process that a PostgreSQL has now, to the nanosecond."""
    found = {pid: cpu_exactly(pid)}
    for child in children(pid):
        with suppress(OSError):  # ended meanwhile
            found[child] = cpu_exactly(child)
    return found


def private_bytes(pid: int) -> float:
    """The memory that a process has for itself alone."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    fields = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in text.split("\n")[1:]) if rest
    }
    return 1024 * (fields["Private_Clean"] + fields["Private_Dirty"])


def hop_seconds(count: int = 3000) -> float:
    """From a message until another process, which waits for it on another core, runs: half of an exchange."""
    allowed = sorted(os.sched_getaffinity(0))
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if not pid:
        cores.pin(allowed[-1])
        theirs, _ = listener.accept()
        while message := theirs.recv(64):
            theirs.send(message)
        os._exit(0)
    cores.pin(allowed[0])
    seconds: list[float] = []
    with listener, socket.create_connection(listener.getsockname()) as ours:
        for _ in range(count):
            began = time.perf_counter()
            ours.send(b"?")
            ours.recv(64)
            seconds.append(time.perf_counter() - began)
    os.waitpid(pid, 0)
    os.sched_setaffinity(0, allowed)
    return statistics.median(seconds) / 2
