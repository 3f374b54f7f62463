"""What could put a wrong figure on the page: wrong answers that count, sums, ratios and bars."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest
from bench import call, compare, grpc_section, report, results, versus
from bench.agents import dragoman_echo
from bench.job import Job, Outcome
from bench.load import run
from bench.proc import cpu_of_stat
from bench.results import Results, Scenario
from bench.scenarios import auth, over_grpc
from bench.scenarios.blocking import UUID_IDS
from bench.stats import percentile, ratio_interval, ratios, spread

from dragoman.testing import served

MACHINE = dict.fromkeys(("cpu", "cores", "memory", "system", "python", "sqlite"), "x")


def outcome(requests: int, cpu: float = 1.0, *, p50_ms: float = 1.0, errors: int = 0, events: int = 0) -> Outcome:
    first = "late" if errors else ""
    return Outcome(requests, 1.0, cpu, 0.1, errors, first, 50.0, p50_ms=p50_ms, events=events)


def blocking(*rates: tuple[str, int]) -> Results:
    scenario = Scenario("blocking", "2026-11-15 10:00 UTC", 3, 4.0)
    for server, rate in rates:
        scenario.row(server, UUID_IDS).outcomes.extend([outcome(rate), outcome(rate // 2), outcome(rate)])
    return Results("python -m bench.compare", MACHINE, {"dragoman": "1"}, [scenario])


@pytest.mark.parametrize(
    "options",
    [{"kind": "send"}, {"kind": "stream", "chunks": 60, "numbered": True}],
    ids=["send", "stream"],
)
async def test_right_answers_are_counted(options: dict[str, Any]) -> None:
    with served(dragoman_echo.app("memory")) as url:
        times = {"seconds": 0.2, "warmup": 0.05, "limit": 10.0}
        found = await run(Job(port=urlsplit(url).port or 0, pid=os.getpid(), concurrency=3, **times, **options))
    assert (found.errors, found.first_error, found.unfinished) == (0, "", 0)
    assert found.requests > 0
    assert found.events == found.requests * options.get("chunks", 0)


async def test_an_answer_that_is_wrong_is_an_error() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    with served(app) as url:
        found = await run(Job("send", urlsplit(url).port or 0, os.getpid(), concurrency=1, seconds=0.05, warmup=0.01))
    assert found.errors > 0
    assert "result" in found.first_error


async def test_a_wrongly_read_response_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf:
        async def echo(self, text: str) -> str:
            return text.upper()

        async def count(self, chunks: int) -> tuple[str, int]:
            # The whole text, but not from every event.
            return "".join(call.chunk_text(number) for number in range(chunks)), chunks - 1

        async def close(self) -> None:
            pass

    module = ModuleType("deaf")
    vars(module)["caller"] = lambda _: Deaf()
    monkeypatch.setitem(sys.modules, "deaf", module)
    cases = {"requests": {"concurrency": 2, "chunks": 0}, "streams": {"concurrency": 1, "chunks": 50}}
    times = {"seconds": 0.01, "warmup": 0.0}
    order = {"module": "deaf", "url": "http://127.0.0.1:1", "pid": os.getpid(), "loop": "asyncio", "cases": cases}
    found = await call.measure({**order, **times})
    assert [case["requests"] for case in found.values()] == [0, 0]
    assert all(case["errors"] > 1 for case in found.values())
    assert found["streams"]["events"] == 0


def test_a_server_that_lets_everybody_in_is_not_measured_as_guarded() -> None:
    with (
        served(dragoman_echo.app("memory")) as url,
        pytest.raises(RuntimeError, match="nobody gets 200 instead of 401"),
    ):
        asyncio.run(auth._try_the_door(urlsplit(url).port or 0, "X-API-Key: dk_something"))


def test_a_spread_is_the_median_and_the_range() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)


def test_percentiles_of_few_and_of_no_values() -> None:
    values = [float(value) for value in range(100)]
    assert (percentile(values, 50), percentile(values, 99)) == (50, 99)
    assert (percentile([1.0], 99), percentile([], 50)) == (1.0, 0.0)


def test_ratios_are_taken_round_by_round() -> None:
    # The second round was disturbed for both: the ratio is the same.
    assert ratios([100.0, 50.0], [10.0, 5.0]).low == ratios([100.0, 50.0], [10.0, 5.0]).high == 10.0


@pytest.mark.parametrize(("rounds", "low", "high"), [(5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (20, 6, 15)])
def test_the_interval_of_a_median_is_that_of_the_sign_test(rounds: int, low: int, high: int) -> None:
    found = ratio_interval([float(rank) for rank in range(rounds, 0, -1)], [1.0] * rounds)
    assert (found.low, found.high) == (low, high)


def test_cpu_time_is_read_past_a_name_with_parentheses() -> None:
    fields = ["S", *("0" for _ in range(10)), "150", "50", *("0" for _ in range(20))]
    assert cpu_of_stat(f"42 (a (b) c) {' '.join(fields)}") == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))


def test_the_bursts_of_a_round_are_summed_up_by_their_requests() -> None:
    found = versus.total([outcome(100, 0.1), outcome(300, 0.1, p50_ms=2.0)])
    assert (found.cpu_us, found.p50_ms, found.rate) == (pytest.approx(500.0), pytest.approx(1.75), pytest.approx(200.0))


def test_a_round_with_a_wrong_answer_counts_for_nothing() -> None:
    with pytest.raises(RuntimeError, match="late"):
        versus.total([outcome(100, 0.1), outcome(100, 0.1, errors=1)])


def test_a_bar_holds_the_rate_and_the_cpu_time() -> None:
    def bars(sends: int, chunks: int, cpu: float) -> str:
        scenario = Scenario("grpc")
        for store in grpc_section.STORES:
            scenario.row(f"{over_grpc.OURS}, {store}", over_grpc.SEND).outcomes.append(outcome(sends, cpu))
            scenario.row(f"{over_grpc.THEIRS}, {store}", over_grpc.SEND).outcomes.append(outcome(100))
        ours = scenario.row(f"{over_grpc.OURS}, sqlite", over_grpc.STREAM)
        ours.outcomes.append(outcome(1, cpu, events=chunks))
        scenario.row(f"{over_grpc.THEIRS}, sqlite", over_grpc.STREAM).outcomes.append(outcome(0, events=100))
        return grpc_section.over_grpc(scenario)[-1]

    assert bars(2000, 2000, 1.0).count("| yes |") == 3
    assert bars(400, 1900, 1.0).count("**no**") == 3
    assert bars(2000, 2000, 1.5).count("**no**") == 2


def test_the_page_has_the_medians_and_the_ratios_of_the_results() -> None:
    text = report.text(blocking(("dragoman, sqlite", 4000), ("a2a-sdk, sqlite", 50)))
    assert "| dragoman, sqlite / a2a-sdk, sqlite | 80.0× | 0.01× |" in text  # noqa: RUF001
    assert "4,000 (2,000–4,000)" in text  # noqa: RUF001


def test_writing_one_scenario_leaves_the_others_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    monkeypatch.setattr(compare, "RESULTS", tmp_path / "results.json")
    compare._write(blocking(("dragoman, sqlite", 4000), ("a2a-sdk, sqlite", 50)))
    compare._write(Results("again", MACHINE, {}, [Scenario("growth", notes=["measured again"])]))
    assert [one.name for one in results.load(tmp_path / "results.json").scenarios] == ["blocking", "growth"]
    assert "80.0×" in (tmp_path / "docs" / "benchmarks.md").read_text()  # noqa: RUF001
