"""How many agents a message has come through."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.model.message import DEPTH_KEY, depth_from_environ, depth_of, with_depth


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
    assert depth_of({DEPTH_KEY: given}) == depth


def test_of_several_depths_the_largest_counts() -> None:
    assert depth_of({DEPTH_KEY: 0}, {DEPTH_KEY: "4"}, None, {}) == 4
    assert depth_of({DEPTH_KEY: 4}, {DEPTH_KEY: 0}) == 4
    assert depth_of(None, {}) == depth_of() == 0


@pytest.mark.parametrize(
    ("text", "depth"), [("3", 3), ("0", 0), ("", None), ("deep", None), ("-1", None), (" 3", None)]
)
def test_a_program_reads_its_depth_from_the_environment(text: str, depth: int | None) -> None:
    assert depth_from_environ({"DRAGOMAN_DEPTH": text}) == depth
    assert with_depth({"a": 1}, {"DRAGOMAN_DEPTH": text}) == {"a": 1, **({} if depth is None else {DEPTH_KEY: depth})}


def test_without_the_variable_there_is_no_depth() -> None:
    assert depth_from_environ({}) is None
    assert with_depth(None, {}) is None
    assert with_depth({DEPTH_KEY: 1}, {"DRAGOMAN_DEPTH": "3"}) == {DEPTH_KEY: 1}
