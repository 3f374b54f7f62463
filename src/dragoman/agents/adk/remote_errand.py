"""One message to a remote agent: sent, followed, and called off when nobody waits for the answer any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.model.error import (
    A2AError,
    AuthError,
    CannotConnect,
    DragomanError,
    Overloaded,
    TaskNotFound,
)
from dragoman.model.ids import new_id
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.agents.adk.remote_message import Outgoing
    from dragoman.client.client import Client, EventStream
    from dragoman.client.event import Event
    from dragoman.model.message import Message

logger = logging.getLogger("dragoman.adk")

# How long a canceled run waits until its work over there is canceled too.
GOODBYE = 5.0
# Among so many of the newest tasks that of a message is looked for.
_LOOKED_AT = 20
# Whoever is canceled twice does not wait: the work is called off without him.
_leaving: set[asyncio.Task[None]] = set()


class RemoteErrand:
    """Says something to an agent and listens. `over` is True when it has nothing to do any more, or waits for us."""

    def __init__(self, client: Client, outgoing: Outgoing) -> None:
        self._client = client
        self._outgoing = outgoing
        self._message_id = new_id()
        self._task_id: str | None = outgoing.task_id
        self.over = True

    async def before(self) -> Task | None:
        """The task that goes on now, as it is; None when this begins one, or it cannot be read.

        It may have ended by itself, as after a login elsewhere. One that is not known any more is begun anew.

        Raises:
            CannotConnect: nobody answers.
        """
        if self._outgoing.task_id is None:
            return None
        try:
            return await self._client.get_task(self._outgoing.task_id)
        except TaskNotFound:
            self._outgoing = replace(self._outgoing, task_id=None)
            self._task_id = None
        except A2AError:
            pass
        return None

    async def send(self) -> Task | Message:
        """Say it and wait for the end, or for a question.

        Raises:
            DragomanError: it was not taken, or the answer was not understood.
        """
        said = self._outgoing
        self.over = False
        try:
            answer = await self._client.send(
                files=said.parts, task=said.task_id, context=said.context_id, message_id=self._message_id
            )
        except DragomanError:
            # Whether anything runs over there nobody here can tell.
            self.over = True
            raise
        self.over = True
        return answer

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
        try:
            async with aclosing(aiter(stream)) as events:
                async for event in events:
                    heard = True
                    self.over = event.state.final or event.state.waiting
                    self._task_id = self._task_id or _task_id(event)
                    yield event
                    if event.state.waiting and event.kind != "artifact":
                        return  # at auth-required a stream may stay open, and it is the user's turn
        except DragomanError:
            self.over = self.over or not heard
            raise

    async def leave(self) -> None:
        """Cancel what still runs over there; soon, and whatever else happens here. Never raises for its own sake."""
        if self.over:
            return
        self.over = True
        leaving = asyncio.ensure_future(self._cancel())
        _leaving.add(leaving)
        leaving.add_done_callback(_leaving.discard)
        await asyncio.shield(leaving)

    async def _cancel(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE):
                task_id = self._task_id or await self._find()
                if task_id is not None:
                    await self._client.cancel_task(task_id)
        except (DragomanError, TimeoutError) as error:
            logger.warning("the task of a remote agent was not canceled: %s", plain(error))

    async def _find(self) -> str | None:
        """The task that this message began. Who waits for a whole answer is not told the task's id before."""
        looked_at = 0
        tasks = self._client.list_tasks(context=self._outgoing.context_id, page_size=_LOOKED_AT)
        async with aclosing(tasks):
            async for task in tasks:
                looked_at += 1
                if not task.state.final:
                    whole = task if task.history else await self._client.get_task(task)
                    if any(message.message_id == self._message_id for message in whole.history):
                        return task.id
                if looked_at >= _LOOKED_AT:
                    return None
        return None


def _task_id(event: Event) -> str | None:
    raw = event.raw
    return raw.id if isinstance(raw, Task) else raw.task_id


def plain(error: BaseException) -> str:
    """An error in words that may be read by a model: nothing of where the agent is, and no credentials."""
    if isinstance(error, CannotConnect):
        return "the remote agent cannot be reached"
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
