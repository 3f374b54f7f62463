"""A thousand readers of one task, and the bare transport writing the same bytes to as many."""

from __future__ import annotations

from bench.plan import Plan, tell
from bench.results import Scenario

READERS = 1000
QUICK_READERS = 200
CHUNKS = 60
PACE = 0.05
ROUNDS = 2


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the CPU time of the server from the first chunk to the last."""
    readers = QUICK_READERS if plan.settings.quick else READERS
    field = plan.field
    for _ in range(min(ROUNDS, plan.settings.rounds)):
        for contestant in (field.dragoman_memory, field.dragoman_sqlite, field.floor):
            job = plan.job(
                contestant, kind="fanout", concurrency=readers, chunks=CHUNKS, pace=PACE, seconds=CHUNKS * PACE
            )
            outcome = plan.burst(contestant, job)
            scenario.row(contestant.label, f"{readers} readers").outcomes.append(outcome)
            tell(scenario, contestant.label, f"{readers} readers", outcome)
