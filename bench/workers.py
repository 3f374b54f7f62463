"""How much two workers on one port do, beside one: `python -m bench.workers`.

All processes share the cores of the machine, PostgreSQL and the load generator too, so that the figures say what a
machine of this size gains. They go to stdout, and nowhere else.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.environments import ROOT
from bench.job import Job, Outcome
from bench.plan import generate
from bench.postgres import Postgres, postgres
from bench.proc import children
from bench.server import CannotStart, variables

AGENTS = {"echo": "dragoman_agent", "5 ms of CPU": "dragoman_busy"}
STOP_SECONDS = 20.0


@contextmanager
def serving(module: str, workers: int, store: str, folder: Path) -> Generator[tuple[int, list[int]], None, None]:
    """Start `dragoman serve`, and stop it at the end. Gives its port, and the processes that serve.

    Raises:
        CannotStart: it has ended before it was ready.
    """
    command = [sys.executable, "-m", "dragoman.cli.main", "serve", f"bench.agents.{module}:agent"]
    command += ["--workers", str(workers), "--port", "0", "--store", store, "--no-push", "--log-level", "warning"]
    environment = variables()
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if found := re.match(r"serving .* at http://127\.0\.0\.1:(\d+)", line):
                pids = [process.pid] if workers == 1 else [pid for pid in children(process.pid) if _serves(pid)]
                yield int(found[1]), pids
                break
        else:
            raise CannotStart("".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.close()
        process.wait(STOP_SECONDS)


def _serves(pid: int) -> bool:
    return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()


def measure(server: Postgres, module: str, workers: int, seconds: float, callers: int) -> Outcome:
    """Load fresh workers on an empty database."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(module, workers, server.empty_database(), Path(folder)) as (port, pids),
    ):
        first, *others = pids
        return generate(
            Job(
                kind="send",
                port=port,
                pid=first,
                seconds=seconds,
                warmup=1.0,
                concurrency=callers,
                nodes=tuple((port, pid) for pid in others),
                database_pid=server.pid,
            )
        )


def main() -> None:
    """Measure one and two workers in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--callers", type=int, default=64)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {options.callers} callers, PostgreSQL beside them")
    with postgres() as server:
        for name, module in AGENTS.items():
            outcomes: dict[int, list[Outcome]] = {1: [], 2: []}
            for _ in range(options.rounds):
                for workers, results in outcomes.items():
                    results.append(measure(server, module, workers, options.seconds, options.callers))
            for workers, results in outcomes.items():
                print(_line(name, workers, results))
            one, two = (median(each.rate for each in results) for results in outcomes.values())
            print(f"{name:12} two workers / one: {two / one:.2f} x")
    print(f"load {os.getloadavg()[0]:.2f}")


def _line(name: str, workers: int, results: list[Outcome]) -> str:
    def middle(field: str) -> float:
        return median(getattr(each, field) for each in results)

    return (
        f"{name:12} {workers} worker{'s' if workers > 1 else ' '}  {middle('rate'):7,.0f} requests/s  "
        f"p50 {middle('p50_ms'):6.1f} ms  p99 {middle('p99_ms'):6.1f} ms  {middle('cpu_us'):6,.0f} µs CPU/request  "
        f"PostgreSQL {middle('database_cpu_us'):5,.0f} µs  {sum(each.errors for each in results)} errors"
    )


if __name__ == "__main__":
    main()
