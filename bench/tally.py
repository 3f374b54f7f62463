"""Counting within a window of time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.job import Outcome
from bench.proc import cpu_exactly, cpu_of_family, cpu_seconds, peak_mb
from bench.stats import percentile


class Tally:
    """What happened between `begin` and `end`. Errors count at any time."""

    def __init__(self, pids: Sequence[int], *, database: int = 0, exact: bool = False) -> None:
        self._pids = pids
        self._database_pid = database
        self._measure = cpu_exactly if exact else cpu_seconds
        self.open = False
        self.stopped = False
        self.latencies: list[float] = []
        self.events = 0
        self.unfinished = 0
        self.received = 0
        self.errors = 0
        self.first_error = ""
        self._began = self._seconds = 0.0
        self._cpu = self._database_cpu = self._own = 0.0

    def begin(self) -> None:
        """Open the window."""
        self.open = True
        self._cpu, self._database_cpu = self._cpu_seconds(), self._database_cpu_seconds()
        self._own, self._began = time.process_time(), time.perf_counter()

    def end(self) -> None:
        """Close the window, once."""
        if not self.open:
            return
        self.open, self.stopped = False, True
        self._seconds = time.perf_counter() - self._began
        self._cpu, self._own = self._cpu_seconds() - self._cpu, time.process_time() - self._own
        self._database_cpu = self._database_cpu_seconds() - self._database_cpu

    def answered(self, latency: float) -> None:
        """Count an answer."""
        if self.open:
            self.latencies.append(latency)

    def wrong(self, why: object) -> None:
        """Count an error and keep the first."""
        self.errors += 1
        self.first_error = self.first_error or str(why)

    def outcome(self) -> Outcome:
        """The result."""
        ordered = sorted(self.latencies)
        return Outcome(
            requests=len(ordered),
            seconds=self._seconds,
            cpu_seconds=self._cpu,
            generator_cpu_seconds=self._own,
            errors=self.errors,
            first_error=self.first_error,
            peak_mb=max(peak_mb(pid) for pid in self._pids),
            p50_ms=percentile(ordered, 50) * 1000,
            p95_ms=percentile(ordered, 95) * 1000,
            p99_ms=percentile(ordered, 99) * 1000,
            events=self.events,
            unfinished=self.unfinished,
            received_bytes=self.received,
            database_cpu_seconds=self._database_cpu,
        )

    def _cpu_seconds(self) -> float:
        return sum(self._measure(pid) for pid in self._pids)

    def _database_cpu_seconds(self) -> float:
        return cpu_of_family(self._database_pid) if self._database_pid else 0.0
