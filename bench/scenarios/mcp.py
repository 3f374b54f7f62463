"""An MCP tool called directly, and through the bridge: what being an A2A agent costs."""

from __future__ import annotations

import os

import msgspec

from bench.plan import OVERHEAD_SECONDS, Plan, tell
from bench.results import Scenario
from bench.scenarios.client import Client, call_with
from bench.server import running

ONE = "one at a time"
MANY = "200 at once"
CASES = {ONE: {"concurrency": 1, "chunks": 0}, MANY: {"concurrency": 200, "chunks": 0}}
DIRECT = "the MCP client, directly"
# What a call through the bridge may cost, as a multiple of the direct one.
BAR = 1.5


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the time of a call."""
    field = plan.field
    direct = Client(DIRECT, "bench.callers.mcp_direct", field.dragoman_memory.python)
    for _ in range(plan.settings.rounds * (1 if plan.settings.quick else 2)):
        # Neighbors in time are compared: what disturbs one is likely to disturb the other.
        _measure(plan, scenario, direct, "", os.getpid())
        for contestant in (field.dragoman_memory, field.dragoman_sqlite):
            server = msgspec.structs.replace(contestant, module="bench.agents.dragoman_mcp")
            bridge = Client(f"dragoman, {server.store}", "bench.callers.mcp_bridge", server.python)
            plan.need(OVERHEAD_SECONDS)
            with running(server, plan.folder) as there:
                _measure(plan, scenario, bridge, f"http://127.0.0.1:{there.port}", there.pid)


def _measure(plan: Plan, scenario: Scenario, client: Client, url: str, pid: int) -> None:
    for case, outcome in call_with(plan, client, url, pid, "asyncio", CASES).items():
        scenario.row(client.name, case).outcomes.append(outcome)
        tell(scenario, client.name, case, outcome)
