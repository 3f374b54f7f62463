"""Proxies a remote A2A agent: its tasks become durable, resumable, and available in every protocol version."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.client.connection import public_error_text
from dragoman.client.event import Event, missed_events
from dragoman.client.follow import CancelSafeEvents, ResumableStream
from dragoman.client.options import DEFAULT_LIMIT
from dragoman.client.streams.backoff import Backoff
from dragoman.engine.execute.outputs import Ask, Done
from dragoman.model.error import (
    AuthError,
    BadResponse,
    CannotConnect,
    ContentTypeNotSupported,
    DragomanError,
    Failed,
    InvalidParams,
    Overloaded,
    Rejected,
    ResponseTooLarge,
    TaskNotFound,
)
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.operation import (
    CancelTaskRequest,
    GetTaskRequest,
    Operation,
    SendMessageConfiguration,
    SendMessageRequest,
)
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus
from dragoman.net.exchange import format_size

if TYPE_CHECKING:
    from dragoman.client.connection import Connection
    from dragoman.dialects.dialect import Result
    from dragoman.engine.execute.context import Context
    from dragoman.model.card import AgentCard
    from dragoman.model.task import Artifact

# Key of the remote context id in the conversation's state.
STATE = "dragoman.remote"
CANCEL_TIMEOUT = 10.0
READ_TIMEOUT = 30.0
# How long a remote agent may take to reject a message that is forwarded to its running task.
_REFUSAL_TIMEOUT = 1.0


class RemoteProxy:
    """Runs tasks on a remote agent. `connect` creates the connection when it is first needed.

    If a run receives more than `limit` bytes, it fails and the remote task is canceled, since nobody would follow it.
    """

    def __init__(
        self, connect: Callable[[], Connection], *, retries: int = 5, limit: int | None = DEFAULT_LIMIT
    ) -> None:
        self._connect = connect
        self._retries = retries
        self._limit = limit
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None

    async def connection(self) -> Connection:
        """Return the open connection to the remote agent.

        Raises:
            CannotConnect: the agent does not answer, after all retries.
            BadCard: its card cannot be read.
        """
        if self._connection is None:
            opening = self._opening
            if opening is None or opening.done() or opening.get_loop() is not asyncio.get_running_loop():
                opening = self._opening = asyncio.ensure_future(self._open())
                # If all waiters were canceled, nobody else would retrieve the exception.
                opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await asyncio.shield(opening)
        return self._connection

    async def _open(self) -> Connection:
        connection = self._connect()
        try:
            await connection.open()
            backoff = Backoff(self._retries, connection.clock)
            while True:
                try:
                    await connection.card()
                except CannotConnect as error:
                    # It answered when this agent was created, so it may come back.
                    await backoff.pause(error)
                else:
                    # Here, and not by whoever waits: until that wakes up, others would open connections of their own.
                    self._connection = connection
                    return connection
        except BaseException:
            await connection.close()
            raise

    async def close(self) -> None:
        """Close the connection; remote tasks continue."""
        connection, opening = self._connection, self._opening
        self._connection = self._opening = None
        if connection is not None:
            await connection.close()
        elif opening is not None and opening.get_loop() is asyncio.get_running_loop():
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()

    async def canceled(self, ref: Any) -> None:
        """Cancel the remote task, whose question will not be answered.

        Raises:
            DragomanError: the remote agent refused, or cannot be reached.
            TimeoutError: it did not answer within CANCEL_TIMEOUT.
        """
        task_id = cast("dict[str, Any]", ref).get("task") if isinstance(ref, dict) else None
        if task_id is not None:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await (await self.connection()).perform(Operation.CANCEL, CancelTaskRequest(task_id))

    async def has_moved(self, ref: Any) -> bool:
        """Tell whether the remote task has ended, works, or asks something else than when `ref` was stored.

        Raises:
            DragomanError: the remote agent refused, or cannot be reached.
            TimeoutError: it did not answer within READ_TIMEOUT.
        """
        pause = cast("dict[str, Any]", ref) if isinstance(ref, dict) else {}
        if pause.get("task") is None:
            return False
        async with asyncio.timeout(READ_TIMEOUT):
            task = await (await self.connection()).perform(Operation.GET, GetTaskRequest(pause["task"]))
        assert isinstance(task, Task)
        return not _is_asking(task, pause)

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Forward a message to the remote agent and yield the outputs of its task.

        Raises:
            Failed: the remote task failed or was canceled there, or the remote agent cannot be used.
            InvalidParams, ContentTypeNotSupported, Overloaded: the remote agent refused the message with that.
            Rejected: the remote agent rejected the message.
        """
        # The engine finalizes the artifact named after the skill. No artifact of the remote agent may match that name.
        ctx.skill = STATE
        remote_run: RemoteRun | None = None
        try:
            remote_run = RemoteRun(await self.connection(), self._retries, ctx, self._limit)
            async with aclosing(remote_run.outputs()) as outputs:
                async for output in outputs:
                    yield output
        except (Failed, Rejected):
            raise
        except (asyncio.CancelledError, DragomanError) as error:
            # If the task has ended, the remote task is canceled, too. If the server stops or has lost the task, it goes
            # on, and the next run follows it.
            if remote_run is not None:
                ctx.on_failed(remote_run.cancel)
                if await ctx.journaled_end() if ctx.cancelled else isinstance(error, ResponseTooLarge):
                    await remote_run.cancel()
            if ctx.cancelled or isinstance(error, asyncio.CancelledError):
                raise
            ctx.log.warning("the agent behind: %s: %s", type(error).__name__, error)
            raise _public_error(error, has_task=remote_run is not None and remote_run.task_id is not None) from error
        finally:
            if remote_run is not None:
                await remote_run.close()


def _public_error(error: DragomanError, *, has_task: bool) -> DragomanError:
    """Return the error for callers: the remote agent's message, without its address.

    An error about the message itself stays what it is, if the remote agent has made no task of it; others fail the
    task.
    """
    if isinstance(error, AuthError):
        return Failed("the agent behind this one does not accept the credentials of this server")
    if isinstance(error, TaskNotFound) and has_task:
        return Failed("the agent behind this one does not know the task any more")
    if isinstance(error, ResponseTooLarge):
        limit = format_size(error.limit)
        return Failed(f"the agent behind this one sends more than {limit}, the limit of this server")
    text = public_error_text(error, "the agent behind this one")
    if isinstance(error, InvalidParams) and not has_task:
        return InvalidParams(text, field="" if "://" in error.field else error.field)
    if isinstance(error, ContentTypeNotSupported) and not has_task:
        return ContentTypeNotSupported(text)
    return Overloaded(text) if isinstance(error, Overloaded) and not has_task else Failed(text)


def card_of_remote(card: AgentCard, name: str) -> dict[str, Any]:
    """Return the fields that the proxy's card copies from the remote agent's card; skills need not be listed there.

    What a skill lacks there is filled in, with `name`, that of the proxy, as its tag.
    """
    modern: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(card))
    copied_keys = ("skills", "defaultInputModes", "defaultOutputModes", "provider", "documentationUrl", "iconUrl")
    copied = {key: modern[key] for key in copied_keys if modern.get(key)}
    for skill in copied.get("skills", ()):
        # The remote agent's security requirements concern this server, not its callers.
        skill.pop("securityRequirements", None)
        skill["name"] = skill["name"] or skill["id"]
        skill["description"] = skill["description"] or skill["name"]
        skill["tags"] = skill["tags"] or [name]
    return copied


class RemoteRun:
    """One run: from the message to the end of the remote task, or to its question."""

    def __init__(self, connection: Connection, retries: int, ctx: Context, limit: int | None = None) -> None:
        self._connection = connection
        self._retries = retries
        self._limit = limit
        self._ctx = ctx
        self.task_id: str | None = None
        self._pause: dict[str, Any] = {}
        if ctx.resume is not None and isinstance(ctx.resume.ref, dict):
            self._pause = cast("dict[str, Any]", ctx.resume.ref)
            self.task_id = self._pause.get("task")
        # The followed remote task; after a restart it is followed again.
        self._remote: CancelSafeEvents | None = None
        self._forwards: list[asyncio.Task[Result]] = []
        self._artifact_ids = {artifact.artifact_id for artifact in ctx.artifacts}
        self._last_progress: object = None

    async def outputs(self) -> AsyncGenerator[Any, None]:
        """Yield the outputs of the run."""
        # Stored before any output: whatever callers see belongs to a remote task that can be found after a restart.
        sent = await self._ctx.once(f"remote {len(self._ctx.answers)}", self._send, retry=True)
        if sent.get("context"):
            self._ctx.state[STATE] = sent["context"]
        if "message" in sent:
            message = msgspec.convert(sent["message"], Message)
            if message.parts and not self._artifact_ids:
                yield Done(*message.parts)
            else:
                await self._ctx.artifact(*message.parts, name="message")
            return
        self.task_id = sent["task"]
        forwarding = asyncio.ensure_future(self._forward_messages())
        output: Ask | Done | None = None
        try:
            async with aclosing(aiter(self._remote or await self._follow_again())) as events:
                async for event in events:
                    # A last event may correct the end of the task.
                    output = await self._handle(event)
                    if isinstance(output, Ask):
                        break
            if output is not None:
                yield output
        finally:
            forwarding.cancel()
            with suppress(asyncio.CancelledError):
                await forwarding

    async def cancel(self) -> None:
        """Cancel the remote task, if there is one; a failure is logged."""
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                if self.task_id is None and self._remote is not None:
                    # The message was sent and may have created a task, whose id comes with the first event.
                    task = (await self._first(self._remote)).task
                    self.task_id = None if task is None else task.id
                if self.task_id is not None:
                    await self._connection.perform(Operation.CANCEL, CancelTaskRequest(self.task_id))
        except (DragomanError, TimeoutError) as error:
            self._ctx.log.warning("task %s of the agent behind was not canceled: %s", self.task_id, error)

    async def close(self) -> None:
        """Stop following and forwarding."""
        for each in self._forwards:
            each.cancel()
        await asyncio.gather(*self._forwards, return_exceptions=True)
        if self._remote is not None:
            await self._remote.close()

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _send(self) -> dict[str, Any]:
        """Send the caller's message and wait until it is accepted. The result is stored, so it is sent once."""
        # Without parts it is no message of a caller: the remote task went on by itself.
        if self.task_id is not None and (
            not self._ctx.message.parts or not _is_asking(await self._get_task(), self._pause)
        ):
            return {"task": self.task_id}
        following = ResumableStream(self._connection, self._retries, limit=self._limit)
        # A non-streaming agent is asked to return at once: the sooner the task id is known, the less can be lost.
        request = self._request(self._ctx.message, wait=self.task_id is not None)
        self._remote = CancelSafeEvents(following.send(request))
        await self._first(self._remote)
        result = following.result
        if isinstance(result, Message):
            return {"message": result, "context": result.context_id}
        assert result is not None
        self.task_id = result.id
        if not result.context_id:
            # Streams of 0.1 do not carry the context id.
            result = await self._get_task()
        return {"task": result.id, "context": result.context_id}

    async def _get_task(self) -> Task:
        assert self.task_id is not None
        task = await self._connection.perform(Operation.GET, GetTaskRequest(self.task_id))
        assert isinstance(task, Task)
        return task

    async def _forward_messages(self) -> None:
        """Forward the messages that arrive while the task runs. After a restart they are all delivered again."""
        async for message in self._ctx.messages():
            try:
                await self._ctx.once(f"remote message {message.message_id}", self._forward, message, retry=True)
            except DragomanError as error:
                self._ctx.log.warning("a message was not taken by the agent behind: %s", error)

    async def _forward(self, message: Message) -> None:
        sending = asyncio.ensure_future(self._connection.perform(Operation.SEND, self._request(message, wait=False)))
        self._forwards.append(sending)
        # Some agents respond only at the end of the task: no rejection within this time counts as accepted.
        await asyncio.wait((sending,), timeout=_REFUSAL_TIMEOUT)
        if sending.done():
            self._forwards.remove(sending)
            await sending

    def _request(self, message: Message, *, wait: bool) -> SendMessageRequest:
        outgoing = Message(
            self._stable_id(f"message {message.message_id}"),
            Role.USER,
            message.parts,
            self._ctx.state.get(STATE),
            self.task_id,
            message.metadata,
        )
        message_metadata = message.metadata or {}
        request_metadata = {
            key: value
            for key, value in self._ctx.metadata.items()
            if key not in message_metadata or message_metadata[key] != value
        }
        return SendMessageRequest(
            outgoing,
            SendMessageConfiguration(return_immediately=not wait),
            metadata=request_metadata or None,
            new_task_id=self._stable_id("task") if self.task_id is None else None,
        )

    def _stable_id(self, what: str) -> str:
        """Return an id that is the same after a restart, so that agents that deduplicate by message id act once.

        The caller's own id is not used: to the remote agent all callers are one, and they could refer to each other's
        tasks.
        """
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._ctx.task_id} {what}"))

    # -- receiving -----------------------------------------------------------------------------------------------------

    @staticmethod
    async def _first(remote: CancelSafeEvents) -> Event:
        event = await remote.first()
        if event is None:
            raise BadResponse("it sent no event")
        return event

    async def _follow_again(self) -> CancelSafeEvents:
        """Follow the task of an earlier server process, from what callers have received so far."""
        # A first request determines the protocol version and how to follow the task.
        await self._get_task()
        following = ResumableStream(self._connection, self._retries, snapshot=self._published_task(), limit=self._limit)
        self._remote = CancelSafeEvents(following.subscribe(self.task_id or ""))
        return self._remote

    def _published_task(self) -> Task:
        """Return the remote task as far as callers have received it."""
        context_id: str = self._ctx.state.get(STATE, "")
        return Task(self.task_id or "", context_id, TaskStatus(State.WORKING), self._ctx.artifacts)

    async def _handle(self, event: Event) -> Ask | Done | None:
        """Process an event; a returned output ends the run, unless another event follows."""
        raw = event.raw
        if isinstance(raw, ArtifactUpdate):
            await self._artifact(raw.artifact, raw.append, raw.last_chunk, raw.metadata)
            return None
        if isinstance(raw, Message):
            await self._report_progress(raw, None)
            return None
        if isinstance(raw, Task):
            # Some agents end the stream with the whole task, after all of its updates.
            for missed in missed_events(self._published_task(), raw):
                if isinstance(missed.event, ArtifactUpdate):
                    await self._artifact(missed.event.artifact, missed.event.append, raw.state.final, None)
            message, goes_on = raw.status.message, not (raw.state.final or raw.state.waiting)
            if goes_on and message is not None and message.parts == self._last_progress:
                return None
        if event.state.waiting:
            return self._ask(raw.status, event.task)
        if event.state is State.COMPLETED and event.task is not None:
            # Messages of a working task are only progress here. Where they were the answer, it is the end that says so:
            # then callers find it who do not look for it in a history.
            message = event.task.status.message
            parts = event.task.parts if not self._artifact_ids else () if message is None else message.parts
            return Done(*parts) if parts else None
        return await self._status(raw.status, raw.metadata if isinstance(raw, StatusUpdate) else None)

    async def _artifact(
        self, artifact: Artifact, append: bool, last_chunk: bool, metadata: dict[str, Any] | None
    ) -> None:
        # Some clients drop an append to an artifact whose start they have not seen.
        append = append and artifact.artifact_id in self._artifact_ids
        self._artifact_ids.add(artifact.artifact_id)
        await self._ctx.update_artifact(artifact, append=append, last_chunk=last_chunk, metadata=metadata)

    def _ask(self, status: TaskStatus, task: Task | None) -> Ask:
        text, auth = _text(status), status.state is State.AUTH_REQUIRED
        parts = () if status.message is None else tuple(part for part in status.message.parts if part.text is None)
        question = text or (None if task is None else task.question)
        question = question or ("authentication required" if auth else "input required")
        return Ask(
            question, ref={"task": self.task_id, "asked": text, "auth": auth}, auth=auth, details=parts, forwards=True
        )

    async def _status(self, status: TaskStatus, metadata: dict[str, Any] | None) -> None:
        state, message, text = status.state, status.message, _text(status)
        if state is State.FAILED:
            raise Failed(text or "the agent behind this one failed")
        if state is State.REJECTED:
            raise Rejected(text or "the agent behind this one refused")
        if state is State.CANCELED:
            raise Failed(text or "canceled by the agent behind this one")
        if message is not None:
            await self._report_progress(message, metadata)

    async def _report_progress(self, message: Message, metadata: dict[str, Any] | None) -> None:
        self._last_progress = message.parts
        if message.text:
            done, total = (_number((metadata or {}).get(key)) for key in ("done", "total"))
            await self._ctx.progress(message.text, done, total)


def _is_asking(task: Task, pause: dict[str, Any]) -> bool:
    """Return True if a remote task still waits for the answer that it waited for when our task was paused.

    It may have continued by itself, or have got the answer before a crash and be asking something else.
    """
    is_login = task.state is State.AUTH_REQUIRED
    is_same = _text(task.status) in ("", pause.get("asked", "")) and is_login == pause.get("auth", is_login)
    return task.state.waiting and is_same


def _text(status: TaskStatus) -> str:
    return status.message.text if status.message is not None else ""


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
