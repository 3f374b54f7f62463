"""One run of an executor: turns the events it enqueues into the outputs of an agent run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.agents.executor.adapter import ExecutorRequest
from dragoman.agents.executor.events import parse_event
from dragoman.agents.executor.remarks import MAX_REMARK_BYTES, Remarks
from dragoman.clock import wait
from dragoman.engine.execute.context import AgentStatus
from dragoman.engine.execute.outputs import Ask, Done, Reply
from dragoman.model.error import Failed, Rejected
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.ids import new_id
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.agents.executor.adapter import Adapter, Executor
    from dragoman.engine.execute.context import Context
    from dragoman.model.task import Artifact

logger = logging.getLogger("dragoman.agent")

# Seconds an executor may take to return after it has asked, before it is assumed to wait for the answer itself.
ASK_GRACE = 1.0
CANCEL_TIMEOUT = 10.0
_QUESTIONS = {State.INPUT_REQUIRED: "input required", State.AUTH_REQUIRED: "authentication required"}


class Execution:
    """One run, from a message to the end of the task or to a question.

    Artifacts and progress are passed on as the executor enqueues them. The end of the task takes effect when it is
    enqueued, a question when `execute` returns; for a `one_shot` adapter it is the other way round. Executors that
    continue after the end of their task are in `finishing` until they return.
    """

    def __init__(
        self, executor: Executor, adapter: Adapter, ctx: Context, finishing: set[asyncio.Task[None]] | None = None
    ) -> None:
        self._executor = executor
        self._adapter = adapter
        self._one_shot = adapter.one_shot
        self._ctx = ctx
        self._finishing: set[asyncio.Task[None]] = set() if finishing is None else finishing
        self._queue = adapter.queue(self._take)
        self._task = None if self._one_shot else resumed_task(ctx)
        self._started_artifacts = {artifact.artifact_id for artifact in ctx.artifacts}
        self._messages: list[Message] = []
        self._question: TaskStatus | None = None
        self._end: TaskStatus | None = None
        self._metadata: dict[str, Any] | None = None  # of the question or the end
        self._ends_with_message = False
        # What the executor wrote while it worked, since the caller's last message: the answer, if there is no artifact.
        # Progress is not in it.
        self._remarks = Remarks()
        self._wakeup = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def run(self) -> AsyncGenerator[Any, None]:
        """Yield the outputs of the run.

        Raises:
            Failed: the executor reports a failure, cancels its own task, or raises an error that callers may read.
            Rejected: the executor rejects the message.
            Exception: any other exception of the executor.
        """
        listener = None if self._one_shot else asyncio.create_task(self._listen())
        message = self._ctx.message
        try:
            while True:
                await self._execute(message)
                if self._end is not None:
                    self._keep_own(self._end)
                    output = self._conclude(self._end)
                    if output is not None:
                        yield output
                    return
                await asyncio.sleep(0)  # lets a message that has just arrived be queued
                if not self._messages:
                    if self._question is not None:
                        self._keep_own(self._question)
                        yield build_question(self._ctx, self._question)
                    elif (answer := self._answer_in_remarks()) is not None:
                        yield answer
                    return
                # A message sent while the executor worked is the answer to its question, if it asked one.
                message, self._task = self._messages.pop(0), self._snapshot(self._question)
                self._question = None
                self._remarks.clear()
        except asyncio.CancelledError:
            if not self._over and await self._ctx.journaled_end() is not None:
                situation = self._request(None, self._snapshot(None))
                await cancel_executor(self._executor, self._adapter, self._queue, situation)
            await stop(self._work)
            raise
        finally:
            if listener is not None:
                listener.cancel()
                with suppress(asyncio.CancelledError):
                    await listener
            if not self._over:
                await stop(self._work)
            elif self._work is not None:
                # Also when it has returned already: what it raised after the end is logged nowhere else.
                self._finishing.add(self._work)
                self._work.add_done_callback(partial(self._on_finished, self._ctx.task_id))

    @property
    def _over(self) -> bool:
        """True when the end of the task has taken effect."""
        return self._end is not None and (not self._one_shot or self._work is None or self._work.done())

    @property
    def _settled(self) -> bool:
        """True when further events of the executor are ignored."""
        return self._end is not None or (self._one_shot and self._question is not None)

    async def _listen(self) -> None:
        async for message in self._ctx.messages():
            self._messages.append(message)

    def _on_finished(self, task_id: str, work: asyncio.Task[None]) -> None:
        self._finishing.discard(work)
        error = None if work.cancelled() else work.exception()
        if error is not None:
            logger.warning("an executor failed after the end of task %s", task_id, exc_info=error)

    # -- the executor --------------------------------------------------------------------------------------------------

    async def _execute(self, message: Message) -> None:
        """Run the executor until it returns, ends the task, or asks and is stopped for that."""
        context = self._adapter.context(self._request(message, self._task))
        self._work = work = asyncio.create_task(self._call(context))
        work.add_done_callback(lambda _: self._wakeup.set())
        reported: TaskStatus | None = None
        while not (self._settled or work.done()):
            question = self._question
            if question is not None and question is not reported:
                if not await wait(self._ctx.clock, work, ASK_GRACE) and self._question is question:
                    # It waits for an answer on some other channel: callers see the question as progress.
                    reported = question
                    await self._ctx.progress(_text(question) or _QUESTIONS[question.state])
                continue
            self._wakeup.clear()
            await self._wakeup.wait()
        if not self._settled:
            self._raise_error(work)
        elif self._one_shot and self._end is not None:
            await asyncio.wait((work,))

    async def _call(self, context: Any) -> None:
        try:
            await self._executor.execute(context, self._queue)
        except SystemExit as error:
            # Raised in an asyncio task, SystemExit would end the event loop and everything on it.
            raise RuntimeError(f"the executor wanted to end the program: SystemExit({error.code!r})") from error

    def _raise_error(self, work: asyncio.Task[None]) -> None:
        if work.cancelled():
            # Raised on, CancelledError would look like a server shutdown, and the task would never end.
            raise Failed("execution failed: the executor cancelled itself")
        error = work.exception()
        if error is None:
            return
        public = self._adapter.public_error(error)
        if public is not None:
            raise public from error
        raise error

    def _request(self, message: Message | None, task: Task | None) -> ExecutorRequest:
        ctx = self._ctx
        return ExecutorRequest(
            ctx.task_id, ctx.context_id, message, task, ctx.metadata, ctx.user, ctx.tenant, frozenset(ctx.extensions)
        )

    def _snapshot(self, status: TaskStatus | None) -> Task:
        ctx = self._ctx
        return Task(ctx.task_id, ctx.context_id, status or TaskStatus(State.WORKING), ctx.artifacts, ctx.history)

    # -- its events ----------------------------------------------------------------------------------------------------

    async def _take(self, value: Any) -> None:
        event = parse_event(value)
        if self._end is not None:
            self._ctx.log.warning("the executor goes on after the end of task %s", self._ctx.task_id)
            return
        if self._settled or self._ctx.cancelled:  # the task is canceled already, whatever `cancel` enqueues
            return
        if isinstance(event, Message):
            self._ends_with_message = not self._one_shot
            self._finish(TaskStatus(State.COMPLETED, event))
            return
        # Who reports on a task has one, also where the event says nothing that callers see.
        self._ctx.open_task()
        if isinstance(event, ArtifactUpdate):
            await self._artifact(event.artifact, event.append, event.last_chunk, event.metadata)
        elif isinstance(event, StatusUpdate):
            await self._status(event.status, event.metadata)
        else:
            await self._whole_task(event)

    async def _artifact(
        self, artifact: Artifact, append: bool, last_chunk: bool, metadata: dict[str, Any] | None
    ) -> None:
        # Clients drop chunks of an artifact that was never started: such a chunk starts it.
        append = append and (self._one_shot or artifact.artifact_id in self._started_artifacts)
        self._started_artifacts.add(artifact.artifact_id)
        self._remarks.clear()
        await self._ctx.update_artifact(artifact, append=append, last_chunk=last_chunk, metadata=metadata)

    async def _whole_task(self, task: Task) -> None:
        """Handle a whole task. Many executors enqueue one first; after a pause, the one they were given."""
        previous = self._task
        before = {artifact.artifact_id: artifact for artifact in previous.artifacts} if previous is not None else {}
        for artifact in task.artifacts:
            if before.get(artifact.artifact_id) != artifact:
                await self._artifact(artifact, append=False, last_chunk=True, metadata=None)
        if previous is None or previous.state is not task.state or not previous.state.waiting:
            await self._status(task.status, None)

    def _keep_own(self, status: TaskStatus) -> None:
        """Let the status of a question or an end keep the metadata and the message id that the executor gave it."""
        if self._one_shot:
            self._ctx.next_status = AgentStatus(status.message, self._metadata)

    async def _status(self, status: TaskStatus, metadata: dict[str, Any] | None) -> None:
        state = status.state
        if state.final or state.waiting:
            self._metadata = metadata
        if state.final:
            self._finish(status)
        elif state.waiting:
            self._question = status
            self._wakeup.set()
        elif self._one_shot:
            self._question = None
            if state is State.WORKING and (metadata or (status.message is not None and status.message.parts)):
                await self._ctx.update_status(status.message, metadata)
        else:
            self._question = None
            text = _text(status)
            done, total = (_number((metadata or {}).get(key)) for key in ("done", "total"))
            message = status.message
            may_be_answer = not self._started_artifacts and done is None and total is None
            if message is not None and may_be_answer and not message.is_progress:
                self._remarks.add(message)
            if text:
                await self._ctx.progress(text, done, total)

    def _finish(self, status: TaskStatus) -> None:
        self._end, self._question = status, None
        self._wakeup.set()

    def _conclude(self, status: TaskStatus) -> Reply | Done | None:
        state, message, text = status.state, status.message, _text(status)
        if state is State.FAILED:
            raise Failed(text or "execution failed")
        if state is State.REJECTED:
            raise Rejected(text or "rejected")
        if state is State.CANCELED:
            # Only the caller cancels a task; an executor that cancels its own has failed.
            raise Failed(text or "canceled by the agent")
        if message is None or not message.parts:
            return self._answer_in_remarks()
        return Reply(message.parts) if self._ends_with_message and not self._ctx.artifacts else Done(*message.parts)

    def _answer_in_remarks(self) -> Done | None:
        """Return what the executor wrote while it worked, if it has given no other answer.

        Some executors answer so. Callers have got it as progress, which is never an answer.
        """
        parts = self._remarks.parts
        if not parts or self._ctx.artifacts:
            return None
        if self._remarks.cut:
            text = "the executor wrote more than %d bytes while it worked on task %s: the answer is only the end of it"
            self._ctx.log.warning(text, MAX_REMARK_BYTES, self._ctx.task_id)
        return Done(*parts)


def build_question(ctx: Context, status: TaskStatus) -> Ask:
    """Build the question of an executor; the status is stored with it, for `resumed_task`."""
    parts = status.message.parts if status.message is not None else ()
    ref = {"task": ctx.task_id, "context": ctx.context_id, "status": msgspec.to_builtins(status)}
    auth = status.state is State.AUTH_REQUIRED
    if parts and parts[0].text:
        return Ask(parts[0].text, ref=ref, auth=auth, details=parts[1:], forwards=True)
    return Ask(_QUESTIONS[status.state], ref=ref, auth=auth, details=parts, forwards=True)


def resumed_task(ctx: Context) -> Task | None:
    """Return the task that the message continues, as the executor left it; None for a new task."""
    answer = ctx.resume
    if answer is None:
        return None
    status = status_from_ref(answer.ref)
    if status is None:  # asked by an earlier implementation of this agent
        message = Message(new_id(), Role.AGENT, (Part(text=answer.question),), ctx.context_id, ctx.task_id)
        status = TaskStatus(State.INPUT_REQUIRED, message)
    return Task(ctx.task_id, ctx.context_id, status, ctx.artifacts, ctx.history)


def status_from_ref(ref: Any) -> TaskStatus | None:
    """Return the status stored with a question; None when it was not an executor's question."""
    try:
        return msgspec.convert(ref["status"], TaskStatus)
    except (TypeError, KeyError, msgspec.ValidationError):
        return None


async def cancel_executor(executor: Executor, adapter: Adapter, queue: Any, request: ExecutorRequest) -> None:
    """Call the executor's `cancel`, with a time limit unless it is `one_shot`. What it raises is logged."""
    try:
        async with asyncio.timeout(None if adapter.one_shot else CANCEL_TIMEOUT):
            await executor.cancel(adapter.context(request), queue)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the executor's own
        logger.warning("the executor could not cancel task %s: %s: %s", request.task_id, type(error).__name__, error)


async def stop(work: asyncio.Task[None] | None) -> None:
    """Cancel the asyncio task of an executor and wait for its end."""
    if work is None:
        return
    if not work.done():
        work.cancel()
        await asyncio.wait((work,))
    if not work.cancelled():
        work.exception()  # retrieved, so that asyncio does not log it


def _text(status: TaskStatus) -> str:
    return status.message.text if status.message is not None else ""


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
