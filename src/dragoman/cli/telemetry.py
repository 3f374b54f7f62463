"""Exports traces and metrics of a command, where the standard variables `OTEL_…` ask for that.

Nothing of OpenTelemetry is imported before. A program that has configured it itself keeps what it has.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Signal = Literal["TRACES", "METRICS"]
SIGNALS: tuple[Signal, ...] = ("TRACES", "METRICS")

logger = logging.getLogger("dragoman.telemetry")
# How long a command waits at its end for what is still to be exported, in seconds.
FLUSH_SECONDS = 2.0
EXPORTERS = ("otlp", "console", "none")
# The loggers of OpenTelemetry that say, with a line or a traceback for each batch, that it cannot be exported.
_NOISY: dict[str, Signal] = {
    "opentelemetry.exporter.otlp.proto.http.trace_exporter": "TRACES",
    "opentelemetry.sdk._shared_internal": "TRACES",
    "opentelemetry.sdk.trace.export": "TRACES",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter": "METRICS",
    "opentelemetry.sdk.metrics._internal.export": "METRICS",
}


class Export:
    """What exports one signal of this process: a provider of the SDK, which is flushed once at the end.

    Each signal has its own, because some collectors take traces and refuse metrics.
    """

    def __init__(self, signal: Signal) -> None:
        self._noun = signal.lower()
        self._end: Callable[[], object] | None = None
        self._has_failed = threading.Event()
        self._has_ended = threading.Event()
        self.problem: tuple[str, str] | None = None  # the target and what is wrong with it, while it does not work

    def ends_with(self, end: Callable[[], object]) -> None:
        """Set what is called at the end, in a thread: it may take as long as it wants."""
        self._end = end

    def report(self, target: str, problem: str) -> None:
        """Warn that it cannot be exported: once, until it works again, and not if another signal has said the same.

        Called by the threads that export.
        """
        if not self._has_failed.is_set():
            self._has_failed.set()
            self._has_ended.set()  # nobody waits for a collector that is not there
            with _WARNING:
                is_new = (target, problem) not in [other.problem for other in EXPORTS.values()]
                self.problem = target, problem
            if not is_new:
                return
            logger.warning(
                "OpenTelemetry: %s cannot be exported to %s: %s. This is not repeated until it works again; what is "
                "measured until then is lost. OTEL_%s_EXPORTER=none turns it off",
                self._noun,
                target,
                problem,
                self._noun.upper(),
            )

    def report_success(self) -> None:
        """Note that something was exported."""
        self._has_failed.clear()
        self.problem = None

    def start_flush(self) -> None:
        """Begin to export what is left."""
        end, self._end = self._end, None
        if end is None:
            self._has_ended.set()
            return
        if not self._has_failed.is_set():
            self._has_ended.clear()

        def flush() -> None:
            end()
            self._has_ended.set()

        # A daemon: a collector that accepts a connection and says nothing does not keep the process alive.
        threading.Thread(target=flush, name="dragoman-flush", daemon=True).start()

    def wait_flushed(self, seconds: float) -> None:
        """Wait for that so long at most; a collector that is away is not waited for."""
        self._has_ended.wait(seconds)


_WARNING = threading.Lock()
EXPORTS: dict[Signal, Export] = {signal: Export(signal) for signal in SIGNALS}


def flush_exports(seconds: float = FLUSH_SECONDS) -> None:
    """Export what is left, and wait for that so long at most."""
    until = time.monotonic() + seconds
    for export in EXPORTS.values():
        export.start_flush()
    for export in EXPORTS.values():
        export.wait_flushed(max(0.0, until - time.monotonic()))


def exporters_of(signal: Signal, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the exporters that the variables ask for, of `otlp` and `console`; none unless they ask."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    if chosen := environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower():
        names = tuple(name.strip() for name in chosen.split(","))
        unknown = [name for name in names if name not in EXPORTERS]
        if unknown:
            logger.warning(
                "OTEL_%s_EXPORTER=%s: there is no exporter %r here; there are: %s",
                signal,
                chosen,
                unknown[0],
                ", ".join(EXPORTERS),
            )
        return tuple(name for name in names if name in EXPORTERS and name != "none")
    endpoints = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return ("otlp",) if any(environ.get(name) for name in endpoints) else ()


def configure_export(service: str, version: str, environ: Mapping[str, str] | None = None) -> None:
    """Export traces and metrics as the variables say, unless the program has configured OpenTelemetry itself.

    `service` and `version` are those of the resource, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` has
    others. If the extra is not installed, a warning says how to install it, and nothing is exported.
    """
    environ = os.environ if environ is None else environ
    if not any(name.startswith("OTEL_") for name in environ):
        return
    asked: dict[Signal, tuple[str, ...]] = {signal: exporters_of(signal, environ) for signal in SIGNALS}
    for problem in {
        found: None for signal in SIGNALS if "otlp" in asked[signal] and (found := _wrong(signal, environ))
    }:
        logger.warning("%s. Nothing is exported there", problem)
    traces, metrics = (
        tuple(name for name in asked[signal] if name != "otlp" or not _wrong(signal, environ)) for signal in SIGNALS
    )
    if not (traces or metrics):
        return
    try:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    except ImportError:
        from dragoman.installation import install_line

        logger.warning("OTEL_… asks for telemetry, which needs more packages: %s", install_line("otel"))
        return
    from uuid import uuid4

    _silence(environ)
    try:
        # The first is imported to be checked: it raises for a wrong value of OTEL_PROPAGATORS.
        import opentelemetry.propagate  # noqa: F401 # pyright: ignore[reportUnusedImport]

        defaults = {"service.name": service, "service.version": version, "service.instance.id": str(uuid4())}
        resource = Resource.create({**defaults, **OTELResourceDetector().detect().attributes})
        if traces:
            _export_traces(traces, resource)
        if metrics:
            _export_metrics(metrics, resource)
    except ValueError as error:
        # The SDK reads dozens of variables, and says what is wrong, but not always of which.
        text = "one of the variables OTEL_… has a wrong value: %s. Not everything is exported"
        logger.warning(text, str(error).rstrip("."))
    TRACING.detect()


def _wrong(signal: Signal, environ: Mapping[str, str]) -> str:
    """Return why OTLP cannot be sent as the variables say, without what may be a secret; empty when it can."""
    name, protocol = _variable(signal, "PROTOCOL", environ)
    if protocol.lower() == "grpc":  # its exporter is not among our packages
        return (
            f"{name}=grpc: here OTLP is sent over HTTP. Set it to http/protobuf, and the endpoint to the port of the "
            "collector for that, which is usually 4318"
        )
    name, endpoint = _variable(signal, "ENDPOINT", environ)
    try:
        parts = urlsplit(endpoint)
        is_url = not endpoint or (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0)
    except ValueError:
        is_url = False
    return "" if is_url else f"{name} is no URL of a collector, as http://localhost:4318 is"


def _variable(signal: Signal, name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the name and the value of a variable for one signal, or else of that for all."""
    own, common = f"OTEL_EXPORTER_OTLP_{signal}_{name}", f"OTEL_EXPORTER_OTLP_{name}"
    chosen = own if environ.get(own, "").strip() else common
    return chosen, environ.get(chosen, "").strip()


def _export_traces(names: Sequence[str], resource: Any) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return  # the program has one
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in names:
        if name == "console":
            # stdout is for results, and in `dragoman mcp` for the host.
            provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            provider.add_span_processor(BatchSpanProcessor(_reporting(OTLPSpanExporter(), "TRACES")))
    trace.set_tracer_provider(provider)
    EXPORTS["TRACES"].ends_with(provider.shutdown)


def _export_metrics(names: Sequence[str], resource: Any) -> None:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

    from dragoman.telemetry.metrics.otel import FORWARDING

    if FORWARDING.detect():
        return  # the program has one
    readers: list[PeriodicExportingMetricReader] = []
    for name in names:
        if name == "console":
            readers.append(PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr)))
        else:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            readers.append(PeriodicExportingMetricReader(_reporting(OTLPMetricExporter(), "METRICS")))
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    FORWARDING.start(provider)
    EXPORTS["METRICS"].ends_with(provider.shutdown)


def _reporting(exporter: Any, signal: Signal) -> Any:
    """Let an exporter of the SDK report whether it works."""
    export: Callable[..., Any] = exporter.export

    def reported(*batch: Any, **options: Any) -> Any:
        result = export(*batch, **options)
        if result.name == "SUCCESS":
            EXPORTS[signal].report_success()
        return result

    vars(exporter)["export"] = reported
    return exporter


class _OneWarning(logging.Filter):
    """Turns what OpenTelemetry logs about each batch into one warning."""

    def __init__(self, signal: Signal, target: str) -> None:
        super().__init__()
        self._export = EXPORTS[signal]
        self._target = target

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.getMessage().startswith("Found invalid value"):
            return True
        self._export.report(self._target, _reason(record))
        return False


class _HiddenHeaders(logging.Filter):
    """Hides what OpenTelemetry quotes of `OTEL_EXPORTER_OTLP_HEADERS` when it cannot read it: that has keys."""

    _has_warned = False

    def filter(self, record: logging.LogRecord) -> bool:
        record.args = ("(not shown, because it may be a secret)",)
        has_warned, self._has_warned = self._has_warned, True
        return not has_warned


def _reason(record: logging.LogRecord) -> str:
    """Return what has gone wrong: an error of a connection is long, and names its kind first."""
    values: list[object] = [*record.args] if isinstance(record.args, tuple) else []
    if record.exc_info:
        values.append(record.exc_info[1])
    for value in values:
        if isinstance(value, Exception):
            # Those of subclasses quote URLs. This one says that a file of certificates is missing.
            return str(value) if type(value) is OSError else type(value).__name__
    return record.getMessage()


def _silence(environ: Mapping[str, str]) -> None:
    for name, signal in _NOISY.items():
        target = _without_credentials(_variable(signal, "ENDPOINT", environ)[1] or "http://localhost:4318")
        logging.getLogger(name).addFilter(_OneWarning(signal, target))
    logging.getLogger("opentelemetry.util.re").addFilter(_HiddenHeaders())


def _without_credentials(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the collector"
    # Not the path: some collectors have a key there.
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path="", query="", fragment="").geturl()
