"""SendMessage with and without authentication: what knowing the caller costs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from bench import credentials, wire
from bench.contestants import Contestant
from bench.http1 import ask
from bench.job import Outcome
from bench.plan import OVERHEAD_SECONDS, Plan, tell
from bench.results import Scenario
from bench.server import running

OPEN = "open"
CASES = tuple(credentials.SCHEMES)
# What must be left of the rate.
BAR = 0.85
# The differences are small, and the machine is noisy: many short bursts say more than a few long ones.
TIMES_ROUNDS = 2
PART_OF_SECONDS = 0.5


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure requests per second and per second of CPU time."""
    servers = [_guarded(one) for one in (plan.field.dragoman_memory, plan.field.dragoman_sqlite)]
    for number in range(plan.settings.rounds * (1 if plan.settings.quick else TIMES_ROUNDS)):
        for server in servers:
            # In turn forwards and backwards: what changes slowly touches all alike.
            for case in CASES if number % 2 == 0 else reversed(CASES):
                outcome = _burst(plan, server, case)
                scenario.row(server.label, case).outcomes.append(outcome)
                tell(scenario, server.label, case, outcome)


def _guarded(contestant: Contestant) -> Contestant:
    return msgspec.structs.replace(contestant, module="bench.agents.dragoman_auth")


def _burst(plan: Plan, server: Contestant, case: str) -> Outcome:
    seconds = plan.settings.seconds * PART_OF_SECONDS
    plan.need(seconds + plan.settings.warmup + OVERHEAD_SECONDS)
    door = credentials.furnish(Path(mkdtemp(prefix="auth-", dir=plan.folder)), case)
    with running(server, plan.folder, file=door.store, config=door.config) as started:
        asyncio.run(_try_the_door(started.port, door.header))
        job = plan.job(server, kind="send", header=door.header, seconds=seconds)
        return plan.burst(server, job, started)


async def _try_the_door(port: int, header: str) -> None:
    """Make sure that only those with credentials are let in. Raises RuntimeError."""
    wanted = {"": 401, header: 200} if header else {"": 200}
    for sent, status in wanted.items():
        found, body = await ask(port, wire.Messages("uuid", sent).echo()[0])
        if found != status:
            who = sent.partition(" ")[0] or "nobody"
            raise RuntimeError(f"{who} gets {found} instead of {status}: {body[:200]!r}")
