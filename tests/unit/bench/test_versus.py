"""Two trees are measured by the same work, and their ratios taken within a round."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench import versus
from bench.environments import ROOT
from bench.job import Outcome


def outcome(requests: int, cpu_seconds: float, p50_ms: float = 1.0, errors: int = 0) -> Outcome:
    return Outcome(
        requests=requests,
        seconds=1.0,
        cpu_seconds=cpu_seconds,
        generator_cpu_seconds=0.1,
        errors=errors,
        first_error="late" if errors else "",
        peak_mb=1.0,
        p50_ms=p50_ms,
    )


def test_the_bursts_of_a_round_are_summed_up_by_their_requests() -> None:
    found = versus.total([outcome(100, 0.1, 1.0), outcome(300, 0.1, 2.0)])
    assert (found.cpu_us, found.p50_ms, found.rate) == (pytest.approx(500.0), pytest.approx(1.75), pytest.approx(200.0))


def test_a_round_with_a_wrong_answer_counts_for_nothing() -> None:
    with pytest.raises(RuntimeError, match="late"):
        versus.total([outcome(100, 0.1), outcome(100, 0.1, errors=1)])


def test_each_tree_is_first_as_often_as_the_other() -> None:
    bursts = versus.order(0) + versus.order(1)
    assert bursts.count("b") == bursts.count("n") == 4
    assert {versus.order(0)[0], versus.order(1)[0]} == {"b", "n"}


def test_the_table_divides_new_by_base() -> None:
    base, new = versus.Total(200.0, 2.0, 1000.0), versus.Total(150.0, 1.0, 1500.0)
    assert "0.750 (0.750–0.750) | 0.500 (0.500–0.500) | 1.500" in versus.text({"send": [(base, new)]})  # noqa: RUF001


def test_a_folder_without_the_package_is_no_tree(tmp_path: Path) -> None:
    with pytest.raises((RuntimeError, subprocess.CalledProcessError)):
        versus.check_tree(tmp_path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CPU times are read from /proc")
@pytest.mark.parametrize(
    "case", [versus.CASES[1], pytest.param(versus.CASES[2], marks=pytest.mark.soak)], ids=lambda case: case.name
)
def test_a_tree_beside_itself_answers_rightly(case: versus.Case) -> None:
    base, new = versus.measure(case, ROOT, ROOT, 0, seconds=0.1)
    assert base.cpu_us > 0 and new.cpu_us > 0
