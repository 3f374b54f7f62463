"""The registry of session tasks: starts tasks, answers polls, and fails tasks that time out."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import structs

from dragoman.clock import timestamp, wait
from dragoman.compat.sessions.dialect import task_json
from dragoman.engine.ports.store import Scope
from dragoman.engine.session_id import session_id
from dragoman.model.error import A2AError, TaskNotFound
from dragoman.model.ids import new_id
from dragoman.model.message import DEPTH_KEY, Message
from dragoman.model.operation import GetTaskRequest, SendMessageConfiguration, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dragoman.clock import Clock, Timer
    from dragoman.compat.sessions.dialect import Json, SessionTaskRequest
    from dragoman.compat.sessions.invocation_guard import InvocationGuard
    from dragoman.engine.call import CallContext
    from dragoman.engine.operations import Service
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.quota import Lease

logger = logging.getLogger("dragoman.server")
T = TypeVar("T")
# How many tasks are kept, and how many are dropped at once when there are more.
MAX_TASKS, PRUNE_COUNT = 1000, 100
# Seconds a caller waits for the work to start.
START_SECONDS = 1.0
TIMED_OUT = "Task timed out"
# The first record is the task itself; any later one shows that the run has started or ended.
_FIRST_GENERATION = 1


class AgentEngine(NamedTuple):
    """An agent with the engine that runs its tasks."""

    agent: str
    service: Service
    bus: Bus
    clock: Clock


class _RegistryEntry:
    """One task of the registry."""

    def __init__(self, engine: AgentEngine, call: CallContext, task_id: str, created_ms: int, timeout_ms: int) -> None:
        self.engine = engine
        self.call = call
        self.scope = Scope(engine.agent, call.tenant, call.owner)
        self.task_id = task_id
        self.created_ms = self.changed_ms = created_ms
        self.timeout_ms = timeout_ms
        # Stands in for a task when the agent replied with a message alone.
        self.reply_task: Task | None = None
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.has_ended = False
        self.timer: Timer | None = None
        self.unsubscribe: Callable[[], None] | None = None

    def mark_started(self) -> None:
        """Wake the caller that waits for the work to start."""
        if not self.started.done():
            self.started.set_result(None)

    def stop_watching(self) -> None:
        """Stop the timer and unsubscribe."""
        if self.timer is not None:
            self.timer.cancel()
        if self.unsubscribe is not None:
            self.unsubscribe()
        self.timer = self.unsubscribe = None


class TaskRegistry:
    """Starts tasks of any agent, and returns them to the callers who started them.

    The tasks are the engine's; the registry only has, in memory, the list of those it has started. When there are more
    than `max_tasks`, up to `prune_count` of the oldest that have ended are dropped; running ones never are.
    """

    def __init__(
        self, guard: InvocationGuard | None = None, *, max_tasks: int = MAX_TASKS, prune_count: int = PRUNE_COUNT
    ) -> None:
        self._guard = guard
        self._max_tasks = max_tasks
        self._prune_count = prune_count
        # By task id, oldest first.
        self._entries: dict[str, _RegistryEntry] = {}
        self._background: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """The number of tasks in the registry."""
        return len(self._entries)

    async def send(
        self,
        engine: AgentEngine,
        call: CallContext,
        request: SessionTaskRequest,
        caller: str = "",
        lease: Lease | None = None,
    ) -> Json:
        """Start a task, and return it when its run has started or ended, or after a second.

        An agent that may reply without a task is waited for without this limit, until it has replied or has a task.

        Raises:
            A2AError: the task is not accepted: by the invocation guard, or by the engine.
        """
        if self._guard is not None:
            # Authenticated callers are told apart by user, all others by address.
            source_key = f"user {call.user.id}" if call.user else caller
            self._guard.admit(request.source, request.depth or 0, source_key)
        # Shielded: a caller that disconnects now must not leave a task without a timeout.
        entry = await asyncio.shield(self._spawn(self._start_task(engine, call, request, caller, lease)))
        await wait(engine.clock, entry.started, START_SECONDS)
        return await self._json(entry)

    async def get(self, call: CallContext, task_id: str, agent: str | None = None) -> Json:
        """Return a task that the same caller has started here; with `agent`, only one of that agent.

        Raises:
            TaskNotFound: there is none.
        """
        entry = self._entries.get(task_id)
        if entry is None or entry.scope != Scope(agent or entry.engine.agent, call.tenant, call.owner):
            raise TaskNotFound
        try:
            return await self._json(entry)
        except TaskNotFound:  # retention has deleted it
            entry.stop_watching()
            self._entries.pop(task_id, None)
            raise

    def clear(self) -> None:
        """Drop every task from the registry. Running ones continue, without their timeout."""
        for entry in self._entries.values():
            entry.stop_watching()
        self._entries.clear()

    async def close(self) -> None:
        """Drop every task, then wait for background work. Called after the engines have been closed."""
        self.clear()
        await asyncio.gather(*self._background, return_exceptions=True)

    # -- sending ---------------------------------------------------------------------------------------------------

    async def _start_task(
        self, engine: AgentEngine, call: CallContext, task_request: SessionTaskRequest, caller: str, lease: Lease | None
    ) -> _RegistryEntry:
        call = structs.replace(call, asks=False)
        now = engine.clock.now()
        request = _send_request(task_request)
        result = (await engine.service.send(call, request, caller, lease)).result
        if isinstance(result, Message):
            entry = _RegistryEntry(engine, call, new_id(), now, task_request.timeout_ms)
            entry.reply_task = _task_of_reply(entry.task_id, request.message, result, engine.clock.now())
            entry.has_ended = True
            entry.mark_started()
            self._add(entry)
            return entry
        entry = _RegistryEntry(engine, call, result.id, now, task_request.timeout_ms)
        entry.unsubscribe = engine.bus.add_callback(entry.task_id, partial(self._on_generation, entry))
        self._add(entry)
        # The task may have moved on before the subscription.
        self._on_generation(entry, (await self._task(entry)).generation or _FIRST_GENERATION)
        return entry

    def _add(self, entry: _RegistryEntry) -> None:
        self._entries[entry.task_id] = entry
        self._prune(entry)

    def _prune(self, newest: _RegistryEntry, least: int = 1) -> None:
        """Drop the oldest ended tasks when there are too many tasks, unless fewer than `least` have ended."""
        if len(self._entries) > self._max_tasks:
            ended = (each.task_id for each in self._entries.values() if each.has_ended and each is not newest)
            old = tuple(islice(ended, self._prune_count))
            for task_id in old if len(old) >= least else ():
                del self._entries[task_id]

    # -- watching --------------------------------------------------------------------------------------------------

    def _on_generation(self, entry: _RegistryEntry, generation: int) -> None:
        """Handle a new generation of a task: start its timeout when it runs, finish its entry when the run ends."""
        if entry.unsubscribe is None or generation <= _FIRST_GENERATION:
            return
        engine = entry.engine
        entry.changed_ms = engine.clock.now()
        if not engine.service.is_running(entry.task_id):
            entry.stop_watching()
            self._spawn(self._finish(entry))
        elif entry.timer is None:
            entry.timer = engine.clock.call_later(entry.timeout_ms / 1000, partial(self._time_out, entry))
        entry.mark_started()

    def _time_out(self, entry: _RegistryEntry) -> None:
        """Fail a task whose time is up."""
        self._spawn(self._fail(entry, TIMED_OUT))

    async def _finish(self, entry: _RegistryEntry) -> None:
        """Handle the end of a run: a task that asks for input is failed, as it cannot be answered here."""
        try:
            task = await self._task(entry)
            if task.state.waiting:
                await self._fail(entry, f"the agent asks, and cannot be answered here: {task.question}")
        except A2AError as error:
            logger.warning("task %s cannot be read at its end: %s", entry.task_id, error)
        finally:
            entry.has_ended = True
            # In batches: a task that has just ended will be polled for its result.
            self._prune(entry, self._prune_count)

    async def _fail(self, entry: _RegistryEntry, text: str) -> None:
        try:
            await entry.engine.service.fail(entry.task_id, text)
        except A2AError as error:
            logger.warning("task %s cannot be failed (%s): %s", entry.task_id, text, error)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it; the awaiting caller has it

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _task(self, entry: _RegistryEntry) -> Task:
        if entry.reply_task is not None:
            return entry.reply_task
        result = (await entry.engine.service.get(entry.call, GetTaskRequest(entry.task_id))).result
        assert isinstance(result, Task)
        return result

    async def _json(self, entry: _RegistryEntry) -> Json:
        task = await self._task(entry)
        session = session_id(entry.scope, task.context_id)
        return task_json(task, session_id=session, created_ms=entry.created_ms, changed_ms=entry.changed_ms)


def _send_request(request: SessionTaskRequest) -> SendMessageRequest:
    metadata: dict[str, Any] = {"skillId": request.skill, DEPTH_KEY: request.depth}
    return SendMessageRequest(
        Message(new_id(), Role.USER, (Part(text=request.message),)),
        SendMessageConfiguration(return_immediately=True),
        {name: value for name, value in metadata.items() if value is not None} or None,
    )


def _task_of_reply(task_id: str, message: Message, reply: Message, now: int) -> Task:
    """Build a completed task from a bare message."""
    status = TaskStatus(State.COMPLETED, reply, timestamp(now))
    return Task(task_id, reply.context_id or task_id, status, history=(message,))
