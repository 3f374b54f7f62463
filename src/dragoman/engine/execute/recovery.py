"""Tasks the store stopped taking: they are failed as soon as it takes writes again."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dragoman.engine.execute.context import agent_message
from dragoman.model.error import ServerError
from dragoman.model.part import Part
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.clock import Timer
    from dragoman.engine.journal.replay import Tasks

logger = logging.getLogger("dragoman.engine")
UNSTORED = "the store could not take writes"
AGAIN_SECONDS = 1


class Mending:
    """Ends tasks whose run broke because the store refused a write: no task stays at work with nobody at it.

    The refusal itself cannot be journaled, so the store is asked every second until it works.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        # By id, with the number of the task's row: an id may turn out to be another task's.
        self._ids: dict[str, int] = {}
        self._timer: Timer | None = None
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, task_id: str, number: int) -> None:
        """Take a task whose journal ends in the middle."""
        self._ids[task_id] = number
        self._plan()

    def close(self) -> None:
        """Leave what is left to the next start."""
        self._closed = True
        for pending in (self._timer, self._worker):
            if pending is not None:
                pending.cancel()

    def _plan(self) -> None:
        if self._ids and self._timer is None and self._worker is None and not self._closed:
            self._timer = self._tasks.clock.call_later(AGAIN_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._worker = asyncio.get_running_loop().create_task(self._work())
        self._worker.add_done_callback(self._done)

    def _done(self, worker: asyncio.Task[None]) -> None:
        self._worker = None
        if not worker.cancelled() and (error := worker.exception()) is not None and not isinstance(error, ServerError):
            logger.error("interrupted tasks could not be failed", exc_info=error)
        self._plan()

    async def _work(self) -> None:
        await self._tasks.store.check()
        ended = 0
        for task_id, number in tuple(self._ids.items()):
            ended += await self._fail(task_id, number)
            self._ids.pop(task_id, None)
        if ended:
            logger.warning("%d tasks have failed: %s", ended, UNSTORED)

    async def _fail(self, task_id: str, number: int) -> bool:
        stored = await self._tasks.store.task(task_id)
        # Not there: it was never acknowledged. At rest: what was refused is an answer, and can be given again.
        if (
            stored is None
            or stored.row.number != number
            or stored.row.state.final
            or stored.row.state.waiting
            or task_id in self._tasks.live
        ):
            return False
        live = await self._tasks.revive(stored)
        live.status(State.FAILED, agent_message(live, (Part(text=UNSTORED),)))
        await live.durable()
        return True
