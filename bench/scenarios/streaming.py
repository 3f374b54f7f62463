"""SendStreamingMessage: whole streams of 2,000 chunks, four readers."""

from __future__ import annotations

from bench.plan import Plan, tell
from bench.results import Scenario

CHUNKS = 2000
READERS = 4


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure chunks per second."""
    scenario.notes.extend(plan.field.absent())
    field = plan.field
    everybody = (
        field.dragoman_memory,
        field.dragoman_sqlite,
        field.sdk_memory,
        field.sdk_sqlite,
        field.fasta2a,
        field.go,
        field.js,
        field.floor,
    )
    for _ in range(plan.settings.rounds):
        for contestant in everybody:
            if contestant is None:
                continue
            limit = 2 * plan.settings.seconds
            job = plan.job(contestant, kind="stream", chunks=CHUNKS, concurrency=READERS, limit=limit)
            outcome = plan.burst(contestant, job)
            scenario.row(contestant.label).outcomes.append(outcome)
            tell(scenario, contestant.label, "", outcome)
