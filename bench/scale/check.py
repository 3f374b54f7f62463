"""Compares the model with what was measured, and its two halves with each other."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from bench.results import Results
from bench.scale.costs import Measured, Point, UnitCosts
from bench.scale.demand import Host, demand
from bench.scale.fleet import Fleet, Machines, Seen, simulate
from bench.scale.points import send_name
from bench.scenarios.postgres import SEND, SEND_MANY, SEND_TWO
from bench.tables import number

# How far the model may be from what was measured, and its arithmetic from its simulation.
TOLERANCE = 0.3
# Nodes and sends per second that are simulated to check the arithmetic.
LARGER = ((4, 2_000), (10, 10_000), (10, 30_000), (100, 10_000))


class Comparison(Struct, frozen=True):
    """One figure, twice."""

    name: str
    what: str
    measured: float
    model: float

    @property
    def ratio(self) -> float:
        """The model's as a multiple of the measured one."""
        return self.model / self.measured

    @property
    def is_near(self) -> bool:
        """True within the tolerance."""
        return 1 - TOLERANCE <= self.ratio <= 1 + TOLERANCE

    def shown(self, value: float) -> str:
        """The figure with its unit."""
        unit = self.what.rpartition(", ")[2]
        return number(value * {"ms": 1e3, "µs": 1e6}.get(unit, 1.0))


def compare_points(measured: Measured) -> list[Comparison]:
    """All measured points, simulated."""
    found: list[Comparison] = []
    for point in measured.points:
        found.extend(_sends(measured, point) if point.callers else _cross(measured.costs, point))
    one, two = (next(p for p in measured.points if (p.nodes, p.callers) == size) for size in ((1, 32), (2, 32)))
    models = [_simulate(measured, point.nodes, point.callers) for point in (one, two)]
    ratio = (two.node_cpu + two.database_cpu) / (one.node_cpu + one.database_cpu)
    model = (models[1].node_cpu + models[1].database_cpu) / (models[0].node_cpu + models[0].database_cpu)
    found.append(Comparison("2 nodes / 1 node", "CPU per send, times", ratio, model))
    return found


def _simulate(measured: Measured, nodes: int, callers: int) -> Seen:
    return simulate(measured.costs, int(measured.machine["cores"]), nodes, callers)


def _sends(measured: Measured, point: Point) -> list[Comparison]:
    seen = _simulate(measured, point.nodes, point.callers)
    return [
        Comparison(point.name, "sends, /s", point.rate, seen.rate),
        Comparison("", "p50, ms", point.seconds, seen.seconds),
        Comparison("", "CPU of the nodes per send, µs", point.node_cpu, seen.node_cpu),
        Comparison("", "CPU of PostgreSQL per send, µs", point.database_cpu, seen.database_cpu),
    ]


def _cross(costs: UnitCosts, point: Point) -> list[Comparison]:
    """An event on its way: the agent and the reader, the commit, the NOTIFY, the read. Nothing else is going on."""
    model = costs.event_seconds + costs.event_commit_seconds + costs.notify_seconds + costs.read_seconds
    return [Comparison(point.name, "p50 of an event, ms", point.seconds, model)]


def compare_benchmarks(measured: Measured, results: Results) -> list[Comparison]:
    """The same points as docs/benchmarks.md has them, from another run: to see how far two runs are apart."""
    scenario = results.scenario("postgres")
    found: list[Comparison] = []
    for nodes, callers, case in ((1, 32, SEND), (1, 128, SEND_MANY), (2, 32, SEND_TWO)):
        row = scenario.find("dragoman, postgres", case) if scenario is not None else None
        if row is not None:
            seen = _simulate(measured, nodes, callers)
            rate, p50 = row.of(lambda one: one.rate).median, row.of(lambda one: one.p50_ms).median / 1000
            found.append(Comparison(send_name(nodes, callers), "sends, /s", rate, seen.rate))
            found.append(Comparison("", "p50, ms", p50, seen.seconds))
    return found


def compare_larger(costs: UnitCosts) -> list[Comparison]:
    """The arithmetic beside the simulation, with a PostgreSQL of 16 cores: what it and a node have in use."""
    found: list[Comparison] = []
    for nodes, rate in LARGER:
        fleet = Fleet(costs, nodes, Machines(cores=16))
        seen = fleet.open(rate, seconds=0.4, warmup=0.2)
        counted = demand(costs, nodes, rate, Host(sync=fleet.sync, wal=costs.wal_bytes / 2 / max(fleet.write, 1e-9)))
        cpu = counted.cpu["commits"] + counted.cpu["wake-ups"]
        name = f"{nodes} nodes, {rate:,}/s"
        found.append(Comparison(name, "cores of PostgreSQL", seen.database_use * 16, cpu))
        found.append(Comparison("", "core of a node", seen.node_cpu * seen.rate / nodes, counted.used["nodes"]))
    return found


def table_text(found: list[Comparison], first: str, second: str, show: Callable[[str], None]) -> bool:
    """Show comparisons; return whether all are near."""
    show(f"{'':30}{'':34}{first:>12}{second:>12}{'ratio':>8}")
    for one in found:
        mark = "" if one.is_near else "  <- more than 30 % away"
        show(f"{one.name:30}{one.what:34}{one.shown(one.measured):>12}{one.shown(one.model):>12}{one.ratio:8.2f}{mark}")
    return all(one.is_near for one in found)
