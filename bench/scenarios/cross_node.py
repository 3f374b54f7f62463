"""How long an event takes from the node that writes it to a reader at another: a hundred a second, on PostgreSQL."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from bench.plan import OVERHEAD_SECONDS, Plan, generate, tell
from bench.postgres import missing, postgres
from bench.results import Scenario
from bench.server import running
from bench.stats import percentile

EVENTS_PER_SECOND = 100
SYNCS = 200


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the age of events when they arrive."""
    why = missing()
    if why is not None:
        scenario.notes.append(why)
        return
    seconds, warmup = 2 * plan.settings.seconds, 1.0
    with postgres() as server:
        syncs = sorted(sync_seconds(server.folder))
        scenario.notes.append(
            "before an event is sent, it is on the disk, which took "
            f"{percentile(syncs, 50) * 1000:.2f} ms for a sync (p99 {percentile(syncs, 99) * 1000:.2f} ms) at that time"
        )
        for _ in range(plan.settings.rounds):
            for contestant in (plan.field.dragoman_postgres, plan.field.sdk_cluster):
                if contestant is None:
                    continue
                plan.need(seconds + warmup + 2 * OVERHEAD_SECONDS)
                chunks = int((seconds + warmup) * EVENTS_PER_SECOND)
                job = plan.job(
                    contestant, kind="cross", chunks=chunks, pace=1 / EVENTS_PER_SECOND, seconds=seconds, warmup=warmup
                )
                database = server.empty_database()
                with (
                    running(contestant, plan.folder, database=database) as writer,
                    running(contestant, plan.folder, database=database) as reader,
                ):
                    outcome = generate(
                        msgspec.structs.replace(job, port=reader.port, pid=reader.pid, writer_port=writer.port)
                    )
                scenario.row(contestant.label).outcomes.append(outcome)
                tell(scenario, contestant.label, f"p50 {outcome.p50_ms:.2f} ms", outcome)


def sync_seconds(folder: Path) -> list[float]:
    """How long this disk takes until a page of 8 KB is safe, many times."""
    seconds: list[float] = []
    file = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(SYNCS):
            os.pwrite(file, bytes(8192), 0)
            began = time.perf_counter()
            os.fdatasync(file)
            seconds.append(time.perf_counter() - began)
    finally:
        os.close(file)
    return seconds
