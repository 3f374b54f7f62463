"""Adds up the metrics of several processes, each of which has a file in one folder."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from dragoman.telemetry.metrics.buffer import SeriesReading, read_series
from dragoman.telemetry.metrics.registry import Gauge, MetricRegistry

# Numbers are added up exactly. A rounded sum depends on the order of the processes, so a counter could go back by its
# last digit, which Prometheus takes for a restart.
_Series = dict[tuple[str, tuple[str, ...]], tuple[float | Fraction, ...]]


class SeriesFolder:
    """A private folder for the files of processes, and what those that have ended had counted: no counter goes back."""

    def __init__(self, metrics: MetricRegistry) -> None:
        """Make the folder; `metrics` declares what can be read. Raises OSError when it cannot be made."""
        self._metrics = metrics
        self._folder = Path(tempfile.mkdtemp(prefix="dragoman-metrics-"))
        self._lock = threading.Lock()
        self._files: set[Path] = set()
        self._ended: _Series = {}

    def add(self, name: str) -> Path:
        """Return a file for a new process, for it to make."""
        path = self._folder / name
        with self._lock:
            self._files.add(path)
        return path

    def end(self, path: Path) -> None:
        """Keep what a process has counted, which has ended, and remove its file. Its gauges are gone."""
        with self._lock:
            self._files.remove(path)
            counted = (each for each in read_series(path) if not self._is_gauge(each))
            self._merge(self._ended, counted)
            path.unlink(missing_ok=True)

    def read(self) -> list[SeriesReading]:
        """Return the series of all processes, added up."""
        with self._lock:
            merged = dict(self._ended)
            for path in self._files:
                self._merge(merged, read_series(path))
        return [SeriesReading(name, labels, tuple(map(float, values))) for (name, labels), values in merged.items()]

    def close(self) -> None:
        """Remove the folder with all its files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_gauge(self, reading: SeriesReading) -> bool:
        metric = self._metrics.metrics.get(reading.name)
        return metric is None or metric.kind == "gauge"

    def _merge(self, merged: _Series, readings: Iterable[SeriesReading]) -> None:
        for name, labels, values in readings:
            metric = self._metrics.metrics.get(name)
            # Processes that were started later may have another version of this code.
            if metric is None or len(values) != metric.slots:
                continue
            numbers = values if isinstance(metric, Gauge) else [_exact(value) for value in values]
            existing = merged.get((name, labels))
            if existing is None:
                merged[name, labels] = tuple(numbers)
            elif isinstance(metric, Gauge) and metric.merge == "min":
                merged[name, labels] = tuple([min(pair) for pair in zip(existing, numbers, strict=True)])
            else:
                merged[name, labels] = tuple([one + other for one, other in zip(existing, numbers, strict=True)])


def _exact(number: float) -> int | Fraction:
    return int(number) if number.is_integer() else Fraction(number)


def remove_file(path: Path) -> None:
    """Remove the file of this process, and the folder after the last one: whoever made it has been killed."""
    path.unlink(missing_ok=True)
    try:
        path.parent.rmdir()
    except OSError:  # others have theirs in it
        return
