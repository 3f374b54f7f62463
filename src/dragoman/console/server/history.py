"""Rates and latencies of the last ten minutes, from the metrics of this process, while somebody looks at them."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.clock import timestamp
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.metrics.distribution import Distribution
from dragoman.telemetry.metrics.registry import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dragoman.clock import Clock, Timer

BUCKET_SECONDS = 5
BUCKETS = 120
# How long after the last look measuring goes on.
IDLE_SECONDS = 15 * 60
_BOUNDS = METRICS.operations.bounds
_COUNTS = len(_BOUNDS) + 1
Key = tuple[str, str, str]


class _Totals(NamedTuple):
    """The metrics at one moment. `operations` are the counts of each agent, method and error."""

    operations: Mapping[Key, Sequence[float]]
    runs: float
    commits: float
    limits: Counter[str]


class _Bucket(NamedTuple):
    """What has happened in five seconds, until `at_ms`."""

    at_ms: int
    operations: Mapping[Key, Sequence[float]]
    runs: int
    commits: int
    streams: int

    def show(self) -> dict[str, Any]:
        counts = _added(self.operations.values())
        errors = sum(sum(each) for (_, _, error), each in self.operations.items() if error)
        return {
            "at": timestamp(self.at_ms),
            "requests": int(sum(counts)),
            "errors": int(errors),
            **_quantiles(counts),
            "runs": self.runs,
            "commits": self.commits,
            "streams": self.streams,
        }


class MetricsHistory:
    """Takes a sample of the metrics every five seconds, from the first look at it until nobody has looked for a while.

    Metrics are recorded only meanwhile, unless something else wants them too. They are the process's: of several
    servers in one process, each counts the calls of agents that are called as its own ones, and the commits of all.
    `agents` are the names of its own, `streams` returns how many streams are open.
    """

    def __init__(self, clock: Clock, agents: Collection[str], streams: Callable[[], int]) -> None:
        self._clock = clock
        # Calls that no agent was found for are everybody's.
        self._agents = frozenset((*agents, "", OTHER))
        self._streams = streams
        self._buckets: deque[_Bucket] = deque(maxlen=BUCKETS)
        self._timer: Timer | None = None
        self._since_ms = self._looked_ms = self._sampled_ms = 0
        self._limits: Counter[str] = Counter()
        self._first_limits: Counter[str] = Counter()
        self._totals: _Totals | None = None

    def look(self) -> dict[str, Any]:
        """Return what was measured, and go on measuring; the first look begins it."""
        now = self._clock.now()
        if self._totals is not None and now - self._sampled_ms > 3000 * BUCKET_SECONDS:
            # The machine was asleep: a gap is no rate.
            self.stop()
        self._looked_ms = now
        if self._totals is None:
            self._begin(now)
        hit = self._limits - self._first_limits
        return {
            "measuredSince": timestamp(self._since_ms),
            "bucketSeconds": BUCKET_SECONDS,
            "series": [bucket.show() for bucket in self._buckets],
            "methods": self._methods(),
            "limits": [{"limit": name, "count": int(count)} for name, count in hit.most_common()],
        }

    def stop(self) -> None:
        """Measure no more, and forget what was measured. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._totals is not None:
            self._totals = None
            self._buckets.clear()
            METRICS.end()

    def _begin(self, now: int) -> None:
        METRICS.begin()
        self._since_ms = self._sampled_ms = now
        self._totals = self._read()
        self._limits = self._first_limits = self._totals.limits
        self._timer = self._clock.call_later(BUCKET_SECONDS, self._sample)

    def _sample(self) -> None:
        now, before = self._clock.now(), self._totals
        if before is None:
            return
        if now - self._looked_ms > 1000 * IDLE_SECONDS:
            self.stop()
            return
        after = self._read()
        bucket = _Bucket(
            now,
            {
                key: grown
                for key, counts in after.operations.items()
                if any(grown := _grown(before.operations, key, counts))
            },
            int(after.runs - before.runs),
            int(after.commits - before.commits),
            self._streams(),
        )
        self._buckets.append(bucket)
        self._totals, self._limits, self._sampled_ms = after, after.limits, now
        self._timer = self._clock.call_later(BUCKET_SECONDS, self._sample)

    def _read(self) -> _Totals:
        operations: dict[Key, Sequence[float]] = {}
        for (agent, method, _, error), values in METRICS.operations.series():
            if agent in self._agents:
                key = (agent, method, error)
                counts = values[:_COUNTS]
                operations[key] = _added((operations[key], counts)) if key in operations else counts
        runs = sum(sum(values[:-1]) for labels, values in METRICS.tasks.series() if labels[0] in self._agents)
        commits = sum(sum(values[:-1]) for _, values in METRICS.commits.series())
        limits = Counter({labels[0]: int(values[0]) for labels, values in METRICS.limits_hit.series()})
        return _Totals(operations, runs, commits, limits)

    def _methods(self) -> list[dict[str, Any]]:
        """Return what each method of each agent took over all buckets, the most called first."""
        counts: dict[tuple[str, str], Sequence[float]] = {}
        errors: Counter[tuple[str, str]] = Counter()
        for bucket in self._buckets:
            for (agent, method, error), grown in bucket.operations.items():
                key = (method, agent)
                counts[key] = _added((counts[key], grown)) if key in counts else grown
                errors[key] += int(sum(grown)) if error else 0
        listed = [
            {"method": key[0], "agent": key[1], "count": int(sum(each)), "errors": errors[key], **_quantiles(each)}
            for key, each in counts.items()
        ]
        return sorted(listed, key=lambda row: -row["count"])


def _added(counts: Iterable[Sequence[float]]) -> Sequence[float]:
    return [sum(column) for column in zip(*counts, strict=True)]


def _grown(before: Mapping[Key, Sequence[float]], key: Key, counts: Sequence[float]) -> Sequence[float]:
    earlier = before.get(key)
    return counts if earlier is None else [new - old for new, old in zip(counts, earlier, strict=True)]


def _quantiles(counts: Sequence[float]) -> dict[str, float | None]:
    """Return the quantiles in seconds; None where nothing was measured."""
    distribution = Distribution(_BOUNDS, tuple(counts))
    return {"p50": _finite(distribution.quantile(0.5)), "p95": _finite(distribution.quantile(0.95))}


def _finite(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(min(seconds, _BOUNDS[-1]), 6)
