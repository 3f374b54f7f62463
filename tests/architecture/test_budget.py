"""The size of the house is a budget that only shrinks."""

from __future__ import annotations

import pytest
from architecture import budget

LIMITS, MEASURED = budget.limits(), budget.measured()


@pytest.mark.parametrize("table", LIMITS)
def test_nothing_is_larger_than_its_budget(table: str) -> None:
    over = {name: (figure, LIMITS[table].get(name, 0)) for name, figure in MEASURED[table].items()}
    over = {name: pair for name, pair in over.items() if pair[0] > pair[1]}
    assert not over, f"(measured, limit): {over}: make it smaller, or say in budget.toml why it has to grow"


@pytest.mark.parametrize("table", LIMITS)
def test_a_limit_follows_what_has_become_smaller(table: str) -> None:
    loose = {name: limit for name, limit in LIMITS[table].items() if limit - MEASURED[table].get(name, 0) > limit // 50}
    assert not loose, f"{loose}: `python tests/architecture/budget.py --write` lowers them"
