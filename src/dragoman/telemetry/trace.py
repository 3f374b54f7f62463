"""W3C trace context: passed from an incoming request to the requests it causes."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

HEADERS = ("traceparent", "tracestate", "baggage")
current: ContextVar[dict[str, str] | None] = ContextVar("dragoman_trace", default=None)


def extract(headers: dict[str, str]) -> None:
    """Read the trace context of an incoming request into `current`; `headers` have lower-case names."""
    if "traceparent" in headers:
        current.set({name: headers[name] for name in HEADERS if name in headers})
    elif current.get() is not None:
        current.set(None)


def inject(headers: dict[str, str]) -> None:
    """Add the trace context to an outgoing request: OpenTelemetry's when the program uses it, else the extracted one.

    Without either nothing is added: an invented parent would decide the sampling of all services behind it.
    """
    telemetry: Any = sys.modules.get("opentelemetry.propagate")
    if telemetry is not None:
        telemetry.inject(headers)
    context = current.get()
    if context is not None and "traceparent" not in headers:
        headers.update(context)
