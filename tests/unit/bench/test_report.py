"""The report says what the results say."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from bench import compare, machine, report, results, svg
from bench.job import Outcome
from bench.results import Memory, Results, Scenario, Start
from bench.scenarios.blocking import UUID_IDS
from bench.scenarios.startup import BARE


def _outcome(requests: int, events: int = 0) -> Outcome:
    return Outcome(
        requests=requests,
        events=events,
        seconds=1.0,
        cpu_seconds=1.0,
        generator_cpu_seconds=0.1,
        errors=0,
        first_error="",
        peak_mb=50.0,
        p50_ms=1.0,
        p95_ms=2.0,
        p99_ms=3.0,
    )


def _results() -> Results:
    blocking = Scenario("blocking", "2026-11-15 10:00 UTC", 3, 4.0)
    for server, rate in (("dragoman, sqlite", 4000), ("a2a-sdk, sqlite", 50)):
        blocking.row(server, UUID_IDS).outcomes.extend([_outcome(rate), _outcome(rate // 2), _outcome(rate)])
    growth = Scenario("growth")
    growth.row("dragoman, sqlite", "200").outcomes.append(_outcome(5, 1000))
    growth.row("dragoman, sqlite", "2000").outcomes.append(_outcome(1, 2000))
    reading = Scenario("reading", notes=["1,000,000 tasks: left out"])
    reading.row("1000", "GetTask").outcomes.append(_outcome(9000))
    parked = Scenario("parked", memories=[Memory("dragoman, sqlite", 2000, 40.0, 40.5, 3, 3)])
    startup = Scenario("startup", starts=[Start(BARE, "python", [20.0]), Start("import dragoman", "python", [110.0])])
    machine = dict.fromkeys(("cpu", "cores", "memory", "system", "python", "sqlite"), "x")
    return Results("python -m bench.compare", machine, {"dragoman": "1"}, [blocking, growth, reading, parked, startup])


def test_ratios_tables_and_notes_are_on_the_page() -> None:
    text = report.text(_results())
    assert "| dragoman, sqlite / a2a-sdk, sqlite | 80.0× | 0.01× |" in text  # noqa: RUF001
    assert "4,000 (2,000–4,000)" in text  # noqa: RUF001
    assert "1,000,000 tasks: left out" in text
    assert "| import dragoman | 110 | 90.0 |" in text
    assert "python -m bench.compare" in text


def test_the_report_and_its_pictures_are_written(tmp_path: Path) -> None:
    report.write(_results(), tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    for picture in (tmp_path / "img").glob("*.svg"):
        ElementTree.fromstring(picture.read_text())
        assert f"(img/{picture.name})" in text
    assert len(list((tmp_path / "img").glob("bench-*.svg"))) == 3


def test_results_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results.save(_results(), file)
    assert msgspec.to_builtins(results.load(file)) == msgspec.to_builtins(_results())


def test_a_plot_without_points_is_still_a_picture() -> None:
    ElementTree.fromstring(svg.lines("empty", {}, "x", "y"))
    ElementTree.fromstring(svg.lines("one", {"a < b": [(5.0, 5.0)]}, "x", "y"))
    ElementTree.fromstring(svg.bars("none", {}, "/s"))


def test_writing_one_scenario_leaves_the_others_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    monkeypatch.setattr(compare, "RESULTS", tmp_path / "results.json")
    compare._write(_results())
    again = _results()
    again.scenarios = [Scenario("growth", notes=["measured again"])]
    compare._write(again)
    found = results.load(tmp_path / "results.json")
    assert [one.name for one in found.scenarios] == ["startup", "blocking", "growth", "parked", "reading"]
    assert "measured again" in (tmp_path / "docs" / "benchmarks.md").read_text()


def test_a_busy_machine_is_noted() -> None:
    assert machine.busy(0.1) == []
    assert machine.busy(0.75) == [
        "other programs used 75 % of the machine when this began: compare CPU times, not rates"
    ]
