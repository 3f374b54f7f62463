"""Few numbers from many."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
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


def ratio_interval(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The median of the ratios, and where that of endless rounds lies with a probability of 95 %, whatever is measured.

    Below six rounds the extremes are less than that.
    """
    found = sorted(mine / other for mine, other in zip(ours, theirs, strict=False) if other)
    count = len(found)
    outside, below = 0, 0.0
    # The median lies below the k-th smallest with the probability that fewer than k of the ratios are below it.
    while outside < count // 2 and (below := below + comb(count, outside) / 2**count) <= 0.025:
        outside += 1
    first = max(outside - 1, 0)
    return Spread(median(found), found[first], found[count - 1 - first])
