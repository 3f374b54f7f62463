"""Spans of OpenTelemetry, for what a server, a client, a run or a call of a tool does.

OpenTelemetry is used only where the program has configured it, or the user of a command has with the variables
`OTEL_…`; else nothing of it is imported. Whoever makes a span looks at `TRACING.on` first.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Literal

Kind = Literal["server", "client", "producer", "internal"]
Value = str | bool | int | float | list[str]


class Span:
    """One span. Where nobody samples the trace, it is that of the caller, and whatever is set goes nowhere."""

    __slots__ = ("_context", "_is_own", "_otel", "recording")

    def __init__(self, otel: Any, context: Any, *, is_own: bool) -> None:
        self._otel = otel
        self._context = context
        self._is_own = is_own
        self.recording: bool = is_own and otel.is_recording()

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""
        if self.recording:
            self._otel.set_attribute(name, value)

    def fail(self, error_type: str, text: str = "") -> None:
        """Mark what was done as failed. `error_type` is one of few: a reason of an error, the name of a class."""
        if self.recording:
            from opentelemetry.trace import Status, StatusCode

            self._otel.set_attribute("error.type", error_type)
            self._otel.set_status(Status(StatusCode.ERROR, text or error_type))

    def end(self) -> None:
        """End it; once."""
        if self._is_own:
            self._otel.end()

    @property
    def traceparent(self) -> str:
        """What the specification of W3C calls so; empty for an invalid span."""
        return _format(self._otel.get_span_context())

    @contextmanager
    def current(self) -> Generator[Span]:
        """Make it the parent of what begins within. The block must be left in the context it was entered in."""
        from opentelemetry import context

        token = context.attach(self._context)
        try:
            yield self
        finally:
            context.detach(token)

    def make_current(self) -> None:
        """Make it the parent of all that follows in this asyncio task, which is the span's own."""
        from opentelemetry import context

        context.attach(self._context)


class Tracing:
    """The tracer of this process.

    It is `on` when OpenTelemetry is configured. With `content`, spans have what was said; that is a setting of users.
    """

    def __init__(self) -> None:
        self.on = False
        self.content = False
        self._tracer: Any = None

    def detect(self) -> None:
        """Turn spans on if the program has configured a provider, or off. Costs nothing where it has not."""
        api: Any = sys.modules.get("opentelemetry.trace")
        provider = None if api is None else getattr(api, "_TRACER_PROVIDER", None)
        self.on = provider is not None and type(provider).__name__ != "NoOpTracerProvider"
        self._tracer = None if api is None or not self.on else api.get_tracer("dragoman")

    def start(
        self,
        name: str,
        kind: Kind,
        attributes: Mapping[str, Value],
        *,
        carrier: Mapping[str, str] | None = None,
        links: Iterable[str] = (),
    ) -> Span:
        """Start a span: a child of the current one, else of the one that `carrier` names (headers, lower case).

        `links` are traceparents. Inside a trace that is not sampled, no further span is made.
        """
        from opentelemetry import propagate, trace

        parent = trace.get_current_span()
        parent_context = parent.get_span_context()
        context = None
        if carrier is not None and not parent_context.is_valid:
            context = propagate.extract(carrier)
        elif parent_context.is_valid and not parent_context.trace_flags.sampled:
            return Span(parent, trace.set_span_in_context(parent), is_own=False)
        span = self._tracer.start_span(
            name,
            context,
            getattr(trace.SpanKind, kind.upper()),
            attributes,
            [trace.Link(found) for each in links if (found := _parse(each)) is not None],
        )
        return Span(span, trace.set_span_in_context(span, context), is_own=True)

    def current_traceparent(self) -> str:
        """The traceparent of the current span; empty where there is none."""
        from opentelemetry import trace

        return _format(trace.get_current_span().get_span_context())


TRACING = Tracing()


def _format(context: Any) -> str:
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _parse(traceparent: str) -> Any:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None
