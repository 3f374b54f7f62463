"""How long the first import and the first command take."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.environments import PEERS, ROOT
from bench.plan import Plan
from bench.results import Scenario, Start

RUNS = 9
QUICK_RUNS = 3
TIMEOUT = 30.0
BARE = "bare interpreter"


def run(plan: Plan, scenario: Scenario) -> None:
    """Measure the wall time of whole processes, in turn."""
    commands = _commands(plan)
    scenario.starts = [Start(name, _spell(command)) for name, command in commands]
    for number in range((QUICK_RUNS if plan.settings.quick else RUNS) + 1):
        for start, (_, command) in zip(scenario.starts, commands, strict=True):
            plan.need(5)
            took = _time(command)
            # The first run may read from the disk and write .pyc files.
            if number:
                start.milliseconds.append(took)
    for start in scenario.starts:
        print(f"  startup    {start.name:28} {min(start.milliseconds):.0f} ms", file=sys.stderr, flush=True)


def _commands(plan: Plan) -> list[tuple[str, list[str]]]:
    field = plan.field
    own = field.floor.python
    found = [
        (BARE, [str(own), "-c", "pass"]),
        ("import dragoman (Agent)", [str(own), "-c", "import dragoman; dragoman.Agent"]),
        ("import dragoman (Client)", [str(own), "-c", "import dragoman; dragoman.Client"]),
        ("dragoman --help", [str(own.parent / "dragoman"), "--help"]),
    ]
    if field.sdk_memory is not None:
        # Without SQLAlchemy its server imports faster: the leaner environment is the fairer one.
        lean = PEERS / "a2a-sdk" / "bin" / "python"
        python = str(lean if lean.exists() else field.sdk_memory.python)
        found.append(("import a2a-sdk server", [python, "-c", "import a2a.server.request_handlers, a2a.server.routes"]))
        found.append(("import a2a-sdk client", [python, "-c", "import a2a.client"]))
    if field.fasta2a is not None:
        found.append(("import fasta2a", [str(field.fasta2a.python), "-c", "import fasta2a"]))
    return found


def _spell(command: list[str]) -> str:
    return " ".join([Path(command[0]).name, *(f'"{word}"' if " " in word else word for word in command[1:])])


def _time(command: list[str]) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT.parent, env=environment)
    # Not wait(timeout): that looks every 50 ms, which is what it would then measure.
    watchdog = threading.Timer(TIMEOUT, process.kill)
    watchdog.start()
    try:
        code = process.wait()
    finally:
        watchdog.cancel()
    took = (time.perf_counter() - began) * 1000
    if code:
        raise subprocess.CalledProcessError(code, command)
    return took
