"""The base class `AgentExecutor`, and the adapter that turns an executor into the `run` function of an Agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.agents.executor.execution import Execution
from dragoman.compat.executor.event_queue import EventQueue, EventQueues
from dragoman.compat.executor.types import AnyEvent, Message, Task, TaskState, TaskStatus
from dragoman.model.error import ConfigError, Failed, InvalidAgentResponse
from dragoman.model.event import ArtifactUpdate
from dragoman.model.message import Message as ModelMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from dragoman.agents.executor.adapter import ExecutorRequest
    from dragoman.compat.executor.result import Failure
    from dragoman.compat.executor.task_store import TaskStore
    from dragoman.engine.execute.context import Context


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The request that an executor works on. `task` is set when the message continues an earlier task."""

    task_id: str
    context_id: str
    message: Message
    queue: EventQueue
    task: Task | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


class AgentExecutor(ABC):
    """Does the work of an agent, and reports it with `await context.queue.enqueue(event)`.

    When `execute` returns, the task is completed, unless its events have set another final state or ask for input.
    When it raises, the task fails; the text of the exception is only logged, unless it is an `A2AError`.
    """

    @abstractmethod
    async def execute(self, context: RequestContext, task_id: str) -> Failure | None:
        """Work on a message. `("error", reason)` fails the task with "execution failed: reason"."""

    @abstractmethod
    async def cancel(self, context: RequestContext, task_id: str) -> Failure | None:
        """Stop working on a task that has been canceled; afterwards `execute` itself is canceled."""


ExecutorSpec: TypeAlias = AgentExecutor | type[AgentExecutor] | tuple[type[AgentExecutor], Any]


def executor_of(spec: ExecutorSpec) -> AgentExecutor:
    """Build the executor of a spec: an instance, a class, or a class with its configuration.

    Raises:
        ConfigError: the spec is none of these.
    """
    executor = cast("object", spec)
    if isinstance(executor, tuple):
        implementation, config = cast("tuple[Any, Any]", executor)
        executor = implementation(config) if isinstance(implementation, type) else None
    elif isinstance(executor, type):
        executor = executor()
    if not isinstance(executor, AgentExecutor):
        raise ConfigError("an executor is an AgentExecutor, a class of one, or a pair of such a class and its config")
    return executor


def run_of(
    executor: ExecutorSpec, *, queues: EventQueues | None = None, task_store: TaskStore | None = None
) -> Callable[[Context], AsyncIterator[Any]]:
    """Return the `run` function of an Agent that works with this executor.

    With `task_store`, an executor that continues a task finds its artifacts in `context.task` too.

    Raises:
        ConfigError: `executor` is not an executor.
    """
    # A partial, not a closure: an Agent inspects functions for replies without a task, and with an executor every
    # message has a task from the start.
    return partial(_run, executor_of(executor), queues if queues is not None else EventQueues(), task_store)


async def _run(
    executor: AgentExecutor, queues: EventQueues, task_store: TaskStore | None, ctx: Context
) -> AsyncGenerator[Any, None]:
    queue = queues.get_or_create(ctx.task_id)
    try:
        adapter = _Adapter(executor, await _request_context(ctx, queue, task_store), ctx)
        async with aclosing(Execution(adapter, adapter, ctx).run()) as outputs:
            async for output in outputs:
                yield output
    finally:
        queue.close()


async def _request_context(ctx: Context, queue: EventQueue, task_store: TaskStore | None) -> RequestContext:
    task: Task | None = None
    # A task that came from a store of the user's has a history, but no question that the engine remembers.
    if ctx.resume is not None or ctx.restarted or len(ctx.history) > 1:
        stored = await task_store.get(ctx.task_id) if task_store is not None else None
        if stored is not None and stored[0] == "ok":
            task = stored[1]
        else:
            history = tuple(Message.from_model(message) for message in ctx.history)
            task = Task(ctx.task_id, ctx.context_id, TaskStatus(TaskState.WORKING), history=history)
    message = Message.from_model(ctx.message)
    return RequestContext(ctx.task_id, ctx.context_id, message, queue, task, ctx.metadata)


class _Adapter:
    """One run of an executor. Implements both protocols that an `Execution` needs, `Adapter` and `Executor`."""

    one_shot = True

    def __init__(self, executor: AgentExecutor, context: RequestContext, ctx: Context) -> None:
        self._executor = executor
        self._context = context
        self._ctx = ctx
        self._invalid_event: InvalidAgentResponse | None = None

    # -- the adapter ---------------------------------------------------------------------------------------------------

    def context(self, request: ExecutorRequest) -> RequestContext:
        """Return the same context for `execute` and `cancel`."""
        return self._context

    def queue(self, take: Callable[[Any], Awaitable[None]]) -> EventQueue:
        """Return the queue of the task, connected to `take`."""
        self._context.queue.set_forward(partial(self._forward, take))
        return self._context.queue

    def public_error(self, error: BaseException) -> None:
        """There are no errors to translate."""

    async def _forward(self, take: Callable[[Any], Awaitable[None]], event: object) -> None:
        if not isinstance(event, AnyEvent):
            self._invalid_event = InvalidAgentResponse(
                f"an executor enqueued a {type(event).__name__}, which is no event"
            )
            self._context.queue.close()
            raise self._invalid_event
        model = event.to_model()
        await take(model)
        if isinstance(model, ModelMessage) or (not isinstance(model, ArtifactUpdate) and model.status.state.final):
            self._context.queue.close()

    # -- the executor --------------------------------------------------------------------------------------------------

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Work on a message.

        Raises:
            Failed: the executor returned an error with a reason.
            InvalidAgentResponse: it enqueued something that is not an event.
            Exception: whatever the executor raises.
        """
        try:
            reason = _reason(await self._executor.execute(context, context.task_id))
        finally:
            event_queue.close()
        if self._invalid_event is not None:  # the executor may have caught the error
            raise self._invalid_event
        if reason is not None:
            raise Failed(f"execution failed: {reason}")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Stop working on a task. A failure is logged."""
        try:
            reason = _reason(await self._executor.cancel(context, context.task_id))
        except Exception:
            self._ctx.log.exception("cancel failed: task %s", context.task_id)
        else:
            if reason is not None:
                self._ctx.log.warning("cancel failed: task %s: %s", context.task_id, reason)


def _reason(outcome: object) -> str | None:
    """Return the reason of a failure. Whatever else an executor returns, such as `"ok"`, is no failure."""
    pair = cast("tuple[Any, ...]", outcome) if isinstance(outcome, tuple) else ()
    return str(pair[1]) if len(pair) == 2 and pair[0] == "error" else None
