"""Brings tasks whose run broke because the store refused a write to a new start, or to their end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dragoman.model.error import ServerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.clock import Timer
    from dragoman.engine.execute.recovery import Recovery
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.locks import KeyedLocks
    from dragoman.engine.ports.store import TaskRow

logger = logging.getLogger("dragoman.engine")
UNSTORED = "the store could not take writes"
# The pause before broken tasks are looked at, and between two tries.
RETRY_SECONDS = 1


class BrokenTaskReaper:
    """Adopts tasks whose run broke because the store refused a write, so that none stays working without a run.

    Nothing can be written while the store refuses writes, so this retries every second until it can. `on_opened` is
    called with the row of a task that was a draft until then.
    """

    def __init__(
        self,
        tasks: Tasks,
        recovery: Recovery,
        locks: KeyedLocks,
        on_opened: Callable[[TaskRow], Awaitable[None]] | None = None,
    ) -> None:
        self._tasks = tasks
        self._recovery = recovery
        self._locks = locks
        self._on_opened = on_opened
        # Rows by id: the id may belong to another task when it is read back. And what to call when it failed.
        self._ids: dict[str, tuple[TaskRow, Callable[[], Awaitable[None]] | None]] = {}
        # Drafts that have become tasks, until `on_opened` was called.
        self._opened: dict[str, TaskRow] = {}
        self._timer: Timer | None = None
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, broken: LiveTask) -> None:
        """Add a task whose run was stopped because the store refused a write."""
        self._ids[broken.row.id] = broken.row, broken.on_failed
        self._schedule()

    def close(self) -> None:
        """Stop; the next startup recovers the remaining tasks."""
        self._closed = True
        for pending in (self._timer, self._worker):
            if pending is not None:
                pending.cancel()

    def _schedule(self) -> None:
        if self._ids and self._timer is None and self._worker is None and not self._closed:
            self._timer = self._tasks.clock.call_later(RETRY_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._worker = asyncio.get_running_loop().create_task(self._work())
        self._worker.add_done_callback(self._done)

    def _done(self, worker: asyncio.Task[None]) -> None:
        self._worker = None
        if not worker.cancelled() and (error := worker.exception()) is not None and not isinstance(error, ServerError):
            logger.error("interrupted tasks could not be brought to an end", exc_info=error)
        self._schedule()

    async def _work(self) -> None:
        await self._tasks.store.check()
        ended = 0
        for task_id in tuple(self._ids):
            row, on_failed = entry = self._ids.pop(task_id)
            try:
                # Whoever cancels or answers it holds the lock.
                async with self._locks.hold(task_id):
                    failed = await self._adopt(row)
                ended += failed
                if failed and on_failed is not None:
                    await on_failed()
                await self._report_opened()
            except BaseException:
                self._ids.setdefault(task_id, entry)
                raise
        if ended:
            logger.warning("%d %s failed: %s", ended, "task" if ended == 1 else "tasks", UNSTORED)

    async def _report_opened(self) -> None:
        for task_id, row in tuple(self._opened.items()):
            if self._on_opened is not None and await self._tasks.store.task(task_id) is not None:
                await self._on_opened(row)
            del self._opened[task_id]

    async def _adopt(self, row: TaskRow) -> bool:
        """Decide about a task. Returns whether it failed."""
        stored = await self._tasks.store.task(row.id)
        is_draft = stored is None
        if stored is None:  # its creation was refused, or the end of its draft
            drafts = await self._tasks.store.drafts(row.scope.agent)
            stored = next((draft for draft in drafts if draft.row.id == row.id), None)
        if stored is None or stored.row.number != row.number or stored.row.state.final or row.id in self._tasks.live:
            return False
        claimed = await self._tasks.ownership.claim(stored)
        if claimed is None:  # another process decides what becomes of it
            return False
        if stored.row.state.waiting:  # the refused write was an answer, which can be sent again, to any process
            self._tasks.ownership.release(claimed.claim)
            return False
        # How often its run has started is in its notes: nobody has taken it over. Even if nothing of it was stored, its
        # code may have been called.
        claim = claimed.claim._replace(attempts=None)
        claimed = claimed._replace(claim=claim, draft=is_draft, begun=True)
        if is_draft:
            self._opened[row.id] = stored.row
        failed = await self._recovery.adopt(claimed, UNSTORED, raises=True)
        if failed is not None:
            await failed.wait_durable()
        elif (live := self._tasks.live.get(row.id)) is not None:
            await live.wait_durable(1)
        return failed is not None
