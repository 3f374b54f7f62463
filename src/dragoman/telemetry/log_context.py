"""What the lines of the log are about: the request that is handled, or the run that logs.

Logging asks for it when a line is written, so that it is in the lines of users' loggers too, and costs nothing before.
"""

from __future__ import annotations

import re
import sys
from contextvars import ContextVar
from typing import Any, Protocol

from dragoman.telemetry import trace
from dragoman.telemetry.spans import TRACING

_TRACEPARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class LogSource(Protocol):
    """What somebody works on while a line is logged."""

    def log_fields(self) -> dict[str, str]:
        """Return what the line is about: `agent`, `skill`, `task`, `context`, `user` or `address`; none is empty."""
        ...


class LogContext:
    """The request and the run of the current code. Requests set theirs only while it is `on`: nobody else reads it."""

    def __init__(self) -> None:
        self.on = False
        self.request: ContextVar[LogSource | None] = ContextVar("dragoman-log-request", default=None)
        self.run: ContextVar[LogSource | None] = ContextVar("dragoman-log-run", default=None)

    def enable(self, *, on: bool = True) -> None:
        """Let requests say that they are handled."""
        self.on = on

    def leave(self) -> None:
        """Belong to no request and no run from now on, in the current context."""
        self.request.set(None)
        self.run.set(None)

    def fields(self) -> dict[str, str]:
        """Return the fields for a line that is logged now."""
        # A request that is set was begun within the run: runs that a request begins are without it.
        source = self.request.get() or self.run.get()
        return _trace_fields() if source is None else _trace_fields() | source.log_fields()


LOG_CONTEXT = LogContext()


def fields_of_caller(caller: str) -> dict[str, str]:
    """Split the key of a caller, as quotas have it, into a field: `user` or `address`."""
    kind, _, name = caller.partition(" ")
    return {kind: name} if name else {}


def _trace_fields() -> dict[str, str]:
    if TRACING.on:
        api: Any = sys.modules["opentelemetry.trace"]
        span = api.get_current_span().get_span_context()
        if span.is_valid:
            return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
    carrier = trace.current.get()
    # A header of the caller, who may have written anything.
    match = None if carrier is None else _TRACEPARENT.fullmatch(carrier.get("traceparent", ""))
    return {} if match is None else {"trace_id": match[1], "span_id": match[2]}
