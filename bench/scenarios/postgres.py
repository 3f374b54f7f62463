"""SendMessage and streams on PostgreSQL, beside SQLite and memory: CPU of the nodes, and of PostgreSQL."""

from __future__ import annotations

from contextlib import ExitStack

import msgspec

from bench.contestants import Contestant
from bench.job import Job, Outcome
from bench.plan import OVERHEAD_SECONDS, Plan, generate, tell
from bench.postgres import Postgres, missing, postgres
from bench.results import Scenario
from bench.server import running

SEND = "32 callers"
SEND_MANY = "128 callers"
SEND_TWO = "two nodes, 32 callers each"
STREAM = "stream"
CHUNKS = 2000
READERS = 4
# As in the other scenarios, and so many that a commit has more of them to serve.
CALLERS = 32
MANY_CALLERS = 128
# At least so many times the rate of the a2a-sdk on its own PostgreSQL store.
RATE_BAR = 30.0
# At most so many times the CPU per send of one node.
NODES_BAR = 1.15
# At most so many times SQLite's CPU of the node per event.
STREAM_BAR = 1.5


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure requests and chunks per second, and what they cost."""
    why = missing()
    if why is not None:
        scenario.notes.append(why)
        return
    field = plan.field
    if field.sdk_postgres is None:
        scenario.notes.append("a2a-sdk could not be installed and is left out")
    with postgres() as server:
        for _ in range(plan.settings.rounds):
            for contestant in (field.dragoman_postgres, field.dragoman_sqlite, field.dragoman_memory):
                if contestant is None:
                    continue
                limit = 2 * plan.settings.seconds
                stream = plan.job(contestant, kind="stream", chunks=CHUNKS, concurrency=READERS, limit=limit)
                _measure(plan, scenario, server, contestant, STREAM, stream)
                _measure_sends(plan, scenario, server, contestant)
                if contestant.store == "postgres":
                    both = plan.job(contestant, kind="send", concurrency=2 * CALLERS)
                    _measure(plan, scenario, server, contestant, SEND_TWO, both)
            if field.sdk_postgres is not None:
                _measure_sends(plan, scenario, server, field.sdk_postgres)


def _measure_sends(plan: Plan, scenario: Scenario, server: Postgres, contestant: Contestant) -> None:
    for case, callers in ((SEND, CALLERS), (SEND_MANY, MANY_CALLERS)):
        job = plan.job(contestant, kind="send", concurrency=callers)
        _measure(plan, scenario, server, contestant, case, job)


def _measure(plan: Plan, scenario: Scenario, server: Postgres, contestant: Contestant, case: str, job: Job) -> None:
    nodes = 2 if case == SEND_TWO else 1
    plan.need(job.seconds + job.warmup + (1 + nodes) * OVERHEAD_SECONDS)
    outcome = _burst(plan, server, contestant, nodes, job)
    scenario.row(contestant.label, case).outcomes.append(outcome)
    tell(scenario, contestant.label, case, outcome)


def _burst(plan: Plan, server: Postgres, contestant: Contestant, nodes: int, job: Job) -> Outcome:
    """Load fresh nodes on an empty store."""
    on_postgres = contestant.store == "postgres"
    database = server.empty_database() if on_postgres else None
    with ExitStack() as stack:
        first, *others = [
            stack.enter_context(running(contestant, plan.folder, database=database)) for _ in range(nodes)
        ]
        return generate(
            msgspec.structs.replace(
                job,
                port=first.port,
                pid=first.pid,
                nodes=tuple((other.port, other.pid) for other in others),
                database_pid=server.pid if on_postgres else 0,
            )
        )
