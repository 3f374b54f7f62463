"""One message to a remote agent: sent, followed, and called off when nobody waits for the answer any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from dragoman.client.connection import sleep
from dragoman.client.event import Event
from dragoman.model.error import (
    A2AError,
    AuthError,
    BadResponse,
    CannotConnect,
    DragomanError,
    Overloaded,
    TaskNotCancelable,
    TaskNotFound,
)
from dragoman.model.ids import new_id
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.agents.adk.remote.connection import RemoteLine
    from dragoman.agents.adk.remote.message import Outgoing
    from dragoman.client.client import EventStream
    from dragoman.client.connection import Connection
    from dragoman.model.event import ArtifactUpdate, StatusUpdate
    from dragoman.model.message import Message

T = TypeVar("T")

logger = logging.getLogger("dragoman.adk")

# How long a canceled run waits until its work over there is canceled too.
GOODBYE = 5.0
# Among so many of the newest tasks that of a message is looked for.
_LOOKED_AT = 20
# Where a task can only be looked at: soon at first, then after a tenth of the time it has taken already.
_SOON, _SELDOM, _SHARE = 0.05, 1.0, 0.1
# Whoever is canceled twice does not wait: the work is called off without him.
_leaving: set[asyncio.Task[None]] = set()


class Gone(DragomanError):
    """The task that waits for an answer went with the event loop on which its agent ran, in this process."""

    def __init__(self, context_id: str | None, task_id: str) -> None:
        super().__init__(
            "the task that waits for an answer was on another event loop, with its agent: stay on one event loop "
            "(Runner.run_async), or serve the agent and give its address"
        )
        self.context_id = context_id
        self.task_id = task_id


class RemoteErrand:
    """Says something to an agent and listens. `over` is True when it has nothing to do any more, or waits for us."""

    def __init__(self, line: RemoteLine, outgoing: Outgoing) -> None:
        self._line = line
        self._client = line.client()
        self._outgoing = outgoing
        self._message_id = new_id()
        self._task_id: str | None = outgoing.task_id
        # What comes back first, and names the task: it is waited for also when the run is canceled meanwhile.
        self._first: asyncio.Task[Any] | None = None
        self._stream: AsyncGenerator[Event, None] | None = None
        # True when what became of the message is not known.
        self._lost = False
        self.over = True

    async def before(self) -> Task | None:
        """The task that goes on now, as it is; None when this begins one, or it cannot be read.

        It may have ended by itself, as after a login elsewhere. One that is not known any more is begun anew.

        Raises:
            CannotConnect: nobody answers.
            Gone: it cannot be known any more, as it was on another event loop.
        """
        task_id = self._outgoing.task_id
        if task_id is None:
            return None
        try:
            return await self._client.get_task(task_id)
        except TaskNotFound:
            if self._line.forgot:
                raise Gone(self._outgoing.context_id, task_id) from None
            self.begin_anew()
        except A2AError:
            pass
        return None

    def begin_anew(self) -> None:
        """Let it be the beginning of a new task, in the same conversation."""
        self._outgoing = replace(self._outgoing, task_id=None)
        self._task_id = None

    @property
    def answers(self) -> bool:
        """True when it is the response to a call of the task, and of no use to another."""
        return self._outgoing.answers

    # -- saying it and waiting -----------------------------------------------------------------------------------------

    async def send(self) -> Task | Message:
        """Say it and wait for the end, or for a question.

        Raises:
            DragomanError: it was not taken, or the answer was not understood.
        """
        said = self._outgoing
        self.over = False
        # Who waits for a whole answer is not told before which task makes it, and cannot cancel it. So nobody waits
        # for that of a new task; it is followed instead.
        begins = said.task_id is None
        sending = self._client.send(
            files=said.parts, task=said.task_id, context=said.context_id, message_id=self._message_id, wait=not begins
        )
        try:
            answer = await self._shielded(sending)
            if isinstance(answer, Task):
                self._task_id = answer.id
                if not _rests(answer):
                    answer = await self._end_of(answer)
        except DragomanError as error:
            await self._lose(error, known=begins and self._task_id is not None)
            raise
        self.over = True
        return answer

    async def _end_of(self, task: Task) -> Task:
        connection = await self._connection()
        card = connection.known_card
        streams = card is None or card.capabilities.streaming is not False
        if streams and connection.subscribes_again:
            return await self._client.wait(task)
        clock, patience = connection.clock, self._line.idle_timeout
        began = changed = clock.now()
        while not _rests(task):
            await sleep(clock, max(_SOON, min(_SELDOM, (clock.now() - began) / 1000 * _SHARE)))
            found = await self._client.get_task(task)
            now = clock.now()
            if found != task:
                changed = now
            elif patience is not None and now - changed > patience * 1000:
                raise CannotConnect(f"nothing new for {patience:g} s", reason="TIMED_OUT")
            task = found
        return task

    # -- saying it and listening ---------------------------------------------------------------------------------------

    def stream(self) -> EventStream:
        """Say it, to be followed with `events`."""
        said = self._outgoing
        return self._client.stream(
            files=said.parts, task=said.task_id, context=said.context_id, message_id=self._message_id
        )

    async def events(self, stream: EventStream) -> AsyncGenerator[Event, None]:
        """What happens, until the end or a question.

        Raises:
            DragomanError: it was not taken, or there is no more to hear.
        """
        heard = False
        self.over = False
        self._stream = events = aiter(stream)
        try:
            event = await self._shielded(_next(events))
            while event is not None:
                heard = True
                self.over = event.state.final or event.state.waiting
                self._task_id = self._task_id or _task_id(event.raw)
                yield event
                if event.state.waiting and event.kind != "artifact":
                    return  # at auth-required a stream may stay open, and it is the user's turn
                event = await _next(events)
        except DragomanError as error:
            if not self.over:
                await self._lose(error, known=heard)
            raise
        finally:
            # Where the first event is still waited for, whoever waits closes it.
            if self._first is None or self._first.done():
                await events.aclose()

    async def _shielded(self, first: Coroutine[Any, Any, T]) -> T:
        self._first = waiting = asyncio.create_task(first)
        # Whoever is canceled meanwhile does not hear what went wrong.
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(waiting)

    # -- calling it off ------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Cancel what still runs over there; soon, and whatever else happens here. Never raises for its own sake."""
        if self.over:
            return
        self.over = True
        leaving = asyncio.ensure_future(self._cancel())
        _leaving.add(leaving)
        leaving.add_done_callback(_leaving.discard)
        await asyncio.shield(leaving)

    async def _lose(self, error: DragomanError, *, known: bool) -> None:
        """Decide whether anything may run over there that nobody listens to any more."""
        self._lost = True
        if known:
            return
        may_have_arrived = isinstance(error, (CannotConnect, BadResponse)) and not isinstance(error, A2AError)
        if not may_have_arrived or getattr(error, "arrived", None) is False:
            self.over = True
        else:
            self.over = not (await self._connection()).reached

    async def _cancel(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE):
                task_id = self._task_id or await self._find() or await self._begun()
                if task_id is not None and not await self._waits_again(task_id):
                    await self._client.cancel_task(task_id)
        except TaskNotCancelable:
            pass  # it has just ended
        except (DragomanError, TimeoutError) as error:
            logger.warning("the task of a remote agent was not canceled: %s", plain(error))
        finally:
            if self._first is not None and not self._first.done():
                self._first.cancel()
                await asyncio.wait((self._first,))
            if self._stream is not None:
                await self._stream.aclose()

    async def _waits_again(self, task_id: str) -> bool:
        """True for a task that went on and rests: our answer to its question may not have arrived."""
        went_on = self._lost and self._outgoing.task_id is not None
        return went_on and _rests(await self._client.get_task(task_id))

    async def _find(self) -> str | None:
        """The task that this message began, among the newest; None when it is not there, or they are not listed."""
        looked_at = 0
        tasks = self._client.list_tasks(context=self._outgoing.context_id, page_size=_LOOKED_AT)
        try:
            async with aclosing(tasks):
                async for task in tasks:
                    looked_at += 1
                    if not task.state.final:
                        whole = task if task.history else await self._client.get_task(task)
                        if any(message.message_id == self._message_id for message in whole.history):
                            return task.id
                    if looked_at >= _LOOKED_AT:
                        return None
        except A2AError:
            pass  # no version before 1.0 lists tasks
        return None

    async def _begun(self) -> str | None:
        """The task that the answer names, which may be on its way."""
        if self._first is None:
            return None
        await asyncio.wait((self._first,))
        if self._first.cancelled() or self._first.exception() is not None:
            return None
        first: Task | Message | Event | None = self._first.result()
        if first is None or first.state.final or first.state.waiting:
            return None
        return _task_id(first.raw if isinstance(first, Event) else first)

    async def _connection(self) -> Connection:
        return await self._client._open()  # pyright: ignore[reportPrivateUsage] - how to listen best, it alone knows


def _rests(task: Task) -> bool:
    return task.state.final or task.state.waiting


def _task_id(raw: Task | Message | StatusUpdate | ArtifactUpdate) -> str | None:
    return raw.id if isinstance(raw, Task) else raw.task_id


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


def plain(error: BaseException) -> str:
    """An error in words that may be read by a model: nothing of where the agent is, and no credentials."""
    if isinstance(error, Gone):
        return str(error)
    if isinstance(error, CannotConnect):
        late = error.reason == "TIMED_OUT"
        return "the remote agent did not answer in time" if late else "the remote agent cannot be reached"
    if isinstance(error, AuthError):
        return "the remote agent does not accept the credentials"
    if isinstance(error, Overloaded):
        return "the remote agent is busy: try again later"
    if isinstance(error, TaskNotFound):
        return "the remote agent does not know the task any more"
    if isinstance(error, TimeoutError):
        return "the remote agent did not answer in time"
    if isinstance(error, A2AError):
        return f"the remote agent says: {error.reason if '://' in error.message else error.message}"
    return "the remote agent cannot be understood"
