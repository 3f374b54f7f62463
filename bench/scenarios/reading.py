"""GetTask and ListTasks with few and with many tasks in a SQLite file."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bench.environments import ROOT
from bench.plan import OutOfTime, Plan, tell
from bench.results import Scenario
from bench.server import Running, running

SIZES = (1000, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (1000, 10_000)
ROUNDS = 2
# What a round over one file takes, and a task in seconds while filling: to know when to stop.
ROUND_SECONDS = 15.0
FILL_SECONDS = 0.00015
CASES: dict[str, dict[str, object]] = {
    "GetTask": {"kind": "get", "concurrency": 32},
    "ListTasks": {"kind": "list", "concurrency": 8},
    "by status": {"kind": "list", "concurrency": 8, "filter": "status"},
    "by context": {"kind": "list", "concurrency": 8, "filter": "context"},
    "by time": {"kind": "list", "concurrency": 8, "filter": "since"},
}


def run(plan: Plan, scenario: Scenario) -> None:
    """Fill a file for each size, serve all of them, and ask each in turn."""
    sizes = QUICK_SIZES if plan.settings.quick else SIZES
    contestant = plan.field.dragoman_sqlite
    with ExitStack() as stack:
        servers: dict[int, Running] = {}
        for size, file in _filled(plan, scenario, sizes).items():
            servers[size] = stack.enter_context(running(contestant, plan.folder, file=file))
        for _ in range(min(ROUNDS, plan.settings.rounds)):
            for size, server in servers.items():
                _round(plan, scenario, size, server)


def _round(plan: Plan, scenario: Scenario, size: int, server: Running) -> None:
    contestant = plan.field.dragoman_sqlite
    for case, options in CASES.items():
        seconds, warmup = plan.settings.seconds / 3, plan.settings.warmup / 2
        job = plan.job(contestant, tasks=size, seconds=seconds, warmup=warmup, **options)
        outcome = plan.burst(contestant, job, server)
        scenario.row(str(size), case).outcomes.append(outcome)
        tell(scenario, f"{size:,} tasks", case, outcome)


def _filled(plan: Plan, scenario: Scenario, sizes: tuple[int, ...]) -> dict[int, Path]:
    """A file for each size; a larger one goes on where the smaller one ended."""
    folder = plan.keep or plan.folder
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[int, Path] = {}
    for size in sizes:
        file = folder / f"tasks-{size}.db"
        if not file.exists():
            seconds = size * FILL_SECONDS + ROUND_SECONDS * (len(files) + 1)
            if plan.left < seconds:
                scenario.notes.append(f"{size:,} tasks: left out, {plan.left:.0f} s were not enough to fill the file")
                break
            _fill(files, size, file)
        files[size] = file
    if not files:
        raise OutOfTime
    return files


def _fill(files: dict[int, Path], size: int, file: Path) -> None:
    began = time.monotonic()
    growing = file.with_suffix(".growing")
    growing.unlink(missing_ok=True)
    first = max(files, default=0)
    if first:
        shutil.copyfile(files[first], growing)
    command = [sys.executable, "-m", "bench.fill", str(growing), str(first), str(size)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    for beside in (".lock", ".ckpt", "-wal", "-shm"):
        growing.with_name(growing.name + beside).unlink(missing_ok=True)
    growing.rename(file)
    print(f"  reading    filled {size:,} tasks in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
