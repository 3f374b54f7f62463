"""The same metrics through OpenTelemetry, where the program or the user of a command has configured a MeterProvider.

Counters and gauges are read when a reader of OpenTelemetry asks for them. Of a histogram it wants every number.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.metrics.registry import MAX_SERIES, OTHER, Histogram, Metric, MetricRegistry

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider, Observation


logger = logging.getLogger("dragoman.telemetry")


class MeterForwarding:
    """Forwards the metrics of a registry to one provider at a time."""

    def __init__(self, metrics: MetricRegistry) -> None:
        self._metrics = metrics
        self._provider: object = None
        self._has_failed = False

    def detect(self) -> bool:
        """Forward to the provider of the program, if it has configured one, and return whether it has.

        Costs nothing where it has not.
        """
        api: Any = sys.modules.get("opentelemetry.metrics._internal")
        provider = None if api is None else getattr(api, "_METER_PROVIDER", None)
        if provider is None or type(provider).__name__ == "NoOpMeterProvider":
            return False
        try:
            self.start(provider)
        except Exception:  # noqa: BLE001 - it is logged there
            self.stop()
            self._log_failure()
        return True

    def start(self, provider: MeterProvider) -> None:
        """Record from now on, and forward to a provider, instead of the one before. Idempotent."""
        if self._provider is provider:
            return
        self.stop()
        self._provider = provider
        self._metrics.begin()
        meter = provider.get_meter("dragoman")
        for metric in self._metrics.metrics.values():
            text, unit = metric.help, metric.unit
            if isinstance(metric, Histogram):
                bounds = metric.bounds
                instrument = meter.create_histogram(metric.name, unit, text, explicit_bucket_boundaries_advisory=bounds)
                metric.forward_to(_recorder(metric, self._contained(instrument.record)))
            elif metric.kind == "counter":
                meter.create_observable_counter(metric.name, [self._reader(metric, provider)], unit, text)
            else:
                meter.create_observable_gauge(metric.name, [self._reader(metric, provider)], unit, text)

    def stop(self) -> None:
        """Forward no more. Idempotent."""
        if self._provider is not None:
            self._provider = None
            for metric in self._metrics.metrics.values():
                metric.forward_to(None)
            self._metrics.end()

    def _contained(self, record: Callable[..., None]) -> Callable[..., None]:
        """Log what an instrument of the program raises, once: whoever records a number must not fail with it."""

        def contained(value: float, attributes: dict[str, str]) -> None:
            try:
                record(value, attributes)
            except Exception:  # noqa: BLE001 - it is logged there
                self._log_failure()

        return contained

    def _log_failure(self) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.exception("OpenTelemetry, as this program has configured it, takes no metrics: this is not repeated")

    def _reader(self, metric: Metric, provider: object) -> Callable[[object], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def read(_: object) -> Iterable[Observation]:
            if self._provider is provider:
                for labels, values in metric.series():
                    yield Observation(values[0], _attributes(metric, labels))

        return read


FORWARDING = MeterForwarding(METRICS)


def _recorder(metric: Histogram, record: Callable[..., None]) -> Callable[[float, tuple[str, ...]], None]:
    made: dict[tuple[str, ...], dict[str, str]] = {}

    def forward(value: float, labels: tuple[str, ...]) -> None:
        attributes = made.get(labels)
        if attributes is None:
            if len(made) >= MAX_SERIES:
                labels = (OTHER,) * len(labels)
            attributes = made[labels] = _attributes(metric, labels)
        record(value, attributes)

    return forward


def _attributes(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    """Return labels as attributes; what is empty is left out, as an error where there was none."""
    return {name: value for name, value in zip(metric.labels, labels, strict=True) if value}
