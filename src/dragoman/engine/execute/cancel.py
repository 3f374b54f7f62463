"""Ends tasks from outside their runs: a caller cancels, or a deadline passes."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from dragoman.engine.execute.context import agent_message
from dragoman.engine.journal.tasks import ELSEWHERE
from dragoman.engine.ports.ownership import OwnershipLost
from dragoman.engine.shielded import shielded
from dragoman.model.error import ServerError, TaskNotCancelable
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.telemetry.audit import Audit

if TYPE_CHECKING:
    from dragoman.engine.execute.run_log import RunLog
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.locks import KeyedLocks
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.store import Scope, StoredTask, TaskRow
    from dragoman.model.task import Task

logger = logging.getLogger("dragoman.engine")
_TRIES = 20


class TaskCanceler:
    """Cancels and fails tasks of one agent. The run of such a task is canceled and can change nothing more."""

    def __init__(self, agent: Runnable, tasks: Tasks, locks: KeyedLocks, run_log: RunLog) -> None:
        self._agent = agent
        self._tasks = tasks
        self._locks = locks
        self._run_log = run_log

    async def cancel(self, scope: Scope, task_id: str, *, by: str = "") -> tuple[Task, str]:
        """Cancel a task. Returns the task and its origin. `by` is who does so, if it is not its owner.

        Raises:
            TaskNotFound: there is none, or it belongs to another caller.
            TaskNotCancelable: it has ended.
            ServerError: the store cannot take writes, or another process owns the task.
        """
        for _ in range(_TRIES):
            async with AsyncExitStack() as lock:
                await lock.enter_async_context(self._locks.hold(task_id))
                row, live, stored = await self._tasks.find(scope, task_id)
                if (live.row.state if live else row.state).final:
                    raise TaskNotCancelable(taskId=task_id)
                try:
                    live = await self._end(row, live, stored, State.CANCELED, None, lock)
                except OwnershipLost:  # another process has changed it meanwhile
                    continue
                Audit().record_cancel(user=scope.owner, agent=scope.agent, task=task_id, by=by)
                return live.task(), row.origin
        raise ServerError(ELSEWHERE)

    async def fail(self, task_id: str, text: str) -> bool:
        """Fail a task with `text` as the agent's message. False when this agent has no such task or it has ended.

        Raises:
            ServerError: the store cannot take writes, or another process owns the task.
        """
        async with AsyncExitStack() as lock:
            await lock.enter_async_context(self._locks.hold(task_id))
            live = self._tasks.live.get(task_id)
            stored = None if live is not None and not live.phase.is_draft else await self._tasks.store.task(task_id)
            row = live.row if live is not None else stored.row if stored is not None else None
            if row is None or row.scope.agent != self._agent.name:
                return False
            if live.phase.has_ended if live else row.state.final:
                return False
            try:
                await self._end(row, live, stored, State.FAILED, text, lock)
            except OwnershipLost:  # it has ended, or another process decides what becomes of it
                return False
        return True

    async def _end(
        self,
        row: TaskRow,
        live: LiveTask | None,
        stored: StoredTask | None,
        state: State,
        text: str | None,
        lock: AsyncExitStack,
    ) -> LiveTask:
        """End a task durably, and notify the agent if it was waiting for an answer. Returns it.

        What was begun is finished, though the caller gives up, and the task stays locked until then: another cancel
        would claim the task while this one is being written.

        Raises:
            OwnershipLost: another process has ended it, or claimed it meanwhile.
        """
        was_waiting = (live.row.state if live else row.state).waiting  # its run may still be being released
        if live is None and stored is not None:
            claimed = await self._tasks.ownership.claim(stored, revoke=True)
            if claimed is None:
                raise OwnershipLost(ELSEWHERE)
            was_waiting = claimed.stored.row.state.waiting
            live = await self._tasks.load(claimed)
        if live is None:
            raise TaskNotCancelable(taskId=row.id)
        await self._tasks.reload(live)
        live.status(state, None if text is None else agent_message(live, (Part(text=text),)))
        live.stop_work()
        await shielded(self._conclude(live, was_waiting, lock.pop_all()))
        return live

    async def _conclude(self, live: LiveTask, was_waiting: bool, lock: AsyncExitStack) -> None:
        async with lock:
            await live.wait_durable()
            if live.worker is None:
                self._run_log.add_ended(live)
            if was_waiting:
                await self._notify_agent(live.row)

    async def _notify_agent(self, row: TaskRow) -> None:
        """Notify the agent that a waiting task has ended: it has no run that could be canceled."""
        questions = (await self._tasks.run_history(row)).questions
        try:
            await self._agent.canceled(questions[-1].ref if questions else None)
        except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
            logger.exception("the agent could not be told that task %s has been ended", row.id)
