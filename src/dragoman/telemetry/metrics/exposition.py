"""Turns series into the metric families of prometheus_client, which writes them as text.

Prometheus has underscores for dots, the unit at the end of a name, and `_total` after that of a counter.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.samples import Sample

from dragoman.telemetry.metrics.buffer import SeriesReading
from dragoman.telemetry.metrics.registry import Histogram, Metric, MetricRegistry

# Samples that are written as text at a stretch, which takes about as many hundredths of a millisecond.
_STRETCH = 50
# What several processes have the least of, not the sum.
_LEAST = ("process_start_time_seconds", "process_max_fds")
_UNITS = {"s": "seconds", "By": "bytes"}


class _Samples(list[Sample]):
    """Samples whose reader lets other threads run from time to time.

    Python would interrupt it after 5 ms only, each time the event loop has something to do.
    """

    def __iter__(self) -> Iterator[Sample]:
        for number, sample in enumerate(super().__iter__()):
            if number % _STRETCH == _STRETCH - 1:
                _let_others_run()
            yield sample


def _let_others_run() -> None:
    time.sleep(0)


class SeriesCollector:
    """Collects the series that `read` returns, by the declarations of a registry. Others are left out."""

    def __init__(self, metrics: MetricRegistry, read: Callable[[], Iterable[SeriesReading]], version: str) -> None:
        self._metrics = metrics
        self._read = read
        self._version = version

    def describe(self) -> Iterator[Family]:
        """Yield all families, without numbers."""
        yield InfoMetricFamily("dragoman", "The version of the server.")
        for metric in self._metrics.metrics.values():
            yield _family(metric)

    def collect(self) -> Iterator[Family]:
        """Yield all families, each with the numbers of all its series."""
        yield InfoMetricFamily("dragoman", "The version of the server.", {"version": self._version})
        series: dict[str, list[SeriesReading]] = defaultdict(list)
        for reading in self._read():
            series[reading.name].append(reading)
        for metric in self._metrics.metrics.values():
            family = _family(metric)
            readings = [each for each in series[metric.name] if _fits(metric, each)]
            if not readings and not metric.labels and metric.kind != "gauge":
                # What has not happened yet has happened zero times. A gauge that nobody has set is unknown.
                readings = [SeriesReading(metric.name, (), [0.0] * metric.slots)]
            for number, reading in enumerate(readings):
                _add(family, metric, reading.labels, reading.values)
                if number % 8 == 7:
                    _let_others_run()
            family.samples = _Samples(family.samples)
            yield family


class WorkersCollector:
    """Collects `process_…` of this process and of its workers together, whose ids `pids` returns."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._lock = threading.Lock()
        self._cpu_seconds = 0.0

    def collect(self) -> Iterator[Family]:
        """Yield the families of prometheus_client's collector of one process, added up."""
        families: dict[str, Family] = {}
        values: dict[str, list[float]] = defaultdict(list)
        ended = _cpu_seconds_of_ended()
        for pid in ("self", *self._pids()):
            for family in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                families[family.name] = family
                values[family.name] += [sample.value for sample in family.samples]
        for name, family in families.items():
            total = min(values[name]) if name in _LEAST else sum(values[name])
            if isinstance(family, CounterMetricFamily):
                # One that has just ended is perhaps counted neither here nor there; no counter goes back.
                with self._lock:
                    total = self._cpu_seconds = max(self._cpu_seconds, total + ended)
            family.samples = [sample._replace(value=total) for sample in family.samples]
            yield family


def _cpu_seconds_of_ended() -> float:
    import resource  # not on Windows, where there are no workers

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def prometheus_registry(
    metrics: MetricRegistry,
    read: Callable[[], Iterable[SeriesReading]],
    version: str,
    pids: Callable[[], Iterable[int]] | None = None,
) -> CollectorRegistry:
    """Return what prometheus_client can write: the series, and `process_…` of this process, or with its workers."""
    registry = CollectorRegistry()
    registry.register(SeriesCollector(metrics, read, version))
    registry.register(ProcessCollector(registry=None) if pids is None else WorkersCollector(pids))
    return registry


def prometheus_name(metric: Metric) -> str:
    """Return the name of a metric in Prometheus; that of a counter without `_total`."""
    return _family(metric).name


def label_name(name: str) -> str:
    """Return the name of a label in Prometheus."""
    return name.replace(".", "_")


def _fits(metric: Metric, reading: SeriesReading) -> bool:
    """False for a series of a worker that runs another version of this code."""
    return len(reading.labels) == len(metric.labels) and len(reading.values) == metric.slots


def _family(metric: Metric) -> Family:
    kind = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}[metric.kind]
    labels = [label_name(each) for each in metric.labels]
    return kind(metric.name.replace(".", "_"), metric.help, labels=labels, unit=_UNITS.get(metric.unit, ""))


def _add(family: Family, metric: Metric, labels: Sequence[str], values: Sequence[float]) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(metric, Histogram):
        counts = accumulate(values[:-1])
        buckets = list(zip((*(repr(float(each)) for each in metric.bounds), "+Inf"), counts, strict=True))
        family.add_metric(labels, buckets, values[-1])
    elif isinstance(family, (CounterMetricFamily, GaugeMetricFamily)):
        family.add_metric(labels, values[0])
