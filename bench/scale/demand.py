"""What a load asks of each resource: arithmetic with the unit costs, for fleets that are too large to simulate.

The simulation and this must agree where both can be used; `python -m bench.scale_model --check` compares them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from bench.scale.costs import UnitCosts
from dragoman.bus.postgres import PACE
from dragoman.engine.execute.keeper import POLL_SECONDS
from dragoman.stores.postgres.admin.health import NODE_CONNECTIONS
from dragoman.stores.postgres.batch import BATCH_WRITES

# Seconds between two renewals of the default lease.
BEAT_SECONDS = 1.0
# The part of PostgreSQL's cores that can be used, and the longest time that a statement may wait for one of them: with
# two per send, a send takes a tenth of a second then.
FULL = 0.9
LONGEST_WAIT = 0.05

Resource = Literal["nodes", "PostgreSQL CPU", "WAL", "memory of PostgreSQL"]
Use = Literal["commits", "wake-ups", "leases", "looking for work"]


class Host(Struct, frozen=True):
    """The machine of PostgreSQL: cores like the measured ones, memory, what its disk writes per second, and a sync."""

    cores: int = 16
    memory: float = 128 * 2**30
    wal: float = 500e6
    sync: float = 0.001


class Bus(Struct, frozen=True):
    """Who hears of a change: with NOTIFY on one channel every node, with `direct` only those that wait for it.

    `listeners` is how many of those there are per change: tasks that are followed at another node than their own.
    """

    direct: bool = False
    listeners: float = 1.0


class Demand(Struct, frozen=True):
    """The load of a fleet: each resource as a part of what there is, and PostgreSQL's CPU seconds per second by use.

    `batch` is the number of tasks in a statement, `statement` how long one takes, `waits` how much of this it waits for
    a core of PostgreSQL.
    """

    nodes: int
    rate: float
    batch: float
    statement: float
    waits: float
    used: dict[Resource, float]
    cpu: dict[Use, float]
    node_wake_ups: float

    @property
    def first(self) -> Resource:
        """The resource that is nearest to its end; PostgreSQL's CPU if statements wait for it."""
        if self.waits and max(self.used.values()) < 0.99:
            return "PostgreSQL CPU"
        return max(self.used, key=lambda name: self.used[name])

    @property
    def most(self) -> float:
        """How much of it is in use; above 1 it is too much."""
        return self.used[self.first]

    @property
    def fits(self) -> bool:
        """True when nothing has ended, and no statement waits too long."""
        return self.used["PostgreSQL CPU"] <= FULL + 1e-6 and all(part <= 1 for part in self.used.values())

    @property
    def why(self) -> str:
        """The resource, and for PostgreSQL's CPU what takes most of it."""
        if self.first == "PostgreSQL CPU":
            use = max(self.cpu, key=lambda name: self.cpu[name])
            return f"PostgreSQL CPU: {use}"
        if self.first == "nodes" and self.node_wake_ups > 0.5:
            return "nodes: wake-ups"
        return self.first


def batch_size(costs: UnitCosts, nodes: int, arrivals: float, host: Host, waits: float = 0.0) -> float:
    """How many tasks a node writes with one statement, if so many commits per second are asked of each.

    Whoever comes during a statement is in the next one; if nobody came, the next has one. With Poisson arrivals at rate
    a and a statement of T seconds, that is a·T + exp(-a·T), and T grows with the number of tasks. If it would grow
    without end, the store's limit is the answer.
    """
    low, high = 1.0, float(BATCH_WRITES)
    for _ in range(36):
        size = math.sqrt(low * high)
        expected = arrivals * statement_seconds(costs, nodes, arrivals, size, host, waits)
        low, high = (size, high) if expected + math.exp(-expected) > size else (low, size)
    return high


def statement_seconds(
    costs: UnitCosts, nodes: int, arrivals: float, size: float, host: Host, waits: float = 0.0
) -> float:
    """How long a statement with so many tasks takes."""
    growth = (costs.both.node.each + costs.both.database.each) / 2
    computing = _fixed(costs, size, "node") + _fixed(costs, size, "database") + growth * size
    # One sync at a time for all nodes: it takes longer the more they write, and whoever comes during one waits for it.
    sync = host.sync / (1 - min(nodes * arrivals * costs.wal_bytes / 2 / host.wal, 0.9))
    is_busy = 1 - math.exp(-nodes * arrivals / size * sync)
    return computing + 2 * costs.hop + sync * (1 + is_busy / 2) + waits


def _fixed(costs: UnitCosts, size: float, side: Literal["node", "database"]) -> float:
    """What a statement costs beside its tasks. It is of one kind if all its tasks begin, or all end."""
    begin, end, both = (getattr(cost, side).fixed for cost in (costs.begin, costs.end, costs.both))
    one_kind = 2 * 0.5**size
    return one_kind * (begin + end) / 2 + (1 - one_kind) * both


def demand(costs: UnitCosts, nodes: int, rate: float, host: Host, bus: Bus | None = None) -> Demand:
    """What so many sends per second ask of so many nodes and of their database.

    When PostgreSQL has no core left, statements wait. Then more tasks are in each of them, and each NOTIFY reports
    more, so that both cost less: the fleet settles where PostgreSQL is just full, unless they would wait too long.
    """
    found = _demand(costs, nodes, rate, host, bus or Bus(), 0.0)
    if found.used["PostgreSQL CPU"] <= FULL:
        return found
    low, high = 0.0, LONGEST_WAIT
    found = _demand(costs, nodes, rate, host, bus or Bus(), high)
    if found.used["PostgreSQL CPU"] > FULL:
        return found
    for _ in range(30):
        middle = (low + high) / 2
        is_full = _demand(costs, nodes, rate, host, bus or Bus(), middle).used["PostgreSQL CPU"] > FULL
        low, high = (middle, high) if is_full else (low, middle)
    return _demand(costs, nodes, rate, host, bus or Bus(), high)


def _demand(costs: UnitCosts, nodes: int, rate: float, host: Host, bus: Bus, waits: float) -> Demand:
    commits = 2 * rate / nodes
    size = batch_size(costs, nodes, commits, host, waits)
    statements = commits / size
    notifies = statements / (1 + statements * (PACE + waits))
    # Each notice goes to all nodes, or to as many as its tasks have followers, if those are fewer.
    others = nodes - 1
    heard = min(others, bus.listeners * commits / notifies) if bus.direct and notifies else others
    tasks_heard = commits * bus.listeners if bus.direct else commits * others
    beside = (
        statements * _fixed(costs, size, "node")
        + commits / 2 * (costs.begin.node.each + costs.end.node.each)
        + costs.beat_node.of(nodes) / BEAT_SECONDS
        + costs.look_node / POLL_SECONDS
    )
    hearing = notifies * heard * costs.notice.fixed + tasks_heard * costs.notice.each
    wake_ups = notifies * costs.notify_node + hearing
    own = beside + _sends(costs, rate / nodes, beside + wake_ups)
    listeners = heard + 1 if bus.direct else nodes
    cpu: dict[Use, float] = {
        "commits": nodes * statements * _fixed(costs, size, "database")
        + rate * (costs.begin.database.each + costs.end.database.each),
        "wake-ups": nodes * notifies * costs.notify.of(listeners),
        "leases": nodes * costs.beat_database.of(nodes) / BEAT_SECONDS,
        "looking for work": nodes * costs.look_database / POLL_SECONDS,
    }
    memory = nodes * (costs.backend_bytes + (NODE_CONNECTIONS - 1) * costs.idle_backend_bytes)
    used: dict[Resource, float] = {
        "nodes": own + wake_ups,
        "PostgreSQL CPU": sum(cpu.values()) / host.cores,
        "WAL": rate * costs.wal_bytes / host.wal,
        "memory of PostgreSQL": memory / host.memory,
    }
    statement = statement_seconds(costs, nodes, commits, size, host, waits)
    return Demand(nodes, rate, size, statement, waits, used, cpu, wake_ups / max(own + wake_ups, 1e-9))


def _sends(costs: UnitCosts, rate: float, other: float) -> float:
    """CPU of a node for its sends. Those that find it idle cost more, and the busier it is, the fewer these are."""
    # used = other + rate · (busy · used + alone · (1 - used)), as long as there is time left
    used = (other + rate * costs.node_send_alone) / (1 + rate * (costs.node_send_alone - costs.node_send))
    return rate * costs.node_send if used >= 1 else used - other


def ceiling(costs: UnitCosts, nodes: int, host: Host, bus: Bus | None = None) -> Demand | None:
    """The load at which the first resource ends; None when one has ended without any load."""

    def fits(rate: float) -> bool:
        found = _demand(costs, nodes, rate, host, bus or Bus(), 0.0)
        if found.used["PostgreSQL CPU"] > FULL:
            found = _demand(costs, nodes, rate, host, bus or Bus(), LONGEST_WAIT)
        return found.fits

    rate = _last(fits)
    return demand(costs, nodes, rate, host, bus) if rate else None


def waiting_from(costs: UnitCosts, nodes: int, host: Host) -> float | None:
    """The rate from which on statements wait for a core of PostgreSQL; None when something else ends before."""
    rate = _last(lambda rate: _demand(costs, nodes, rate, host, Bus(), 0.0).used["PostgreSQL CPU"] <= FULL)
    return rate if demand(costs, nodes, rate, host).fits else None


def crowd(costs: UnitCosts, host: Host) -> int:
    """The number of nodes from which on wake-ups alone take more of PostgreSQL than there is."""

    # So many tasks that every statement has several, and the disk can take them.
    rate = host.wal / costs.wal_bytes / 2

    def fits(nodes: float) -> bool:
        found = _demand(costs, int(nodes), rate, host, Bus(), LONGEST_WAIT)
        return found.cpu["wake-ups"] <= FULL * host.cores

    return int(_last(fits))


def _last(fits: Callable[[float], bool], low: float = 1.0) -> float:
    """The number up to which all fit; 0 when the first does not."""
    if not fits(low):
        return 0.0
    high = low
    while high < 1e9 and fits(high):
        low, high = high, high * 1.5
    for _ in range(20):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
