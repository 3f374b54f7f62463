"""One message to a remote agent: sent, followed, and canceled if its caller stops waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import asdict, replace

from dragoman.client.client import Client, follow, open_connection
from dragoman.client.connection import InProcess, public_error_text
from dragoman.client.event import Event, NumberedEvent, TaskAssembler
from dragoman.client.follow import CancelSafeEvents
from dragoman.model.card import AgentCard
from dragoman.model.error import (
    A2AError,
    AuthError,
    BadResponse,
    CannotConnect,
    DragomanError,
    TaskNotCancelable,
    TaskNotFound,
    TimedOut,
)
from dragoman.model.ids import new_id
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.agents.adk.remote.message import OutgoingMessage
    from dragoman.client.options import ClientOptions
    from dragoman.client.streams.stream import EventStream
    from dragoman.model.event import ArtifactUpdate, StatusUpdate
    from dragoman.model.message import Message

logger = logging.getLogger("dragoman.adk")

# Bounds a remote description, which is part of every prompt.
_MAX_DESCRIPTION = 1024
# How long a canceled run waits for the cancellation of its remote task.
CANCEL_TIMEOUT = 5.0
# Number of recent tasks that are searched for the one of a message.
_SEARCH_LIMIT = 20
# Maximum poll interval where a task cannot be streamed.
_MAX_POLL_SECONDS = 1.0
# Keeps references: a caller that is canceled again does not wait for the cancellation.
_cancellations: set[asyncio.Task[None]] = set()


class RemoteClients:
    """The clients of one remote agent: a connection belongs to an event loop, so each loop has its own client.

    A copy has its own clients for the same target, even if the target is an object.

    Raises:
        ConfigError: the target cannot be called, or an option is invalid.
        BadCard: the given card cannot be read.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        # Created at once, so that errors are raised where the agent is defined, not at its first call.
        self._spare: Client | None = Client(**asdict(options))
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}
        self._latest: asyncio.AbstractEventLoop | None = None
        self._changed_loop = False

    def __deepcopy__(self, memo: dict[int, Any]) -> RemoteClients:
        return RemoteClients(self._options)

    def __reduce__(self) -> tuple[type[RemoteClients], tuple[ClientOptions]]:
        return RemoteClients, (self._options,)

    def client(self) -> Client:
        """Return the client of the running event loop."""
        here = asyncio.get_running_loop()
        if here not in self._clients:
            for closed_loop in [loop for loop in self._clients if loop.is_closed()]:
                del self._clients[closed_loop]
            spare, self._spare = self._spare, None
            self._clients[here] = spare or Client(**asdict(self._options))
            self._changed_loop = self._changed_loop or self._latest not in (None, here)
            self._latest = here
        return self._clients[here]

    async def close(self) -> None:
        """Close the client of this event loop. The next call connects again."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @property
    def may_have_lost_tasks(self) -> bool:
        """True if tasks may be lost because the in-process agent ran them on another event loop."""
        return self._changed_loop and isinstance(self._options.target, InProcess)

    @property
    def idle_timeout(self) -> float | None:
        """Seconds without an event after which a call fails; None for no limit."""
        return self._options.idle_timeout

    @property
    def static_description(self) -> str | None:
        """The agent's description, if it is available without a request."""
        target: Any = self._options.target
        if isinstance(target, Mapping):
            description = cast("Mapping[str, Any]", target).get("description")
        elif isinstance(target, AgentCard) or hasattr(target, "in_process"):
            description = getattr(target, "description", None)
        else:
            return None
        return _one_line(description) if isinstance(description, str) else None

    async def description(self) -> str | None:
        """Return the card's description on one line; None if it is empty.

        Raises:
            CannotConnect: the agent does not answer.
            BadCard: its card cannot be read.
        """
        return _one_line((await self.client().card()).description)


def _one_line(text: str) -> str | None:
    return " ".join(text.split())[:_MAX_DESCRIPTION] or None


class TaskLost(DragomanError):
    """The task that waits for an answer was lost together with the event loop of its in-process agent."""

    def __init__(self, context_id: str | None, task_id: str) -> None:
        super().__init__(
            "the task that waits for an answer was on another event loop, with its agent: stay on one event loop "
            "(Runner.run_async), or serve the agent and give its address"
        )
        self.context_id = context_id
        self.task_id = task_id


class RemoteCall:
    """Sends one message and follows its task. `settled` is True if the task has ended or waits for an answer."""

    def __init__(self, clients: RemoteClients, outgoing: OutgoingMessage) -> None:
        self._clients = clients
        self._client = clients.client()
        self._outgoing = outgoing
        self._message_id = new_id()
        self._task_id: str | None = outgoing.task_id
        # The followed task; its first event names the task, even if the run is canceled in the meantime.
        self._remote: CancelSafeEvents | None = None
        # True if it is unknown what became of the message.
        self._failed = False
        self.settled = True

    async def current_task(self) -> Task | None:
        """Return the task that the message continues; None if it starts a new one, or the task cannot be read.

        The task may have ended by itself, as after a login elsewhere. If it no longer exists, the message starts a new
        one.

        Raises:
            CannotConnect: the agent does not answer.
            TaskLost: the task was on another event loop.
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
        """Make the message start a new task, in the same conversation."""
        self._outgoing = replace(self._outgoing, task_id=None)
        self._task_id = None

    @property
    def is_answer(self) -> bool:
        """True if the message is the response to a call of the task, and meaningless to any other."""
        return self._outgoing.is_answer

    # -- sending and waiting -------------------------------------------------------------------------------------------

    async def send(self) -> Task | Message:
        """Send the message and wait for the end of the task, or for its question.

        Raises:
            DragomanError: the message was rejected, or the response is invalid.
        """
        self.settled = False
        self._remote = CancelSafeEvents(self._send_events())
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
        # A blocking call returns the task id only at the end, too late to cancel. A new task is followed instead.
        answer = await self._client.send(
            files=message.content,
            task=message.task_id,
            context=message.context_id,
            message_id=self._message_id,
            wait=message.task_id is not None,
        )
        yield TaskAssembler().add(NumberedEvent(0, answer))

    async def _end_of(self, task: Task) -> Task:
        limit = self._clients.idle_timeout
        follower = await follow(
            self._client, snapshot=task, wait_only=True, poll_pause=_MAX_POLL_SECONDS, idle_timeout=limit
        )
        return await follower.wait(task)

    # -- sending and streaming -----------------------------------------------------------------------------------------

    def stream(self) -> EventStream:
        """Send the message as a stream, to be followed with `events`."""
        message = self._outgoing
        return self._client.stream(
            files=message.content, task=message.task_id, context=message.context_id, message_id=self._message_id
        )

    async def events(self, stream: EventStream) -> AsyncGenerator[Event, None]:
        """Yield the events of the stream, up to the end of the task or its question.

        Raises:
            DragomanError: the message was rejected, or the stream broke.
        """
        has_events = False
        self.settled = False
        self._remote = CancelSafeEvents(aiter(stream))
        try:
            async with aclosing(aiter(self._remote)) as events:
                async for event in events:
                    has_events = True
                    self.settled = event.state.final or event.state.waiting
                    self._task_id = self._task_id or _task_id(event.raw)
                    yield event
                    if event.state.waiting and event.kind != "artifact":
                        return  # at auth-required a stream may stay open, but the user has to act
        except DragomanError as error:
            if not self.settled:
                await self._note_failure(error, has_task=has_events)
            raise

    # -- canceling -----------------------------------------------------------------------------------------------------

    async def cancel_unfinished(self) -> None:
        """Cancel the remote task if it still runs, within a time limit. Failures are logged, not raised."""
        if self.settled:
            return
        self.settled = True
        cancellation = asyncio.ensure_future(self._cancel())
        _cancellations.add(cancellation)
        cancellation.add_done_callback(_cancellations.discard)
        await asyncio.shield(cancellation)

    async def _note_failure(self, error: DragomanError, *, has_task: bool) -> None:
        """Determine whether a task may still run that nobody follows."""
        self._failed = True
        if has_task:
            return
        may_have_arrived = isinstance(error, (CannotConnect, BadResponse)) and not isinstance(error, A2AError)
        if not may_have_arrived or getattr(error, "arrived", None) is False:
            self.settled = True
        else:
            self.settled = not (await open_connection(self._client)).reached

    async def _cancel(self) -> None:
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                task_id = self._task_id or await self._find_task() or await self._announced_task()
                if task_id is not None and not await self._waits_again(task_id):
                    await self._client.cancel_task(task_id)
        except TaskNotCancelable:
            pass  # it has ended in the meantime
        except (DragomanError, TimeoutError) as error:
            logger.warning("the task of a remote agent was not canceled: %s", public_message(error))
        finally:
            if self._remote is not None:
                await self._remote.close()

    async def _waits_again(self, task_id: str) -> bool:
        """Return True if the continued task waits: our answer to its question may not have arrived."""
        went_on = self._failed and self._outgoing.task_id is not None
        return went_on and _is_settled(await self._client.get_task(task_id))

    async def _find_task(self) -> str | None:
        """Return the id of the task that this message started, among the newest; None if absent or not listed."""
        checked = 0
        tasks = self._client.list_tasks(context=self._outgoing.context_id, page_size=_SEARCH_LIMIT)
        try:
            async with aclosing(tasks):
                async for task in tasks:
                    checked += 1
                    if not task.state.final:
                        whole = task if task.history else await self._client.get_task(task)
                        if any(message.message_id == self._message_id for message in whole.history):
                            return task.id
                    if checked >= _SEARCH_LIMIT:
                        return None
        except A2AError:
            pass  # versions before 1.0 have no task list
        return None

    async def _announced_task(self) -> str | None:
        """Return the id of the task that the pending response names."""
        first = None if self._remote is None else await self._remote.first_or_none()
        return None if first is None or first.state.final or first.state.waiting else _task_id(first.raw)


def _is_settled(task: Task) -> bool:
    return task.state.final or task.state.waiting


def _task_id(raw: Task | Message | StatusUpdate | ArtifactUpdate) -> str | None:
    return raw.id if isinstance(raw, Task) else raw.task_id


def public_message(error: BaseException) -> str:
    """Return an error text that a model may read: without the agent's address and credentials."""
    if isinstance(error, TaskLost):
        return str(error)
    if isinstance(error, (TimeoutError, TimedOut)):
        return "the remote agent did not answer in time"
    if isinstance(error, AuthError):
        return "the remote agent does not accept the credentials"
    if isinstance(error, TaskNotFound):
        return "the remote agent does not know the task any more"
    return public_error_text(error, "the remote agent")
