"""How many agents a message has come through."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.model.message import DEPTH, depth_of, passed_on, told_depth


@pytest.mark.parametrize(
    ("given", "depth"),
    [
        (3, 3),
        (2.0, 2),
        (2.1, 3),
        ("4", 4),
        (" 4 ", 4),
        ("0004", 4),
        ("9" * 5000, 10**18),
        (10**30, 10**18),
        (float("inf"), 10**18),
        *((each, 0) for each in (0, -5, float("nan"), True, None, "", "4.0", "-4", "deep", "٤", [4], {})),
    ],
    ids=lambda value: repr(value)[:10],
)
def test_a_depth_is_a_number_or_its_digits(given: Any, depth: int) -> None:
    assert depth_of({DEPTH: given}) == depth


def test_of_several_depths_the_largest_counts() -> None:
    assert depth_of({DEPTH: 0}, {DEPTH: "4"}, None, {}) == 4
    assert depth_of({DEPTH: 4}, {DEPTH: 0}) == 4
    assert depth_of(None, {}) == depth_of() == 0


@pytest.mark.parametrize(
    ("told", "depth"), [("3", 3), ("0", 0), ("", None), ("deep", None), ("-1", None), (" 3", None)]
)
def test_a_program_is_told_its_depth(told: str, depth: int | None) -> None:
    assert told_depth({"DRAGOMAN_DEPTH": told}) == depth
    assert passed_on({"a": 1}, {"DRAGOMAN_DEPTH": told}) == {"a": 1, **({} if depth is None else {DEPTH: depth})}


def test_nobody_is_told_nothing() -> None:
    assert told_depth({}) is None
    assert passed_on(None, {}) is None
    assert passed_on({DEPTH: 1}, {"DRAGOMAN_DEPTH": "3"}) == {DEPTH: 1}
