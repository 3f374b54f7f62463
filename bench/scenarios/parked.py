"""What tasks hold that wait for an answer."""

from __future__ import annotations

import asyncio
import json
import sys

from bench import wire
from bench.contestants import Contestant
from bench.http1 import ask
from bench.launch import PROBE
from bench.plan import OVERHEAD_SECONDS, Plan
from bench.proc import resident_mb
from bench.results import Memory, Scenario
from bench.server import Running, running

TASKS = 2000
QUICK_TASKS = 500


def run(plan: Plan, scenario: Scenario) -> None:
    """Park tasks and look at the memory and at the asyncio tasks before and after."""
    field = plan.field
    for contestant in (field.dragoman_memory, field.dragoman_sqlite, field.sdk_memory):
        if contestant is not None:
            plan.need(20 + OVERHEAD_SECONDS)
            memory = _park(plan, scenario, contestant, QUICK_TASKS if plan.settings.quick else TASKS)
            scenario.memories.append(memory)
            print(f"  parked     {contestant.label:20} {memory.kb_each:.1f} KB each", file=sys.stderr, flush=True)


def _park(plan: Plan, scenario: Scenario, contestant: Contestant, tasks: int) -> Memory:
    with running(contestant, plan.folder, probe=True) as server:
        # Once for nothing, so that what grows only once, caches and pools, has grown.
        plan.burst(contestant, plan.job(contestant, kind="park", tasks=tasks), server)
        asyncio_before = _asyncio_tasks(server)
        before = resident_mb(server.pid)
        outcome = plan.burst(contestant, plan.job(contestant, kind="park", tasks=tasks), server)
        if outcome.errors:
            scenario.notes.append(f"{contestant.label}: {outcome.errors} errors, {outcome.first_error}")
        asyncio_after = _asyncio_tasks(server)
        return Memory(contestant.label, tasks, before, resident_mb(server.pid), asyncio_before, asyncio_after)


def _asyncio_tasks(server: Running) -> int:
    _, body = asyncio.run(ask(server.port, wire.get(PROBE)))
    return int(json.loads(body)["tasks"])
