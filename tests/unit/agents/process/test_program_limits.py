"""How much a program may use, as users say it."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.agents.process.spec import ProgramLimits, limits_of
from dragoman.errors import ConfigError


def test_the_default_limits() -> None:
    assert limits_of(None) == limits_of({}) == ProgramLimits()
    usual = ProgramLimits()
    assert (usual.output, usual.artifacts, usual.inactivity) == (10_000_000, 10_000_000, 1800)
    assert (usual.cpu, usual.memory, usual.files, usual.file_size, usual.time) == (0, 0, 0, 0, 0)


def test_limits_are_taken_as_they_are() -> None:
    limits = ProgramLimits(cpu=5)
    assert limits_of(limits) is limits


def test_numbers_may_come_as_text() -> None:
    limits = limits_of({"cpu": "5", "time": "2.5", "memory": " 1000 ", "quiet": "0.1", "output": 7.0})
    assert limits == ProgramLimits(cpu=5, time=2.5, memory=1000, quiet=0.1, output=7)
    assert isinstance(limits.output, int)


@pytest.mark.parametrize("name", ["cpu", "memory", "files", "file_size", "output", "time", "inactivity", "artifacts"])
def test_0_is_no_limit(name: str) -> None:
    assert getattr(limits_of({name: 0}), name) == 0


@pytest.mark.parametrize("name", ["quiet", "sessions"])
def test_where_no_limit_makes_no_sense_0_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"limits: {name} must be more than 0"):
        limits_of({name: 0})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu", -1),
        ("cpu", 1.5),
        ("cpu", "1.5"),
        ("cpu", ""),
        ("cpu", None),
        ("cpu", True),
        ("cpu", [1]),
        ("cpu", 10**400),
        ("cpu", 2**63),
        ("cpu", "9" * 5000),
        ("time", "soon"),
        ("time", float("nan")),
        ("time", "inf"),
        ("time", -0.1),
        ("time", False),
        ("time", 10**400),
    ],
    ids=range(16),
)
def test_a_value_that_is_no_limit_is_refused(name: str, value: Any) -> None:
    kind = "a whole number" if name == "cpu" else "a number"
    with pytest.raises(ConfigError, match=f"limits: {name} is {kind}, 0 or more, not "):
        limits_of({name: value})


def test_an_unknown_limit_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"there is no limit `inactive`; did you mean `inactivity`\?"):
        limits_of({"inactive": 5})
    with pytest.raises(ConfigError, match="there is no limit `xyz`; there are cpu, memory, "):
        limits_of({"xyz": 5})
