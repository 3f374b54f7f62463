"""Watches the foreign tasks that waiting tasks of an agent wait for, and continues those whose foreign task went on."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dragoman.clock import sleep
from dragoman.engine.ports.store import Cursor, ScopeFilter, TaskSearch
from dragoman.model.error import DragomanError
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from dragoman.clock import Clock, Timer
    from dragoman.engine.accept.resumption import Resumption
    from dragoman.engine.journal.tasks import Tasks
    from dragoman.engine.ports.agent import Runnable
    from dragoman.engine.ports.store import TaskRow

logger = logging.getLogger("dragoman.engine")
# Seconds until the first look at a foreign task, and the most between two looks.
FIRST_SECONDS = 2.0
LAST_SECONDS = 60.0
# The reads of one process: of one address at a time, and of all in a second.
READS_AT_ONCE = 4
READS_PER_SECOND = 50
_RETRY_SECONDS = 5.0
_PAGE = 200


class ForeignLimits:
    """Keeps a process with many waiting tasks from flooding the agents that they wait for."""

    def __init__(self) -> None:
        self._addresses: dict[str, asyncio.Semaphore] = {}
        self._next_ms = 0.0

    @asynccontextmanager
    async def hold(self, clock: Clock, address: str) -> AsyncGenerator[None]:
        """Wait until another read of this address may begin, and count it until it has ended."""
        async with self._addresses.setdefault(address, asyncio.Semaphore(READS_AT_ONCE)):
            now = clock.now()
            # At most a second: the clock may have been set back.
            turn_ms = min(max(self._next_ms, now), now + 1000)
            self._next_ms = turn_ms + 1000 / READS_PER_SECOND
            if turn_ms > now:
                await sleep(clock, (turn_ms - now) / 1000)
            yield


# Of each event loop, which is that of one process in a server.
_LIMITS: WeakKeyDictionary[asyncio.AbstractEventLoop, ForeignLimits] = WeakKeyDictionary()


class ForeignWatch:
    """Looks at the foreign tasks that tasks of one agent wait for: after 2 seconds, then ever less often.

    Nothing is stored: the process that paused a task looks, and after a start so does the one that has started. If two
    processes look at the same foreign task, one of them continues the task that waits for it. For an agent without
    foreign tasks, this does nothing.
    """

    def __init__(self, agent: Runnable, tasks: Tasks, resumption: Resumption) -> None:
        self._agent = agent.name
        self._foreign = agent.foreign
        self._tasks = tasks
        self._resumption = resumption
        self._timers: dict[str, Timer] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Take up the watches of the tasks that wait already."""
        if self._foreign is not None:
            self._spawn(self._find())

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        for pending in (*self._timers.values(), *self._workers):
            pending.cancel()
        self._timers.clear()

    def add(self, row: TaskRow, seconds: float = FIRST_SECONDS) -> None:
        """Look at what a waiting task waits for, after so many seconds or a little less."""
        if self._closed or self._foreign is None:
            return
        if (timer := self._timers.pop(row.id, None)) is not None:
            timer.cancel()
        delay = seconds * random.uniform(0.75, 1)  # noqa: S311 - only so that tasks that began to wait together part
        self._timers[row.id] = self._tasks.clock.call_later(delay, partial(self._begin, row, seconds))

    def _begin(self, row: TaskRow, seconds: float) -> None:
        self._timers.pop(row.id, None)
        self._spawn(self._look(row, seconds))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        worker = asyncio.get_running_loop().create_task(work)
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _find(self) -> None:
        """Add all tasks that wait now, in however many pages."""
        for state in (State.AUTH_REQUIRED, State.INPUT_REQUIRED):
            after: Cursor | None = None
            while True:
                query = TaskSearch(ScopeFilter((self._agent,)), state=state, limit=_PAGE, after=after)
                try:
                    page = await self._tasks.store.search(query)
                except DragomanError as error:  # the store does not answer
                    logger.debug("waiting tasks cannot be found now: %s", error)
                    await sleep(self._tasks.clock, _RETRY_SECONDS)
                    continue
                rows = [stored.row for stored in page.tasks]
                for row in rows:
                    self.add(row)
                if not page.more or not rows:
                    break
                after = Cursor(rows[-1].status_ms, rows[-1].number)

    async def _look(self, row: TaskRow, seconds: float) -> None:
        """Continue a task if what it waits for has changed, else look again later."""
        try:
            is_over = await self._has_moved(row) and await self._resumption.wake(row) is not None
        except (DragomanError, TimeoutError) as error:
            logger.debug("what task %s waits for cannot be read now: %s", row.id, error)
            is_over = False
        except Exception:
            logger.exception("what task %s waits for cannot be read", row.id)
            is_over = False
        if not is_over:
            stored = await self._tasks.store.task(row.id)
            # At another generation it has gone on, and whoever paused it again has a watch of its own.
            if stored is not None and stored.row.state.waiting and stored.row.generation == row.generation:
                self.add(row, min(2 * seconds, LAST_SECONDS))

    async def _has_moved(self, row: TaskRow) -> bool:
        question = (await self._tasks.run_history(row)).open_question
        if self._foreign is None or question is None or question.handle:
            return False
        limits = _LIMITS.setdefault(asyncio.get_running_loop(), ForeignLimits())
        async with limits.hold(self._tasks.clock, self._foreign.address):
            return await self._foreign.has_moved(question.ref)
