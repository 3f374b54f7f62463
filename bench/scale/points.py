"""The points that the model has to reproduce: real nodes under load, as in the benchmarks."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import structs

from bench import environments
from bench.contestants import Contestant, Store
from bench.job import Job, Outcome
from bench.plan import generate
from bench.postgres import Postgres
from bench.proc import resident_mb
from bench.scale.costs import Point
from bench.scale.hooks import WebhookCost, webhook_cost
from bench.scale.streams import alone_cpu, open_streams
from bench.server import Running, running

# Nodes, and callers at each of them.
SENDS = ((1, 1), (1, 32), (1, 128), (2, 32), (2, 128))
# The size of the memory that streams take is measured with so many of them.
STREAMS = 400
CROSS = "from node to node"


def contestant(store: Store) -> Contestant:
    """Dragoman on a store."""
    return Contestant("dragoman", "bench.agents.dragoman_echo", environments.own_python(), store, numbered=True)


def send_name(nodes: int, callers: int) -> str:
    """The name of a point."""
    count = "1 caller" if callers == 1 else f"{callers} callers"
    return f"1 node, {count}" if nodes == 1 else f"{nodes} nodes, {count} each"


def memory_send(folder: Path, seconds: float) -> tuple[float, float, float]:
    """CPU seconds per send without a store: of a node with many callers, of one that is alone, of the generator."""
    with running(contestant("memory"), folder) as node:
        outcome = generate(Job("send", node.port, node.pid, concurrency=32, seconds=seconds, warmup=1.0, numbered=True))
        alone = alone_cpu(node.port, node.pid)
    return outcome.cpu_us / 1e6, alone, outcome.generator_cpu_seconds / outcome.requests


def memory_event(folder: Path, seconds: float) -> float:
    """Seconds from the agent to a reader of the same node, without a store, at a hundred events a second."""
    with running(contestant("memory"), folder) as node:
        return _read_times(node, node, seconds).p50_ms / 1000


def webhooks(server: Postgres, folder: Path) -> WebhookCost:
    """What a webhook costs."""
    ours = structs.replace(contestant("postgres"), module="bench.agents.dragoman_webhooks")
    with running(ours, folder, database=server.empty_database()) as node:
        return webhook_cost(node.port, node.pid, server.pid)


def stream_bytes(server: Postgres, folder: Path) -> float:
    """Memory of a node per open stream with its running task."""
    with running(contestant("postgres"), folder, database=server.empty_database()) as node:
        open_streams(node.port, 20, lambda: None)  # what is loaded with the first ones is not theirs
        before = resident_mb(node.pid)
        after: list[float] = []
        open_streams(node.port, STREAMS, lambda: after.append(resident_mb(node.pid)))
    return (after[0] - before) * 2**20 / STREAMS


def points(server: Postgres, folder: Path, rounds: int, seconds: float) -> list[Point]:
    """Measure all points, in turn."""
    found: dict[str, list[Outcome]] = {}
    for _ in range(rounds):
        for nodes, callers in SENDS:
            outcome = _send(server, folder, nodes, callers, seconds)
            name = send_name(nodes, callers)
            found.setdefault(name, []).append(outcome)
            print(f"  {name:28} {outcome.rate:8,.0f}/s  p50 {outcome.p50_ms:.2f} ms", file=sys.stderr, flush=True)
        outcome = _cross(server, folder, seconds)
        found.setdefault(CROSS, []).append(outcome)
        print(f"  {CROSS:28} p50 {outcome.p50_ms:.2f} ms", file=sys.stderr, flush=True)
    sizes = {send_name(*size): size for size in SENDS}
    return [_point(name, *sizes.get(name, (2, 0)), outcomes) for name, outcomes in found.items()]


def _point(name: str, nodes: int, callers: int, outcomes: list[Outcome]) -> Point:
    def middle(what: Callable[[Outcome], float]) -> float:
        return statistics.median(map(what, outcomes))

    return Point(
        name,
        nodes,
        callers,
        middle(lambda one: one.event_rate if one.events else one.rate),
        middle(lambda one: one.p50_ms) / 1000,
        middle(lambda one: one.cpu_us) / 1e6 if callers else 0.0,
        middle(lambda one: one.database_cpu_us) / 1e6 if callers else 0.0,
        sum(one.errors for one in outcomes),
    )


def _send(server: Postgres, folder: Path, nodes: int, callers: int, seconds: float) -> Outcome:
    ours = contestant("postgres")
    database = server.empty_database()
    with ExitStack() as stack:
        first, *others = [stack.enter_context(running(ours, folder, database=database)) for _ in range(nodes)]
        return generate(
            Job(
                "send",
                first.port,
                first.pid,
                concurrency=nodes * callers,
                seconds=seconds,
                warmup=0.7,
                numbered=True,
                nodes=tuple((other.port, other.pid) for other in others),
                database_pid=server.pid,
            )
        )


def _cross(server: Postgres, folder: Path, seconds: float) -> Outcome:
    ours = contestant("postgres")
    database = server.empty_database()
    with (
        running(ours, folder, database=database) as writer,
        running(ours, folder, database=database) as reader,
    ):
        return _read_times(writer, reader, seconds)


def _read_times(writer: Running, reader: Running, seconds: float) -> Outcome:
    return generate(
        Job(
            "cross",
            reader.port,
            reader.pid,
            writer_port=writer.port,
            numbered=True,
            seconds=seconds,
            warmup=1.0,
            chunks=int((seconds + 1) * 100),
            pace=0.01,
        )
    )
