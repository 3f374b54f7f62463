"""An ADK agent run by its Runner, and behind two bridges: what being an A2A agent costs, and the bytes on the wire."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import msgspec

from bench.adk_turns import Case, Found, Order, Place
from bench.contestants import Contestant
from bench.environments import ROOT
from bench.plan import Plan, tell
from bench.results import Scenario
from bench.server import running

CHUNKS = 1000
ANSWER = "an answer"
TOOL = "a tool, then an answer"
STREAM = "1,000 chunks"
CASES = {ANSWER: Case(), TOOL: Case(tool=True), STREAM: Case(chunks=CHUNKS)}
BARE = "the Runner alone"
OURS = "dragoman"
THEIRS = "to_a2a"
THEIRS_NEW = "to_a2a, force_new_version"
# What may be left of the other bridge's cost over the Runner, and of its bytes.
OVERHEAD_BAR = 0.5
BYTES_BAR = 0.4
# What a bridge adds is a small part of a turn, and the machine is noisy: many short bursts say more than a few long.
BURSTS = 6
QUICK_BURSTS = 2
# With a machine that is busy otherwise.
BURST_SECONDS = 8.0
PATIENCE = 60.0


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the time and the CPU time of a turn, and the bytes of a chunk."""
    contestants = _contestants(plan)
    if THEIRS not in contestants:
        scenario.notes.append("google-adk's own bridge could not be installed: there is nobody to compare with")
    for _ in range(plan.settings.rounds):
        for case, rows in _round(plan, contestants).items():
            for name, outcomes in rows.items():
                scenario.row(name, case).outcomes.extend(outcomes)
                tell(scenario, name, case, outcomes[-1])


def _contestants(plan: Plan) -> dict[str, Contestant]:
    own, adk = plan.field.dragoman_memory, plan.field.adk
    found = {
        BARE: msgspec.structs.replace(own, module="bench.agents.adk_bare"),
        OURS: msgspec.structs.replace(own, module="bench.agents.adk_dragoman"),
    }
    if adk is not None:
        found[THEIRS] = adk
        found[THEIRS_NEW] = msgspec.structs.replace(adk, module="bench.agents.adk_to_a2a_new")
    return found


def _round(plan: Plan, contestants: dict[str, Contestant]) -> Found:
    """Fresh servers side by side, of which one at a time has something to do. Raises RuntimeError and OutOfTime."""
    bursts = QUICK_BURSTS if plan.settings.quick else BURSTS
    plan.need(bursts * BURST_SECONDS)
    with ExitStack() as stack:
        places = {
            name: Place(server.port, server.pid, name == BARE)
            for name, one in contestants.items()
            for server in [stack.enter_context(running(one, plan.folder))]
        }
        done = subprocess.run(
            [sys.executable, "-m", "bench.adk_turns"],
            input=msgspec.json.encode(Order(places, CASES, bursts)),
            capture_output=True,
            cwd=ROOT,
            timeout=bursts * BURST_SECONDS + PATIENCE,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the client of ADK agents broke:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Found)
