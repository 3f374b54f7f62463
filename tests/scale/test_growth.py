"""Whatever a stranger repeats costs time in proportion, and no more."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from growth_cases import MOST, OTHERS, SERVER, UNNOTICED, InProcess, cases, growth


@pytest.fixture(scope="module")
def at() -> Iterator[InProcess]:
    logging.disable()
    at = InProcess()
    yield at
    at.close()
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [*SERVER, *OTHERS])
def test_eight_times_as_much_takes_no_more_than_three_times_eight_as_long(at: InProcess, name: str) -> None:
    n, make = next((n, make) for each, n, make in cases(at) if each == name)
    found: list[tuple[float, float]] = []
    for _ in range(3):  # on a busy machine, caches belong to others, too
        few, many = growth(make, n)
        found.append((few, many))
        if many < MOST * few or many < UNNOTICED:
            return
    raise AssertionError(f"{name}: {found}")
