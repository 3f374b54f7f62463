"""Measures and traces the operations of a client, with all their tries. Not called while telemetry is off."""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter
from typing import TYPE_CHECKING

from dragoman.telemetry.conventions import call_attributes, request_attributes, result_attributes
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING
from dragoman.transports.observed import error_type

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractContextManager

    from dragoman.client.connection import Connection
    from dragoman.client.event import Event
    from dragoman.dialects.dialect import Result
    from dragoman.model.operation import Operation, Request
    from dragoman.telemetry.spans import Span

_NOTHING = nullcontext()


class CallObservation:
    """One operation at another agent, until its end: of a stream, of all the connections it has taken."""

    __slots__ = ("_connection", "_operation", "_span", "_started")

    def __init__(self, connection: Connection, operation: Operation, request: Request) -> None:
        self._connection = connection
        self._operation = operation
        self._span = self._start_span(request) if TRACING.on else None
        self._started = perf_counter()

    def _start_span(self, request: Request) -> Span:
        connection, method = self._connection, self._operation.value
        card = connection.cached_card
        attributes = call_attributes(method, connection.protocol or "", "" if card is None else card.name)
        span = TRACING.start(method, "client", attributes)
        if span.recording:
            span.describe(request_attributes(request))
        return span

    @property
    def is_recording(self) -> bool:
        """True when there is a span that describes the result."""
        return self._span is not None and self._span.recording

    def current(self) -> AbstractContextManager[None]:
        """A block in which what is sent belongs to the span of this operation."""
        return _NOTHING if self._span is None else self._span.current()

    def end(self, error: BaseException | None = None, result: object = None) -> None:
        """End it; once. A reader who leaves a stream early has what it wanted: that is no error."""
        # Only now it is certain in which version the agent is spoken to.
        version = self._connection.protocol or ""
        failure = "" if error is None or isinstance(error, GeneratorExit) else error_type(error)
        if METRICS.on:
            METRICS.client_operations.observe(perf_counter() - self._started, (self._operation, version, failure))
        span = self._span
        if span is None:
            return
        if span.recording:
            card = self._connection.cached_card
            span.describe(call_attributes(self._operation.value, version, "" if card is None else card.name))
            span.describe(result_attributes(result))
        if failure:
            span.fail(failure)
        span.end()


async def observe_call(
    perform: Awaitable[Result], connection: Connection, operation: Operation, request: Request
) -> Result:
    """Perform an operation and observe it, with all its tries. Raises what `perform` raises."""
    call = CallObservation(connection, operation, request)
    try:
        with call.current():
            result = await perform
    except BaseException as error:
        call.end(error)
        raise
    call.end(None, result)
    return result


def observe_stream(
    events: AsyncGenerator[Event, None],
    connection: Connection,
    operation: Operation,
    request: Request,
    result_of: Callable[[], object],
) -> AsyncGenerator[Event, None]:
    """Observe a stream until its end, however often it is resumed; one in this process is returned as it is.

    Raises what the stream raises.
    """
    # A call inside this process has no client: its run is a child of whatever is current.
    is_in_process = connection.transport is None and connection.protocol is not None
    return events if is_in_process else _follow(events, connection, operation, request, result_of)


async def _follow(
    events: AsyncGenerator[Event, None],
    connection: Connection,
    operation: Operation,
    request: Request,
    result_of: Callable[[], object],
) -> AsyncGenerator[Event, None]:
    call = CallObservation(connection, operation, request)
    problem: BaseException | None = None
    try:
        while True:
            # Not around the `yield`: the reader's code is not below this span, and may be in another asyncio task.
            with call.current():
                event = await anext(events, None)
            if event is None:
                return
            yield event
    except BaseException as error:
        problem = error
        raise
    finally:
        # Else it would be built for nobody.
        call.end(problem, result_of() if call.is_recording else None)
        await events.aclose()
