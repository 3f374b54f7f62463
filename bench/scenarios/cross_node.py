"""How long an event takes from the node that writes it to a reader at another: a hundred a second, on PostgreSQL."""

from __future__ import annotations

import msgspec

from bench.plan import OVERHEAD_SECONDS, Plan, generate, tell
from bench.postgres import missing, postgres
from bench.results import Scenario
from bench.server import running

EVENTS_PER_SECOND = 100


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the age of events when they arrive."""
    why = missing()
    if why is not None:
        scenario.notes.append(why)
        return
    seconds, warmup = 2 * plan.settings.seconds, 1.0
    with postgres() as server:
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
