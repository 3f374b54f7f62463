"""`EventStream`: the events of one message or task, or its text in pieces to print."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from dragoman.client.streams.text import PrintableText
from dragoman.model.error import BadResponse, DragomanError
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from dragoman.client.event import Event
    from dragoman.client.follow import ResumableStream
    from dragoman.client.streams.text import TextChunk
    from dragoman.model.message import Message


class EventStream:
    """The events of one message or task, to be iterated over once. `task` is the task assembled from them so far."""

    def __init__(
        self,
        open_stream: Callable[[], Awaitable[ResumableStream]],
        start: Callable[[ResumableStream], AsyncGenerator[Event, None]],
    ) -> None:
        self._open_stream = open_stream
        self._start = start
        self._stream: ResumableStream | None = None
        self._is_read = False
        self._on_event: Callable[[Task | Message], None] | None = None
        self._on_end: Callable[[], Awaitable[None]] | None = None

    def _observe(
        self, on_event: Callable[[Task | Message], None], on_end: Callable[[], Awaitable[None]]
    ) -> EventStream:
        """Call one function with the result so far before each event, and the other at the end. Returns the stream."""
        self._on_event, self._on_end = on_event, on_end
        return self

    @property
    def result(self) -> Task | Message:
        """The task or message so far. Raises BadResponse before the first event."""
        result = None if self._stream is None else self._stream.result
        if result is None:
            raise BadResponse("the stream has not said anything yet")
        return result

    @property
    def task(self) -> Task:
        """The task so far. Raises BadResponse when there is none, as with a bare message."""
        result = self.result
        if not isinstance(result, Task):
            raise BadResponse("the agent answered with a message and no task")
        return result

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        """Return the events. Raises RuntimeError the second time: reading again would send the message again."""
        if self._is_read:
            raise RuntimeError(
                "this stream has been read, and can be read only once. What it brought is in `stream.result`; "
                "`client.subscribe(stream.task)` follows a task that goes on"
            )
        self._is_read = True
        return self._read()

    async def _read(self) -> AsyncGenerator[Event, None]:
        try:
            self._stream = await self._open_stream()
            events = self._start(self._stream)
            try:
                async for event in events:
                    if self._on_event is not None:
                        self._on_event(self.result)
                    yield event
                if self._on_end is not None:
                    await self._on_end()
            finally:  # a reader who leaves early closes the connection now, not at garbage collection
                await events.aclose()
        except DragomanError as error:
            # The frames below lead through the client and say nothing about the caller's code.
            raise error.with_traceback(None) from None

    def text(self) -> AsyncGenerator[TextChunk, None]:
        """Return the text of the answer in pieces, to be printed one after the other as they are.

        When the agent starts over, what has been printed is not repeated as long as the new text equals it. If it
        differs, a piece whose `restarted` is True comes first, which reads as a short note on a line of its own, and
        then the new text from its beginning. This iterates over the stream: `result` is there afterwards.

        Raises:
            RuntimeError: the stream has been read already.
        """
        return self._read_text(aiter(self))

    async def _read_text(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[TextChunk, None]:
        text = PrintableText()
        async with aclosing(events):
            async for event in events:
                for piece in text.add_event(event):
                    yield piece
        for piece in text.end():
            yield piece
