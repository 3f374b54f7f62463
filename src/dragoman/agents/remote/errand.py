"""One message on its way to a foreign agent, and everything that comes back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.client.event import Event, Missed, missed_events
from dragoman.client.follow import Following
from dragoman.engine.execute.outputs import Ask, Conclude
from dragoman.model.error import BadResponse, CannotConnect, DragomanError, Failed, Rejected
from dragoman.model.event import ArtifactUpdate
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

if TYPE_CHECKING:
    from dragoman.client.connection import Arrived, Connection
    from dragoman.client.follow import Received
    from dragoman.dialects.dialect import Result
    from dragoman.engine.execute.context import Context
    from dragoman.model.operation import SubscribeToTaskRequest
    from dragoman.model.task import Artifact

# Where a conversation's other name is kept in its state.
STATE = "dragoman.remote"
GOODBYE = 10.0
_HEARD = 1.0


class Errand:
    """One run: from the message to the end of what it does over there, or to a question."""

    def __init__(self, connection: Connection, retries: int, ctx: Context, limit: int | None = None) -> None:
        self._connection = connection
        self._retries = retries
        self._limit = limit
        self._ctx = ctx
        self.task_id: str | None = None
        self._asked = ""
        if ctx.resume is not None and isinstance(ctx.resume.ref, dict):
            ref = cast("dict[str, Any]", ctx.resume.ref)
            self.task_id, self._asked = ref.get("task"), ref.get("asked", "")
        # What comes back at once when something is said; after a restart it is asked for anew.
        self._events: AsyncGenerator[Event, None] | None = None
        self._first: asyncio.Task[Event] | None = None
        self._telling: list[asyncio.Task[Result]] = []
        self._begun = {artifact.artifact_id for artifact in ctx.artifacts}
        self._remark: object = None

    async def outputs(self) -> AsyncGenerator[Any, None]:
        """What the run yields."""
        # Kept before anything is passed on: whatever our callers see belongs to a task that is known after a restart.
        said = await self._ctx.once(f"remote {len(self._ctx.answered)}", self._say, retry=True)
        if said.get("context"):
            self._ctx.state[STATE] = said["context"]
        if "message" in said:
            message = msgspec.convert(said["message"], Message)
            if message.parts and not self._begun:
                yield Conclude(message.parts)
            else:
                await self._ctx.artifact(*message.parts, name="message")
            return
        self.task_id = said["task"]
        telling = asyncio.ensure_future(self._pass_on())
        try:
            async with aclosing(self._told()) as events:
                async for event in events:
                    output = await self._taken(event)
                    if output is not None:
                        yield output
                        return
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling

    async def cancel(self) -> None:
        """Cancel the work over there."""
        try:
            async with asyncio.timeout(GOODBYE):
                if self.task_id is None and self._first is not None:
                    # It has been asked for and may have begun: that is told with the first event.
                    task = (await self._first).task
                    self.task_id = None if task is None else task.id
                if self.task_id is not None:
                    await self._connection.perform(Operation.CANCEL, CancelTaskRequest(self.task_id))
        except (DragomanError, TimeoutError) as error:
            self._ctx.log.warning("task %s of the agent behind was not canceled: %s", self.task_id, error)

    async def close(self) -> None:
        """Listen no more."""
        left: list[asyncio.Task[Any]] = [*self._telling, *(() if self._first is None else (self._first,))]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if self._events is not None:
            await self._events.aclose()

    # -- what is sent --------------------------------------------------------------------------------------------------

    async def _say(self) -> dict[str, Any]:
        """Say what the caller said, and wait until it is taken in. The result is kept: it is said once."""
        if self.task_id is not None and not await self._is_asking():
            return {"task": self.task_id}
        following = Following(self._connection, self._retries, limit=self._limit)
        # Who does not stream is not asked to wait with the answer: the sooner the task is known, the less can be lost.
        request = self._request(self._ctx.message, wait=self.task_id is not None)
        self._events = following.message(request)
        self._first = asyncio.ensure_future(_first(self._events))
        await asyncio.shield(self._first)
        result = following.result
        if isinstance(result, Message):
            return {"message": result, "context": result.context_id}
        assert result is not None
        self.task_id = result.id
        if not result.context_id:
            # In 0.1 streams do not name the conversation.
            result = await self._look()
        return {"task": result.id, "context": result.context_id}

    async def _is_asking(self) -> bool:
        """True when it still waits for this answer.

        It may have gone on by itself, or have got the answer before a crash and be asking something else.
        """
        task = await self._look()
        return task.state.waiting and _text(task.status) in ("", self._asked)

    async def _look(self) -> Task:
        assert self.task_id is not None
        task = await self._connection.perform(Operation.GET, GetTaskRequest(self.task_id))
        assert isinstance(task, Task)
        return task

    async def _pass_on(self) -> None:
        """Pass on what the caller says while the work goes on. After a restart all of it is heard again."""
        async for message in self._ctx.messages():
            try:
                await self._ctx.once(f"remote message {message.message_id}", self._tell, message, retry=True)
            except DragomanError as error:
                self._ctx.log.warning("a message was not taken by the agent behind: %s", error)

    async def _tell(self, message: Message) -> None:
        telling = asyncio.ensure_future(self._connection.perform(Operation.SEND, self._request(message, wait=False)))
        self._telling.append(telling)
        # Some answer only when the task has ended: who has not said no by now has heard it.
        await asyncio.wait((telling,), timeout=_HEARD)
        if telling.done():
            self._telling.remove(telling)
            await telling

    def _request(self, message: Message, *, wait: bool) -> SendMessageRequest:
        outgoing = Message(
            self._named(f"message {message.message_id}"),
            Role.USER,
            message.parts,
            self._ctx.state.get(STATE),
            self.task_id,
            message.metadata,
        )
        own = message.metadata or {}
        beside = {key: value for key, value in self._ctx.metadata.items() if key not in own or own[key] != value}
        return SendMessageRequest(
            outgoing,
            SendMessageConfiguration(return_immediately=not wait),
            metadata=beside or None,
            new_task_id=self._named("task") if self.task_id is None else None,
        )

    def _named(self, what: str) -> str:
        """An id that is the same after a restart, so that it is done once by those who know messages by their ids.

        Not the caller's own: to the agent behind all callers are one, and one could name what is another's.
        """
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._ctx.task_id} {what}"))

    # -- what comes back -----------------------------------------------------------------------------------------------

    async def _told(self) -> AsyncGenerator[Event, None]:
        """What happens over there; after a restart, what our callers have not seen yet."""
        events = self._events
        if events is None or self._first is None:
            # How an agent is best listened to is known once it has been spoken to.
            await self._look()
            known = cast("Connection", _Known(self._connection, self._seen()))
            events = self._events = Following(known, self._retries, limit=self._limit).task(self.task_id or "")
        else:
            yield await self._first
        async for event in events:
            yield event

    def _seen(self) -> Task:
        """What our callers have seen of the task over there."""
        context_id: str = self._ctx.state.get(STATE, "")
        return Task(self.task_id or "", context_id, TaskStatus(State.WORKING), self._ctx.artifacts)

    async def _taken(self, event: Event) -> Ask | Conclude | None:
        """Take an event in; what is returned ends the run."""
        raw = event.raw
        if isinstance(raw, ArtifactUpdate):
            await self._artifact(raw.artifact, raw.append, raw.last_chunk, raw.metadata)
            return None
        if isinstance(raw, Message):
            await self._say_on_the_way(raw, None)
            return None
        if isinstance(raw, Task):
            # Some end with the whole task after they have told all of it.
            for missed in missed_events(self._seen(), raw):
                if isinstance(missed.event, ArtifactUpdate):
                    await self._artifact(missed.event.artifact, missed.event.append, raw.state.final, None)
            message, goes_on = raw.status.message, not (raw.state.final or raw.state.waiting)
            if goes_on and message is not None and message.parts == self._remark:
                return None
            return await self._stands(raw.status, None)
        return await self._stands(raw.status, raw.metadata)

    async def _artifact(
        self, artifact: Artifact, append: bool, last_chunk: bool, metadata: dict[str, Any] | None
    ) -> None:
        # There are clients that throw away what continues an artifact that they have not seen begin.
        append = append and artifact.artifact_id in self._begun
        self._begun.add(artifact.artifact_id)
        await self._ctx.update_artifact(artifact, append=append, last_chunk=last_chunk, metadata=metadata)

    async def _stands(self, status: TaskStatus, metadata: dict[str, Any] | None) -> Ask | Conclude | None:
        state, message, text = status.state, status.message, _text(status)
        if state.waiting:
            parts = () if message is None else tuple(part for part in message.parts if part.text is None)
            auth = state is State.AUTH_REQUIRED
            question = text or ("authentication required" if auth else "input required")
            return Ask(question, ref={"task": self.task_id, "asked": text}, auth=auth, details=parts)
        if state is State.FAILED:
            raise Failed(text or "the agent behind this one failed")
        if state is State.REJECTED:
            raise Rejected(text or "the agent behind this one refused")
        if state is State.CANCELED:
            raise Failed(text or "canceled by the agent behind this one")
        if message is not None:
            if state is State.COMPLETED and message.parts and not self._begun:
                return Conclude(message.parts)
            await self._say_on_the_way(message, metadata)
        return None

    async def _say_on_the_way(self, message: Message, metadata: dict[str, Any] | None) -> None:
        self._remark = message.parts
        if message.text:
            done, total = (_number((metadata or {}).get(key)) for key in ("done", "total"))
            await self._ctx.progress(message.text, done, total)


class _Known:
    """A connection that tells of a task first as it is known here, and then breaks: what follows is what is new."""

    def __init__(self, connection: Connection, known: Task) -> None:
        self._connection = connection
        self._known: Task | None = known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def open_stream(
        self,
        operation: Operation,
        request: SendMessageRequest | SubscribeToTaskRequest,
        after: int | None,
        received: Received | None = None,
    ) -> AsyncGenerator[Sequence[Arrived], None]:
        known, self._known = self._known, None
        if known is not None:
            yield [Missed(0, known)]
            raise CannotConnect("this server was restarted", reason="CONNECTION_LOST")
        async with aclosing(self._connection.open_stream(operation, request, after, received)) as batches:
            async for batch in batches:
                yield batch


async def _first(events: AsyncGenerator[Event, None]) -> Event:
    async for event in events:
        return event
    raise BadResponse("it said nothing")


def _text(status: TaskStatus) -> str:
    return status.message.text if status.message is not None else ""


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
