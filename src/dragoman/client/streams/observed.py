"""Traces the operations of a client, with all their tries. Nothing of this is called while telemetry is off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dragoman.model.error import DragomanError
from dragoman.telemetry.conventions import call_attributes, request_attributes, result_attributes
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from dragoman.client.connection import Connection
    from dragoman.client.event import Event
    from dragoman.dialects.dialect import Result
    from dragoman.model.operation import Operation, Request

# The error of an operation whose caller has given it up.
CANCELED = "CANCELED"


class ObservedCall:
    """One operation at another agent, until its end: of a stream, of all the connections it has taken."""

    __slots__ = ("_connection", "span")

    def __init__(self, connection: Connection, operation: Operation, request: Request) -> None:
        self._connection = connection
        card = connection.cached_card
        attributes = call_attributes(operation.value, connection.protocol or "", "" if card is None else card.name)
        self.span = TRACING.start(operation.value, "client", attributes)
        if self.span.recording:
            self.span.describe(request_attributes(request))

    def end(self, error: BaseException | None = None, result: object = None) -> None:
        """End it; once. A reader who leaves a stream early has what it wanted: that is no error."""
        span, card = self.span, self._connection.cached_card
        if span.recording:
            # The first call of a client reads the card.
            if card is not None:
                span.set("gen_ai.agent.name", card.name)
            if version := self._connection.protocol:
                span.set("a2a.protocol.version", version)
            span.describe(result_attributes(result))
        if error is not None and not isinstance(error, GeneratorExit):
            span.fail(error_type(error))
        span.end()


async def observe_call(
    perform: Awaitable[Result], connection: Connection, operation: Operation, request: Request
) -> Result:
    """Perform an operation and observe it, with all its tries. Raises what `perform` raises."""
    call = ObservedCall(connection, operation, request)
    try:
        with call.span.current():
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
    call = ObservedCall(connection, operation, request)
    problem: BaseException | None = None
    try:
        while True:
            # Not around the `yield`: the reader's code is not below this span, and may be in another asyncio task.
            with call.span.current():
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
