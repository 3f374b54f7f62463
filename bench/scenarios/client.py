"""Clients instead of servers: Dragoman's and the a2a-sdk's, calling Dragoman's server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from bench import call
from bench.environments import ROOT
from bench.job import Outcome
from bench.plan import OVERHEAD_SECONDS, Plan, tell
from bench.results import Scenario, Start
from bench.server import running, variables

CHUNKS = 2000
CALLERS = 8
ONE = "one at a time"
MANY = "8 at once"
STREAMS = "streams"
CASES = {
    ONE: {"concurrency": 1, "chunks": 0},
    MANY: {"concurrency": CALLERS, "chunks": 0},
    STREAMS: {"concurrency": 1, "chunks": CHUNKS},
}
OURS, THEIRS = "dragoman", "a2a-sdk"
LOOPS = ("asyncio", "uvloop")
# A stream that has begun when the time is up is read to its end.
PATIENCE = 60.0
STARTS = 7
QUICK_STARTS = 2


class Client(Struct, frozen=True):
    """A client: its module, and the interpreter it runs in."""

    name: str
    module: str
    python: Path


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure requests and events per second of CPU time, and the time to the first answer."""
    clients = _clients(plan)
    if len(clients) == 1:
        scenario.notes.append(f"{THEIRS} could not be installed: there is nobody to compare with")
    for _ in range(plan.settings.rounds):
        # Neighbors in time are compared: what disturbs one is likely to disturb the other.
        for loop in LOOPS:
            for client in clients:
                for case, outcome in _burst(plan, client, loop).items():
                    scenario.row(f"{client.name}, {loop}", case).outcomes.append(outcome)
                    tell(scenario, f"{client.name}, {loop}", case, outcome)
    _first_answers(plan, scenario, clients)


def _clients(plan: Plan) -> list[Client]:
    field = plan.field
    found = [Client(OURS, "bench.callers.dragoman_client", field.dragoman_memory.python)]
    if field.sdk_memory is not None:
        found.insert(0, Client(THEIRS, "bench.callers.a2a_sdk_client", field.sdk_memory.python))
    return found


def _burst(plan: Plan, client: Client, loop: str) -> dict[str, Outcome]:
    with running(plan.field.dragoman_memory, plan.folder) as server:
        return call_with(plan, client, f"http://127.0.0.1:{server.port}", server.pid, loop, CASES)


def call_with(
    plan: Plan, client: Client, url: str, pid: int, loop: str, cases: Mapping[str, Mapping[str, int]]
) -> dict[str, Outcome]:
    """Have a client call whoever is at the address, in a process of its own. Raises RuntimeError when it breaks."""
    seconds, warmup = plan.settings.seconds / 2, plan.settings.warmup
    plan.need(len(cases) * (seconds + warmup) + OVERHEAD_SECONDS)
    order = {
        "module": client.module,
        "url": url,
        "pid": pid,
        "loop": loop,
        "seconds": seconds,
        "warmup": warmup,
        "cases": cases,
    }
    done = subprocess.run(
        [client.python, "-m", "bench.call"],
        input=msgspec.json.encode(order),
        capture_output=True,
        cwd=ROOT,
        env=variables(),
        timeout=len(cases) * (seconds + warmup) + PATIENCE,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the client {client.name} broke:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout, type=dict[str, Outcome])


def _first_answers(plan: Plan, scenario: Scenario, clients: list[Client]) -> None:
    """From the start of a process to its first answer: imports, the card, one request."""
    scenario.starts = [Start(client.name, f"python -m bench.call {client.module} URL") for client in clients]
    with running(plan.field.dragoman_memory, plan.folder) as server:
        for number in range((QUICK_STARTS if plan.settings.quick else STARTS) + 1):
            for start, client in zip(scenario.starts, clients, strict=True):
                plan.need(OVERHEAD_SECONDS)
                took = _first_answer(client, f"http://127.0.0.1:{server.port}")
                # The first run may read from the disk and write .pyc files.
                if number:
                    start.milliseconds.append(took)
    for start in scenario.starts:
        fastest = f"{min(start.milliseconds):.0f} ms to the first answer"
        print(f"  {scenario.name:10} {start.name:20} {fastest}", file=sys.stderr, flush=True)


def _first_answer(client: Client, url: str) -> float:
    command = [str(client.python), "-m", "bench.call", client.module, url]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=variables())
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        with process:
            assert process.stdout is not None
            said = process.stdout.readline().decode().strip()
            took = (time.perf_counter() - began) * 1000
    finally:
        watchdog.cancel()
    if said != call.ANSWERED:
        raise RuntimeError(f"the client {client.name} got no answer")
    return took
