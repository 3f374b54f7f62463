"""Nodes on one PostgreSQL, simulated: what a send costs each of them, and in which order it happens.

A node is one thread. It writes as `GroupCommit` of the store does: one statement at a time, and what comes meanwhile is
in the next one. A send takes two statements. Each node reports its commits with NOTIFY, at most every PACE seconds, and
all others hear it. (A node that is alone stops that, but only when it has asked twice: after a measurement has ended.)
"""

from __future__ import annotations

import random
import statistics
from functools import cache
from itertools import count
from typing import Literal, NamedTuple

from msgspec import Struct

from bench.scale.costs import UnitCosts
from bench.scale.timeline import Cores, Disk, Then, Thread, Timeline
from dragoman.bus.postgres import PACE

Kind = Literal["begin", "end"]


class Machines(Struct, frozen=True):
    """Where everything runs: PostgreSQL on so many cores, and each node on a core of its own.

    With `shared`, as when it was measured: all on one computer with so many cores, the nodes on the first, the load
    generator on the last, PostgreSQL where there is room.
    """

    cores: int
    shared: bool = False


class Seen(NamedTuple):
    """What a simulated load came to."""

    rate: float
    seconds: float
    node_cpu: float
    database_cpu: float
    batch: float
    database_use: float


class _Write(NamedTuple):
    kind: Kind
    then: Then


class Fleet:
    """Simulated nodes, their callers and their database."""

    def __init__(self, costs: UnitCosts, nodes: int, machines: Machines, seed: int = 1) -> None:
        self.costs = costs
        self.timeline = Timeline()
        self.random = random.Random(seed)
        database = Cores(self.timeline, machines.cores)
        self.machines = machines
        self.database_threads: list[Thread] = []
        self.database_cores = database
        # The pause of a commit is two hops and the disk: a sync, and what there is to write.
        self.sync = max((costs.begin.pause.fixed + costs.end.pause.fixed) / 2 - 2 * costs.hop, 0.0)
        self.write = (costs.begin.pause.each + costs.end.pause.each) / 2
        self.disk = Disk(self.timeline, lambda tasks: self.vary(self.sync + self.write * tasks))
        self.nodes = [Node(self, number) for number in range(nodes)]
        caller_cores = database if machines.shared else Cores(self.timeline, nodes)
        self.generator = Thread(caller_cores, machines.cores - 1 if machines.shared else None)

    def node_thread(self) -> Thread:
        """The thread of a node."""
        if self.machines.shared:
            return Thread(self.database_cores, 0)
        return Thread(Cores(self.timeline, 1), 0)

    def backend(self) -> Thread:
        """A connection to PostgreSQL."""
        thread = Thread(self.database_cores)
        self.database_threads.append(thread)
        return thread

    def vary(self, seconds: float) -> float:
        """Steps are never alike: the same in the mean, up to half more or less."""
        return seconds * self.random.uniform(0.5, 1.5)

    def hop(self, then: Then) -> None:
        """A message to another process."""
        self.timeline.after(self.vary(self.costs.hop), then)

    def closed(self, callers: int, seconds: float, warmup: float = 0.5) -> Seen:
        """Callers at each node who ask again as soon as they are answered."""
        load = _Load(self)
        for node in self.nodes:
            for _ in range(callers):
                load.call(node)
        return load.watch(warmup, seconds)

    def open(self, rate: float, seconds: float, warmup: float = 0.5) -> Seen:
        """Sends that come at a rate, whatever becomes of those before; each to the next node."""
        load = _Load(self, closed=False)
        load.arrive(rate)
        return load.watch(warmup, seconds)


class _Load:
    def __init__(self, fleet: Fleet, *, closed: bool = True) -> None:
        self._fleet = fleet
        self._closed = closed
        self._latencies: list[float] = []
        self._is_counting = False
        self._numbers = count()

    def call(self, node: Node) -> None:
        """Ask a node; the generator takes its time for it."""
        fleet = self._fleet

        def asked() -> None:
            began = fleet.timeline.now
            fleet.hop(lambda: node.send(lambda: fleet.hop(lambda: self._answered(node, began))))

        if self._closed:
            fleet.generator.run(fleet.vary(fleet.costs.generator_send), asked)
        else:
            asked()

    def _answered(self, node: Node, began: float) -> None:
        if self._is_counting:
            self._latencies.append(self._fleet.timeline.now - began)
        if self._closed:
            self.call(node)

    def arrive(self, rate: float) -> None:
        """Let sends come, at random times."""
        fleet = self._fleet
        self.call(fleet.nodes[next(self._numbers) % len(fleet.nodes)])
        fleet.timeline.after(fleet.random.expovariate(rate), lambda: self.arrive(rate))

    def watch(self, warmup: float, seconds: float) -> Seen:
        """Let time pass, and look at what happened after the warm-up."""
        fleet = self._fleet
        fleet.timeline.run(warmup)
        before = self._spent()
        self._is_counting = True
        fleet.timeline.run(warmup + seconds)
        node, database, tasks, statements = (now - then for now, then in zip(self._spent(), before, strict=True))
        done = len(self._latencies)
        middle = statistics.median(self._latencies) if done else float("inf")
        each = max(done, 1)
        return Seen(
            done / seconds,
            middle,
            node / each,
            database / each,
            tasks / max(statements, 1),
            database / seconds / fleet.machines.cores,
        )

    def _spent(self) -> tuple[float, float, float, float]:
        fleet = self._fleet
        return (
            sum(node.thread.busy for node in fleet.nodes),
            sum(thread.busy for thread in fleet.database_threads),
            sum(node.tasks for node in fleet.nodes),
            sum(node.statements for node in fleet.nodes),
        )


class Node:
    """One server process."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet = fleet
        self._costs = fleet.costs
        self.number = number
        self.thread = fleet.node_thread()
        self._writer = fleet.backend()
        self._bus = fleet.backend()
        self._queue: list[_Write] = []
        self._is_writing = False
        self._reports = 0
        self._is_paced = False
        self.tasks = self.statements = 0

    # -- a send --------------------------------------------------------------------------------------------------------

    def send(self, then: Then) -> None:
        """Answer a message. A third of the work comes before each commit, and a third after the last."""
        costs, vary = self._costs, self._fleet.vary
        whole = costs.node_send_alone if self.thread.idle else costs.node_send
        part = whole / 3

        def end() -> None:
            self.thread.run(vary(part), lambda: self._put(_Write("end", answer)))

        def answer() -> None:
            self.thread.run(vary(part), then)

        self.thread.run(vary(part), lambda: self._put(_Write("begin", end)))

    # -- group commit --------------------------------------------------------------------------------------------------

    def _put(self, write: _Write) -> None:
        self._queue.append(write)
        if not self._is_writing:
            self._is_writing = True
            # At the end of this turn of the event loop: what is ready by then is in the same statement.
            self.thread.run(0.0, self._commit, first=True)

    def _commit(self) -> None:
        batch, self._queue = self._queue, []
        begins = sum(write.kind == "begin" for write in batch)
        ends = len(batch) - begins
        self.tasks += len(batch)
        self.statements += 1
        vary = self._fleet.vary
        node = vary(self._costs.commit_node(begins, ends) / 2)
        database = vary(self._costs.commit_database(begins, ends))

        def sent() -> None:
            self._fleet.hop(lambda: self._writer.run(database, synced))

        def synced() -> None:
            self._fleet.disk.sync(len(batch), lambda: self._fleet.hop(received))

        def received() -> None:
            self.thread.run(node, lambda: self._committed(batch))

        self.thread.run(node, sent, first=True)

    def _committed(self, batch: list[_Write]) -> None:
        # The next statement leaves before those who waited for this one go on.
        if self._queue:
            self._commit()
        else:
            self._is_writing = False
        for write in batch:
            write.then()
        self._report(len(batch))

    # -- wake-ups ------------------------------------------------------------------------------------------------------

    def _report(self, tasks: int) -> None:
        self._reports += tasks
        if not self._is_paced:
            self._is_paced = True
            self._notify()

    def _notify(self) -> None:
        fleet, costs = self._fleet, self._costs

        def sent() -> None:
            tasks, self._reports = self._reports, 0
            database = fleet.vary(costs.notify.of(len(fleet.nodes)))
            fleet.hop(lambda: self._bus.run(database, lambda: self._notified(tasks)))

        self.thread.run(fleet.vary(costs.notify_node), sent)

    def _notified(self, tasks: int) -> None:
        for node in self._fleet.nodes:
            if node is not self:
                self._fleet.hop(lambda node=node: node.hear(tasks))
        self._fleet.timeline.after(PACE, self._pace)

    def _pace(self) -> None:
        if self._reports:
            self._notify()
        else:
            self._is_paced = False

    def hear(self, tasks: int) -> None:
        """Read the report of another node."""
        self.thread.run(self._fleet.vary(self._costs.notice.of(tasks)), lambda: None)


@cache
def simulate(costs: UnitCosts, cores: int, nodes: int, callers: int) -> Seen:
    """What so many callers at each of so many nodes come to, with everything on one machine."""
    return Fleet(costs, nodes, Machines(cores, shared=True)).closed(callers, seconds=0.5, warmup=0.2)
