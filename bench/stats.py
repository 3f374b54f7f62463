"""Few numbers from many."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct


class Spread(Struct, frozen=True):
    """A median and the range around it."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """The median, the smallest and the largest. Raises ValueError when there is none."""
    if not values:
        raise ValueError("no values")
    return Spread(median(values), min(values), max(values))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which that many percent of the values lie; they must be in order."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """How many times as much, round by round: what disturbs a round disturbs both sides of it."""
    pairs = list(zip(ours, theirs, strict=False))
    return spread([mine / other for mine, other in pairs if other])


def middle_half(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """As `ratios`, with the quartiles as the range: of many rounds, the extremes say only how rough the machine was."""
    found = sorted(mine / other for mine, other in zip(ours, theirs, strict=False) if other)
    return Spread(median(found), percentile(found, 25), percentile(found, 75))
