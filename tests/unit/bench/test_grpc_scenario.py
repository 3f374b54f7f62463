"""Sends and streams over gRPC: who is measured, and how it is held against the bars."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench import contestants, grpc_section
from bench.contestants import Contestant, Field
from bench.job import Outcome
from bench.plan import QUICK, Plan
from bench.results import Scenario
from bench.scenarios import over_grpc

OWN = Path(sys.executable)


def _outcome(requests: int, cpu: float, events: int = 0) -> Outcome:
    return Outcome(requests, 1.0, cpu, 0.1, 0, "", 50.0, events=events)


def _scenario(*, sends: int, chunks: int, cpu: float = 1.0) -> Scenario:
    scenario = Scenario("grpc")
    for store in grpc_section.STORES:
        for name, factor in ((over_grpc.OURS, 1), (over_grpc.JSON, 2)):
            row = scenario.row(f"{name}, {store}", over_grpc.SEND)
            row.outcomes.append(_outcome(sends * factor, cpu))
        scenario.row(f"{over_grpc.THEIRS}, {store}", over_grpc.SEND).outcomes.append(_outcome(100, 1.0))
    scenario.row(f"{over_grpc.OURS}, sqlite", over_grpc.STREAM).outcomes.append(_outcome(1, cpu, chunks))
    scenario.row(f"{over_grpc.THEIRS}, sqlite", over_grpc.STREAM).outcomes.append(_outcome(0, 1.0, 100))
    return scenario


def _field() -> Field:
    ours = Contestant("dragoman", "bench.agents.dragoman_echo", OWN)
    return Field(ours, ours, ours, None, None, None, None)


def test_the_bars_are_met_or_not() -> None:
    met = grpc_section.over_grpc(_scenario(sends=2000, chunks=2000))[-1]
    assert "memory / a2a-sdk gRPC, memory, SendMessage, 32 connections | 20.0× | 20.0× | ≥ 5× | yes |" in met  # noqa: RUF001
    assert met.count("| yes |") == 3
    missed = grpc_section.over_grpc(_scenario(sends=400, chunks=1900))[-1]
    assert missed.count("**no**") == 3


def test_a_rate_that_costs_too_much_does_not_meet_a_bar() -> None:
    assert grpc_section.over_grpc(_scenario(sends=2000, chunks=2000, cpu=1.5))[-1].count("**no**") == 2


def test_the_page_says_the_ratio_to_json_rpc() -> None:
    bars = grpc_section.over_grpc(_scenario(sends=2000, chunks=2000))[-1]
    assert "| dragoman gRPC, memory / dragoman, memory, SendMessage, 32 connections | 0.50× | 0.50× |  |  |" in bars  # noqa: RUF001


def test_without_the_load_generator_nothing_is_measured_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_grpc, "GRPC_GENERATOR", tmp_path / "load")
    scenario = Scenario("grpc")
    over_grpc.run(Plan(QUICK, _field(), tmp_path), scenario)
    assert "load generator for gRPC is not there" in scenario.notes[0]
    assert not scenario.rows


def test_peers_serve_grpc_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    native = Contestant("a2a-go", "", OWN, command=("server",))
    monkeypatch.setattr(contestants, "_peer", lambda environment, pins: OWN)
    monkeypatch.setattr(contestants, "_go", lambda: native)
    monkeypatch.setattr(contestants, "_js", lambda: None)
    found = contestants.gather()
    assert [one.label for one in found.grpc] == [
        "dragoman gRPC, memory",
        "dragoman gRPC, sqlite",
        "a2a-sdk gRPC, memory",
        "a2a-sdk gRPC, sqlite",
        "a2a-go gRPC, memory",
    ]
    assert all(one.grpc for one in found.grpc)
    assert found.grpc[-1].command == ("server", "grpc")
    assert found.go is native and not native.grpc
