"""Spans of OpenTelemetry, for what a server, a client, a run or a call of a tool does.

OpenTelemetry is used only where the program has configured it, or the user of a command has with the variables
`OTEL_…`; else nothing of it is imported. Whoever makes a span looks at `TRACING.on` first.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal

logger = logging.getLogger("dragoman.telemetry")

Kind = Literal["server", "client", "producer", "internal"]
Value = str | bool | int | float | list[str]

_TRACEPARENT = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE_MEMBER = re.compile(
    "[ \t]*(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})=[ -+\\--<>-~]{1,256}"
)
# Possessive, because a caller could make the search for another match last for seconds.
_BAGGAGE_MEMBER = re.compile(
    r"[ \t]*+[\w!#$%&'*+.^`|~-]++[ \t]*+=[ \t]*+[!#-+\--:<-\[\]-~]*+[ \t]*+(?:;[ !#-+\--:<-\[\]-~\t]*+)*+", re.ASCII
)
# What the specifications of W3C let everybody count on.
_MAX_TRACESTATE, _MAX_BAGGAGE, _MAX_MEMBERS, _MAX_MEMBER = 512, 8192, 64, 4096


def is_valid_header(name: str, value: str) -> bool:
    """True when a header of W3C has the form and the size that its specification allows. Callers write anything."""
    if name == "traceparent":
        return _TRACEPARENT.fullmatch(value) is not None
    if name == "tracestate":
        return len(value) <= _MAX_TRACESTATE and all(map(_STATE_MEMBER.fullmatch, value.split(",")))
    members = value.split(",", _MAX_MEMBERS) if len(value) <= _MAX_BAGGAGE else []
    return 0 < len(members) <= _MAX_MEMBERS and all(
        len(member) <= _MAX_MEMBER and _BAGGAGE_MEMBER.fullmatch(member) for member in members
    )


class Span:
    """One span. Where nobody samples the trace, it is that of the caller, and whatever is set goes nowhere.

    Providers, samplers, processors and exporters are the program's. What they raise is logged, and fails nothing.
    """

    __slots__ = ("_api", "_context", "_is_own", "_otel", "recording")

    def __init__(self, api: _Api, otel: Any, context: Any, *, is_own: bool) -> None:
        self._api = api
        self._otel = otel
        self._context = context
        self._is_own = is_own
        self.recording: bool = is_own and otel.is_recording()

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""
        if self.recording:
            try:
                self._otel.set_attribute(name, value)
            except Exception as error:  # noqa: BLE001 - it is reported there
                TRACING.report(error)

    def describe(self, attributes: Mapping[str, Value]) -> None:
        """Set several attributes."""
        if self.recording:
            try:
                self._otel.set_attributes(attributes)
            except Exception as error:  # noqa: BLE001 - it is reported there
                TRACING.report(error)

    def fail(self, error_type: str, text: str = "") -> None:
        """Mark what was done as failed. `error_type` is one of few: a reason of an error, the name of a class."""
        if self.recording:
            try:
                self._otel.set_attribute("error.type", error_type)
                self._otel.set_status(self._api.status(self._api.error, text or None))
            except Exception as error:  # noqa: BLE001 - it is reported there
                TRACING.report(error)

    def end(self) -> None:
        """End it; once."""
        if self._is_own:
            try:
                self._otel.end()
            except Exception as error:  # noqa: BLE001 - it is reported there
                TRACING.report(error)

    @property
    def traceparent(self) -> str:
        """The `traceparent` of W3C; empty for an invalid span."""
        return _format(self._otel.get_span_context())

    def current(self) -> AbstractContextManager[None]:
        """Make it the parent of what begins within. The block must be left in the context it was entered in."""
        return _Block(self._api, self._context) if self._is_own else _NOTHING

    def make_current(self) -> None:
        """Make it the parent of all that follows in this asyncio task, which is the span's own."""
        if self._is_own:
            self._api.attach(self._context)


class _Block:
    """A block of code in which a span is current. A class, because a generator costs a microsecond more."""

    __slots__ = ("_api", "_context", "_token")

    def __init__(self, api: _Api, context: Any) -> None:
        self._api = api
        self._context = context

    def __enter__(self) -> None:
        self._token = self._api.attach(self._context)

    def __exit__(self, *_: object) -> None:
        self._api.detach(self._token)


_NOTHING = nullcontext()


class Tracing:
    """The tracer of this process. It is `on` when OpenTelemetry is configured."""

    def __init__(self) -> None:
        self.on = False
        self._api: Any = None
        self._tracer: Any = None
        self._has_failed = False

    def report(self, error: Exception) -> None:
        """Log that OpenTelemetry has raised something, the first time that it does: else it would be each span."""
        if not self._has_failed:
            self._has_failed = True
            logger.warning(
                "OpenTelemetry, as this program has configured it, has raised an exception: spans are lost. This is "
                "not repeated",
                exc_info=error,
            )

    def detect(self) -> None:
        """Turn spans on if the program has configured a provider, or off. Costs nothing where it has not."""
        trace: Any = sys.modules.get("opentelemetry.trace")
        # Frameworks import OpenTelemetry, too. While it is not configured, its provider is a proxy for none.
        provider: Any = None if trace is None else trace.get_tracer_provider()
        if trace is None or isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
            self.on = False  # what has begun may still use the rest
            return
        try:
            tracer = provider.get_tracer("dragoman")
            api = _Api()  # raises where OTEL_PROPAGATORS has an unknown name
        except Exception as error:  # noqa: BLE001 - it is reported there
            self.on = False
            self.report(error)
            return
        # The SDK gives such a tracer where OTEL_SDK_DISABLED is set.
        self.on = not isinstance(tracer, trace.NoOpTracer)
        self._api, self._tracer = api, tracer

    def start(
        self,
        name: str,
        kind: Kind,
        attributes: Mapping[str, Value],
        *,
        carrier: Mapping[str, str] | None = None,
        parent: Mapping[str, str] | None = None,
        root: bool = False,
        links: Iterable[Mapping[str, str]] = (),
    ) -> Span:
        """Start a span: a child of the current one, else of the one that `carrier` names (headers, lower case).

        `parent` is a W3C trace context that is the parent whatever is current, as that of a task that is resumed. A
        `root` has no parent. `links` are such contexts too. Inside a trace that is not sampled, no span is made.
        """
        api = self._api
        try:
            # Passed on, because each of the SDK's steps would look it up again.
            context = api.get_current()
            current = api.get_current_span(context)
            span_context = current.get_span_context()
            if root:
                context = api.empty
            elif parent is not None and not _is_same(span_context, parent):
                context = api.w3c_extract(parent)
            elif not span_context.is_valid:
                # Without such headers there is nothing to extract, which is dear.
                if carrier is not None and not api.fields.isdisjoint(carrier):
                    context = api.extract(carrier, None, api.getter)
            elif not span_context.trace_flags.sampled:
                return Span(api, current, None, is_own=False)
            targets = [target for each in links if (target := api.span_context(each)) is not None] if links else ()
            linked = [api.link(each) for each in targets] or None
            span = self._tracer.start_span(name, context, api.kinds[kind], attributes, linked)
            return Span(api, span, api.set_span_in_context(span, context), is_own=True)
        except Exception as error:  # noqa: BLE001 - it is reported there
            self.report(error)
            return Span(api, api.invalid_span, None, is_own=False)

    def adopt(self, carrier: Mapping[str, str]) -> None:
        """Make the span that `carrier` names the parent of all that follows in this thread."""
        try:
            self._api.attach(self._api.extract(carrier, None, self._api.getter))
        except Exception as error:  # noqa: BLE001 - it is reported there
            self.report(error)

    def is_recording(self) -> bool:
        """True when the current span is recorded."""
        return self._api.get_current_span().is_recording()

    def add_event(self, name: str, attributes: Mapping[str, Value] | None = None) -> None:
        """Note in the current span that something has happened now."""
        try:
            self._api.get_current_span().add_event(name, attributes)
        except Exception as error:  # noqa: BLE001 - it is reported there
            self.report(error)

    def link_current(self, context: Mapping[str, str]) -> None:
        """Link the current span to the one that a W3C trace context names."""
        try:
            linked = self._api.span_context(context)
            if linked is not None:
                self._api.get_current_span().add_link(linked)
        except Exception as error:  # noqa: BLE001 - it is reported there
            self.report(error)

    def is_unsampled(self) -> bool:
        """True inside a trace of which no span is recorded."""
        span_context = self._api.get_current_span().get_span_context()
        return span_context.is_valid and not span_context.trace_flags.sampled

    def current_context(self) -> dict[str, str] | None:
        """Return the W3C trace context of the current span, without baggage; None where there is no span."""
        span_context = self._api.get_current_span().get_span_context()
        if not span_context.is_valid:
            return None
        found = {"traceparent": _format(span_context)}
        if span_context.trace_state:
            state = span_context.trace_state.to_header()
            if len(state) <= _MAX_TRACESTATE:
                found["tracestate"] = state
        return found

    def current_traceparent(self) -> str:
        """Return the traceparent of the current span; empty where there is none."""
        return _format(self._api.get_current_span().get_span_context())


TRACING = Tracing()
# True in a run whose spans have what is said: a setting of users.
SHOWS_CONTENT: ContextVar[bool] = ContextVar("dragoman_content", default=False)


class _Api:
    """What of OpenTelemetry is used for each span, looked up once."""

    def __init__(self) -> None:
        from opentelemetry import context, propagate, trace
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.attach, self.detach = context.attach, context.detach
        self.get_current, self.empty = context.get_current, Context()
        self.get_current_span, self.set_span_in_context = trace.get_current_span, trace.set_span_in_context
        self.kinds = {kind.name.lower(): kind for kind in trace.SpanKind}
        self.link, self.status, self.error = trace.Link, trace.Status, trace.StatusCode.ERROR
        self.invalid_span = trace.INVALID_SPAN
        # The user may have chosen other headers (OTEL_PROPAGATORS). Dragoman itself keeps those of W3C.
        self.extract, self.getter = propagate.extract, _LowerCaseGetter()
        self.fields = frozenset(field.lower() for field in propagate.get_global_textmap().fields)
        self.w3c_extract = TraceContextTextMapPropagator().extract

    def span_context(self, context: Mapping[str, str]) -> Any:
        """Return what OpenTelemetry calls the context of a span; None when it is not valid."""
        found = self.get_current_span(self.w3c_extract(context)).get_span_context()
        return found if found.is_valid else None


class _LowerCaseGetter:
    """Reads headers whose names are in lower case, whatever name a propagator asks for.

    OpenTelemetry would log what is too long or malformed, with all of it: callers could fill the log.
    """

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(key.lower())
        if value is None or (key in ("baggage", "tracestate") and not is_valid_header(key, value)):
            return None
        return [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


def _format(context: Any) -> str:
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _is_same(context: Any, parent: Mapping[str, str]) -> bool:
    """True when the current span is the one that `parent` names: then its baggage is current as well."""
    return parent["traceparent"][3:52] == f"{context.trace_id:032x}-{context.span_id:016x}"
