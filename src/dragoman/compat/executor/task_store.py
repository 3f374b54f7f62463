"""`TaskStore`: get, save and delete tasks of A2A 0.3 by id, in a store of the engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from dragoman.bus.local import LocalBus
from dragoman.clock import SystemClock, milliseconds
from dragoman.compat.executor.result import NOT_FOUND
from dragoman.compat.executor.types import Task
from dragoman.dialects.table import V0_3
from dragoman.engine.journal.durability import UNAVAILABLE
from dragoman.engine.journal.tasks import Tasks
from dragoman.engine.locks import KeyedLocks
from dragoman.engine.ports.store import Scope, TaskRow, Write
from dragoman.model.error import ServerError
from dragoman.model.json import encode
from dragoman.model.record import Record
from dragoman.stores.memory import MemoryStore

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal, Self

    from dragoman.clock import Clock
    from dragoman.compat.executor.event_queue import EventQueues
    from dragoman.compat.executor.result import Failure, Ok
    from dragoman.engine.ports.store import Store, StoredTask
    from dragoman.model.task import Task as ModelTask


class _SharedStore:
    """A store that its first user opens and its last user closes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open_count = 0
        self._lock = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None:
        async with self._lock:
            if not self._open_count:
                await self._store.open()
            self._open_count += 1

    async def close(self) -> None:
        async with self._lock:
            if not self._open_count:
                return
            self._open_count -= 1
            if not self._open_count:
                await self._store.close()


def share_store(store: Store) -> Store:
    """Wrap a store so that its first user opens it and its last user closes it."""
    return cast("Store", _SharedStore(store))


ORIGIN = V0_3


class TaskStore:
    """Tasks in any store of the engine; by default in memory.

    A TaskStore belongs to at most one handler, which reads and writes the same tasks. `agent` is the agent name that
    the tasks are stored under. The handler opens and closes the store; without a handler, use `async with`.
    """

    def __init__(self, store: Store | None = None, *, agent: str = "executor", clock: Clock | None = None) -> None:
        self.engine_store = share_store(store or MemoryStore())
        self.clock: Clock = clock or SystemClock()
        self.bus = LocalBus(self.clock)
        self.agent = agent
        self._tasks = Tasks(self.engine_store, self.bus, self.clock)
        self._locks = KeyedLocks()
        self._queues: EventQueues | None = None

    async def __aenter__(self) -> Self:
        await self.engine_store.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.engine_store.close()

    def attach(self, queues: EventQueues) -> None:
        """Set the queues that say which tasks are running. Called by the handler."""
        self._queues = queues

    async def get(self, task_id: str) -> Ok[Task] | Failure:
        """Return the stored task, or `not_found`."""
        stored = await self._find(task_id)
        return NOT_FOUND if stored is None else ("ok", await self._read(stored))

    async def save(self, task: Task, *, tenant: str = "", owner: str = "") -> Ok[Task] | Failure:
        """Store the task as it is, in one record that replaces all before it.

        A new task belongs to that owner and tenant: by default to callers without a name.

        Fails with a reason when an executor works on the task, when the stored task has ended and differs from this
        one or has another context, when the id belongs to a task of another agent, and with `conflict` when the engine
        has written the task at the same time.

        Raises:
            BadResponse: a file in it is not base64.
            ServerError: the store cannot take writes now.
        """
        model = task.to_model()
        async with self._locks.hold(task.id):
            stored = await self.engine_store.task(task.id)
            if stored is not None:
                if stored.row.state.final and await self._read(stored) == task:
                    return ("ok", task)
                reason = self._refusal(stored, task)
                if reason is not None:
                    return ("error", reason)
            row = self._row(model, stored, Scope(self.agent, tenant, owner))
            record = Record.of(row.generation, model)
            error = await self._write(row, create=stored is None, records=(record,), snapshot=encode(model))
            if error is None:
                self.bus.notify(task.id, row.generation)
                return ("ok", task)
            return await self._failure(stored, task.id, error)

    async def delete(self, task_id: str) -> Literal["ok"] | Failure:
        """Delete the task; a missing one is no error. Fails with a reason while an executor works on it.

        Raises:
            ServerError: the store cannot take writes now.
        """
        async with self._locks.hold(task_id):
            stored = await self._find(task_id)
            if stored is None:
                return "ok"
            if self._is_running(task_id):
                return ("error", "task is running")
            error = await self._write(stored.row, delete=True)
            return "ok" if error is None else await self._failure(stored, task_id, error)

    # -- parts -----------------------------------------------------------------------------------------------------

    async def _find(self, task_id: str) -> StoredTask | None:
        stored = await self.engine_store.task(task_id)
        return stored if stored is not None and stored.row.scope.agent == self.agent else None

    async def _read(self, stored: StoredTask) -> Task:
        return Task.from_model(await self._tasks.read(stored))

    def _is_running(self, task_id: str) -> bool:
        return self._queues is not None and self._queues.lookup(task_id)[0] == "ok"

    def _refusal(self, stored: StoredTask, task: Task) -> str | None:
        row = stored.row
        if row.scope.agent != self.agent:
            return "this id cannot be used"
        if row.state.final:
            return "task is already in terminal state"
        if row.context_id != task.context_id:
            return "contextId is not the context of this task"
        # Two writers would give two records the same number, so only the run writes while it lasts.
        return "task is running" if self._is_running(row.id) else None

    def _row(self, model: ModelTask, stored: StoredTask | None, scope: Scope) -> TaskRow:
        state, now = model.status.state, self.clock.now()
        status_ms = _status_ms(model.status.timestamp, now)
        if stored is None:
            number = self.engine_store.next_number()
            return TaskRow(number, model.id, scope, model.context_id, ORIGIN, state, status_ms, 1, now)
        generation = stored.row.generation + 1
        return structs.replace(stored.row, state=state, status_ms=status_ms, generation=generation)

    async def _write(self, row: TaskRow, **changes: Any) -> BaseException | None:
        outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if not outcome.done():
                outcome.set_result(error)

        self.engine_store.write(Write(row, done, **changes))
        return await outcome

    async def _failure(self, stored: StoredTask | None, task_id: str, error: BaseException) -> Failure:
        now = await self.engine_store.task(task_id)
        before = stored.row.generation if stored else 0
        if (now.row.generation if now else 0) != before:
            return ("error", "conflict")
        raise ServerError(UNAVAILABLE) from error


def _status_ms(text: str | None, now: int) -> int:
    try:
        return milliseconds(text) if text else now
    except ValueError:
        return now
