"""The author's side, an `AgentExecutor`, and the bridge that makes one the `run` of an agent."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from dragoman.compat.executor.event_queue import EventQueues
from dragoman.compat.executor.types import (
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from dragoman.engine.execute.outputs import Ask, Conclude
from dragoman.model.error import ConfigError, Failed, InvalidAgentResponse, Rejected
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from dragoman.compat.executor.event_queue import EventQueue
    from dragoman.compat.executor.result import Failure
    from dragoman.compat.executor.task_store import TaskStore
    from dragoman.engine.execute.context import Context
    from dragoman.model.message import Message as ModelMessage
    from dragoman.model.task import Artifact
    from dragoman.model.task import TaskStatus as ModelStatus


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What an executor knows about a request. `task` is there when the message goes on with an earlier task."""

    task_id: str
    context_id: str
    message: Message
    queue: EventQueue
    task: Task | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


class AgentExecutor(ABC):
    """Does the work of an agent, and says what happens by `await context.queue.enqueue(event)`.

    Returning ends the task as completed, unless an event said otherwise. Raising ends it as failed.
    """

    @abstractmethod
    async def execute(self, context: RequestContext, task_id: str) -> Failure | None:
        """Work on a message. `("error", reason)` fails the task with "execution failed: reason"."""

    @abstractmethod
    async def cancel(self, context: RequestContext, task_id: str) -> Failure | None:
        """Stop working on a task that has been canceled; afterwards `execute` is itself cancelled."""


ExecutorSpec: TypeAlias = AgentExecutor | type[AgentExecutor] | tuple[type[AgentExecutor], Any]


def executor_of(spec: ExecutorSpec) -> AgentExecutor:
    """The executor a spec means: one, a class of one, or a class and the configuration to make one with.

    Raises:
        ConfigError: it is none of these.
    """
    made = cast("object", spec)
    if isinstance(made, tuple):
        implementation, config = cast("tuple[Any, Any]", made)
        made = implementation(config) if isinstance(implementation, type) else None
    elif isinstance(made, type):
        made = made()
    if not isinstance(made, AgentExecutor):
        raise ConfigError("an executor is an AgentExecutor, a class of one, or a pair of such a class and its config")
    return made


_QUESTIONS = {State.INPUT_REQUIRED: "input required", State.AUTH_REQUIRED: "authentication required"}


class _End(NamedTuple):
    """The executor said how the task ends: with an output, with an exception, or plainly."""

    output: Conclude | None = None
    error: Exception | None = None


def run_of(
    executor: ExecutorSpec, *, queues: EventQueues | None = None, task_store: TaskStore | None = None
) -> Callable[[Context], AsyncIterator[Any]]:
    """Make an executor the low-level `run` of an Agent.

    With `task_store`, an executor that goes on with a task finds its artifacts in `context.task` too.

    Raises:
        ConfigError: this is no executor.
    """
    # A partial and not a closure: an Agent looks into functions for replies without a task, and here every message
    # has a task from the start.
    return partial(_run, executor_of(executor), queues if queues is not None else EventQueues(), task_store)


async def _run(
    executor: AgentExecutor, queues: EventQueues, task_store: TaskStore | None, ctx: Context
) -> AsyncGenerator[Any, None]:
    queue = queues.get_or_create(ctx.task_id)
    try:
        context = await _context(ctx, queue, task_store)
        # Without a task store nobody can say whether an earlier run left artifacts: they must be expected.
        has_artifacts = context.task is not None and (task_store is None or bool(context.task.artifacts))
        bridge = _Bridge(executor, ctx, context, has_artifacts=has_artifacts)
        async with aclosing(bridge.outputs()) as outputs:
            async for output in outputs:
                yield output
    finally:
        queue.close()


async def _context(ctx: Context, queue: EventQueue, task_store: TaskStore | None) -> RequestContext:
    task: Task | None = None
    if ctx.resume is not None or ctx.restarted:
        kept = await task_store.get(ctx.task_id) if task_store is not None else None
        if kept is not None and kept[0] == "ok":
            task = kept[1]
        else:
            history = tuple(Message.from_model(message) for message in ctx.history)
            task = Task(ctx.task_id, ctx.context_id, TaskStatus(TaskState.WORKING), history=history)
    message = Message.from_model(ctx.message)
    return RequestContext(ctx.task_id, ctx.context_id, message, queue, task, ctx.metadata)


class _Bridge:
    """One run of an executor."""

    def __init__(self, executor: AgentExecutor, ctx: Context, context: RequestContext, *, has_artifacts: bool) -> None:
        self._executor = executor
        self._ctx = ctx
        self._context = context
        self._queue = context.queue
        self._has_artifacts = has_artifacts

    async def outputs(self) -> AsyncGenerator[Any, None]:
        """Run the executor, and say what it says."""
        events = self._queue.subscribe()
        work = asyncio.create_task(self._execute())
        try:
            async for event in events:
                said = await self._said(event)
                if isinstance(said, Ask):
                    yield said
                    return
                if said is not None:
                    self._queue.close()
                    await self._finished(work)
                    if said.error is not None:
                        raise said.error
                    if said.output is not None:
                        yield said.output
                    return
            # Not `await work`: a cancel must reach the executor's `cancel` before it reaches the work.
            await asyncio.wait([work])
            if work.cancelled():
                # Passed on, it would look as if the server were stopping, and the task would never end.
                raise Failed("execution failed: the executor cancelled itself")
            reason = _reason(work.result())
            if reason is not None:
                raise Failed(f"execution failed: {reason}")
        except asyncio.CancelledError:
            events.leave()
            if self._ctx.cancelled:
                await self._cancel()
            raise
        finally:
            work.cancel()
            await asyncio.wait([work])
            if not work.cancelled():
                work.exception()

    async def _execute(self) -> Failure | None:
        try:
            return await self._executor.execute(self._context, self._context.task_id)
        finally:
            self._queue.close()

    async def _finished(self, work: asyncio.Task[Failure | None]) -> None:
        """Let the executor return; the task's end has been said and stands, whatever happens now."""
        await asyncio.wait([work])
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self._ctx.log.warning("the executor failed after the end of task %s", self._ctx.task_id, exc_info=error)

    async def _cancel(self) -> None:
        try:
            outcome = await self._executor.cancel(self._context, self._context.task_id)
        except Exception:
            self._ctx.log.exception("cancel failed: task %s", self._ctx.task_id)
        else:
            reason = _reason(outcome)
            if reason is not None:
                self._ctx.log.warning("cancel failed: task %s: %s", self._ctx.task_id, reason)

    # -- events ----------------------------------------------------------------------------------------------------

    async def _said(self, event: object) -> Ask | _End | None:
        if isinstance(event, TaskArtifactUpdateEvent):
            update = event.to_model()
            await self._artifact(update.artifact, append=update.append, last_chunk=update.last_chunk)
            return None
        if isinstance(event, TaskStatusUpdateEvent):
            return await self._status(event.to_model().status)
        if isinstance(event, Message):
            return await self._completed(event.to_model())
        if isinstance(event, Task):
            task = event.to_model()
            for artifact in task.artifacts:
                await self._artifact(artifact, append=False, last_chunk=True)
            return await self._status(task.status)
        raise InvalidAgentResponse(f"an executor enqueued a {type(event).__name__}, which is no event")

    async def _artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        self._has_artifacts = True
        await self._ctx.update_artifact(artifact, append=append, last_chunk=last_chunk)

    async def _status(self, status: ModelStatus) -> Ask | _End | None:
        state, message = status.state, status.message
        text = message.text if message is not None else ""
        if state is State.COMPLETED:
            return await self._completed(message)
        if state is State.FAILED:
            return _End(error=Failed(text or "execution failed"))
        if state is State.REJECTED:
            return _End(error=Rejected(text or "rejected"))
        if state is State.CANCELED:
            # A task is canceled by its caller, and then this is only the echo; a run cannot cancel itself.
            return _End(error=Failed(text or "canceled by the agent"))
        if state.waiting:
            return _ask(state, message)
        if state is State.WORKING and text:
            await self._ctx.progress(text)
        return None

    async def _completed(self, message: ModelMessage | None) -> _End:
        if message is None or not message.parts:
            return _End()
        if not self._has_artifacts:
            return _End(Conclude(message.parts))
        # The engine takes a Conclude only without artifacts.
        if message.text:
            await self._ctx.progress(message.text)
        return _End()


def _ask(state: State, message: ModelMessage | None) -> Ask:
    parts = message.parts if message is not None else ()
    auth = state is State.AUTH_REQUIRED
    if parts and parts[0].text is not None:
        return Ask(parts[0].text, auth=auth, details=parts[1:])
    return Ask(_QUESTIONS[state], auth=auth, details=parts)


def _reason(outcome: object) -> str | None:
    """Why an executor says it failed. Whatever else it returns, `"ok"` for instance, is no failure."""
    pair = cast("tuple[Any, ...]", outcome) if isinstance(outcome, tuple) else ()
    return str(pair[1]) if len(pair) == 2 and pair[0] == "error" else None
