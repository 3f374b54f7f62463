"""Servers that are not written in Python, and the two HTTP clients."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench import call, sections
from bench.agents import dragoman_echo, floor
from bench.contestants import Contestant, Field
from bench.job import Outcome
from bench.plan import QUICK, Plan
from bench.results import Scenario
from bench.scenarios import http_client
from bench.server import running
from bench.sse import EventCutter

from dragoman.net import sockets
from dragoman.net.direct import DirectClient
from dragoman.testing import served

OWN = Path(sys.executable)
SERVER = "import sys; print('{\"port\": 1234}', flush=True); sys.stdin.read()"


def field() -> Field:
    ours = Contestant("dragoman", "bench.agents.dragoman_echo", OWN)
    return Field(ours, ours, ours, None, None, None, None)


def test_a_server_of_any_language_says_its_port_and_ends_with_its_input(tmp_path: Path) -> None:
    native = Contestant("@x/native", "", OWN, command=(str(OWN), "-c", SERVER))
    with running(native, tmp_path) as server:
        assert server.port == 1234
        assert Path(f"/proc/{server.pid}").exists() or not Path("/proc/self").exists()


def test_a_server_that_compiles_at_run_time_warms_up_for_longer(tmp_path: Path) -> None:
    plan = Plan(QUICK, field(), tmp_path)
    slow = Contestant("slow", "", OWN, command=("slow",), warmup=4.0)
    assert plan.job(slow, kind="send").warmup == 4.0
    assert plan.job(field().floor, kind="send").warmup == QUICK.warmup


def test_peers_that_are_not_there_are_named() -> None:
    assert [note.partition(" ")[0] for note in field().absent()] == ["a2a-sdk", "fasta2a", "a2a-go", "@a2a-js/sdk"]


def test_ids_of_events_need_not_be_numbers() -> None:
    assert EventCutter().feed(b"id: 0e25-22\ndata: {}\n\nid: 7\ndata: {}\n\n") == [(None, b"{}"), (7, b"{}")]


@pytest.mark.parametrize(
    ("module", "app"),
    [
        ("dragoman_client", dragoman_echo.app),
        ("dragoman_aiohttp", dragoman_echo.app),
        ("exchange_direct", floor.app),
        ("exchange_aiohttp", floor.app),
    ],
)
async def test_each_http_client_gets_right_answers(module: str, app: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "DirectClient", DirectClient)  # what a caller puts there is taken away again
    with served(app("memory")) as url:  # type: ignore[operator]
        caller = call.caller_of(f"bench.callers.{module}", url)
        try:
            assert await caller.echo("hello") == "hello"
            text, events = await caller.count(5)
        finally:
            await caller.close()
    assert text == "w00000 w00001 w00002 w00003 w00004 "
    assert events >= 5


def test_the_http_clients_are_held_against_the_bar() -> None:
    def table(theirs: float) -> str:
        scenario = Scenario("http")
        for http, cpu_seconds in ((http_client.OURS, 1.0), (http_client.THEIRS, theirs)):
            outcome = Outcome(1000, 1.0, cpu_seconds, 0.1, 0, "", 1.0)
            scenario.row(f"{http}, asyncio", "Client, streams").outcomes.append(outcome)
        return sections.http_client(scenario)[1]

    assert "| 1.4× | **no** | 0 |" in table(1.4)  # noqa: RUF001
    assert "| 1.6× | yes | 0 |" in table(1.6)  # noqa: RUF001
