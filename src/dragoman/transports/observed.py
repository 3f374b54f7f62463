"""Measures and traces operations where all bindings perform them. Nothing of this is called while telemetry is off."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.engine.journal.follow import Stream
from dragoman.model import error as errors
from dragoman.model.error import DragomanError, InternalError
from dragoman.model.operation import Operation
from dragoman.telemetry.conventions import CANCELED, call_attributes, request_attributes, result_attributes
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.metrics.registry import OTHER
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman.engine.call import CallContext
    from dragoman.engine.journal.follow import Batch
    from dragoman.model.error import A2AError
    from dragoman.telemetry.spans import Span
    from dragoman.transports.endpoint import Endpoint, Outcome
    from dragoman.transports.http import Request

_REASONS = {each.reason for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DragomanError)}
# Agents raise errors with reasons of their own. The first of them are counted one by one, the rest together.
_MAX_OWN_REASONS = 20
_OWN_REASONS: set[str] = set()


def record_outcome(started: float, agent: str, operation: Operation, call: CallContext, outcome: Outcome) -> Outcome:
    """Record an operation that has returned a result, not a stream, and return its outcome."""
    if METRICS.on:
        origin = call.origin
        version = call.version if "/" in origin else origin
        METRICS.operations.observe(perf_counter() - started, (agent, operation, version, ""))
    return outcome


def record_failure(
    started: float,
    agent: str,
    operation: Operation,
    call: CallContext,
    error: BaseException,
    request: Request | None,
) -> None:
    """Record an operation that has raised an exception."""
    if request is not None:
        request.mark_observed()
    if METRICS.on:
        METRICS.operations.observe(perf_counter() - started, (agent, operation, call.version, _error_label(error)))


class _ObservedStream:
    """A stream that is observed until its end. It does not see its batches: that would cost something for each."""

    def __init__(
        self,
        started: float,
        agent: str,
        operation: Operation,
        call: CallContext,
        request: Request | None,
        span: Span | None,
    ) -> None:
        self._labels = (agent, operation, call.version)
        self._request = request
        self._span = span
        self._started = started

    def end(self, error: BaseException | None, is_complete: bool) -> None:
        """Record the end; an `OnEnd` of the engine. Whoever leaves when all was sent has not canceled anything."""
        if error is not None and self._request is not None:
            self._request.mark_observed()
        if is_complete:
            error = None
        if self._span is not None:
            _end_span(self._span, error)
        if METRICS.on:
            failure = "" if error is None else _error_label(error)
            METRICS.operations.observe(perf_counter() - self._started, (*self._labels, failure))


async def _described(span: Span, batches: AsyncGenerator[Batch, None]) -> AsyncGenerator[Batch, None]:
    """Yield the batches of a stream, and describe its task by them. Raises whatever ends the stream."""
    async with aclosing(batches):
        async for batch in batches:
            _describe_batch(span, batch)
            yield batch
            del batch  # it can be large, and must not be held while the stream waits


async def observe(
    endpoint: Endpoint,
    started: float,
    operation: Operation,
    call: CallContext,
    params: Any,
    after: int | None,
    request: Request | None,
) -> Outcome:
    """Have an endpoint perform an operation, and observe it, its stream until the end. Raises what `perform` raises."""
    span, agent = None, endpoint.agent
    if operation is Operation.STREAM:
        call = replace(call, arrived=started)
    if request is not None:
        request.set_target(agent, params)
        # A call inside this process has no server: its run is a child of whatever called it.
        if TRACING.on:
            span = _start_span(agent, operation, call.version, request)
            if span.recording:
                span.describe(request_attributes(params))
    on_end = _ObservedStream(started, agent, operation, call, request, span).end
    try:
        if span is None:
            outcome = await endpoint.perform(operation, call, params, after, request, on_end)
        else:
            with span.current():
                outcome = await endpoint.perform(operation, call, params, after, request, on_end)
    except BaseException as error:
        if span is not None:
            _end_span(span, error)
        record_failure(started, agent, operation, call, error, request)
        raise
    result = outcome.result
    if not isinstance(result, Stream):
        if span is not None:
            _end_span(span, None, result)
        return record_outcome(started, agent, operation, call, outcome)
    if span is not None and span.recording:
        return replace(outcome, result=result._replace(batches=_described(span, result.batches)))
    return outcome


def _start_span(agent: str, operation: Operation, version: str, request: Request) -> Span:
    attributes = call_attributes(operation.value, version, agent)
    return TRACING.start(operation.value, "server", attributes, carrier=request.headers)


def _end_span(span: Span, error: BaseException | None, result: object = None) -> None:
    if span.recording:
        span.describe(result_attributes(result))
    if error is not None:
        span.fail(error_type(error))
    span.end()


def _describe_batch(span: Span, batch: Batch) -> None:
    """Describe the task of a stream by the last of these records that sets its state, or is a bare message."""
    for record in reversed(batch.records):
        if record.state is not None or record.body.startswith(b'{"message"'):
            span.describe(result_attributes(record.event))
            return


def count_refused(request: Request, error: A2AError, agent: str, operation: Operation | None, version: str) -> None:
    """Count a request that never became an operation, because it could not be read or was not admitted."""
    if request.is_observed:
        return
    if TRACING.on and operation is not None:
        span = _start_span(agent, operation, version, request)
        span.fail(error_type(error))
        span.end()
    if METRICS.on:
        METRICS.operations.observe(request.age(), (agent, operation or "", version, _error_label(error)))


def _error_label(error: BaseException) -> str:
    name = error_type(error)
    if name in _REASONS or name == CANCELED:
        return name
    if len(_OWN_REASONS) < _MAX_OWN_REASONS:
        _OWN_REASONS.add(name)
    return name if name in _OWN_REASONS else OTHER


def error_type(error: BaseException) -> str:
    """Return what an error of an operation is called: the reason that its caller gets, or that it was canceled."""
    if isinstance(error, DragomanError):
        return str(error.reason)  # an agent's own may be an enum
    return CANCELED if isinstance(error, (asyncio.CancelledError, GeneratorExit)) else InternalError.reason
