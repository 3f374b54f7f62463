"""Measures and traces the operations of a client, with all their tries."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from time import perf_counter
from typing import TYPE_CHECKING

from dragoman.model.error import DragomanError
from dragoman.telemetry.conventions import call_attributes, request_attributes, result_attributes
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractContextManager

    from dragoman.client.connection import Connection
    from dragoman.client.event import Event
    from dragoman.dialects.dialect import Result
    from dragoman.model.operation import Operation, Request
    from dragoman.telemetry.spans import Span

# The error of an operation whose caller has given it up.
CANCELED = "CANCELED"


class ObservedCall:
    """One operation at another agent, until its end: of a stream, of all the connections it has taken."""

    __slots__ = ("_connection", "_operation", "_span", "_started")

    def __init__(self, connection: Connection, operation: Operation, request: Request) -> None:
        self._connection = connection
        self._operation = operation
        self._started = perf_counter()
        self._span: Span | None = None
        if TRACING.on:
            card = connection.cached_card
            attributes = call_attributes(operation.value, connection.protocol or "", "" if card is None else card.name)
            self._span = TRACING.start(operation.value, "client", attributes)
            if self._span.recording:
                self._span.describe(request_attributes(request))

    def current(self) -> AbstractContextManager[None]:
        """Make its span, if there is one, the parent of what begins within."""
        return nullcontext() if self._span is None else self._span.current()

    def end(self, error: BaseException | None = None, result: object = None) -> None:
        """End it; once. A reader who leaves a stream early has what it wanted: that is no error."""
        failure = "" if error is None or isinstance(error, GeneratorExit) else error_type(error)
        # The first call of a client reads the card: only now the version is certain.
        version = self._connection.protocol or ""
        if METRICS.on:
            METRICS.client_operations.observe(perf_counter() - self._started, self._operation, version, failure)
        if self._span is not None:
            self._end_span(self._span, version, failure, result)

    def _end_span(self, span: Span, version: str, failure: str, result: object) -> None:
        if span.recording:
            card = self._connection.cached_card
            if card is not None:
                span.set("gen_ai.agent.name", card.name)
            if version:
                span.set("a2a.protocol.version", version)
            span.describe(result_attributes(result))
        if failure:
            span.fail(failure)
        span.end()


async def observe_call(
    perform: Awaitable[Result], connection: Connection, operation: Operation, request: Request
) -> Result:
    """Perform an operation and observe it, with all its tries. Raises what `perform` raises."""
    call = ObservedCall(connection, operation, request)
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
    """Observe a stream until its end, however often it is resumed.

    One in this process is returned as it is, and so is any while telemetry is off.

    Raises what the stream raises.
    """
    if not (METRICS.on or TRACING.on):
        return events
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
    call = ObservedCall(connection, operation, request)
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
        call.end(problem, result_of())
        await events.aclose()


def error_type(error: BaseException) -> str:
    """Return what an error is called in spans: the reason of an error of Dragoman, else the name of its class."""
    if isinstance(error, DragomanError):
        return error.reason
    return CANCELED if isinstance(error, asyncio.CancelledError) else type(error).__name__
