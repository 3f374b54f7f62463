"""Dragoman and its peers, measured in one run.

    python -m bench.compare [--quick] [--only NAME] [--write] [--keep DIR]

Without --write, results and report go to a temporary folder. With it, bench/results.json, docs/benchmarks.md and
docs/img/bench-*.svg are written; together with --only, the other scenarios stay as they were.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import contestants, machine, report, results
from bench.environments import ROOT
from bench.plan import QUICK, OutOfTime, Plan, Settings
from bench.results import Results, Scenario
from bench.scenarios import (
    adk,
    auth,
    blocking,
    client,
    cross_node,
    fanout,
    growth,
    http_client,
    mcp,
    over_grpc,
    parked,
    postgres,
    reading,
    startup,
    streaming,
    telemetry,
)
from bench.server import CannotStart

# In this order: the last one takes what time is left, and says what it left out.
SCENARIOS: dict[str, Callable[[Plan, Scenario], None]] = {
    "startup": startup.run,
    "blocking": blocking.run,
    "auth": auth.run,
    "telemetry": telemetry.run,
    "streaming": streaming.run,
    "grpc": over_grpc.run,
    "growth": growth.run,
    "fanout": fanout.run,
    "parked": parked.run,
    "postgres": postgres.run,
    "cross-node": cross_node.run,
    "client": client.run,
    "http": http_client.run,
    "mcp": mcp.run,
    "adk": adk.run,
    "reading": reading.run,
}
PEERS = ("a2a-sdk", "fasta2a", "a2a-go", "@a2a-js/sdk", adk.THEIRS)
RESULTS = ROOT / "bench" / "results.json"


def main() -> None:
    """Measure, write, show."""
    options = _options()
    if not Path("/proc/self/stat").exists():
        sys.exit("the benchmark reads CPU times from /proc: it runs on Linux only")
    settings = QUICK if options.quick else Settings()
    field = contestants.gather()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as folder:
        plan = Plan(settings, field, Path(folder), options.keep)
        found = Results(
            shlex.join(["python", "-m", "bench.compare", *sys.argv[1:]]), machine.describe(), field.versions()
        )
        for name in [options.only] if options.only else SCENARIOS:
            found.scenarios.append(_measure(plan, name))
    print(f"measured in {time.monotonic() - began:.0f} s", file=sys.stderr)
    if options.write:
        _write(found)
    else:
        target = Path(tempfile.mkdtemp(prefix="dragoman-bench-report-"))
        results.save(found, target / "results.json")
        report.write(found, target)
        print(report.text(found))
        print(f"written to {target}", file=sys.stderr)
    # Figures with wrong answers of ours behind them are worth nothing.
    wrong = sum(row.errors for one in found.scenarios for row in one.rows if not row.server.startswith(PEERS))
    if wrong or any(one.broken for one in found.scenarios):
        sys.exit(f"{wrong} wrong answers, or a scenario that broke: see above")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    parser.add_argument("--only", choices=list(SCENARIOS), metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--write", action="store_true", help="write bench/results.json and docs/benchmarks.md")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the filled stores there for the next run")
    return parser.parse_args()


def _measure(plan: Plan, name: str) -> Scenario:
    settings = plan.settings
    scenario = Scenario(name, machine.now(), settings.rounds, settings.seconds)
    print(f"{name}: load {machine.load():.1f}, {plan.left:.0f} s left", file=sys.stderr, flush=True)
    scenario.notes.extend(machine.busy(machine.used()))
    try:
        SCENARIOS[name](plan, scenario)
    except OutOfTime:
        scenario.notes.append("cut short: the time of the whole run was up")
    except (CannotStart, RuntimeError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        scenario.broken = True
        scenario.notes.append("broken off by an error")
    return scenario


def _write(found: Results) -> None:
    if len(found.scenarios) < len(SCENARIOS) and RESULTS.exists():
        before = msgspec.structs.replace(results.load(RESULTS), machine=found.machine, versions=found.versions)
        for scenario in found.scenarios:
            others = [one for one in before.scenarios if one.name != scenario.name]
            before.scenarios = sorted([*others, scenario], key=lambda one: list(SCENARIOS).index(one.name))
        found = before
    results.save(found, RESULTS)
    report.write(found, ROOT / "docs")


if __name__ == "__main__":
    main()
