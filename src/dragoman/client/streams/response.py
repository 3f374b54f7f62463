"""Reads the events of a streaming response, whichever binding it is of."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from dragoman.client.event import NumberedEvent
from dragoman.model.error import BadResponse, CannotConnect, DragomanError
from dragoman.net.exchange import redact_url

if TYPE_CHECKING:
    from dragoman.client.connection import ByteBudget
    from dragoman.model.event import ArtifactUpdate, StatusUpdate
    from dragoman.model.message import Message
    from dragoman.model.task import Task
    from dragoman.net.exchange import HttpResponse
    from dragoman.transports.binding import Binding

logger = logging.getLogger("dragoman.client")
# How many events that cannot be read are logged for one stream.
_MAX_WARNINGS = 5


class ResponseEvents:
    """The events of one response. One that cannot be read is logged and passed over.

    One event may have at most `limit` bytes; `budget` counts those of the whole task.
    """

    def __init__(self, binding: Binding, response: HttpResponse, limit: int, budget: ByteBudget | None) -> None:
        self._binding = binding
        self._response = response
        self._reader = binding.open_reader(response.headers, limit)
        self._budget = budget
        self._first_problem: BadResponse | None = None
        self._has_events = False
        self._unreadable = 0

    async def read(self, probe: Callable[[bytes], Awaitable[object]]) -> AsyncGenerator[Sequence[NumberedEvent], None]:
        """Yield the events in the batches they arrive in; an empty batch stands for what could not be read.

        `probe` finds out how the server means an event, where its version leaves that open.

        Raises:
            A2AError, AuthError: an event is an error.
            BadResponse: none of the events could be read.
            CannotConnect: the connection broke.
            ResponseTooLarge: an event exceeds its limit, or the task its budget.
        """
        try:
            async for chunk in self._response.chunks():
                batch: list[NumberedEvent] = []
                if self._budget is not None:
                    self._budget.add(len(chunk))
                unreadable = self._unreadable
                try:
                    for data, number in self._reader.feed(chunk):
                        if not data:
                            continue
                        await probe(data)
                        if (event := self._read_event(data)) is not None:
                            batch.append(NumberedEvent(number or getattr(event, "generation", 0) or 0, event))
                except DragomanError:
                    if batch:
                        yield batch
                    raise
                if batch:
                    yield batch
                if self._unreadable > unreadable:
                    yield ()
            self._check()
        finally:
            await self._response.close()

    def _read_event(self, data: bytes) -> Task | Message | StatusUpdate | ArtifactUpdate | None:
        try:
            event = self._binding.read_event(data).payload
        except BadResponse as problem:
            self._first_problem = self._first_problem or problem
            self._unreadable += 1
            if self._unreadable <= _MAX_WARNINGS:
                more = "; further ones are not logged" if self._unreadable == _MAX_WARNINGS else ""
                logger.warning("an event of %s is left out: %s%s", redact_url(self._binding.url), problem, more)
            return None
        self._has_events = True
        return event

    def _check(self) -> None:
        """Raise BadResponse if no event of the stream could be read, CannotConnect if it ended within one."""
        if self._first_problem is not None and not self._has_events:
            raise self._first_problem
        if self._reader.pending:
            raise CannotConnect(
                f"the stream of {redact_url(self._binding.url)} ended within an event", reason="CONNECTION_LOST"
            )
