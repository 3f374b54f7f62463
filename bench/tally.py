"""Counting within a window of time."""

from __future__ import annotations

import time

from bench.job import Outcome
from bench.proc import cpu_exactly, cpu_seconds, peak_mb
from bench.stats import percentile


class Tally:
    """What happened between `begin` and `end`. Errors count at any time."""

    def __init__(self, pid: int, *, exact: bool = False) -> None:
        self._pid = pid
        self._cpu_seconds = cpu_exactly if exact else cpu_seconds
        self.open = False
        self.stopped = False
        self.latencies: list[float] = []
        self.events = 0
        self.unfinished = 0
        self.received = 0
        self.errors = 0
        self.first_error = ""
        self._began = self._seconds = 0.0
        self._cpu = self._own = 0.0

    def begin(self) -> None:
        """Open the window."""
        self.open = True
        self._cpu, self._own, self._began = self._cpu_seconds(self._pid), time.process_time(), time.perf_counter()

    def end(self) -> None:
        """Close the window, once."""
        if not self.open:
            return
        self.open, self.stopped = False, True
        self._seconds = time.perf_counter() - self._began
        self._cpu, self._own = self._cpu_seconds(self._pid) - self._cpu, time.process_time() - self._own

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
            peak_mb=peak_mb(self._pid),
            p50_ms=percentile(ordered, 50) * 1000,
            p95_ms=percentile(ordered, 95) * 1000,
            p99_ms=percentile(ordered, 99) * 1000,
            events=self.events,
            unfinished=self.unfinished,
            received_bytes=self.received,
        )
