"""A foreign agent as an agent of ours: durable, resumable, readable in every version."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.client.difference import missed_events
from dragoman.client.event import Event
from dragoman.client.following import Following
from dragoman.engine.outputs import Ask, Reply
from dragoman.model.error import A2AError, CannotConnect, DragomanError, Failed, Rejected
from dragoman.model.event import ArtifactUpdate
from dragoman.model.ids import is_uuid
from dragoman.model.message import Message
from dragoman.model.operation import Operation
from dragoman.model.request import (
    CancelTaskRequest,
    GetTaskRequest,
    SendMessageConfiguration,
    SendMessageRequest,
)
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.client.connection import Connection
    from dragoman.engine.context import Context

# Where a conversation's other name is kept in its state, and under which key a task's.
_STATE = "dragoman.remote"
_ONCE = "remote"
_GOODBYE = 10.0


class RemoteAgent:
    """The `run` of an agent that stands in front of another. `connect` makes the connection when it is first needed."""

    def __init__(self, connect: Callable[[], Connection], *, retries: int = 5) -> None:
        self._connect = connect
        self._retries = retries
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        """The way to the agent behind."""
        if self._connection is None:
            self._connection = self._connect()
            await self._connection.open()
        return self._connection

    async def close(self) -> None:
        """Let go of the agent behind; its tasks go on."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def run(self, ctx: Context) -> AsyncGenerator[Any, None]:
        """Pass a message on, and everything that comes back."""
        errand = _Errand(await self.connection(), self._retries, ctx)
        try:
            async with aclosing(errand.outputs()) as outputs:
                async for output in outputs:
                    yield output
        except asyncio.CancelledError:
            # Canceled by its caller, the work behind is canceled too; when the server stops, it goes on.
            if ctx.cancelled:
                await errand.cancel()
            raise
        except A2AError as error:
            raise Failed(f"the agent behind this one says: {error.message}") from error
        except CannotConnect as error:
            ctx.log.warning("the agent behind cannot be reached: %s", error)
            raise Failed("the agent behind this one cannot be reached") from error
        except (Failed, Rejected):
            raise
        except DragomanError as error:
            ctx.log.warning("the agent behind cannot be understood: %s", error)
            raise Failed("the agent behind this one cannot be understood") from error


class _Errand:
    """One run: from the message to the end of what it does over there, or to a question."""

    def __init__(self, connection: Connection, retries: int, ctx: Context) -> None:
        self._connection = connection
        self._retries = retries
        self._ctx = ctx
        self._task_id: str | None = None
        self._status: TaskStatus | None = None
        # The first thing said after an answer may be the task as it was when it asked.
        self._stale = False

    async def outputs(self) -> AsyncGenerator[Any, None]:
        """What the run yields."""
        resume = self._ctx.resume
        if resume is not None and isinstance(resume.ref, dict):
            self._task_id = cast("dict[str, Any]", resume.ref).get("task")
            self._stale = True
            events = await self._answered()
        else:
            events = self._begun()
        told = asyncio.ensure_future(self._pass_on())
        try:
            async with aclosing(events):
                async for event in events:
                    for output in await self._taken(event):
                        yield output
                        return
            if self._status is not None and not self._status.state.final:
                for output in await self._stands(self._status):
                    yield output
                    return
                raise Failed("the agent behind this one stopped in the middle")
        finally:
            told.cancel()
            with suppress(asyncio.CancelledError):
                await told

    async def cancel(self) -> None:
        """Cancel the work over there."""
        if self._task_id is None:
            return
        try:
            async with asyncio.timeout(_GOODBYE):
                await self._connection.perform(Operation.CANCEL, CancelTaskRequest(self._task_id))
        except (DragomanError, TimeoutError) as error:
            self._ctx.log.warning("task %s of the agent behind could not be canceled: %s", self._task_id, error)

    # -- what is sent --------------------------------------------------------------------------------------------------

    async def _begun(self) -> AsyncGenerator[Event, None]:
        """The events of a new task. After a restart it is taken up where it is: it was begun once."""
        fresh: list[AsyncGenerator[Event, None]] = []
        first: list[Event] = []

        async def begin() -> str | None:
            following = Following(self._connection, self._retries)
            events = following.message(self._request(self._ctx.message, None))
            fresh.append(events)
            async for event in events:
                first.append(event)
                break
            answer = following.result
            return answer.id if isinstance(answer, Task) else None

        try:
            self._task_id = await self._ctx.once(_ONCE, begin)
            if not fresh:
                async with aclosing(self._caught_up()) as events:
                    async for event in events:
                        yield event
                return
            for event in first:
                yield event
            async for event in fresh[0]:
                yield event
        finally:
            for events in fresh:
                await events.aclose()

    async def _answered(self) -> AsyncGenerator[Event, None]:
        """The events after an answer; where it has gone on by itself meanwhile, the answer comes too late."""
        task = await self._look()
        if not task.state.waiting or self._ctx.restarted:
            return self._caught_up()
        following = Following(self._connection, self._retries)
        return following.message(self._request(self._ctx.message, self._task_id))

    def _caught_up(self) -> AsyncGenerator[Event, None]:
        assert self._task_id is not None
        return Following(self._connection, self._retries, seen=self._seen()).task(self._task_id)

    async def _pass_on(self) -> None:
        """Pass on what the caller says while the work goes on."""
        async for message in self._ctx.messages():
            if self._task_id is not None:
                request = self._request(message, self._task_id, wait=False)
                try:
                    await self._connection.perform(Operation.SEND, request)
                except DragomanError as error:
                    self._ctx.log.warning("a message was not taken by the agent behind: %s", error)

    def _request(self, message: Message, task_id: str | None, *, wait: bool = True) -> SendMessageRequest:
        # The same id when it is sent again after a restart: who knows messages by their ids does the work once.
        said = message.message_id
        message_id = said if is_uuid(said) else str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._ctx.task_id} {said}"))
        outgoing = Message(
            message_id,
            Role.USER,
            message.parts,
            self._ctx.state.get(_STATE),
            task_id,
            message.metadata,
        )
        new_task_id = None if task_id else self._ctx.task_id
        return SendMessageRequest(
            outgoing, SendMessageConfiguration(return_immediately=not wait), new_task_id=new_task_id
        )

    async def _look(self) -> Task:
        assert self._task_id is not None
        task = await self._connection.perform(Operation.GET, GetTaskRequest(self._task_id))
        assert isinstance(task, Task)
        return task

    def _seen(self) -> Task:
        """What our callers have seen of the task over there."""
        return Task(self._task_id or "", "", TaskStatus(State.WORKING), self._ctx.artifacts)

    # -- what comes back -----------------------------------------------------------------------------------------------

    async def _taken(self, event: Event) -> list[Ask | Reply]:
        """Take an event in; what is returned ends the run."""
        raw = event.raw
        if isinstance(raw, Message):
            return [Reply(raw.parts)]
        if isinstance(raw, ArtifactUpdate):
            await self._ctx.update_artifact(
                raw.artifact, append=raw.append, last_chunk=raw.last_chunk, metadata=raw.metadata
            )
            return []
        self._task_id = raw.id if isinstance(raw, Task) else raw.task_id
        if raw.context_id:
            self._ctx.state[_STATE] = raw.context_id
        if isinstance(raw, Task):
            for missed in missed_events(self._seen(), raw):
                if isinstance(missed.event, ArtifactUpdate):
                    await self._ctx.update_artifact(missed.event.artifact, append=missed.event.append)
        self._status = raw.status
        if self._stale and isinstance(raw, Task) and raw.state.waiting:
            self._stale = False
            return []
        self._stale = False
        return await self._stands(raw.status)

    async def _stands(self, status: TaskStatus) -> list[Ask | Reply]:
        state, message = status.state, status.message
        text = message.text if message is not None else ""
        if state.waiting:
            parts = () if message is None else tuple(part for part in message.parts if part.text is None)
            auth = state is State.AUTH_REQUIRED
            question = text or ("authentication required" if auth else "input required")
            return [Ask(question, ref={"task": self._task_id}, auth=auth, details=parts)]
        if state is State.FAILED:
            raise Failed(text or "the agent behind this one failed")
        if state is State.REJECTED:
            raise Rejected(text or "the agent behind this one refused")
        if state is State.CANCELED:
            raise Failed(text or "canceled by the agent behind this one")
        if state is State.COMPLETED and message is not None and not self._ctx.artifacts:
            return [Reply(message.parts)]
        if text:
            await self._ctx.progress(text)
        return []


def card_of_remote(card: Any) -> dict[str, Any]:
    """What an agent in front says on its card like the one behind."""
    modern: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(card))
    kept = ("skills", "defaultInputModes", "defaultOutputModes", "provider", "documentationUrl", "iconUrl")
    shown = {key: modern[key] for key in kept if key in modern}
    for skill in shown.get("skills", ()):
        # Who may use a skill over there is between that agent and us.
        skill.pop("securityRequirements", None)
    return shown
