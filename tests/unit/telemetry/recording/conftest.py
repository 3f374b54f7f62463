"""Metrics that are on for one test, and what was recorded in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from dragoman.telemetry.metrics.catalog import METRICS, Metrics
from dragoman.telemetry.metrics.registry import Gauge, Histogram, Metric

SECONDS = 10


class Recorded:
    """What was recorded since the beginning of a test: metrics belong to the process, and are never reset."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._before = {metric.name: dict(metric.series()) for metric in metrics.metrics.values()}

    def _changes(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], list[float]]]:
        before = self._before[metric.name]
        for labels, values in metric.series():
            changes = [now - then for now, then in zip(values, before.get(labels, [0.0] * len(values)), strict=True)]
            if any(changes):
                yield labels, changes

    def counts(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """How often each combination of labels was recorded; the value of gauges and the amount of counters."""
        if isinstance(metric, Gauge):
            return {labels: values[0] for labels, values in metric.series()}
        ends = -1 if isinstance(metric, Histogram) else None
        return {labels: sum(changes[:ends]) for labels, changes in self._changes(metric)}

    def sums(self, metric: Histogram) -> dict[tuple[str, ...], float]:
        """The sum of what was recorded."""
        return {labels: changes[-1] for labels, changes in self._changes(metric)}

    def names(self) -> set[str]:
        """The names of the metrics that have changed."""
        return {name for name, metric in self.metrics.metrics.items() if any(True for _ in self._changes(metric))}

    async def until(self, condition: Callable[[], object]) -> None:
        """Let others run until something was recorded: some numbers come from another thread."""
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.005)


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    METRICS.on = True
    try:
        yield Recorded(METRICS)
    finally:
        METRICS.on = False


@pytest.fixture
def unrecorded() -> Recorded:
    """The same with metrics off."""
    assert not METRICS.on
    return Recorded(METRICS)
