"""W3C trace context: what comes in with a request goes out with the requests it causes."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

HEADERS = ("traceparent", "tracestate", "baggage")
current: ContextVar[dict[str, str] | None] = ContextVar("dragoman_trace", default=None)


def extract(headers: dict[str, str]) -> None:
    """Keep the trace context of an incoming request; `headers` have lower-case names."""
    if "traceparent" in headers:
        current.set({name: headers[name] for name in HEADERS if name in headers})
    elif current.get() is not None:
        current.set(None)


def inject(headers: dict[str, str]) -> None:
    """Add the trace context to an outgoing request: OpenTelemetry's when a program uses it, else the remembered one.

    Without either nothing is sent: a made-up parent would decide about sampling for everybody behind it.
    """
    telemetry: Any = sys.modules.get("opentelemetry.propagate")
    if telemetry is not None:
        telemetry.inject(headers)
    remembered = current.get()
    if remembered is not None and "traceparent" not in headers:
        headers.update(remembered)
