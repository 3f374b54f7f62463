"""Follows a task to its end, over as many connections as it takes, and tells every event once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeGuard

from dragoman.client.connection import Backoff, sleep
from dragoman.client.event import Assembly, Missed, missed_events
from dragoman.model.error import (
    A2AError,
    BadResponse,
    CannotConnect,
    DragomanError,
    MethodNotFound,
    Overloaded,
    ResponseTooLarge,
    ServerError,
    UnsupportedOperation,
)
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import GetTaskRequest, Operation, SendMessageRequest, SubscribeToTaskRequest
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.net.exchange import MAX_ANSWER, size_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.client.connection import Arrived, Connection
    from dragoman.client.event import Event
    from dragoman.model.card import AgentCard

# What one task may bring unless the caller says otherwise.
DEFAULT_LIMIT = MAX_ANSWER


class Received:
    """Counts one task over all its streams and readings. `limit` is in bytes; None counts and refuses nothing.

    What streams bring counts as it comes, unpacked and with everything around it. A further stream may begin with a
    copy of what is known already: until its first event is whole it counts by itself, and of a copy only what is new.
    """

    __slots__ = ("_apart", "_limit", "_total")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._total = 0
        # What has come of a further stream whose first event is not whole; None when there is no such stream.
        self._apart: int | None = None

    def begin(self, *, further: bool) -> None:
        """A stream of the task begins, the first or a further one."""
        self._apart = 0 if further else None

    def add(self, size: int) -> None:
        """Count bytes. Raises ResponseTooLarge when they are too many."""
        if self._apart is not None:
            size = self._apart = self._apart + size
        else:
            size = self._total = self._total + size
        if self._limit is not None and size > self._limit:
            raise too_much(self._limit)

    def begun(self, copy: object) -> None:
        """The first event of a further stream is whole; `copy` is it when it shows the task anew, else None."""
        if self._apart is not None:
            came, self._apart = self._apart, None
            self.add(came if copy is None else max(0, came - len(encode(copy))))

    def add_all(self, events: Iterable[object]) -> None:
        """Count events that were read and not streamed. Raises ResponseTooLarge when they are too many."""
        if self._limit is not None:
            self.add(sum(len(encode(each)) for each in events))


def too_much(limit: int) -> ResponseTooLarge:
    """The error for a task that brings more than its limit."""
    return ResponseTooLarge(
        f"the task has brought more than {size_in_words(limit)}, and nothing more of it is read. {HINT}", limit=limit
    )


HINT = "To allow more, raise `limit` of the Client, or `--limits-remote-bytes` of the command"


# How often a task is looked at when nothing is heard of it: soon at first, then ever less often.
_FIRST_LOOK = 0.1
_SELDOM = 5.0
_SLOWER = 1.5
_SLOWEST = 10
# So many breaks in a row without a word are borne before the task itself is read.
_PATIENCE = 3
# How long news gather before they are read, where a stream says only that there are some.
_GATHER = 0.05
_WORTH_ANOTHER = ("CANNOT_CONNECT", "CONNECTION_LOST", "UNAVAILABLE")
_GAVE_UP = 504
_NOT_NOW = (429, 502, 503)

_LONG = 64 * 1024

Batches = AsyncGenerator[Sequence["Arrived"], None]


class Following:
    """One message or one task, followed. `result` is what has been assembled so far.

    A stream that breaks is taken up again where it broke: after the last number seen where the server numbers its
    events, else by reading the task and telling what is new in it. As long as the task can be read, no break is too
    many; each that brought nothing new is followed by a pause.

    It goes on until the task ends or asks for input; with `to_the_end`, until it ends. With `seen`, somebody only
    waits for the task to end or ask for anything: what is told on the way may then come twice.

    A task that brings more than `limit` bytes, over all connections, is followed no further; it goes on by itself.
    """

    def __init__(
        self,
        connection: Connection,
        retries: int,
        *,
        to_the_end: bool = False,
        seen: Task | None = None,
        limit: int | None = None,
    ) -> None:
        self._connection = connection
        self._clock = connection.clock
        self._retries = retries
        self._to_the_end = to_the_end
        self._waits = seen is not None
        self._assembly = Assembly()
        self._last = 0
        self._received = Received(limit)
        if seen is not None:
            self._assembly.take(Missed(0, seen))

    @property
    def result(self) -> Task | Message | None:
        """What the events have made so far."""
        return self._assembly.result

    def message(self, request: SendMessageRequest) -> AsyncGenerator[Event, None]:
        """Send a message and tell what happens.

        Raises:
            A2AError: the agent did not accept it.
            CannotConnect: nobody answers, or no more.
            BadResponse: what is answered is not A2A.
            ResponseTooLarge: the task brings more than its limit.
        """
        self._assembly = Assembly(context_id=request.message.context_id or "")
        return self._told(self._sent(request))

    def task(self, task_id: str, after: int | None = None) -> AsyncGenerator[Event, None]:
        """Tell what happens to a task from now on, or after the event with that number.

        Raises:
            A2AError: there is no such task, or it has ended.
            CannotConnect: nobody answers, or no more.
            BadResponse: what is answered is not A2A.
            ResponseTooLarge: the task brings more than its limit.
        """
        if not self._waits:
            self._assembly = Assembly(middle=after is not None)
        return self._told(self._kept(task_id, after))

    async def _told(self, batches: Batches) -> AsyncGenerator[Event, None]:
        take = self._assembly.take
        async with aclosing(batches):
            async for batch in batches:
                for arrived in batch:
                    event = take(arrived)
                    yield event
                    if event.replaces and len(event.text) > _LONG:
                        # A short event may have a long text put together again and again: others get a turn between.
                        await asyncio.sleep(0)
                    if event.kind != "artifact" and self._over():
                        return

    # -- a message, until its task is known --------------------------------------------------------------------------

    async def _sent(self, request: SendMessageRequest) -> Batches:
        backoff = Backoff(self._retries, self._clock)
        problem: DragomanError | None = None
        streams = not self._is_known_not_to_stream()
        while streams and self._assembly.state is None:
            problem = None
            try:
                async with aclosing(self._heard(Operation.STREAM, request, None)) as batches:
                    async for batch in batches:
                        yield batch
            except ResponseTooLarge:
                raise
            except (CannotConnect, A2AError, BadResponse) as error:
                problem = error
            if self._assembly.state is not None:
                break
            if isinstance(problem, (UnsupportedOperation, MethodNotFound)) or self._is_known_not_to_stream():
                streams, problem = False, None
                break
            await self._before_another(problem, backoff)
            yield await self._taken(request, problem)
        if not streams:
            yield await self._answered(request)
        task_id = self._assembly.task_id
        assert task_id is not None
        if _is_last_word(problem):
            yield self._caught_up(self._news(await self._look(task_id)))
            raise problem
        if problem is None and self._rests():
            return
        async with aclosing(self._kept(task_id, refused=not streams)) as batches:
            async for batch in batches:
                yield batch

    async def _before_another(self, problem: DragomanError | None, backoff: Backoff) -> None:
        """Wait before the message is sent again under its id; raise what is not worth it."""
        if problem is None:
            problem = BadResponse("the stream ended before it said anything")
        elif isinstance(problem, CannotConnect):
            # Who was never reached has more likely a wrong address than a restart. With a 504 somebody between gave up
            # waiting while the agent works on: it would be started twice.
            settled = problem.reason not in _WORTH_ANOTHER or problem.status == _GAVE_UP
            if settled or not self._connection.reached:
                raise problem
        elif not isinstance(problem, Overloaded) and problem.status not in _NOT_NOW:
            # Without such a status, an error is the server's answer.
            raise problem
        await backoff.pause(problem)

    async def _taken(self, request: SendMessageRequest, problem: DragomanError | None) -> list[Missed]:
        """The task of a message that was taken in before the connection broke, where its id is ours to choose.

        A server of 0.1 does not know a message by its id, and would take it for another.
        """
        if request.new_task_id is None or not isinstance(problem, CannotConnect) or problem.arrived is False:
            return []
        try:
            return self._caught_up(self._news(await self._look(request.new_task_id)))
        except (A2AError, BadResponse):
            return []

    async def _answered(self, request: SendMessageRequest) -> list[Missed]:
        """What an agent that does not stream says: its answer, or the task to look at."""
        result = await self._connection.perform(Operation.SEND, request)
        assert isinstance(result, (Task, Message))
        return self._caught_up(self._news(result)) if isinstance(result, Task) else [Missed(0, result)]

    @property
    def _card(self) -> AgentCard | None:
        return self._connection.known_card

    def _is_known_not_to_stream(self) -> bool:
        return self._card is not None and self._card.capabilities.streaming is False

    # -- a task, over as many connections as it takes ----------------------------------------------------------------

    async def _kept(self, task_id: str, after: int | None = None, *, refused: bool = False) -> Batches:
        """Subscribe again and again until the reader leaves; where that is refused, look at the task now and then."""
        request = SubscribeToTaskRequest(task_id)
        quiet = 0
        while True:
            heard = told = False
            problem: DragomanError | None = None
            try:
                async with aclosing(self._round(request, after, refused)) as batches:
                    async for batch in batches:
                        yield batch
                        heard = True
                        told = told or (len(batch) > 0 and not self._waits)
            except ResponseTooLarge:
                raise
            except (CannotConnect, A2AError, BadResponse) as error:
                problem = error
                refused = _is_last_word(error) and not heard
            if problem is None and self._rests():
                return
            if told and not _is_last_word(problem):
                quiet = 0
                continue
            # Nothing new: whether anybody is still there, and works on it, only the task itself can tell.
            found = await self._look(task_id)
            if problem is not None and self._is_over_with(problem, found, refused):
                raise problem
            # Where events are numbered, the next stream tells them one by one; not for ever is it waited for that.
            told_later = not refused and not _is_last_word(problem) and quiet < _PATIENCE
            # A stream that ended without a word because the task has ended: no other will tell it.
            told_later = told_later and not (problem is None and found.state.final)
            news = [] if told_later and (self._last or self._assembly.state is None) else self._news(found)
            yield self._caught_up(news)
            if _is_last_word(problem) and not refused:
                raise problem
            quiet = 1 if news else quiet + 1
            await sleep(self._clock, min(_SELDOM, _FIRST_LOOK * _SLOWER ** min(quiet, _SLOWEST)))

    def _is_over_with(self, problem: DragomanError, found: Task, refused: bool) -> bool:
        """True when the task itself shows that there is nothing to wait for."""
        if self._assembly.state is None:
            return problem.reason == "TIMED_OUT" or (refused and found.state.final)
        # Nothing came for as long as the caller is ready to wait.
        return problem.reason == "TIMED_OUT" and not self._news(found)

    def _round(self, request: SubscribeToTaskRequest, after: int | None, refused: bool) -> Batches:
        if refused or self._does_harm():
            return _nothing()
        if self._waits or self._assembly.state is None:
            return self._heard(Operation.SUBSCRIBE, request, after)
        return self._resumed(request)

    def _does_harm(self) -> bool:
        """True where a further subscription may do harm. Servers that number their events are not among those."""
        return not self._connection.subscribes_again and not self._last and self._assembly.state is not None

    async def _heard(
        self, operation: Operation, request: SendMessageRequest | SubscribeToTaskRequest, after: int | None
    ) -> Batches:
        """The events of a stream as they come."""
        self._received.begin(further=self._waits)
        async with aclosing(self._connection.open_stream(operation, request, after, self._received)) as batches:
            async for batch in batches:
                self._received.begun(_copy_in(batch))
                yield batch
                number = batch[-1].generation
                # Numbers that do not rise tell no place.
                self._last = number if number > self._last else 0

    async def _resumed(self, request: SubscribeToTaskRequest) -> Batches:
        """What is new in a further stream of the same task."""
        self._received.begin(further=True)
        stream = self._connection.open_stream(Operation.SUBSCRIBE, request, self._last or None, self._received)
        async with aclosing(stream) as batches:
            async for batch in batches:
                self._received.begun(_copy_in(batch))
                fresh = self._fresh(batch)
                if fresh is None:
                    break
                yield fresh
            else:
                return
            # Which of its events have been told already, nobody can say: let them only wake us, and read the task.
            async with aclosing(self._woken(request.id, batches)) as looks:
                async for news in looks:
                    yield news

    def _fresh(self, batch: Sequence[Arrived]) -> Sequence[Arrived] | None:
        """What is new in it, when the numbers say that it goes on where the last ended; else None."""
        first, last = batch[0], batch[-1].generation
        number, event = first.generation, first.event
        if not number or last != number + len(batch) - 1:
            return None
        if isinstance(event, Task):
            # A snapshot. Where it has the number 1, somebody may only count the events of this connection.
            if number < self._last or (number == 1 and not event.generation):
                return None
            news = self._news(event, number)
            self._received.add_all(each.event for each in news)
            batch = [*news, *batch[1:]]
        elif number != self._last + 1 or not self._last:
            return None
        self._last = last
        return batch

    async def _woken(self, task_id: str, batches: Batches) -> Batches:
        """What is new in the task whenever its stream says anything."""
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
                ended, began = listener.done(), self._clock.now()
                stirred.clear()
                found = await self._look(task_id)
                took = (self._clock.now() - began) / 1000
                yield self._caught_up(self._news(found))
                if ended:
                    break
                await stirred.wait()
                # At most half of the time is spent reading, however large the task is.
                await sleep(self._clock, max(_GATHER, took))
        finally:
            listener.cancel()
            await asyncio.wait((listener,))
            problem = None if listener.cancelled() else listener.exception()
        if problem is not None:
            raise problem

    # -- the task itself ---------------------------------------------------------------------------------------------

    async def _look(self, task_id: str) -> Task:
        found = await self._connection.perform(Operation.GET, GetTaskRequest(task_id))
        assert isinstance(found, Task)
        return found

    def _news(self, now: Task, number: int = 0) -> list[Missed]:
        """What a task shows that was not told."""
        seen, number = self._assembly.result, number or now.generation or 0
        return missed_events(seen, now, number) if isinstance(seen, Task) else [Missed(number, now)]

    def _caught_up(self, news: list[Missed]) -> list[Missed]:
        """News that are told now: what was before them is known. Without a number, nobody can say where that is."""
        if news:
            self._last = news[-1].generation
            self._received.add_all(each.event for each in news)
        return news

    def _over(self) -> bool:
        state = self._assembly.state
        if state is None or state.final:
            return state is not None
        if self._waits:
            return state.waiting
        return state is State.INPUT_REQUIRED and not self._to_the_end

    def _rests(self) -> bool:
        """True at auth-required: a stream that stays open there is read on, as the work may go on by itself."""
        return self._assembly.state is State.AUTH_REQUIRED and not self._to_the_end


def _is_last_word(problem: DragomanError | None) -> TypeGuard[A2AError | BadResponse]:
    """True for what a server says that will say the same the next time."""
    return isinstance(problem, (A2AError, BadResponse)) and not isinstance(problem, ServerError)


def _copy_in(batch: Sequence[Arrived]) -> Task | None:
    """The task as a whole, where a stream begins with that."""
    first = batch[0].event
    return first if isinstance(first, Task) else None


async def _nothing() -> Batches:
    return
    yield []  # pyright: ignore[reportUnreachable] - what makes it a generator


async def last_of(events: AsyncIterator[Event]) -> None:
    """Let a following run to its end."""
    async for _ in events:
        pass
