"""Sends and streams on PostgreSQL: what is measured, and how it is held against the bars."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from bench import postgres_section
from bench.agents import dragoman_echo
from bench.contestants import Contestant, Field
from bench.job import Job, Outcome
from bench.load import run as run_load
from bench.plan import QUICK, Plan
from bench.proc import children, cpu_of_family, cpu_seconds
from bench.results import Scenario
from bench.scenarios import cross_node, postgres

from dragoman.testing import served

OWN = Path(sys.executable)


def _outcome(rate: int, node: float, database: float = 0.0, events: int = 0) -> Outcome:
    return Outcome(rate, 1.0, node, 0.1, 0, "", 50.0, events=events, database_cpu_seconds=database)


def _scenario(*, ours: int, both: float, chunks: float) -> Scenario:
    scenario = Scenario("postgres")
    scenario.row(postgres_section.OURS, postgres.SEND).outcomes.append(_outcome(ours, 1.0, 1.0))
    scenario.row(postgres_section.OURS, postgres.SEND_TWO).outcomes.append(_outcome(ours, both, both))
    scenario.row(postgres_section.THEIRS, postgres.SEND).outcomes.append(_outcome(100, 1.0, 0.5))
    scenario.row(postgres_section.OURS, postgres.STREAM).outcomes.append(_outcome(1, chunks, 1.0, events=1000))
    scenario.row(postgres_section.SQLITE, postgres.STREAM).outcomes.append(_outcome(1, 1.0, events=1000))
    return scenario


def test_the_bars_are_met_or_not() -> None:
    met = "\n\n".join(postgres_section.postgres(_scenario(ours=3000, both=1.1, chunks=1.4)))
    assert "| 30.0× | ≥ 30× | yes |" in met  # noqa: RUF001
    assert "| 1.10× | ≤ 1.15× | yes |" in met  # noqa: RUF001
    assert "| 1.40× | ≤ 1.5× | yes |" in met  # noqa: RUF001
    missed = "\n\n".join(postgres_section.postgres(_scenario(ours=2900, both=1.2, chunks=1.6)))
    assert missed.count("**no**") == 3


def test_a_store_without_a_database_has_no_cost_of_one() -> None:
    streams = postgres_section.postgres(_scenario(ours=3000, both=1.1, chunks=1.4))[3]
    assert "| dragoman, postgres | 1,000 | 1,400 | 1,000 | 0 |" in streams
    assert "| dragoman, sqlite | 1,000 | 1,000 |  | 0 |" in streams


@pytest.mark.parametrize("module", [postgres, cross_node])
def test_without_postgresql_nothing_is_measured_and_the_page_says_so(
    module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "missing", lambda: "PostgreSQL is not installed: nothing was measured")
    ours = Contestant("dragoman", "bench.agents.dragoman_echo", OWN)
    scenario = Scenario("postgres")
    module.run(Plan(QUICK, Field(ours, ours, ours, None, None, None, None), tmp_path), scenario)  # type: ignore[attr-defined]
    assert scenario.notes == ["PostgreSQL is not installed: nothing was measured"]
    assert not scenario.rows


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_the_cpu_of_a_database_is_that_of_all_its_processes() -> None:
    busy = "import sys; sum(range(3_000_000)); print(1, flush=True); sys.stdin.read()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    with subprocess.Popen([OWN, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdin is not None
        parent.stdout.readline()
        (child,) = children(parent.pid)
        family = cpu_of_family(parent.pid)
        assert family >= cpu_seconds(child) > 0
        parent.stdin.close()
        # The child has ended: its time is not forgotten. Its parent cannot be waited for before it is asked.
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        assert cpu_of_family(parent.pid) >= family


async def test_callers_go_to_all_nodes_in_turn() -> None:
    asked: Counter[str] = Counter()

    def node(name: str) -> Any:
        app = dragoman_echo.app("memory")

        async def counting(scope: Any, receive: Any, send: Any) -> None:
            asked[name] += scope["type"] == "http"
            await app(scope, receive, send)

        return counting

    with served(node("first")) as first, served(node("second")) as second:
        port, other = (urlsplit(url).port or 0 for url in (first, second))
        job = Job("send", port, os.getpid(), concurrency=4, seconds=0.2, warmup=0.05, nodes=((other, os.getpid()),))
        outcome = await run_load(job)
    assert (outcome.errors, outcome.database_cpu_seconds) == (0, 0.0)
    assert asked["first"] > 0 and asked["second"] > 0
