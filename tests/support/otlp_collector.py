"""A collector of OpenTelemetry for tests: takes traces and metrics over OTLP/HTTP, on a port of its own.

`collected_spans` does without a network: a provider of the SDK in this process, whose spans are kept in memory.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, SamplingResult
from opentelemetry.util._decorator import _agnosticcontextmanager  # pyright: ignore[reportPrivateUsage]

from dragoman.telemetry.spans import TRACING

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")


class CollectedLink(NamedTuple):
    """A link of a span: the trace and the span that it leads to."""

    trace_id: str
    span_id: str


class CollectedSpan(NamedTuple):
    """A span as a collector has it. Ids are hexadecimal; `parent_id` is empty at the root of a trace."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: tuple[CollectedLink, ...]
    events: tuple[str, ...]
    failed: bool
    status: str
    service: str
    resource: dict[str, Any]
    scope: str
    start_ns: int
    end_ns: int
    tracestate: str

    @property
    def traceparent(self) -> str:
        """What names this span in a header, if it is sampled; it was, or nobody would have it."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class SpanTree(NamedTuple):
    """A span and what began below it, in the order of time."""

    span: CollectedSpan
    children: tuple[SpanTree, ...]

    def outline(self, *attributes: str) -> str:
        """One line for each span, indented: kind, name, service, and the values of these attributes."""
        return "\n".join(self._lines(0, attributes))

    def _lines(self, depth: int, attributes: tuple[str, ...]) -> Iterator[str]:
        span = self.span
        values = [str(span.attributes[name]) for name in attributes if name in span.attributes]
        yield "  " * depth + " ".join([span.kind, span.name, *([f"@{span.service}"] if span.service else []), *values])
        for child in self.children:
            yield from child._lines(depth + 1, attributes)


def trees(spans: Iterable[CollectedSpan]) -> list[SpanTree]:
    """The trees that these spans make; a span whose parent is not among them is a root."""
    ordered = sorted(spans, key=lambda span: span.start_ns)
    ids = {(span.trace_id, span.span_id) for span in ordered}

    def tree(span: CollectedSpan) -> SpanTree:
        below = [each for each in ordered if (each.trace_id, each.parent_id) == (span.trace_id, span.span_id)]
        return SpanTree(span, tuple(tree(each) for each in below))

    return [tree(span) for span in ordered if (span.trace_id, span.parent_id) not in ids]


class _Listener(ThreadingHTTPServer):
    """A server whose queue holds what several processes send at once: with five places, some would be turned away."""

    daemon_threads = True
    request_queue_size = 128


class OtlpCollector:
    """The collector: a context manager. Give `url` to a process as `OTEL_EXPORTER_OTLP_ENDPOINT`."""

    def __init__(self) -> None:
        self._spans: list[CollectedSpan] = []
        self.metric_requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        # Paths that are answered with 404, as by a collector that does not take a signal; and how often that was.
        self.refused: set[str] = set()
        self.refusals = 0
        self._news = threading.Condition()
        self._server = _Listener(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> OtlpCollector:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The endpoint of all signals; exporters add `/v1/traces` and `/v1/metrics`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self) -> dict[str, str]:
        """The variables by which a process exports its spans here, each soon after its end."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_SDK_DISABLED": "false",  # other tests disable it in their process, and so in this one
        }

    @property
    def spans(self) -> list[CollectedSpan]:
        """The spans that have come."""
        with self._news:
            return list(self._spans)

    def metrics(self) -> dict[str, Any]:
        """The newest value of each metric, by its name, as the messages of OTLP have it."""
        with self._news:
            requests = list(self.metric_requests)
        return {
            metric.name: metric
            for request in requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def wait(self, enough: Callable[[OtlpCollector], bool], seconds: float = 10) -> None:
        """Wait until something is so. Raises AssertionError with what has come when it is not in time.

        It blocks: in a test with an event loop, call it in a thread.
        """
        with self._news:
            if not self._news.wait_for(lambda: enough(self), seconds):
                raise AssertionError("not in time; there are\n" + "\n".join(map(str, self._spans)))

    def wait_for_spans(self, *names: str, seconds: float = 10) -> list[CollectedSpan]:
        """Wait until spans of these names have come, of each as many as it is named; all that there are."""

        def come(_: OtlpCollector) -> bool:
            found = [span.name for span in self._spans]
            return all(found.count(name) >= names.count(name) for name in names)

        self.wait(come, seconds)
        return self.spans

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with self._news:
            self.headers.append(headers)
            if path in self.refused:
                self.refusals += 1
                self._news.notify_all()
                return 404
            if path == "/v1/traces":
                self._spans += _spans_of(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                self.metric_requests.append(ExportMetricsServiceRequest.FromString(body))
            else:
                return 404
            self._news.notify_all()
        return 200

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = take(self.path, headers, self.rfile.read(int(headers["content-length"])))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler


def _spans_of(request: ExportTraceServiceRequest) -> Iterator[CollectedSpan]:
    for group in request.resource_spans:
        resource = {each.key: _value(each.value) for each in group.resource.attributes}
        for scope in group.scope_spans:
            for span in scope.spans:
                yield CollectedSpan(
                    name=span.name,
                    kind=KINDS[span.kind],
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    attributes={each.key: _value(each.value) for each in span.attributes},
                    links=tuple(CollectedLink(link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    events=tuple(event.name for event in span.events),
                    failed=span.status.code == 2,
                    status=span.status.message,
                    service=str(resource.get("service.name", "")),
                    resource=resource,
                    scope=scope.scope.name,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    tracestate=span.trace_state,
                )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)


class SpanMemory:
    """The spans of this process that have ended, in memory."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def spans(self) -> list[CollectedSpan]:
        """The spans, in the order in which they ended."""
        return [_span_of(span) for span in self._exporter.get_finished_spans()]

    def named(self, name: str) -> list[CollectedSpan]:
        """Those of this name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> CollectedSpan:
        """The only span of this name. Raises AssertionError when there is none, or more."""
        found = self.named(name)
        assert len(found) == 1, f"{len(found)} spans {name!r} among {[span.name for span in self.spans]}"
        return found[0]

    def path(self, name: str) -> list[str]:
        """The names of what is above the only span of this name, and its own; the root first."""
        span, by_id = self.one(name), {each.span_id: each for each in self.spans}
        names = [span.name]
        while span.parent_id:
            span = by_id[span.parent_id]
            names.insert(0, span.name)
        return names

    async def wait(self, enough: Callable[[], bool], seconds: float = 10) -> None:
        """Let others run until something is so: spans may end in another thread. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not enough():  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.005)

    def clear(self) -> None:
        """Forget them."""
        self._exporter.clear()


def _span_of(span: ReadableSpan) -> CollectedSpan:
    context, resource, scope = span.get_span_context(), dict(span.resource.attributes), span.instrumentation_scope
    assert context is not None
    return CollectedSpan(
        name=span.name,
        kind=span.kind.name,
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        parent_id="" if span.parent is None else f"{span.parent.span_id:016x}",
        attributes={
            name: list(value) if isinstance(value, tuple) else value for name, value in (span.attributes or {}).items()
        },
        links=tuple(
            CollectedLink(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links
        ),
        events=tuple(event.name for event in span.events),
        failed=not span.status.is_ok and not span.status.is_unset,
        status=span.status.description or "",
        service="",
        resource=resource,
        scope="" if scope is None else scope.name,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        tracestate=context.trace_state.to_header(),
    )


class _SwitchedSampler(Sampler):
    """Samples as the test that collects spans wants."""

    def __init__(self) -> None:
        self.used: Sampler | None = None

    def should_sample(self, *args: Any, **options: Any) -> SamplingResult:
        return (self.used or ALWAYS_OFF).should_sample(*args, **options)

    def get_description(self) -> str:
        return "of the test"


class _SwitchedTracer(trace.Tracer):
    """Makes spans while a test collects them, and else does what it would without a provider."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracers = trace.NoOpTracer(), tracer

    def start_span(self, *args: Any, **options: Any) -> trace.Span:
        return self._tracers[_SAMPLER.used is not None].start_span(*args, **options)

    @_agnosticcontextmanager
    def start_as_current_span(self, *args: Any, **options: Any) -> Iterator[trace.Span]:
        with self._tracers[_SAMPLER.used is not None].start_as_current_span(*args, **options) as span:
            yield span


class _SwitchedProvider(TracerProvider):
    """One provider serves all tests of the process: libraries keep the tracer that they got first."""

    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        return _SwitchedTracer(super().get_tracer(*args, **options))


_SAMPLER, _EXPORTER = _SwitchedSampler(), InMemorySpanExporter()
_PROVIDER: list[TracerProvider] = []


@contextmanager
def collected_spans(sampler: Sampler | None = None) -> Generator[SpanMemory]:
    """Let this process have a tracer provider whose spans are kept in memory, and restore what it had."""
    api: Any = trace
    before, once = api._TRACER_PROVIDER, api._TRACER_PROVIDER_SET_ONCE
    done = once._done
    if not _PROVIDER:
        disabled = os.environ.pop("OTEL_SDK_DISABLED", None)  # as tests of other frameworks have it
        _PROVIDER.append(_SwitchedProvider(sampler=_SAMPLER, shutdown_on_exit=False))
        if disabled is not None:
            os.environ["OTEL_SDK_DISABLED"] = disabled
        _PROVIDER[0].add_span_processor(SimpleSpanProcessor(_EXPORTER))
    _EXPORTER.clear()
    _SAMPLER.used = ParentBased(ALWAYS_ON) if sampler is None else sampler
    api._TRACER_PROVIDER, once._done = _PROVIDER[0], True
    TRACING.detect()
    try:
        yield SpanMemory(_EXPORTER)
    finally:
        _SAMPLER.used = None
        api._TRACER_PROVIDER, once._done = before, done
        TRACING.detect()
