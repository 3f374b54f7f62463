"""Session tasks without HTTP: `handle_task_send` starts one, `handle_task_get` polls it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from dragoman.bus.local import LocalBus
from dragoman.compat.sessions.dialect import parse_task_request
from dragoman.compat.sessions.errors import RateLimitError, ValidationError
from dragoman.compat.sessions.registry import MAX_TASKS, PRUNE_COUNT, AgentEngine, TaskRegistry
from dragoman.compat.sessions.worker import Worker
from dragoman.dialects.table import V1_0
from dragoman.engine.call import CallContext
from dragoman.engine.operations import Service
from dragoman.engine.ports.store import Sweep
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import A2AError, InvalidParams, Overloaded, TaskNotFound
from dragoman.stores.memory import MemoryStore

if TYPE_CHECKING:
    from dragoman.compat.sessions.deps import ProjectAgent, TaskDeps

# Over HTTP the limit is lower; this is the longest timer of JavaScript.
_MAX_TIMEOUT_MS = 2**31 - 1
# How many idle engines are kept for the next task.
_MAX_IDLE_ENGINES = 16


class _Engine(NamedTuple):
    """An engine for one agent and the parts it works with."""

    deps: TaskDeps
    agent: ProjectAgent
    store: MemoryStore
    parts: AgentEngine

    def is_for(self, deps: TaskDeps, agent: ProjectAgent) -> bool:
        own_deps = self.deps
        return (
            self.agent == agent
            and own_deps.process_manager is deps.process_manager
            and own_deps.clock is deps.clock
            and own_deps.create_session == deps.create_session
        )


class _LoopTasks:
    """The tasks of one event loop, with the engines that run them."""

    def __init__(self) -> None:
        self.registry = TaskRegistry()
        self._engines: list[_Engine] = []
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._sent_count = 0

    async def send(self, deps: TaskDeps, body: object) -> dict[str, Any]:
        """Start a task. Raises InvalidParams and Overloaded, which `handle_task_send` converts, and NotFoundError."""
        request = parse_task_request(body, shortest_ms=1, longest_ms=_MAX_TIMEOUT_MS)
        engine = await self._engine(deps, await deps.agent_with_project())
        self._sent_count += 1
        if self._sent_count % PRUNE_COUNT == 0:
            # Tasks that the registry has dropped cannot be polled any more.
            await engine.store.sweep(Sweep(keep_tasks=MAX_TASKS))
        return await self.registry.send(engine.parts, CallContext(origin=V1_0), request)

    async def _engine(self, deps: TaskDeps, agent: ProjectAgent) -> _Engine:
        async with self._opening:
            for existing in self._engines:
                if existing.is_for(deps, agent):
                    return existing
            store, bus = MemoryStore(deps.clock), LocalBus(deps.clock)
            service = Service(Worker(deps, agent), store, bus, deps.clock, EngineSettings(drain=0))
            await store.open()
            await service.start()
            engine = _Engine(deps, agent, store, AgentEngine(agent.id, service, bus, deps.clock))
            idle = [each for each in self._engines if not each.parts.service.running]
            for each in idle[:-_MAX_IDLE_ENGINES]:  # entries of the registry still refer to those they need
                self._engines.remove(each)
            self._engines.append(engine)
            return engine

    def clear(self) -> None:
        """Drop all tasks and close their engines. Must be called in their event loop."""
        self.registry.clear()
        engines, self._engines = self._engines, []
        for engine in engines:
            ending = asyncio.get_running_loop().create_task(engine.parts.service.close())
            self._closing.add(ending)
            ending.add_done_callback(self._closing.discard)


class _TasksByLoop:
    """The tasks of this process by event loop, dropped with the loop.

    Each thread may have its own loop. The engines of a loop that runs are only used in that loop.
    """

    def __init__(self) -> None:
        self._tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopTasks] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of loops that have tasks."""
        return len(self._tasks)

    def tasks(self) -> _LoopTasks:
        """Return the tasks of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for closed in [each for each in self._tasks if each.is_closed()]:
                self._tasks.pop(closed).registry.clear()
            if loop not in self._tasks:
                self._tasks[loop] = _LoopTasks()
            return self._tasks[loop]

    def clear(self) -> None:
        """Drop all tasks; those of loops that run in other threads are dropped there, soon after."""
        with self._lock:
            cleared, self._tasks = dict(self._tasks), WeakKeyDictionary()
        for loop, tasks in cleared.items():
            if loop is _running_loop():
                tasks.clear()
            elif loop.is_running():
                with suppress(RuntimeError):  # it may be closed by now
                    loop.call_soon_threadsafe(tasks.clear)
            else:
                tasks.registry.clear()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_TASKS_BY_LOOP = _TasksByLoop()


async def handle_task_send(deps: TaskDeps, body: object) -> dict[str, Any]:
    """Start a task of the first agent that has a project: a program works on the message in a new session.

    `body` is `{"params": {"message", "skill"?, "timeoutMs"?}}`; the members may also be at the top level, and `method`
    is optional. The task is returned when its program has started, as a rule `working`. It is a new map every time.

    Raises:
        ValidationError: the body is invalid.
        NotFoundError: no agent has a project.
        RateLimitError: there are too many tasks.
    """
    try:
        return await _TASKS_BY_LOOP.tasks().send(deps, body)
    except InvalidParams as error:
        raise ValidationError(error.message) from error
    except Overloaded as error:
        raise RateLimitError(error.message, retry_after=_retry_after(error)) from error


async def handle_task_get(task_id: str) -> dict[str, Any] | None:
    """Return the task as it is now, as a new map; None when there is no such task in the running event loop."""
    try:
        return await _TASKS_BY_LOOP.tasks().registry.get(CallContext(), task_id)
    except TaskNotFound:
        return None


def clear_task_store() -> None:
    """Drop every task. Running programs are stopped, if the process manager can do that."""
    _TASKS_BY_LOOP.clear()


def _retry_after(error: A2AError) -> float | None:
    value = error.metadata.get("retryAfter")
    return None if value is None else float(value)
