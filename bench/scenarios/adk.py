"""An ADK agent run by its Runner, and behind two bridges: what being an A2A agent costs, and the bytes on the wire."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bench.contestants import Contestant
from bench.plan import OVERHEAD_SECONDS, Plan, tell
from bench.results import Scenario
from bench.scenarios.client import Client, call_with
from bench.server import running

CHUNKS = 1000
ANSWER = "an answer"
TOOL = "a tool, then an answer"
STREAM = "1,000 chunks"
TURNS = (ANSWER, TOOL)
# What comes after the address says what a turn is.
CASES: dict[str, dict[str, dict[str, int]]] = {
    "": {ANSWER: {"concurrency": 1, "chunks": 0}, STREAM: {"concurrency": 1, "chunks": CHUNKS}},
    "#tool": {TOOL: {"concurrency": 1, "chunks": 0}},
}
BARE = "the Runner alone"
OURS = "dragoman"
THEIRS = "to_a2a"
THEIRS_NEW = "to_a2a, force_new_version"
# What may be left of the other bridge's cost over the Runner, and of its bytes.
OVERHEAD_BAR = 0.5
BYTES_BAR = 0.4
# What a bridge adds is a small part of a turn, and the machine is noisy: many short bursts say more than a few long ones.
TIMES_ROUNDS = 2
PART_OF_SECONDS = 0.25


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the time and the CPU time of a turn, and the bytes of a chunk."""
    own = plan.field.dragoman_memory.python
    everybody = {OURS: msgspec.structs.replace(plan.field.dragoman_memory, module="bench.agents.adk_dragoman")}
    if plan.field.adk is None:
        scenario.notes.append("google-adk's own bridge could not be installed: there is nobody to compare with")
    else:
        everybody[THEIRS] = plan.field.adk
        everybody[THEIRS_NEW] = msgspec.structs.replace(plan.field.adk, module="bench.agents.adk_to_a2a_new")
    for _ in range(plan.settings.rounds * (1 if plan.settings.quick else TIMES_ROUNDS)):
        # Neighbours in time are compared: what disturbs one is likely to disturb the other.
        bare = Client(BARE, "bench.callers.adk_runner", own)
        for end, cases in CASES.items():
            _measure(plan, scenario, bare, end, os.getpid(), cases)
        for name, contestant in everybody.items():
            _served(plan, scenario, Client(name, "bench.callers.adk_wire", own), contestant)


def _served(plan: Plan, scenario: Scenario, client: Client, contestant: Contestant) -> None:
    plan.need(OVERHEAD_SECONDS)
    for end, cases in CASES.items():
        with running(contestant, Path(plan.folder)) as server:
            _measure(plan, scenario, client, f"http://127.0.0.1:{server.port}{end}", server.pid, cases)


def _measure(
    plan: Plan, scenario: Scenario, client: Client, url: str, pid: int, cases: Mapping[str, Mapping[str, int]]
) -> None:
    for case, outcome in call_with(plan, client, url, pid, "uvloop", cases, PART_OF_SECONDS).items():
        scenario.row(client.name, case).outcomes.append(outcome)
        tell(scenario, client.name, case, outcome)
