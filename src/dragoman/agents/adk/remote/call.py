"""One message to a remote agent: sent, followed, and called off when nobody waits for the answer any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from dragoman.client.client import Client
from dragoman.client.connection import InProcess
from dragoman.client.event import Event, NumberedEvent, TaskAssembler
from dragoman.client.follow import RemoteTask, poll_task, public_error_text
from dragoman.model.card import AgentCard
from dragoman.model.error import (
    A2AError,
    AuthError,
    BadResponse,
    CannotConnect,
    DragomanError,
    TaskNotCancelable,
    TaskNotFound,
)
from dragoman.model.ids import new_id
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.agents.adk.remote.message import OutgoingMessage
    from dragoman.client.client import EventStream
    from dragoman.client.connection import Connection
    from dragoman.model.event import ArtifactUpdate, StatusUpdate
    from dragoman.model.message import Message

# What a stranger says of himself is read by a model with every request.
_LONGEST = 1024


class RemoteClients:
    """Clients of one agent. A connection belongs to an event loop, so each loop has a client of its own.

    A copy has clients of its own; the target is the same one, also when that is an object.

    Raises:
        ConfigError: the target cannot be called, or an option is wrong.
        BadCard: the card given cannot be read.
    """

    def __init__(self, target: object, options: Mapping[str, Any]) -> None:
        self._target = target
        self._options = dict(options)
        # Made at once: what is wrong is told where the agent is written, and not when it is first called.
        self._spare: Client | None = Client(target, **self._options)
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}
        self._latest: asyncio.AbstractEventLoop | None = None
        self._changed_loop = False

    def __deepcopy__(self, memo: dict[int, Any]) -> RemoteClients:
        return RemoteClients(self._target, self._options)

    def __reduce__(self) -> tuple[type[RemoteClients], tuple[object, dict[str, Any]]]:
        return RemoteClients, (self._target, self._options)

    def client(self) -> Client:
        """The client of the running loop."""
        here = asyncio.get_running_loop()
        if here not in self._clients:
            for closed_loop in [loop for loop in self._clients if loop.is_closed()]:
                del self._clients[closed_loop]
            spare, self._spare = self._spare, None
            self._clients[here] = spare or Client(self._target, **self._options)
            self._changed_loop = self._changed_loop or self._latest not in (None, here)
            self._latest = here
        return self._clients[here]

    async def close(self) -> None:
        """Let go of the agent on this loop. The next call opens the way again."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @property
    def may_have_lost_tasks(self) -> bool:
        """True when tasks may be gone because they went with the event loop that an agent in this process ran on."""
        return self._changed_loop and isinstance(self._target, InProcess)

    @property
    def idle_timeout(self) -> float | None:
        """After so many seconds without any news an agent is given up; None for never."""
        return self._options.get("idle_timeout")

    @property
    def static_description(self) -> str | None:
        """What the agent says of itself, where that is known without asking."""
        target: Any = self._target
        if isinstance(target, Mapping):
            description = cast("Mapping[str, Any]", target).get("description")
        elif isinstance(target, AgentCard) or hasattr(target, "in_process"):
            description = getattr(target, "description", None)
        else:
            return None
        return _one_line(description) if isinstance(description, str) else None

    async def description(self) -> str | None:
        """What the card says of the agent, on one line; None when it says nothing.

        Raises:
            CannotConnect: nobody answers.
            BadCard: there is no card that can be read.
        """
        return _one_line((await self.client().card()).description)


def _one_line(text: str) -> str | None:
    return " ".join(text.split())[:_LONGEST] or None


logger = logging.getLogger("dragoman.adk")

# How long a canceled run waits until its work over there is canceled too.
CANCEL_TIMEOUT = 5.0
# Among so many of the newest tasks that of a message is looked for.
_SEARCH_LIMIT = 20
# Where a task can only be looked at, so many seconds pass between two looks at most.
_MAX_POLL_SECONDS = 1.0
# Whoever is canceled twice does not wait: the work is called off without him.
_cancellations: set[asyncio.Task[None]] = set()


class TaskLost(DragomanError):
    """The task that waits for an answer went with the event loop on which its agent ran, in this process."""

    def __init__(self, context_id: str | None, task_id: str) -> None:
        super().__init__(
            "the task that waits for an answer was on another event loop, with its agent: stay on one event loop "
            "(Runner.run_async), or serve the agent and give its address"
        )
        self.context_id = context_id
        self.task_id = task_id


class RemoteCall:
    """Says something to an agent and listens. `over` is True when it has nothing to do any more, or waits for us."""

    def __init__(self, clients: RemoteClients, outgoing: OutgoingMessage) -> None:
        self._clients = clients
        self._client = clients.client()
        self._outgoing = outgoing
        self._message_id = new_id()
        self._task_id: str | None = outgoing.task_id
        # What comes back; its first event names the task, also when the run is canceled meanwhile.
        self._remote: RemoteTask | None = None
        # True when what became of the message is not known.
        self._failed = False
        self.settled = True

    async def current_task(self) -> Task | None:
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
            if self._clients.may_have_lost_tasks:
                raise TaskLost(self._outgoing.context_id, task_id) from None
            self.start_new_task()
        except A2AError:
            pass
        return None

    def start_new_task(self) -> None:
        """Let it be the beginning of a new task, in the same conversation."""
        self._outgoing = replace(self._outgoing, task_id=None)
        self._task_id = None

    @property
    def is_answer(self) -> bool:
        """True when it is the response to a call of the task, and of no use to another."""
        return self._outgoing.is_answer

    # -- saying it and waiting -----------------------------------------------------------------------------------------

    async def send(self) -> Task | Message:
        """Say it and wait for the end, or for a question.

        Raises:
            DragomanError: it was not taken, or the answer was not understood.
        """
        self.settled = False
        self._remote = RemoteTask(self._send_events())
        is_new_task = self._outgoing.task_id is None
        try:
            first = await self._remote.first()
            assert first is not None
            answer: Task | Message = first.raw  # pyright: ignore[reportAssignmentType] - a send answers with these two
            if isinstance(answer, Task):
                self._task_id = answer.id
                if not _is_settled(answer):
                    answer = await self._end_of(answer)
        except DragomanError as error:
            await self._note_failure(error, has_task=is_new_task and self._task_id is not None)
            raise
        self.settled = True
        return answer

    async def _send_events(self) -> AsyncGenerator[Event, None]:
        message = self._outgoing
        # Who waits for a whole answer is not told before which task makes it, and cannot cancel it. So nobody waits
        # for that of a new task; it is followed instead.
        answer = await self._client.send(
            files=message.parts,
            task=message.task_id,
            context=message.context_id,
            message_id=self._message_id,
            wait=message.task_id is not None,
        )
        yield TaskAssembler().add(NumberedEvent(0, answer))

    async def _end_of(self, task: Task) -> Task:
        connection = await self._connection()
        card = connection.cached_card
        streams = card is None or card.capabilities.streaming is not False
        if streams and connection.can_resubscribe:
            return await self._client.wait(task)
        clock, limit = connection.clock, self._clients.idle_timeout
        changed = clock.now()
        async with aclosing(poll_task(lambda: self._client.get_task(task), clock, _MAX_POLL_SECONDS)) as looks:
            async for latest in looks:
                if latest != task:
                    task, changed = latest, clock.now()
                elif limit is not None and clock.now() - changed > limit * 1000:
                    raise CannotConnect(f"nothing new for {limit:g} s", reason="TIMED_OUT")
                if _is_settled(task):
                    break
        return task

    # -- saying it and listening ---------------------------------------------------------------------------------------

    def stream(self) -> EventStream:
        """Say it, to be followed with `events`."""
        message = self._outgoing
        return self._client.stream(
            files=message.parts, task=message.task_id, context=message.context_id, message_id=self._message_id
        )

    async def events(self, stream: EventStream) -> AsyncGenerator[Event, None]:
        """What happens, until the end or a question.

        Raises:
            DragomanError: it was not taken, or there is no more to hear.
        """
        has_events = False
        self.settled = False
        self._remote = RemoteTask(aiter(stream))
        try:
            async with aclosing(aiter(self._remote)) as events:
                async for event in events:
                    has_events = True
                    self.settled = event.state.final or event.state.waiting
                    self._task_id = self._task_id or _task_id(event.raw)
                    yield event
                    if event.state.waiting and event.kind != "artifact":
                        return  # at auth-required a stream may stay open, and it is the user's turn
        except DragomanError as error:
            if not self.settled:
                await self._note_failure(error, has_task=has_events)
            raise

    # -- calling it off ------------------------------------------------------------------------------------------------

    async def cancel_unfinished(self) -> None:
        """Cancel what still runs over there; soon, and whatever else happens here. Never raises for its own sake."""
        if self.settled:
            return
        self.settled = True
        cancellation = asyncio.ensure_future(self._cancel())
        _cancellations.add(cancellation)
        cancellation.add_done_callback(_cancellations.discard)
        await asyncio.shield(cancellation)

    async def _note_failure(self, error: DragomanError, *, has_task: bool) -> None:
        """Decide whether anything may run over there that nobody listens to any more."""
        self._failed = True
        if has_task:
            return
        may_have_arrived = isinstance(error, (CannotConnect, BadResponse)) and not isinstance(error, A2AError)
        if not may_have_arrived or getattr(error, "arrived", None) is False:
            self.settled = True
        else:
            self.settled = not (await self._connection()).reached

    async def _cancel(self) -> None:
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                task_id = self._task_id or await self._find_task() or await self._announced_task()
                if task_id is not None and not await self._waits_again(task_id):
                    await self._client.cancel_task(task_id)
        except TaskNotCancelable:
            pass  # it has just ended
        except (DragomanError, TimeoutError) as error:
            logger.warning("the task of a remote agent was not canceled: %s", public_message(error))
        finally:
            if self._remote is not None:
                await self._remote.close()

    async def _waits_again(self, task_id: str) -> bool:
        """True for a task that went on and rests: our answer to its question may not have arrived."""
        went_on = self._failed and self._outgoing.task_id is not None
        return went_on and _is_settled(await self._client.get_task(task_id))

    async def _find_task(self) -> str | None:
        """The task that this message began, among the newest; None when it is not there, or they are not listed."""
        looked_at = 0
        tasks = self._client.list_tasks(context=self._outgoing.context_id, page_size=_SEARCH_LIMIT)
        try:
            async with aclosing(tasks):
                async for task in tasks:
                    looked_at += 1
                    if not task.state.final:
                        whole = task if task.history else await self._client.get_task(task)
                        if any(message.message_id == self._message_id for message in whole.history):
                            return task.id
                    if looked_at >= _SEARCH_LIMIT:
                        return None
        except A2AError:
            pass  # no version before 1.0 lists tasks
        return None

    async def _announced_task(self) -> str | None:
        """The task that the answer names, which may be on its way."""
        first = None if self._remote is None else await self._remote.first_or_none()
        return None if first is None or first.state.final or first.state.waiting else _task_id(first.raw)

    async def _connection(self) -> Connection:
        return await self._client._open()  # pyright: ignore[reportPrivateUsage] - how to listen best, it alone knows


def _is_settled(task: Task) -> bool:
    return task.state.final or task.state.waiting


def _task_id(raw: Task | Message | StatusUpdate | ArtifactUpdate) -> str | None:
    return raw.id if isinstance(raw, Task) else raw.task_id


def public_message(error: BaseException) -> str:
    """An error in words that may be read by a model: nothing of where the agent is, and no credentials."""
    if isinstance(error, TaskLost):
        return str(error)
    if isinstance(error, TimeoutError) or (isinstance(error, CannotConnect) and error.reason == "TIMED_OUT"):
        return "the remote agent did not answer in time"
    if isinstance(error, AuthError):
        return "the remote agent does not accept the credentials"
    if isinstance(error, TaskNotFound):
        return "the remote agent does not know the task any more"
    return public_error_text(error, "the remote agent")
