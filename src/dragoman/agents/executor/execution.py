"""One run of an executor: what it enqueues becomes what a run says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.agents.executor.events import event_of
from dragoman.agents.executor.nouns import Situation
from dragoman.clock import wait
from dragoman.engine.execute.outputs import Ask, Conclude
from dragoman.model.error import Failed, Rejected
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.ids import new_id
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from dragoman.agents.executor.nouns import Executor, Nouns
    from dragoman.engine.execute.context import Context
    from dragoman.model.task import Artifact

# How long an executor may take to return after it has asked, before it counts as one that waits for the answer itself.
PATIENCE = 1.0
GOODBYE = 10.0
_QUESTIONS = {State.INPUT_REQUIRED: "input required", State.AUTH_REQUIRED: "authentication required"}


class Execution:
    """One run: from a message to the end of the task, or to a question.

    Artifacts and remarks are passed on while the executor enqueues them. The end of the task counts when it is said,
    a question when `execute` returns.
    """

    def __init__(self, executor: Executor, nouns: Nouns, ctx: Context) -> None:
        self._executor = executor
        self._nouns = nouns
        self._ctx = ctx
        self._queue = nouns.queue(self._take)
        self._known = known_task(ctx)
        self._begun = {artifact.artifact_id for artifact in ctx.artifacts}
        self._said: list[Message] = []
        self._asked: TaskStatus | None = None
        self._end: TaskStatus | None = None
        self._news = asyncio.Event()
        self.work: asyncio.Task[None] | None = None

    async def outputs(self) -> AsyncGenerator[Any, None]:
        """What the run yields. Raises Failed and Rejected, and whatever the executor raises."""
        listening = asyncio.create_task(self._listen())
        message = self._ctx.message
        try:
            while True:
                await self._execute(message)
                if self._end is not None:
                    output = await self._ended(self._end)
                    if output is not None:
                        yield output
                    return
                await asyncio.sleep(0)  # for a message that has come at this very moment
                if not self._said:
                    if self._asked is not None:
                        yield question(self._ctx, self._asked)
                    return
                # Whoever spoke while the executor worked has answered what it asked, if it asked anything.
                message, self._known = self._said.pop(0), self._standing()
                self._asked = None
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    @property
    def over(self) -> bool:
        """True when the executor has said how the task ends."""
        return self._end is not None

    async def cancel(self) -> None:
        """Tell the executor that its caller does not want the task any more."""
        ctx = self._ctx
        task = Task(ctx.task_id, ctx.context_id, TaskStatus(State.WORKING), ctx.artifacts, ctx.history)
        await canceled(self._executor, self._nouns, self._queue, self._situation(None, task))

    async def _listen(self) -> None:
        async for message in self._ctx.messages():
            self._said.append(message)

    # -- the executor --------------------------------------------------------------------------------------------------

    async def _execute(self, message: Message) -> None:
        """Let the executor work until it returns, or has said how the task ends."""
        context = self._nouns.context(self._situation(message, self._known))
        self.work = work = asyncio.create_task(self._work(context))
        work.add_done_callback(lambda _: self._news.set())
        shown: TaskStatus | None = None
        while self._end is None and not work.done():
            asked = self._asked
            if asked is not None and asked is not shown:
                if not await wait(self._ctx.clock, work, PATIENCE) and self._asked is asked:
                    # It waits for the answer itself, which comes on some other way: callers must hear of it.
                    shown = asked
                    await self._ctx.progress(_text(asked) or _QUESTIONS[asked.state])
                continue
            self._news.clear()
            await self._news.wait()
        if self._end is None:
            self._returned(work)

    async def _work(self, context: Any) -> None:
        try:
            await self._executor.execute(context, self._queue)
        except SystemExit as error:
            # Out of a task of its own it would end the event loop, and all that others do there.
            raise RuntimeError(f"the executor wanted to end the program: SystemExit({error.code!r})") from error

    def _returned(self, work: asyncio.Task[None]) -> None:
        if work.cancelled():
            # Passed on, it would look as if the server were stopping, and the task would never end.
            raise Failed("execution failed: the executor cancelled itself")
        error = work.exception()
        if error is None:
            return
        text = self._nouns.public_text(error)
        if text is not None:
            raise Failed(text) from error
        raise error

    def _situation(self, message: Message | None, task: Task | None) -> Situation:
        ctx = self._ctx
        return Situation(
            ctx.task_id, ctx.context_id, message, task, ctx.metadata, ctx.user, ctx.tenant, frozenset(ctx.extensions)
        )

    def _standing(self) -> Task:
        ctx = self._ctx
        status = self._asked or TaskStatus(State.WORKING)
        return Task(ctx.task_id, ctx.context_id, status, ctx.artifacts, ctx.history)

    # -- what it says --------------------------------------------------------------------------------------------------

    async def _take(self, value: Any) -> None:
        event = event_of(value)
        if self._end is not None:
            self._ctx.log.warning("the executor goes on after the end of task %s", self._ctx.task_id)
            return
        if self._ctx.cancelled:  # what `cancel` says has come true already
            return
        if isinstance(event, ArtifactUpdate):
            await self._artifact(event.artifact, event.append, event.last_chunk, event.metadata)
        elif isinstance(event, StatusUpdate):
            await self._status(event.status, event.metadata)
        elif isinstance(event, Task):
            await self._task(event)
        else:
            self._finish(TaskStatus(State.COMPLETED, event))

    async def _artifact(
        self, artifact: Artifact, append: bool, last_chunk: bool, metadata: dict[str, Any] | None
    ) -> None:
        # What continues an artifact that was never begun is thrown away by clients: it begins it.
        append = append and artifact.artifact_id in self._begun
        self._begun.add(artifact.artifact_id)
        await self._ctx.update_artifact(artifact, append=append, last_chunk=last_chunk, metadata=metadata)

    async def _task(self, task: Task) -> None:
        """Take a whole task. Many executors begin with one, after a pause with the one they were given."""
        known = self._known
        before = {artifact.artifact_id: artifact for artifact in known.artifacts} if known is not None else {}
        for artifact in task.artifacts:
            if before.get(artifact.artifact_id) != artifact:
                await self._artifact(artifact, append=False, last_chunk=True, metadata=None)
        if known is None or known.state is not task.state or not known.state.waiting:
            await self._status(task.status, None)

    async def _status(self, status: TaskStatus, metadata: dict[str, Any] | None) -> None:
        state = status.state
        if state.final:
            self._finish(status)
        elif state.waiting:
            self._asked = status
            self._news.set()
        else:
            self._asked = None
            text = _text(status)
            if text:
                done, total = (_number((metadata or {}).get(key)) for key in ("done", "total"))
                await self._ctx.progress(text, done, total)

    def _finish(self, status: TaskStatus) -> None:
        self._end, self._asked = status, None
        self._news.set()

    async def _ended(self, status: TaskStatus) -> Conclude | None:
        state, message, text = status.state, status.message, _text(status)
        if state is State.FAILED:
            raise Failed(text or "execution failed")
        if state is State.REJECTED:
            raise Rejected(text or "rejected")
        if state is State.CANCELED:
            # A task is canceled by its caller; what cancels itself has not done what it was asked for.
            raise Failed(text or "canceled by the agent")
        if message is None or not message.parts:
            return None
        if not self._ctx.artifacts:
            return Conclude(message.parts)
        # The engine ends a task that has artifacts without a message.
        if text:
            await self._ctx.progress(text)
        return None


def question(ctx: Context, status: TaskStatus) -> Ask:
    """The question of an executor. It comes back with the answer, so that the executor finds the task as it left it."""
    parts = status.message.parts if status.message is not None else ()
    ref = {"task": ctx.task_id, "context": ctx.context_id, "status": msgspec.to_builtins(status)}
    auth = status.state is State.AUTH_REQUIRED
    if parts and parts[0].text:
        return Ask(parts[0].text, ref=ref, auth=auth, details=parts[1:])
    return Ask(_QUESTIONS[status.state], ref=ref, auth=auth, details=parts)


def known_task(ctx: Context) -> Task | None:
    """The task a message goes on with, as the executor left it; None when it begins one."""
    answered = ctx.resume
    if answered is None:
        return None
    status = asked_status(answered.ref)
    if status is None:  # asked by whatever this agent was made from before
        said = Message(new_id(), Role.AGENT, (Part(text=answered.question),), ctx.context_id, ctx.task_id)
        status = TaskStatus(State.INPUT_REQUIRED, said)
    return Task(ctx.task_id, ctx.context_id, status, ctx.artifacts, ctx.history)


def asked_status(ref: Any) -> TaskStatus | None:
    """The status in which a question left the task; None when an executor did not ask it."""
    try:
        return msgspec.convert(ref["status"], TaskStatus)
    except (TypeError, KeyError, msgspec.ValidationError):
        return None


async def canceled(executor: Executor, nouns: Nouns, queue: Any, situation: Situation) -> None:
    """Call `cancel`. The task has ended already, so that it has no say in that; raises what the executor raises."""
    async with asyncio.timeout(GOODBYE):
        await executor.cancel(nouns.context(situation), queue)


def _text(status: TaskStatus) -> str:
    return status.message.text if status.message is not None else ""


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
