"""The hand-written HTTP/1.1 client beside aiohttp, behind the same port: what each costs its caller."""

from __future__ import annotations

from bench.contestants import Contestant
from bench.plan import Plan, tell
from bench.results import Scenario
from bench.scenarios.client import LOOPS, Client, call_with
from bench.server import running

CHUNKS = 100
OURS, THEIRS = "hand-written", "aiohttp"
CLIENT, EXCHANGE = "Client", "exchange"
CASES = {
    "one at a time": {"concurrency": 1, "chunks": 0},
    "8 at once": {"concurrency": 8, "chunks": 0},
    "streams": {"concurrency": 1, "chunks": CHUNKS},
}
# The hand-written one stays as long as it is that much cheaper.
BAR = 1.5
_MODULES = {
    (CLIENT, OURS): "bench.callers.dragoman_client",
    (CLIENT, THEIRS): "bench.callers.dragoman_aiohttp",
    (EXCHANGE, OURS): "bench.callers.exchange_direct",
    (EXCHANGE, THEIRS): "bench.callers.exchange_aiohttp",
}


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the CPU time of callers, neighbors in time compared."""
    for _ in range(plan.settings.rounds):
        for loop in LOOPS:
            for (what, http), module in _MODULES.items():
                caller = Client(http, module, plan.field.floor.python)
                with running(_server(plan, what), plan.folder) as server:
                    url = f"http://127.0.0.1:{server.port}"
                    found = call_with(plan, caller, url, server.pid, loop, CASES)
                for case, outcome in found.items():
                    scenario.row(f"{http}, {loop}", f"{what}, {case}").outcomes.append(outcome)
                    tell(scenario, f"{http}, {loop}", f"{what}, {case}", outcome)


def _server(plan: Plan, what: str) -> Contestant:
    # Bare exchanges need no agent, and a server that answers at once.
    return plan.field.dragoman_memory if what == CLIENT else plan.field.floor
