"""How many of some numbers were how large, and quantiles of them."""

from __future__ import annotations

import math
from typing import NamedTuple


class Distribution(NamedTuple):
    """How many of the values were at most how large: `bounds` in order, without infinity; `counts` has one more."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    total: float = 0.0

    @property
    def size(self) -> float:
        """How many values there are."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Their mean; NaN where there is none."""
        return self.total / self.size if self.size else math.nan

    def quantile(self, share: float) -> float:
        """Estimate the value that this share of all is at most, as Prometheus does: even within a bucket.

        NaN where there is no value, infinity where it is above the last bound.
        """
        rank, seen, low = share * self.size, 0.0, 0.0
        if not self.size:
            return math.nan
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and seen + count >= rank:
                return low + (bound - low) * (rank - seen) / count
            seen, low = seen + count, bound
        return math.inf
