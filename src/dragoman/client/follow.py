"""Follows a remote task: reconnects until it ends, yields every event once, and polls where nothing can be streamed.

There is no other follower: `Client` and the bridges to remote agents read their tasks through this one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, TypedDict, TypeGuard

from dragoman.client.connection import ByteBudget
from dragoman.client.event import NumberedEvent, TaskAssembler, missed_events, snapshot_in
from dragoman.client.streams.backoff import Outage, SendBackoff, may_send_again
from dragoman.client.streams.observed import observe_stream
from dragoman.clock import sleep, wait
from dragoman.model.error import (
    CLIENT_CLOSED,
    A2AError,
    BadResponse,
    CannotConnect,
    DragomanError,
    InternalError,
    MethodNotFound,
    ResponseTooLarge,
    ServerError,
    TimedOut,
    UnsupportedOperation,
)
from dragoman.model.message import Message
from dragoman.model.operation import GetTaskRequest, Operation, SendMessageRequest, SubscribeToTaskRequest
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.spans import TRACING

if TYPE_CHECKING:
    from dragoman.client.connection import Connection, StreamEvent
    from dragoman.client.event import Event
    from dragoman.model.operation import Request

    Events = AsyncGenerator[Event, None]

logger = logging.getLogger("dragoman.client")

# The pauses between reads of a task whose streams bring nothing new, in seconds: an exponential backoff.
_FIRST_PAUSE, _MAX_PAUSE = 0.1, 5.0
_FACTOR = 1.5
_MAX_PAUSE_EXPONENT = 10
# After this many consecutive breaks without an event, what is new is read from the task itself. A server that refuses
# streams for now, because it stops, gets more time: the next one tells every event.
_MAX_IDLE_ROUNDS, _MAX_REFUSED_ROUNDS = 3, 12
# The shortest pause between polls in seconds, and the pauses as a share of the time that the task has been polled.
_MIN_POLL_PAUSE, _POLL_RATIO = 0.05, 0.1
# How long to gather events before the task is read, where a stream serves only as a wake-up.
_GATHER_SECONDS = 0.05
_LONG_TEXT = 64 * 1024
# How long a stream that does not number its events may send more after the end of its task.
_LATE_SECONDS = 0.5
_NO_SUCH_PATH = (404, 405, 501)

Batches = AsyncGenerator[Sequence["StreamEvent"], None]


class FollowOptions(TypedDict, total=False):
    """The options of a `ResumableStream` that a client does not set itself."""

    until_final: bool
    snapshot: Task | None
    wait_only: bool
    poll_pause: float | None
    idle_timeout: float | None


class ResumableStream:
    """The events of one message or one task, over as many connections as it takes. `result` is the task so far.

    A broken stream is resumed where it broke: after the last event number where the server numbers its events, else
    by reading the task and yielding what is new in it. As long as the task can be read, the number of breaks is not
    limited; a break that brought nothing new is followed by a pause. While the agent cannot be reached, it is tried
    again for as many seconds as the connection says; with 0 seconds, the first break ends the stream with its error.

    The stream ends when the task ends or needs input, and at auth-required when the server closes it; with
    `until_final`, only when the task ends. With `snapshot`, only what is new since that task is yielded. With
    `snapshot` and `wait_only`, the caller only waits for the task to end or pause: the stream ends at either,
    `until_final` has no effect, and events may be repeated.

    A task that sends more than `limit` bytes over all connections is no longer read; the task itself continues.

    `watch` and `wait` follow a task that exists already. With `poll_pause`, they poll it where it cannot be streamed
    without harm, with pauses of at most so many seconds, and give it up when it has not changed for `idle_timeout`
    seconds.
    """

    def __init__(
        self,
        connection: Connection,
        retries: int,
        *,
        until_final: bool = False,
        snapshot: Task | None = None,
        wait_only: bool = False,
        limit: int | None = None,
        poll_pause: float | None = None,
        idle_timeout: float | None = None,
    ) -> None:
        self._connection = connection
        self._clock = connection.clock
        self._retries = retries
        self._outage = Outage(connection.reconnect, connection.clock)
        self._until_final = until_final
        self._wait_only = wait_only
        self._assembler = TaskAssembler()
        self._last_number = 0
        # Whether the last events came from a stream, and whether any event could not be read.
        self._in_stream = self._has_gaps = False
        self._budget = ByteBudget(limit)
        self._poll_pause = poll_pause
        self._idle_timeout = idle_timeout
        self._snapshot = snapshot
        if snapshot is not None:
            self._assembler.add(NumberedEvent(0, snapshot))

    @property
    def result(self) -> Task | Message | None:
        """The task or message assembled so far."""
        return self._assembler.result

    def send(self, request: SendMessageRequest) -> AsyncGenerator[Event, None]:
        """Send a message and yield its events.

        Raises:
            A2AError: the agent did not accept it.
            CannotConnect: the agent cannot be reached, or has become unreachable.
            BadResponse: the response is not valid A2A.
            ResponseTooLarge: the task exceeds its limit.
        """
        self._assembler = TaskAssembler(context_id=request.message.context_id or "")
        return self._observed(self._assemble(self._send_batches(request)), Operation.STREAM, request)

    def subscribe(self, task_id: str, after: int | None = None) -> AsyncGenerator[Event, None]:
        """Yield the events of a task from now on, or after the event with number `after`.

        Raises:
            A2AError: there is no such task, or it has ended.
            CannotConnect: the agent cannot be reached, or has become unreachable.
            BadResponse: the response is not valid A2A.
            ResponseTooLarge: the task exceeds its limit.
        """
        if self._snapshot is None:
            self._assembler = TaskAssembler(mid_stream=after is not None)
        request = SubscribeToTaskRequest(task_id)
        return self._observed(self._assemble(self._subscribe_batches(task_id, after)), Operation.SUBSCRIBE, request)

    @property
    def polls(self) -> bool:
        """True where `watch` polls: another subscription may do harm, or the agent does not stream."""
        if self._poll_pause is None:
            return False
        card = self._connection.cached_card
        return not self._connection.can_resubscribe or not (card is None or card.capabilities.streaming)

    def watch(self, task_id: str, before: Task | None = None) -> AsyncGenerator[Event, None]:
        """Yield the events of a task that has been sent or followed before; of a polled one, the whole task anew.

        `before` is the task as it was read last: a poll that finds the same yields nothing.

        Raises:
            A2AError: there is no such task, or, unless it is polled, it has ended.
            TimedOut: a polled task has not changed within the idle timeout.
            CannotConnect: the agent cannot be reached, or has become unreachable.
            BadResponse: the response is not valid A2A.
            ResponseTooLarge: the task exceeds its limit.
        """
        return self._poll(task_id, before) if self.polls else self.subscribe(task_id)

    async def wait(self, task: Task) -> Task:
        """Wait until a task ends, or pauses with `wait_only`, and return the whole of it. Raises as `watch` does."""
        polls = self.polls
        async with aclosing(self.watch(task.id, task)) as events:
            async for _ in events:
                pass
        result = self._assembler.result
        if polls and isinstance(result, Task):
            return result
        # Streams omit some members, such as the history: read the task itself.
        return await self._read_whole(task.id)

    def _observed(self, events: Events, operation: Operation, request: Request) -> Events:
        arguments = (events, self._connection, operation, request, lambda: self._assembler.result)
        return observe_stream(*arguments) if METRICS.on or TRACING.on else events

    async def _assemble(self, batches: Batches) -> AsyncGenerator[Event, None]:
        add_event = self._assembler.add
        async with aclosing(batches):
            async for batch in batches:
                for item in batch:
                    event = add_event(item)
                    yield event
                    if event.replaces and len(event.text) > _LONG_TEXT:
                        # Short events may rebuild a long text again and again: let other coroutines run in between.
                        await asyncio.sleep(0)
                    if event.kind != "artifact" and self._is_over():
                        late = item is not batch[-1] or (not item.generation and await self._has_late_events(batches))
                        correction = await self._read_correction(late, is_whole=event.kind == "task")
                        if correction is not None:
                            yield correction
                        return

    async def _has_late_events(self, batches: Batches) -> bool:
        """Read on after the end of a task, as some servers do not stop there; True when anything came."""
        state = self._assembler.state
        if self._wait_only or not self._in_stream or state is None or not state.final:
            return False
        late = False

        async def drain() -> None:
            nonlocal late
            with suppress(DragomanError):
                async for _ in batches:
                    late = True

        draining = asyncio.ensure_future(drain())
        try:
            await wait(self._clock, draining, _LATE_SECONDS)
        finally:
            draining.cancel()
            await asyncio.wait((draining,))
        return late

    async def _read_correction(self, late: bool, *, is_whole: bool) -> Event | None:
        """Read an ended task once where its stream may lack something; an error leaves the task as streamed.

        `is_whole` says that the stream ended with the whole task.
        """
        result = self._assembler.result
        if self._wait_only or not isinstance(result, Task) or not result.state.final:
            return None
        is_empty = self._assembler.lacks_answer and not is_whole
        if not (late or self._has_gaps or is_empty):
            return None
        try:
            task = await self._connection.perform(Operation.GET, GetTaskRequest(result.id))
            return self._assembler.correct(task) if isinstance(task, Task) else None
        except DragomanError as error:
            logger.warning("task %s could not be read after its end: %s", result.id, error)
            return None

    # -- sending a message, until its task has an id -----------------------------------------------------------------

    async def _send_batches(self, request: SendMessageRequest) -> Batches:
        backoff = SendBackoff(self._retries, self._connection.reconnect, self._clock, self._clock.now())
        problem: DragomanError | None = None
        card = self._connection.cached_card or await self._connection.card()
        streams = bool(card.capabilities.streaming)
        while streams and self._assembler.state is None:
            problem = None
            try:
                async with aclosing(self._stream(Operation.STREAM, request, None)) as batches:
                    async for batch in batches:
                        backoff.reset()
                        yield batch
            except (CannotConnect, A2AError, BadResponse) as error:
                problem = _recoverable(error)
            if self._assembler.state is not None:
                self._check_reconnect(problem)
                break
            if _is_unsupported(problem):
                streams, problem = False, None
                break
            yield await self._recover(request, problem, backoff)
        if self._is_over():
            return
        if not streams:
            yield await self._send_without_stream(request)
        task_id = self._assembler.task_id
        assert task_id is not None
        if _is_permanent(problem):
            try:
                task = await self._get_task(task_id)
            except DragomanError as error:
                raise problem from error
            yield self._take_missed(self._missed_events(task))
            raise problem
        if problem is None and self._may_end_at_auth():
            return
        async with aclosing(self._subscribe_batches(task_id, refused=not streams)) as batches:
            async for batch in batches:
                yield batch

    async def _recover(
        self, request: SendMessageRequest, problem: DragomanError | None, backoff: SendBackoff
    ) -> list[NumberedEvent]:
        """Return the task that a message has started, or wait before it is sent again under its id.

        Raises `problem` when there is no such task and sending again is pointless or unsafe.
        """
        if problem is None:
            raise BadResponse(
                "the agent took the message and ended the stream without an event: it may be at work on it"
            )
        # An agent never reached more likely has a wrong address than is restarting.
        if isinstance(problem, CannotConnect) and not self._connection.reached:
            raise problem
        can_repeat = may_send_again(problem)
        if not can_repeat and problem.reason != "CONNECTION_LOST":
            raise problem
        await backoff.pause(problem)
        if can_repeat:
            return await self._find_started_task(request, problem)
        with suppress(DragomanError):
            if started := await self._find_started_task(request, problem):
                return started
        raise problem

    async def _find_started_task(self, request: SendMessageRequest, problem: DragomanError) -> list[NumberedEvent]:
        """Return the task that a message started before the connection broke, if the server used the client's task id.

        That is so in 0.1, where a server does not deduplicate messages: sending it again would start a second task.
        """
        if request.new_task_id is None or not isinstance(problem, CannotConnect) or problem.arrived is False:
            return []
        try:
            return self._take_missed(self._missed_events(await self._get_task(request.new_task_id)))
        except (A2AError, BadResponse):
            return []

    async def _send_without_stream(self, request: SendMessageRequest) -> list[NumberedEvent]:
        """Send a message to an agent that does not stream: its response is a message, or a task to poll."""
        result = await self._connection.perform(Operation.SEND, request)
        assert isinstance(result, (Task, Message))
        return (
            self._take_missed(self._missed_events(result)) if isinstance(result, Task) else [NumberedEvent(0, result)]
        )

    # -- following a task over several connections -------------------------------------------------------------------

    async def _subscribe_batches(self, task_id: str, after: int | None = None, *, refused: bool = False) -> Batches:
        """Subscribe again after every break until the reader leaves.

        With `refused`, the agent offers no stream and the task is polled. So it is after a subscription that fails with
        a permanent error before any event; one that fails so after events ends this with the error.
        """
        request = SubscribeToTaskRequest(task_id)
        idle_rounds = 0
        while True:
            has_batches = has_news = False
            problem: DragomanError | None = None
            try:
                async with aclosing(self._next_stream(request, after, refused)) as batches:
                    async for batch in batches:
                        yield batch
                        has_batches = True
                        has_news = has_news or (len(batch) > 0 and not self._wait_only)
            except (CannotConnect, A2AError, BadResponse) as error:
                problem = _recoverable(error)
                refused = _is_permanent(error) and not has_batches
            self._check_reconnect(problem)
            if self._is_over():
                return
            if problem is None and self._may_end_at_auth():
                return
            if has_news and not _is_permanent(problem):
                idle_rounds = 0
                continue
            # Nothing new: read the task to learn whether the agent is there and still works on it.
            task = await self._get_task(task_id)
            if problem is not None and self._should_give_up(problem, task, refused):
                raise problem
            # Where events are numbered, the next stream yields them one by one: prefer that, but not in every round.
            rounds = _MAX_REFUSED_ROUNDS if isinstance(problem, ServerError) else _MAX_IDLE_ROUNDS
            next_stream_may_tell = not refused and not _is_permanent(problem) and idle_rounds < rounds
            # The stream ended without an event because the task has ended: no later stream will report that.
            next_stream_may_tell = next_stream_may_tell and not (problem is None and task.state.final)
            news = (
                []
                if next_stream_may_tell and (self._last_number or self._assembler.state is None)
                else self._missed_events(task)
            )
            yield self._take_missed(news)
            if _is_permanent(problem) and not refused:
                raise problem
            idle_rounds = 1 if news else idle_rounds + 1
            await sleep(self._clock, min(_MAX_PAUSE, _FIRST_PAUSE * _FACTOR ** min(idle_rounds, _MAX_PAUSE_EXPONENT)))

    def _check_reconnect(self, problem: DragomanError | None) -> None:
        """Raise the error of a lost connection where it is not to be tried again."""
        if isinstance(problem, CannotConnect) and not self._connection.reconnect:
            raise problem

    def _should_give_up(self, problem: DragomanError, task: Task, refused: bool) -> bool:
        """True when the idle timeout passed without news, or a first subscription was refused to an ended task."""
        if self._assembler.state is None:
            return isinstance(problem, TimedOut) or (refused and task.state.final)
        return isinstance(problem, TimedOut) and not self._missed_events(task)

    def _next_stream(self, request: SubscribeToTaskRequest, after: int | None, refused: bool) -> Batches:
        if refused or self._must_not_resubscribe():
            return _no_stream()
        if self._wait_only or self._assembler.state is None:
            return self._stream(Operation.SUBSCRIBE, request, after)
        return self._resume_stream(request)

    def _must_not_resubscribe(self) -> bool:
        """True where subscribing again may do harm. Servers that number their events are never affected."""
        return not self._connection.can_resubscribe and not self._last_number and self._assembler.state is not None

    async def _stream(
        self, operation: Operation, request: SendMessageRequest | SubscribeToTaskRequest, after: int | None
    ) -> Batches:
        """Yield the events of one stream as they arrive."""
        self._budget.begin_stream(resumed=self._wait_only)
        async with aclosing(self._connection.open_stream(operation, request, after, self._budget)) as batches:
            async for batch in batches:
                if not batch:
                    self._has_gaps = True
                    continue
                self._budget.count_first_event(snapshot_in(batch))
                self._in_stream = True
                if self._outage.failures:
                    self._outage.reset()
                yield batch
                number = batch[-1].generation
                # Numbers that do not rise are no position to resume from.
                self._last_number = number if number > self._last_number else 0

    async def _resume_stream(self, request: SubscribeToTaskRequest) -> Batches:
        """Yield what is new in a further stream of the same task."""
        if TRACING.on:
            TRACING.add_event("resumed", {"dragoman.generation": self._last_number})
        self._budget.begin_stream(resumed=True)
        stream = self._connection.open_stream(Operation.SUBSCRIBE, request, self._last_number or None, self._budget)
        async with aclosing(stream) as batches:
            async for batch in batches:
                if not batch:
                    self._has_gaps = True
                    continue
                self._budget.count_first_event(snapshot_in(batch))
                new_events = self._new_events(batch)
                if new_events is None:
                    break
                yield new_events
            else:
                return
            # Which of its events are new cannot be determined: use them as a wake-up, and read the task.
            async with aclosing(self._poll_on_events(request.id, batches)) as polls:
                async for news in polls:
                    yield news

    def _new_events(self, batch: Sequence[StreamEvent]) -> Sequence[StreamEvent] | None:
        """Return the new events of a batch whose numbers continue the last one; None when they do not."""
        first, last = batch[0], batch[-1].generation
        number, event = first.generation, first.event
        if not number or last != number + len(batch) - 1:
            return None
        if isinstance(event, Task):
            # A snapshot. With the number 1, the server may just be counting the events of this connection.
            if number < self._last_number or (number == 1 and not event.generation):
                return None
            news = self._missed_events(event, number)
            self._budget.add_events(each.event for each in news)
            batch = [*news, *batch[1:]]
        elif number != self._last_number + 1 or not self._last_number:
            return None
        self._last_number = last
        return batch

    async def _poll_on_events(self, task_id: str, batches: Batches) -> Batches:
        """Read the task whenever its stream sends anything, and yield what is new."""
        wakeup = asyncio.Event()

        async def listen() -> None:
            try:
                async for _ in batches:
                    wakeup.set()
            finally:
                wakeup.set()

        listener = asyncio.ensure_future(listen())
        try:
            while True:
                is_last, started = listener.done(), self._clock.now()
                wakeup.clear()
                task = await self._get_task(task_id)
                duration = (self._clock.now() - started) / 1000
                yield self._take_missed(self._missed_events(task))
                if is_last:
                    break
                await wakeup.wait()
                # Spend at most half of the time reading, however large the task is.
                await sleep(self._clock, max(_GATHER_SECONDS, duration))
        finally:
            listener.cancel()
            await asyncio.wait((listener,))
            problem = None if listener.cancelled() else listener.exception()
        if problem is not None:
            raise problem

    # -- the task itself ---------------------------------------------------------------------------------------------

    async def _get_task(self, task_id: str) -> Task:
        """Read the task. While the agent cannot be reached, this waits for it."""
        task = await self._connection.perform(Operation.GET, GetTaskRequest(task_id), self._outage)
        assert isinstance(task, Task)
        return task

    async def _read_whole(self, task_id: str) -> Task:
        """Read a task whose stream is not open: where no outage is waited for, the connection's retries count."""
        if self._connection.reconnect:
            return await self._get_task(task_id)
        task = await self._connection.perform(Operation.GET, GetTaskRequest(task_id))
        assert isinstance(task, Task)
        return task

    async def _poll(self, task_id: str, before: Task | None) -> AsyncGenerator[Event, None]:
        """Yield the whole task after each change: soon at first, then after a tenth of the time it has taken so far."""
        started = changed_at = self._clock.now()
        while True:
            elapsed = (self._clock.now() - started) / 1000
            await sleep(self._clock, max(_MIN_POLL_PAUSE, min(self._poll_pause or 0, elapsed * _POLL_RATIO)))
            task, limit = await self._read_whole(task_id), self._idle_timeout
            if task != before:
                before, changed_at = task, self._clock.now()
                self._assembler = TaskAssembler()
                yield self._assembler.add(NumberedEvent(task.generation or 0, task))
                if self._is_over():
                    return
            elif limit is not None and self._clock.now() - changed_at > limit * 1000:
                raise TimedOut(f"nothing new for {limit:g} s")

    def _missed_events(self, now: Task, number: int = 0) -> list[NumberedEvent]:
        """Return the events that lead from the assembled task to `now`."""
        before, number = self._assembler.result, number or now.generation or 0
        return missed_events(before, now, number) if isinstance(before, Task) else [NumberedEvent(number, now)]

    def _take_missed(self, news: list[NumberedEvent]) -> list[NumberedEvent]:
        """Return missed events, with their bytes counted and their number as the position to resume from."""
        if news:
            self._in_stream = False
            self._last_number = news[-1].generation
            self._budget.add_events(each.event for each in news)
        return news

    def _is_over(self) -> bool:
        state = self._assembler.state
        if state is None or state.final:
            return state is not None
        if self._wait_only:
            return state.waiting
        return state is State.INPUT_REQUIRED and not self._until_final

    def _may_end_at_auth(self) -> bool:
        """True at auth-required, where the reader is done if the stream ends. While it is open, it is read on."""
        return self._assembler.state is State.AUTH_REQUIRED and not self._until_final


def _is_permanent(problem: DragomanError | None) -> TypeGuard[A2AError | BadResponse]:
    """True for an error that a retry would only repeat."""
    return isinstance(problem, (A2AError, BadResponse)) and not isinstance(problem, ServerError)


def _recoverable(error: CannotConnect | A2AError | BadResponse) -> CannotConnect | A2AError | BadResponse:
    """Return the error of a stream after which its task may still be followed; raise any other."""
    if isinstance(error, ResponseTooLarge) or error.reason == CLIENT_CLOSED:
        raise error
    return error


def _is_unsupported(problem: DragomanError | None) -> bool:
    """True for an error which proves that the agent does not stream and has not run the message."""
    if isinstance(problem, (UnsupportedOperation, MethodNotFound)):
        return True
    # Without an error of A2A in it, such a response is from a server that has no such path.
    return problem is not None and type(problem) in (BadResponse, InternalError) and problem.status in _NO_SUCH_PATH


async def _no_stream() -> Batches:
    return
    yield []  # pyright: ignore[reportUnreachable] - what makes it a generator


class CancelSafeEvents:
    """The events of one message or task, for a reader that may be canceled at any time.

    The first event is awaited in an asyncio task of its own: a reader canceled before it arrives can still learn with
    `first_or_none` which remote task to cancel.
    """

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        self._events = events
        self._first: asyncio.Task[Event | None] | None = None

    async def first(self) -> Event | None:
        """Wait for the first event; None when there is none. Raises the errors of `ResumableStream`."""
        if self._first is None:
            self._first = asyncio.create_task(_next_event(self._events))
            # A reader that was canceled meanwhile never retrieves the exception.
            self._first.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._first)

    async def first_or_none(self) -> Event | None:
        """Wait for the first event if it was requested; None when it was not, or when it failed."""
        if self._first is None:
            return None
        await asyncio.wait((self._first,))
        return None if self._first.cancelled() or self._first.exception() is not None else self._first.result()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        try:
            event = await self.first()
            while event is not None:
                yield event
                event = await _next_event(self._events)
        finally:
            # While the first event is pending the generator is running and cannot be closed here: `close` does it.
            if self._first is None or self._first.done():
                await self._events.aclose()

    async def close(self) -> None:
        """Close the stream; the remote task continues."""
        if self._first is not None and not self._first.done():
            self._first.cancel()
            await asyncio.wait((self._first,))
        await self._events.aclose()


async def _next_event(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)
