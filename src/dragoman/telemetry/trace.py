"""W3C trace context: passed from an incoming request to the requests it causes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

from dragoman.telemetry.spans import TRACING, is_valid_header

HEADERS = ("traceparent", "tracestate", "baggage")
current: ContextVar[dict[str, str] | None] = ContextVar("dragoman_trace", default=None)


def extract(headers: Mapping[str, str]) -> None:
    """Read the trace context of an incoming request into `current`; `headers` have lower-case names.

    What is not valid is dropped: the rest is stored with tasks, and passed on to other agents, tools and programs.
    """
    if "traceparent" in headers and is_valid_header("traceparent", headers["traceparent"]):
        current.set(
            {name: headers[name] for name in HEADERS if name in headers and is_valid_header(name, headers[name])}
        )
    elif current.get() is not None:
        current.set(None)


def adopt(carrier: Mapping[str, str]) -> None:
    """Make a trace context the parent of all that this process does from now on; `carrier` has lower-case names."""
    extract(carrier)
    if TRACING.on:
        TRACING.adopt(carrier)


def inject(headers: MutableMapping[str, str]) -> None:
    """Add the trace context to an outgoing request: OpenTelemetry's when the program uses it, else the extracted one.

    Never both: they may belong to different traces. Without either nothing is added: an invented parent would decide
    the sampling of all services behind it.
    """
    telemetry: Any = sys.modules.get("opentelemetry.propagate")
    if telemetry is not None:
        try:
            telemetry.inject(headers)
        except Exception as error:  # noqa: BLE001 - it is reported there
            TRACING.report(error)
        # The user may have chosen other headers than `traceparent`.
        if "traceparent" in headers or (TRACING.on and TRACING.current_context() is not None):
            return
    context = current.get()
    if context is not None and "traceparent" not in headers:
        headers.update(context)


def snapshot() -> dict[str, str] | None:
    """Return the trace context to be kept with a task: what `inject` would add, without baggage. None without one.

    That of OpenTelemetry is kept only where somebody records the trace: of most tasks nobody does, and storing it costs
    more than all the rest of tracing.
    """
    if TRACING.on:
        if TRACING.is_unsampled():
            return None
        if (context := TRACING.current_context()) is not None:
            return context
    context = current.get()
    return None if context is None else {name: value for name, value in context.items() if name != "baggage"}


def restore(context: dict[str, str]) -> None:
    """Make a context that was kept the current one, unless it is: then its baggage is there as well. May be empty."""
    present = current.get()
    if present is None or present["traceparent"] != context.get("traceparent"):
        current.set(context or None)
