"""Authentication is measured at doors that are shut, against the same server with its door open."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from bench import credentials, report
from bench.agents import dragoman_auth, dragoman_echo
from bench.contestants import Contestant, Field
from bench.job import Job, Outcome
from bench.load import run
from bench.plan import QUICK, Plan
from bench.results import Results, Scenario
from bench.scenarios import auth

from dragoman.testing import served


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("case", auth.CASES)
def test_callers_with_credentials_are_let_in_and_others_are_not(case: str, store: str, tmp_path: Path) -> None:
    door = credentials.furnish(tmp_path, case)
    with served(dragoman_auth.app("memory" if store == "memory" else str(door.store), str(door.config))) as url:
        port = urlsplit(url).port or 0
        asyncio.run(auth._try_the_door(port, door.header))
        times = {"seconds": 0.02, "warmup": 0.0, "limit": 10.0}
        outcome = asyncio.run(run(Job("send", port, os.getpid(), concurrency=2, header=door.header, **times)))
        assert (outcome.errors, outcome.first_error) == (0, "")
        assert outcome.requests > 0
        if case != auth.OPEN:
            stranger = asyncio.run(run(Job("send", port, os.getpid(), concurrency=2, **times)))
            assert "HTTP 401" in stranger.first_error


def test_a_door_that_is_open_to_everybody_is_not_measured() -> None:
    with (
        served(dragoman_echo.app("memory")) as url,
        pytest.raises(RuntimeError, match="nobody gets 200 instead of 401"),
    ):
        asyncio.run(auth._try_the_door(urlsplit(url).port or 0, "X-API-Key: dk_something"))


def test_a_door_that_refuses_its_own_credentials_is_not_measured_and_they_are_not_shown(tmp_path: Path) -> None:
    door = credentials.furnish(tmp_path, "apikey")
    with (
        served(dragoman_auth.app("memory", str(door.config))) as url,
        pytest.raises(RuntimeError, match="X-API-Key: gets 401 instead of 200") as caught,
    ):
        asyncio.run(auth._try_the_door(urlsplit(url).port or 0, "X-API-Key: dk_of-nobody"))
    assert "dk_of-nobody" not in str(caught.value)


@pytest.mark.soak
def test_the_scenario_measures_every_case_on_both_stores_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "CASES", (auth.OPEN, "apikey"))
    memory = Contestant("dragoman", "bench.agents.dragoman_echo", Path(sys.executable))
    sqlite = msgspec.structs.replace(memory, store="sqlite")
    settings = msgspec.structs.replace(QUICK, seconds=2.0, warmup=0.1)
    scenario = Scenario("auth")
    auth.run(Plan(settings, Field(memory, sqlite, memory, None, None, None, None), tmp_path), scenario)
    assert [(row.server, row.case) for row in scenario.rows] == [
        (server, case) for server in ("dragoman, memory", "dragoman, sqlite") for case in (auth.OPEN, "apikey")
    ]
    for row in scenario.rows:
        assert row.errors == 0
        assert [outcome.requests > 0 for outcome in row.outcomes] == [True, True]


def test_what_is_left_of_the_rate_is_held_against_the_bar_round_by_round() -> None:
    scenario = Scenario("auth", "2026-11-15 10:00 UTC", 3, 4.0)
    # The second round was disturbed for all alike; the last case is slow without using the CPU.
    for disturbed in (1, 2):
        for case, requests, cpu in (
            ("open", 1000, 1.0),
            ("apikey", 900, 1.0),
            ("cookie", 800, 1.0),
            ("basic", 800, 0.8),
        ):
            outcome = Outcome(
                requests=requests // disturbed,
                seconds=1.0,
                cpu_seconds=cpu,
                generator_cpu_seconds=0.5,
                errors=0,
                first_error="",
                peak_mb=50.0,
            )
            scenario.row("dragoman, memory", case).outcomes.append(outcome)
    machine: dict[str, str] = dict.fromkeys(("cpu", "cores", "memory", "system", "python", "sqlite"), "x")
    text = report.text(Results("python -m bench.compare", machine, {}, [scenario]))
    assert "| of open | requests/s | requests per CPU second | ≥ 85 % |" in text
    assert "| dragoman, memory, apikey | 90.0 % | 90.0 % | yes |" in text
    assert "| dragoman, memory, cookie | 80.0 % | 80.0 % | **no** |" in text
    assert "| dragoman, memory, basic | 80.0 % | 100 % | **no** |" in text
    assert "bursts of 0.6 s" in text
    assert "Bursts: 2 each." in text
