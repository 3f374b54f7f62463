"""What an event costs in a short and in a long stream: one reader, 200 to 20,000 chunks."""

from __future__ import annotations

from bench.contestants import Contestant
from bench.plan import Plan, tell
from bench.results import Scenario

OURS = (200, 2000, 20_000)
THEIRS = (200, 2000)
# 2,000 chunks take the SDK on SQLite most of a minute; once is enough to know.
PATIENCE = 60.0


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the CPU time per chunk."""
    slow = plan.field.sdk_sqlite
    for number in range(plan.settings.rounds):
        for contestant, chunks in _series(plan):
            is_slowest = contestant is slow and chunks == max(THEIRS)
            if is_slowest and (number or plan.settings.quick):
                continue
            limit = PATIENCE if is_slowest else 15.0
            plan.need(limit)
            seconds = plan.settings.seconds / 3
            job = plan.job(contestant, kind="stream", chunks=chunks, concurrency=1, seconds=seconds, limit=limit)
            outcome = plan.burst(contestant, job)
            scenario.row(contestant.label, str(chunks)).outcomes.append(outcome)
            tell(scenario, contestant.label, str(chunks), outcome)


def _series(plan: Plan) -> list[tuple[Contestant, int]]:
    field = plan.field
    ours = [(one, chunks) for one in (field.dragoman_memory, field.dragoman_sqlite) for chunks in OURS]
    peers = [one for one in (field.sdk_memory, field.sdk_sqlite) if one is not None]
    return [*ours, *((one, chunks) for one in peers for chunks in THEIRS)]
