"""SendMessage and streams over gRPC, beside the gRPC servers of other SDKs and beside our own JSON-RPC."""

from __future__ import annotations

from bench.contestants import Contestant
from bench.plan import GRPC_GENERATOR, Plan, tell
from bench.results import Scenario

SEND = "32 connections"
SEND_SHARED = "one connection"
STREAM = "stream"
CHUNKS = 2000
READERS = 4
OURS = "dragoman gRPC"
JSON = "dragoman"
THEIRS = "a2a-sdk gRPC"
# At least so many times what a2a-sdk's gRPC server does, by case and store.
BARS = {(SEND, "memory"): 5.0, (SEND, "sqlite"): 20.0, (STREAM, "sqlite"): 20.0}


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure requests and chunks per second, and what they cost."""
    if not GRPC_GENERATOR.exists():
        scenario.notes.append("the load generator for gRPC is not there: `make bench` builds it if go is installed")
        return
    everybody = (*plan.field.grpc, plan.field.dragoman_memory, plan.field.dragoman_sqlite)
    missing = {THEIRS, "a2a-go gRPC", "@a2a-js/sdk gRPC"} - {one.name for one in everybody}
    scenario.notes.extend(f"{name} could not be installed and is left out" for name in sorted(missing))
    for _ in range(plan.settings.rounds):
        for contestant in everybody:
            _measure(plan, scenario, contestant, SEND)
            _measure(plan, scenario, contestant, STREAM)
            if contestant.name in (OURS, THEIRS):
                _measure(plan, scenario, contestant, SEND_SHARED)


def _measure(plan: Plan, scenario: Scenario, contestant: Contestant, case: str) -> None:
    if case == STREAM:
        limit = 2 * plan.settings.seconds
        job = plan.job(contestant, kind="stream", chunks=CHUNKS, concurrency=READERS, limit=limit)
    else:
        job = plan.job(contestant, kind="send", connections=int(case == SEND_SHARED))
    outcome = plan.burst(contestant, job)
    scenario.row(contestant.label, case).outcomes.append(outcome)
    tell(scenario, contestant.label, case, outcome)
