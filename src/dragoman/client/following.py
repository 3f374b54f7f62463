"""Follows a task to its end, over as many connections as it takes, and tells every event once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from dragoman.client.backoff import Backoff, sleep
from dragoman.client.difference import Missed, missed_events
from dragoman.client.event import Assembly
from dragoman.model.error import A2AError, BadResponse, CannotConnect, UnsupportedOperation
from dragoman.model.message import Message
from dragoman.model.operation import Operation
from dragoman.model.request import GetTaskRequest, SendMessageRequest, SubscribeToTaskRequest
from dragoman.model.state import State
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.client.connection import Arrived, Connection
    from dragoman.client.event import Event

# How often a task is looked at when its server tells nothing by itself: soon at first, then ever less often.
_FIRST_LOOK = 0.2
_SELDOM = 5.0


class Following:
    """One message or one task, followed. `result` is what has been assembled so far.

    A stream that breaks is taken up again where it broke: after the last number seen where the server numbers its
    events, else by reading the task and telling what is new in it.
    """

    def __init__(
        self, connection: Connection, retries: int, *, to_the_end: bool = False, seen: Task | None = None
    ) -> None:
        self._connection = connection
        self._clock = connection.clock
        self._retries = retries
        self._to_the_end = to_the_end
        self._assembly = Assembly()
        self._last = 0
        self._looks = 0
        if seen is not None:
            self._assembly.take(Missed(0, seen))

    @property
    def result(self) -> Task | Message | None:
        """What the events have made so far."""
        return self._assembly.result

    async def message(self, request: SendMessageRequest) -> AsyncGenerator[Event, None]:
        """Send a message and tell what happens.

        Raises:
            A2AError: the agent did not accept it.
            CannotConnect: nobody answers, or no more.
        """
        backoff = Backoff(self._retries, self._clock)
        while self._assembly.task_id is None:
            problem: Exception
            try:
                async with aclosing(self._attend(Operation.STREAM, request, None, backoff)) as events:
                    async for event in events:
                        yield event
                if self._over():
                    return
                if self._assembly.state is None:
                    problem = BadResponse("the stream ended before it said anything")
                    await backoff.pause(problem)
                continue
            except CannotConnect as error:
                if self._assembly.task_id is None and error.reason == "TIMED_OUT":
                    raise
                # The same message id again: a server that has taken the message in knows it by that.
                await backoff.pause(error)
            except UnsupportedOperation:
                if self._assembly.task_id is not None:
                    raise
                yield await self._without_stream(request)
                if self._over():
                    return
        async with aclosing(self._again(backoff)) as events:
            async for event in events:
                yield event

    async def task(self, task_id: str, after: int | None = None) -> AsyncGenerator[Event, None]:
        """Tell what happens to a task from now on, or after the event with that number.

        Raises:
            A2AError: there is no such task, or it has ended.
            CannotConnect: nobody answers, or no more.
        """
        backoff = Backoff(self._retries, self._clock)
        self._last = after or 0
        if self._assembly.task_id is None:
            try:
                request = SubscribeToTaskRequest(task_id)
                async with aclosing(self._attend(Operation.SUBSCRIBE, request, after, backoff)) as events:
                    async for event in events:
                        yield event
            except CannotConnect as error:
                if self._assembly.task_id is None:
                    raise
                await backoff.pause(error)
            if self._assembly.task_id is None:
                # The stream ended without a word: then the task itself is what there is to tell.
                yield self._assembly.take(Missed(0, await self._look(task_id)))
            if self._over():
                return
        async with aclosing(self._again(backoff)) as events:
            async for event in events:
                yield event

    # -- one connection ----------------------------------------------------------------------------------------------

    async def _attend(
        self,
        operation: Operation,
        request: SendMessageRequest | SubscribeToTaskRequest,
        after: int | None,
        backoff: Backoff,
    ) -> AsyncGenerator[Event, None]:
        take, resumed = self._assembly.take, self._assembly.task_id is not None
        # The stream of an answer may begin with the task as it was when it asked.
        answers = isinstance(request, SendMessageRequest) and request.message.task_id is not None
        async with aclosing(self._connection.open_stream(operation, request, after)) as batches:
            async for batch in batches:
                backoff.succeeded()
                if resumed:
                    resumed = False
                    if not self._continues(batch[0]):
                        async with aclosing(self._compared(batch, batches)) as events:
                            async for event in events:
                                yield event
                        return
                for arrived in batch:
                    number = arrived.generation
                    if number:
                        if number <= self._last:
                            continue
                        self._last = number
                    yield take(arrived)
                    if self._over() and not (answers and isinstance(arrived.event, Task)):
                        return
                    answers = False

    def _continues(self, first: Arrived) -> bool:
        """True when a stream goes on directly after what was seen last."""
        return self._last > 0 and first.generation == self._last + 1 and not isinstance(first.event, Task)

    async def _compared(
        self, batch: Sequence[Arrived], batches: AsyncGenerator[Sequence[Arrived], None]
    ) -> AsyncGenerator[Event, None]:
        """Go on with a stream that does not say where it starts."""
        first = batch[0]
        if not (isinstance(first.event, Task) and first.generation and self._last):
            # Which of its events have been told already, nobody can say: let them only wake us, and read the task.
            async with aclosing(self._woken(batches)) as events:
                async for event in events:
                    yield event
            return
        # A snapshot with its number: what is after it is new.
        for event in self._news(first.event, first.generation):
            yield event
        self._last = first.generation
        rest = batch[1:]
        while not self._over():
            for arrived in rest:
                if arrived.generation > self._last:
                    self._last = arrived.generation
                    yield self._assembly.take(arrived)
                    if self._over():
                        return
            try:
                rest = await anext(batches)
            except StopAsyncIteration:
                return

    async def _woken(self, batches: AsyncGenerator[Sequence[Arrived], None]) -> AsyncGenerator[Event, None]:
        stirred = asyncio.Event()

        async def listen() -> None:
            try:
                async for _ in batches:
                    stirred.set()
            finally:
                stirred.set()

        listener = asyncio.ensure_future(listen())
        try:
            while True:
                ended = listener.done()
                stirred.clear()
                for event in self._news(await self._look()):
                    yield event
                if self._over():
                    return
                if ended:
                    break
                await stirred.wait()
        finally:
            listener.cancel()
            with suppress(asyncio.CancelledError, CannotConnect, A2AError):
                await listener
        if not listener.cancelled():
            listener.result()

    # -- again -------------------------------------------------------------------------------------------------------

    async def _again(self, backoff: Backoff) -> AsyncGenerator[Event, None]:
        """Subscribe anew until the task is over; where that is refused, look at it now and then."""
        task_id = self._assembly.task_id
        assert task_id is not None
        request = SubscribeToTaskRequest(task_id)
        while not self._over():
            before = self._progress()
            try:
                async with aclosing(self._attend(Operation.SUBSCRIBE, request, self._last or None, backoff)) as events:
                    async for event in events:
                        yield event
                if self._over():
                    return
            except CannotConnect as error:
                await backoff.pause(error)
                continue
            except A2AError:
                # Servers refuse a subscription to what has ended, and some refuse all.
                for event in self._news(await self._look()):
                    yield event
                if self._over():
                    return
            if self._progress() == before:
                self._looks += 1
                await sleep(self._clock, min(_SELDOM, _FIRST_LOOK * 1.5**self._looks))
                for event in self._news(await self._look()):
                    yield event
            else:
                self._looks = 0

    async def _without_stream(self, request: SendMessageRequest) -> Event:
        """The first event of an agent that does not stream: its answer, or the task to look at."""
        result = await self._connection.perform(Operation.SEND, request)
        assert isinstance(result, (Task, Message))
        return self._assembly.take(Missed(0, result))

    async def _look(self, task_id: str | None = None) -> Task:
        task_id = task_id or self._assembly.task_id
        assert task_id is not None
        found = await self._connection.perform(Operation.GET, GetTaskRequest(task_id))
        assert isinstance(found, Task)
        return found

    def _news(self, now: Task, generation: int = 0) -> list[Event]:
        seen = self._assembly.result
        assert isinstance(seen, Task)
        return [self._assembly.take(missed) for missed in missed_events(seen, now, generation)]

    def _progress(self) -> tuple[int, object]:
        return self._last, self._assembly.result

    def _over(self) -> bool:
        state = self._assembly.state
        if state is None:
            return False
        if state.final:
            return True
        # At auth-required the work may go on by itself: a stream that stays open there is left open.
        return state is State.INPUT_REQUIRED and not self._to_the_end


async def last_of(events: AsyncIterator[Event]) -> None:
    """Let a following run to its end."""
    async for _ in events:
        pass
