"""What telemetry costs: servers in three modes side by side, and the bar for metrics."""

from __future__ import annotations

import sys
from http.client import HTTPConnection
from pathlib import Path

import msgspec
import pytest
from bench import report, sink, toggled
from bench.contestants import Contestant, Field
from bench.job import Outcome
from bench.plan import QUICK, Plan
from bench.results import Results, Scenario
from bench.scenarios import telemetry

from dragoman.telemetry.metrics import METRICS


def _outcome(requests: int, cpu: float, events: int = 0) -> Outcome:
    return Outcome(requests, 1.0, cpu, 0.1, 0, "", 50.0, p50_ms=2.0, events=events)


def test_more_cpu_time_is_held_against_the_bar_round_by_round() -> None:
    scenario = Scenario("telemetry", "2026-11-17 10:00 UTC", 3, 4.0)
    # The second round was disturbed for all alike.
    for disturbed in (1, 2):
        for mode, good, bad in ((telemetry.OFF, 1.0, 1.0), (telemetry.METRICS, 1.02, 1.04), (telemetry.TRACES, 1.1, 1)):
            scenario.row("SendMessage, memory", mode).outcomes.append(_outcome(1000, good * disturbed))
            scenario.row("stream, memory", mode).outcomes.append(_outcome(1, bad * disturbed, events=1000))
    machine: dict[str, str] = dict.fromkeys(("cpu", "cores", "memory", "system", "python", "sqlite"), "x")
    text = report.text(Results("python -m bench.compare", machine, {}, [scenario]))
    assert "| SendMessage, memory, metrics | 1,000 | 1,530 (1,020–2,040) | +2.0 % (+2.0 to +2.0) | yes | 0 |" in text  # noqa: RUF001
    assert "| SendMessage, memory, traces 1 % | 1,000 | 1,650 (1,100–2,200) | +10.0 % (+10.0 to +10.0) |  | 0 |" in text  # noqa: RUF001
    assert "| stream, memory, metrics | 1,000 | 1,560 (1,040–2,080) | +4.0 % (+4.0 to +4.0) | **no** | 0 |" in text  # noqa: RUF001


def test_the_bursts_of_one_server_are_one_outcome() -> None:
    both = telemetry.combined([_outcome(100, 1.0), msgspec.structs.replace(_outcome(300, 1.4), errors=1, p50_ms=4.0)])
    assert (both.requests, both.seconds, both.errors, both.p50_ms) == (400, 2.0, 1, 3.5)
    assert both.cpu_us == pytest.approx(6000)


def test_a_sink_swallows_and_counts() -> None:
    with sink.swallowing() as port:
        assert sink.received(port) == 0
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(2):
            connection.request("POST", "/v1/traces", b"spans")
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, b"")
        connection.close()
        assert sink.received(port) == 2


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("work", [toggled.Work("message", 2, 1), toggled.Work("chunk", 2, 1, 5)])
async def test_one_process_is_measured_with_telemetry_on_and_off(
    tmp_path: Path, store: str, work: toggled.Work
) -> None:
    modes = (toggled.OFF, toggled.METRICS_ON)
    found = await toggled.measure("memory" if store == "memory" else str(tmp_path / "tasks.db"), 2, work, modes)
    assert {mode: len(values) for mode, values in found.items()} == {toggled.OFF: 2, toggled.METRICS_ON: 2}
    assert not METRICS.on
    assert "| off | " in toggled.text(found, work.unit)


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_the_scenario_measures_every_mode_of_a_real_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "WORKS", telemetry.WORKS[:1])
    ours = Contestant("dragoman", "bench.agents.dragoman_echo", Path(sys.executable))
    settings = msgspec.structs.replace(QUICK, seconds=2.0, warmup=0.1)
    scenario = Scenario("telemetry")
    telemetry.run(Plan(settings, Field(ours, ours, ours, None, None, None, None), tmp_path), scenario)
    assert [(row.server, row.case) for row in scenario.rows] == [
        ("SendMessage, memory", mode) for mode in telemetry.MODES
    ]
    assert all(row.errors == 0 and row.outcomes[0].requests > 0 for row in scenario.rows)
    assert "of CPU time for" in scenario.notes[0]
