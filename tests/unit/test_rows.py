"""A table in one test: every row is tried, and one that fails is not hidden by those after it."""

from __future__ import annotations

from typing import Any

import pytest

tried: list[tuple[int, str]] = []


@pytest.mark.rows("number", [1, pytest.param(2)])
@pytest.mark.rows(("word", "length"), [("a", 1), ("bc", 2)])
def test_every_row_of_every_table_is_tried(number: int, word: str, length: int) -> None:
    assert len(word) == length
    tried.append((number, word))
    assert len(tried) < 4 or sorted(tried) == [(1, "a"), (1, "bc"), (2, "a"), (2, "bc")]


@pytest.mark.xfail(raises=AssertionError, strict=True)
@pytest.mark.rows("number", [7, 1])
def test_a_row_that_fails_fails_the_test(number: int) -> None:
    assert number < 7


@pytest.mark.xfail(raises=AssertionError, strict=True)
@pytest.mark.rows("number", [7, 1])
async def test_a_row_that_fails_fails_an_asynchronous_test(number: int) -> None:
    assert number < 7


@pytest.mark.xfail(raises=AssertionError, strict=True)
@pytest.mark.rows("number", [])
def test_a_table_without_rows_proves_nothing(number: int) -> None: ...


@pytest.mark.xfail(raises=AssertionError, strict=True)
def test_a_row_of_a_loop_that_fails_fails_the_test(rows: Any) -> None:
    for number in (7, 1):
        with rows(number):
            assert number < 7


def test_what_failed_is_told_by_its_name(rows: Any) -> None:
    other = type(rows)()
    for number in (7, 1, 8):
        with other("the number", number):
            assert number < 7, f"{number} is too large"
    with pytest.raises(AssertionError) as caught:
        other.verdict()
    told = str(caught.value)
    assert told.startswith("2 of 3 rows\n\n[the number, 7] AssertionError: 7 is too large")
    assert "[the number, 8] AssertionError: 8 is too large" in told
    with rows("none"):
        pass
