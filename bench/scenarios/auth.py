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
# The differences are small, and the machine is noisy: many short bursts in turn say more than a few long ones.
TIMES_ROUNDS = 4
PART_OF_SECONDS = 0.2
# The servers are warm already; only connections begin.
PART_OF_WARMUP = 0.2


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure requests per second and per second of CPU time."""
    for contestant in (plan.field.dragoman_memory, plan.field.dragoman_sqlite):
        _take_turns(plan, scenario, msgspec.structs.replace(contestant, module="bench.agents.dragoman_auth"))


def _take_turns(plan: Plan, scenario: Scenario, server: Contestant) -> None:
    """Start a server for each case, and load one after the other. The others have nothing to do meanwhile."""
    settings = plan.settings
    seconds, warmup = settings.seconds * PART_OF_SECONDS, settings.warmup * PART_OF_WARMUP
    with ExitStack() as stack:
        doors = {case: stack.enter_context(_open_door(plan, server, case)) for case in CASES}
        for running, header in doors.values():
            plan.burst(server, plan.job(server, kind="send", header=header, seconds=seconds), running)
        for turn in range(settings.rounds * (1 if settings.quick else TIMES_ROUNDS)):
            # Forwards and backwards: what changes slowly touches all alike.
            for case in CASES if turn % 2 == 0 else reversed(CASES):
                running, header = doors[case]
                job = plan.job(server, kind="send", header=header, seconds=seconds, warmup=warmup)
                outcome = plan.burst(server, job, running)
                scenario.row(server.label, case).outcomes.append(outcome)
                tell(scenario, server.label, case, outcome)


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
