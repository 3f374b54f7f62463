"""Clients are measured by what they read, and a wrong answer is an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bench import call, report
from bench.agents import dragoman_echo
from bench.callers import dragoman_client
from bench.contestants import Contestant, Field
from bench.job import Outcome
from bench.plan import QUICK, Plan
from bench.results import Results, Scenario
from bench.scenarios import client

from dragoman.testing import served

OURS = dragoman_client.__name__


def _order(url: str, module: str = OURS, chunks: int = 50) -> dict[str, Any]:
    cases = {
        "requests": {"concurrency": 2, "chunks": 0},
        "streams": {"concurrency": 1, "chunks": chunks},
    }
    times = {"seconds": 0.1, "warmup": 0.0}
    return {"module": module, "url": url, "pid": os.getpid(), "loop": "asyncio", **times, "cases": cases}


async def test_our_client_is_measured_against_a_real_server() -> None:
    with served(dragoman_echo.app("memory")) as url:
        found = await call.measure(_order(url))
    for case in found.values():
        assert (case["errors"], case["first_error"]) == (0, "")
        assert case["requests"] > 0
        assert case["cpu_seconds"] > 0
        assert case["seconds"] >= 0.1
    assert found["streams"]["events"] == found["streams"]["requests"] * 50
    assert Outcome(**found["requests"]).cpu_rate > 0


async def test_a_client_that_reads_something_else_is_wrong_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf:
        async def echo(self, text: str) -> str:
            return text.upper()

        async def count(self, chunks: int) -> tuple[str, int]:
            # The whole text, but not from every event.
            return "".join(call.chunk_text(number) for number in range(chunks)), chunks - 1

        async def close(self) -> None:
            pass

    module = ModuleType("deaf")
    module.caller = lambda _: Deaf()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deaf", module)
    found = await call.measure({**_order("http://127.0.0.1:1", "deaf"), "seconds": 0.01})
    assert [case["requests"] for case in found.values()] == [0, 0]
    assert all(case["errors"] > 1 for case in found.values())
    assert found["requests"]["first_error"] == "the echo is not what was said"
    assert "49 events" in found["streams"]["first_error"]
    assert found["streams"]["events"] == 0


async def test_a_client_says_when_it_has_its_first_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with served(dragoman_echo.app("memory")) as url:
        await call.answer_once(OURS, url)
    assert capsys.readouterr().out.strip() == call.ANSWERED


@pytest.mark.soak
def test_the_scenario_measures_every_case_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LOOPS", ("asyncio",))
    monkeypatch.setattr(client, "CASES", {client.ONE: {"concurrency": 1, "chunks": 0}})
    monkeypatch.setattr(client, "QUICK_STARTS", 1)
    own = Path(sys.executable)
    ours = Contestant("dragoman", "bench.agents.dragoman_echo", own)
    plan = Plan(QUICK, Field(ours, ours, ours, None, None, None, None), tmp_path)
    scenario = Scenario("client")
    client.run(plan, scenario)
    row = scenario.find("dragoman, asyncio", client.ONE)
    assert row is not None
    assert row.errors == 0
    assert row.outcomes[0].requests > 0
    assert [len(start.milliseconds) for start in scenario.starts] == [1]
    assert "nobody to compare with" in scenario.notes[0]


def test_ratios_of_clients_are_per_second_of_their_own_cpu_time() -> None:
    scenario = Scenario("client", "2026-11-15 10:00 UTC", 2, 4.0)
    rates = {client.OURS: (8000, 100_000), client.THEIRS: (1000, 20_000)}
    for name, (requests, events) in rates.items():
        for slower in (1, 2):
            for case in client.CASES:
                streams = case == client.STREAMS
                outcome = Outcome(
                    requests=10 if streams else requests // slower,
                    events=events // slower if streams else 0,
                    seconds=2.0,
                    cpu_seconds=1.0,
                    generator_cpu_seconds=0.5,
                    errors=0,
                    first_error="",
                    peak_mb=50.0,
                )
                scenario.row(f"{name}, asyncio", case).outcomes.append(outcome)
    machine: dict[str, str] = dict.fromkeys(("cpu", "cores", "memory", "system", "python", "sqlite"), "x")
    text = report.text(Results("python -m bench.compare", machine, {}, [scenario]))
    assert f"| {client.ONE}, asyncio | 8.0× | 8.0× |" in text  # noqa: RUF001
    assert f"| {client.STREAMS}, asyncio | 5.0× | 5.0× |" in text  # noqa: RUF001
    assert "| dragoman, asyncio | one at a time | 6,000 (4,000–8,000) |" in text  # noqa: RUF001
    assert ", uvloop |" not in text
