"""The order of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dragoman.cli.top.snapshot import MethodRow, SkillRow

# What rows can be sorted by, in the order in which the key `s` goes through them.
SORTS = ("rate", "errors", "time", "name")

Row = TypeVar("Row", "MethodRow", "SkillRow")


def sort_rows(rows: Iterable[Row], sort: str) -> list[Row]:
    """Sort rows, the largest first; by their names, those that are alike."""
    return sorted(rows, key=lambda row: sort_key(row, sort))


def sort_key(row: MethodRow | SkillRow, sort: str) -> tuple[float, float, str]:
    """Return what one of SORTS sorts a row by."""
    keys = {"rate": row.rate, "errors": row.errors, "time": row.times.quantile(0.99), "name": 0.0}
    return _descending(keys[sort]), 0.0 if sort == "name" else _descending(row.rate), row.name


def _descending(value: float) -> float:
    # What is unknown comes last.
    return math.inf if math.isnan(value) else -value
