"""SendMessage with and without authentication: what knowing the caller costs."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from bench import credentials, wire
from bench.contestants import Contestant
from bench.http1 import ask
from bench.plan import OVERHEAD_SECONDS, Plan, tell
from bench.results import Scenario
from bench.server import Running
from bench.server import running as start

OPEN = "open"
CASES = tuple(credentials.SCHEMES)
# What must be left of the rate.
BAR = 0.85
# The differences are small. Some processes are faster than others for no reason but where things lie in memory, and the
# machine is noisy: many fresh servers and short bursts say more than a few long ones. Where tasks are in memory the
# share of authentication is largest, and more is tried.
TIMES_ROUNDS = {"memory": 2, "sqlite": 1}
PART_OF_SECONDS = 0.15
PART_OF_WARMUP = 0.2


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure requests per second and per second of CPU time."""
    for contestant in (plan.field.dragoman_memory, plan.field.dragoman_sqlite):
        server = msgspec.structs.replace(contestant, module="bench.agents.dragoman_auth")
        for _ in range(plan.settings.rounds * (1 if plan.settings.quick else TIMES_ROUNDS[server.store])):
            _there_and_back(plan, scenario, server)


def _there_and_back(plan: Plan, scenario: Scenario, server: Contestant) -> None:
    """Start a server for each case and load one after the other, then backwards. The others do nothing meanwhile."""
    seconds, warmup = plan.settings.seconds * PART_OF_SECONDS, plan.settings.warmup
    with ExitStack() as stack:
        doors = {case: stack.enter_context(_open_door(plan, server, case)) for case in CASES}
        for cases in (CASES, CASES[::-1]):
            for case in cases:
                running, header = doors[case]
                job = plan.job(server, kind="send", header=header, seconds=seconds, warmup=warmup)
                outcome = plan.burst(server, job, running)
                scenario.row(server.label, case).outcomes.append(outcome)
                tell(scenario, server.label, case, outcome)
            # The servers are warm now: only connections begin.
            warmup = plan.settings.warmup * PART_OF_WARMUP


@contextmanager
def _open_door(plan: Plan, server: Contestant, case: str) -> Generator[tuple[Running, str], None, None]:
    """A server for a case, and the header by which it knows its callers."""
    plan.need(OVERHEAD_SECONDS)
    door = credentials.furnish(Path(mkdtemp(prefix="auth-", dir=plan.folder)), case)
    with start(server, plan.folder, file=door.store, config=door.config) as running:
        asyncio.run(_try_the_door(running.port, door.header))
        yield running, door.header


async def _try_the_door(port: int, header: str) -> None:
    """Make sure that only those with credentials are let in. Raises RuntimeError."""
    wanted = {"": 401, header: 200} if header else {"": 200}
    for sent, status in wanted.items():
        found, body = await ask(port, wire.Messages("uuid", sent).echo()[0])
        if found != status:
            who = sent.partition(" ")[0] or "nobody"
            raise RuntimeError(f"{who} gets {found} instead of {status}: {body[:200]!r}")
