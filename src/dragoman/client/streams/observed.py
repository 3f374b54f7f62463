"""Measures the operations that a client performs at an agent elsewhere. Not called while telemetry is off."""

from __future__ import annotations

from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING

from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.transports.observed import error_type

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence
    from typing import Protocol

    from dragoman.client.connection import StreamEvent
    from dragoman.dialects.dialect import Result
    from dragoman.model.operation import Operation, Request

    class _Connection(Protocol):
        @property
        def protocol(self) -> str | None: ...


class CallObservation:
    """One operation at an agent elsewhere, retries included: of a stream, until it ends or is left."""

    __slots__ = ("_connection", "_operation", "_started")

    def __init__(self, connection: _Connection, operation: Operation, request: Request) -> None:
        self._connection = connection
        self._operation = operation
        self._started = perf_counter()

    async def perform(self, performing: Awaitable[Result]) -> Result:
        """Perform the operation. Raises whatever it raises."""
        try:
            result = await performing
        except BaseException as error:
            self._end(error)
            raise
        self._end()
        return result

    async def follow(
        self, batches: AsyncGenerator[Sequence[StreamEvent], None]
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """Yield the batches of a stream. Raises whatever ends it."""
        error: BaseException | None = None
        try:
            async with aclosing(batches):
                async for batch in batches:
                    yield batch
        except GeneratorExit:  # whoever reads it has enough
            raise
        except BaseException as problem:
            error = problem
            raise
        finally:
            self._end(error)

    def _end(self, error: BaseException | None = None) -> None:
        if METRICS.on:
            # Only now it is certain in which version the agent is spoken to.
            version = self._connection.protocol or ""
            failure = "" if error is None else error_type(error)
            METRICS.client_operations.observe(perf_counter() - self._started, self._operation, version, failure)
