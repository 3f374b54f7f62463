"""Measures what one step costs here, and the points that the model of docs/scaling.md has to reproduce.

    python -m bench.unit_costs [--quick] [--write]

With --write, bench/scale.json is written. It takes about five minutes; the machine must have nothing else to do.
Then `python -m bench.scale_model --check` compares the model with the points, and `--write` writes the page's tables.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import cores, machine
from bench.postgres import Postgres, missing, postgres
from bench.proc import children
from bench.scale import points
from bench.scale.costs import Measured, UnitCosts, save
from bench.scale.gauge import Gauge, hop_seconds, private_bytes
from bench.scenarios.cross_node import sync_seconds
from bench.stats import percentile


def main() -> None:
    """Measure, write, show."""
    options = _options()
    why = missing()
    if why is not None:
        sys.exit(why)
    rounds, seconds = (1, 1.5) if options.quick else (3, 4.0)
    began = time.monotonic()
    load, notes = machine.load(), machine.busy(machine.used())
    with tempfile.TemporaryDirectory(prefix="dragoman-scale-") as name, postgres() as server:
        folder = Path(name)
        costs = _costs(server, folder, seconds)
        print(msgspec.json.format(msgspec.json.encode(costs), indent=1).decode(), file=sys.stderr)
        found = points.points(server, folder, rounds, seconds)
    measured = Measured(machine.now(), machine.describe(), load, notes, costs, found)
    print(f"measured in {time.monotonic() - began:.0f} s, load at the start {load:.1f}", file=sys.stderr)
    if options.write:
        save(measured)
    else:
        print(msgspec.json.format(msgspec.json.encode(measured), indent=1).decode())
    if any(point.errors for point in found):
        sys.exit("there were wrong answers: the figures are worth nothing")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.unit_costs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    parser.add_argument("--write", action="store_true", help="write bench/scale.json")
    return parser.parse_args()


def _costs(server: Postgres, folder: Path, seconds: float) -> UnitCosts:
    node_send, node_send_alone, generator_send = points.memory_send(folder, seconds)
    webhook = points.webhooks(server, folder)
    outside = {
        "node_send": node_send,
        "node_send_alone": node_send_alone,
        "generator_send": generator_send,
        "event_seconds": points.memory_event(folder, seconds),
        "webhook_node": webhook.node,
        "webhook_database": webhook.database,
        "webhook_requests": webhook.requests,
        "stream_bytes": points.stream_bytes(server, folder),
        "sync": percentile(sorted(sync_seconds(server.folder)), 50),
        "hop": hop_seconds(),
    }
    with _on_the_servers_core():
        inside = _run(_gauged(server))
    return msgspec.convert({**outside, **inside}, UnitCosts)


@contextmanager
def _on_the_servers_core() -> Generator[None, None, None]:
    """Keep this process where nodes run, while it does their part."""
    before = os.sched_getaffinity(0)
    cores.pin(cores.server_core())
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _run(work: Coroutine[None, None, dict[str, object]]) -> dict[str, object]:
    try:
        import uvloop  # as nodes do
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


async def _gauged(server: Postgres) -> dict[str, object]:
    gauge = Gauge(server, server.empty_database())
    before = set(children(server.pid))
    await gauge.open()
    writer = min(set(children(server.pid)) - before)
    idle = private_bytes(writer)
    begin, end, both = await gauge.commits()
    wal, wal_checkpoint, disk = await gauge.bytes_per_send()
    backend = private_bytes(writer)
    look = await gauge.looks()
    event_commit, read = await gauge.event_seconds(), await gauge.read_seconds()
    notify, notify_node, notify_seconds = await gauge.notifies()
    notice = await gauge.notices()
    beat_database, beat_node = await gauge.beats()
    await gauge.close()
    return msgspec.to_builtins(
        {
            "begin": begin,
            "end": end,
            "both": both,
            "event_commit_seconds": event_commit,
            "notify_seconds": notify_seconds,
            "read_seconds": read,
            "notify": notify,
            "notify_node": notify_node,
            "notice": notice,
            "beat_database": beat_database,
            "beat_node": beat_node,
            "look_database": look.database,
            "look_node": look.node,
            "wal_bytes": wal,
            "wal_bytes_checkpoint": wal_checkpoint,
            "disk_bytes": disk,
            "backend_bytes": backend,
            "idle_backend_bytes": idle,
        }
    )


if __name__ == "__main__":
    main()
