"""SendMessage that waits for its task: four events each, 32 callers."""

from __future__ import annotations

from bench.contestants import Contestant
from bench.plan import Plan, tell
from bench.results import Scenario

UUID_IDS = "UUID ids"
TYPED_IDS = "typed ids"


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure requests per second."""
    scenario.notes.extend(plan.field.absent())
    for _ in range(plan.settings.rounds):
        for contestant, case in _series(plan):
            ids = "uuid" if case == UUID_IDS else "typed"
            outcome = plan.burst(contestant, plan.job(contestant, kind="send", ids=ids))
            scenario.row(contestant.label, case).outcomes.append(outcome)
            tell(scenario, contestant.label, case, outcome)


def _series(plan: Plan) -> list[tuple[Contestant, str]]:
    field = plan.field
    # Only Dragoman knows repeats, by UUIDs: for the others the id makes no difference.
    ours = [(one, case) for one in (field.dragoman_memory, field.dragoman_sqlite) for case in (UUID_IDS, TYPED_IDS)]
    others = (field.sdk_memory, field.sdk_sqlite, field.fasta2a, field.go, field.js, field.floor)
    return [*ours, *((one, UUID_IDS) for one in others if one is not None)]
