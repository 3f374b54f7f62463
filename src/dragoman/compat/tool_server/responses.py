"""Responses to callers of A2A 0.1: tasks have the state of their rows, and ended tasks can be canceled too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.clock import timestamp
from dragoman.compat.tool_server.dialect import TOOL_TASKS
from dragoman.compat.tool_server.rows import CANCELED, WORDS, A2ATask
from dragoman.engine.locks import KeyedLocks
from dragoman.model.error import TaskGenerationMismatch, TaskNotCancelable
from dragoman.model.operation import GetTaskRequest
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus
from dragoman.transports.endpoint import Outcome

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.dialects.negotiate import MethodMatch
    from dragoman.engine.call import CallContext
    from dragoman.engine.ports.store import Store
    from dragoman.model.operation import CancelTaskRequest
    from dragoman.transports.endpoint import Endpoint
    from dragoman.transports.http import Request

# How often a row is tried to be canceled while others change it.
_MAX_ATTEMPTS = 5


class ToolResponses:
    """The `PluginOperations` of tool servers: for calls in 0.1, and calls without a version on tasks created in it."""

    dialect = TOOL_TASKS
    needs_user = True

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._locks = KeyedLocks()

    async def perform(
        self,
        endpoint: Endpoint,
        match: MethodMatch,
        call: CallContext,
        params: Any,
        after: int | None = None,
        request: Request | None = None,
    ) -> Outcome:
        """Perform an operation. A task that has ended, and so cannot be canceled, is canceled in its row."""
        try:
            outcome = await endpoint.perform(match.operation, call, params, after, request)
        except TaskNotCancelable as refused:
            return await self._cancel_ended(endpoint, call, params, refused)
        if isinstance(outcome.result, Task) and self.dialect.origin in (outcome.origin, match.dialect.origin):
            return structs.replace(outcome, result=await self.with_row_state(outcome.result))
        return outcome

    async def _cancel_ended(
        self, endpoint: Endpoint, call: CallContext, request: CancelTaskRequest, refused: TaskNotCancelable
    ) -> Outcome:
        """Cancel an ended task in its row alone; its journal stays as it is.

        Raises:
            TaskNotCancelable: the task has another origin, or no row.
            TaskGenerationMismatch: others have changed the row at every attempt.
            ServerError: the store cannot be read or written.
        """
        task, origin, _ = await endpoint.service.get(call, GetTaskRequest(request.id, tenant=request.tenant))
        if origin != self.dialect.origin or not isinstance(task, Task) or not task.state.final:
            raise refused
        async with self._locks.hold(task.id):
            await self._cancel_row(task.id)
            return Outcome(await self.with_row_state(task), origin)

    async def with_row_state(self, task: Task) -> Task:
        """Return the task with the state and the time of its row, if it has one. Raises ServerError."""
        row = await A2ATask.read(self._store, task.id)
        if row is None:
            return task
        status = task.status
        if row.state == CANCELED and status.state.final:
            status = TaskStatus(State.CANCELED)
        elif row.state != WORDS.get(status.state):
            return task  # the row has changed since the task was read: its time would not fit the task's state
        return structs.replace(task, status=structs.replace(status, timestamp=timestamp(row.updated_at)))

    async def _cancel_row(self, task_id: str) -> None:
        for _ in range(_MAX_ATTEMPTS):
            row = await A2ATask.read(self._store, task_id)
            if row is None:
                raise TaskNotCancelable(taskId=task_id)
            changed = structs.replace(row, state=CANCELED, updated_at=max(self._clock.now(), row.updated_at + 1))
            if await self._store.replace_row(changed.row, row.updated_at):
                return
        raise TaskGenerationMismatch("the task is being changed by somebody else: try again", taskId=task_id)
