"""Spans of calls of MCP tools, as OpenTelemetry's conventions for MCP have them.

The MCP SDK has its own. On the server's side that is the one of the conventions, and nothing is added to it. On the
client's side it is named otherwise and lacks the tool and its errors, so that ours takes its place.
"""

from __future__ import annotations

import contextvars
import json
from asyncio import CancelledError
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from dragoman.telemetry import trace
from dragoman.telemetry.conventions import CANCELED
from dragoman.telemetry.log_context import LOG_CONTEXT
from dragoman.telemetry.spans import SHOWS_CONTENT, TRACING, Span, is_valid_header

if TYPE_CHECKING:
    from mcp_types import CallToolResult

# The longest arguments and results in a span, in characters of JSON.
MAX_CONTENT = 8192
# What the SDK would call its span of the call that the running code makes.
_REPLACED: ContextVar[tuple[str, Span] | None] = ContextVar("dragoman_mcp_span", default=None)


@contextmanager
def tool_span(tool: str, arguments: Mapping[str, Any], version: str) -> Generator[Span]:
    """The CLIENT span of a call of an MCP tool, current within. Only where `TRACING.on`.

    `version` is the revision of MCP that is spoken.
    """
    _replace_sdk_span()
    attributes = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": version,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
    }
    span = TRACING.start(f"tools/call {tool}", "client", attributes)
    if span.recording and SHOWS_CONTENT.get():
        span.set("gen_ai.tool.call.arguments", _excerpt(json.dumps(arguments, ensure_ascii=False)))
    token = _REPLACED.set((f"MCP send tools/call {tool}", span))
    try:
        with span.current():
            yield span
    except BaseException as error:
        span.fail(_error_type(error))
        raise
    finally:
        _REPLACED.reset(token)
        span.end()


def describe_result(span: Span, result: CallToolResult) -> None:
    """Note in the span of a call how the tool has ended it."""
    if result.is_error:
        span.fail("tool_error")
    if span.recording and SHOWS_CONTENT.get():
        try:
            text = result.model_dump_json(by_alias=True, exclude_none=True)
        except ValueError as error:  # half of a surrogate pair, for one: the call has succeeded all the same
            TRACING.report(error)
        else:
            span.set("gen_ai.tool.call.result", _excerpt(text))


def _excerpt(text: str) -> str:
    return text if len(text) <= MAX_CONTENT else f"{text[: MAX_CONTENT - 1]}…"


@contextmanager
def request_trace(meta: Mapping[str, Any] | None) -> Generator[None]:
    """Read the trace of a request of MCP from its `_meta`: what is sent within carries it, without OpenTelemetry, too.

    The SDK has read it as well, for its span of the request, which is current; but it drops the baggage.
    """
    from opentelemetry import context, propagate
    from opentelemetry.trace import get_current_span, set_span_in_context

    given = {name: value for name in trace.HEADERS if isinstance(value := (meta or {}).get(name), str)}
    carrier = {name: value for name, value in given.items() if is_valid_header(name, value)}
    trace.extract(carrier)
    if "baggage" not in carrier:
        yield
        return
    token = context.attach(set_span_in_context(get_current_span(), propagate.extract(carrier)))
    try:
        yield
    finally:
        context.detach(token)


def outside_of_traces() -> contextvars.Context:
    """A copy of the context without its trace and its run: for what outlives the request that happens to start it."""
    context = contextvars.copy_context()
    context.run(_leave_trace)
    return context


def _leave_trace() -> None:
    trace.current.set(None)
    LOG_CONTEXT.leave()
    if TRACING.on:
        from opentelemetry import context

        context.attach(context.Context())


def _error_type(error: BaseException) -> str:
    if isinstance(error, CancelledError):
        return CANCELED
    code = getattr(error, "code", None)  # that of an MCPError
    return str(code) if isinstance(code, int) else type(error).__name__


@cache
def _replace_sdk_span() -> None:
    """Let the SDK make a call within our span instead of one of its own. It has no setting for that."""
    from mcp.shared import jsonrpc_dispatcher

    sdk: Any = jsonrpc_dispatcher
    make_span = getattr(sdk, "otel_span", None)
    if make_span is None:  # an SDK that does it otherwise: then there are both
        return

    @contextmanager
    def otel_span(name: str, **options: Any) -> Generator[Any]:
        replaced = _REPLACED.get()
        if replaced is None or replaced[0] != name:
            with make_span(name, **options) as span:
                yield span
            return
        from opentelemetry.trace import INVALID_SPAN

        attributes: dict[str, Any] = options.get("attributes") or {}
        for attribute, value in attributes.items():
            replaced[1].set(attribute, value)
        yield INVALID_SPAN  # what the SDK sets there are texts of errors, too, which may quote what was said

    sdk.otel_span = otel_span
