"""Which runs go on now, and which wait for their conversation."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from dragoman.engine.execute.containment import context_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from dragoman.clock import Clock
    from dragoman.engine.journal.live import LiveTask

    Start = Callable[[], Coroutine[Any, Any, None]]

logger = logging.getLogger("dragoman.engine")
# How long a run that was cancelled may take to clean up when the server stops, in seconds.
LAST_WORDS = 3


class Runner:
    """Starts runs. Those of one conversation follow each other unless the agent says otherwise."""

    def __init__(self, clock: Clock, put_away: Callable[[LiveTask], None], *, parallel: bool) -> None:
        self._clock = clock
        self._put_away = put_away
        self._parallel = parallel
        self._queues: dict[tuple[object, str], deque[tuple[LiveTask, Start]]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self.stopping = False

    def __len__(self) -> int:
        """How many runs go on now."""
        return len(self._workers)

    def start(self, live: LiveTask, start: Start) -> bool:
        """Run now, or after the conversation's other runs. True when it is now."""
        key = (live.row.scope, live.folding.context_id)
        if not self._parallel and key in self._queues:
            self._queues[key].append((live, start))
            return False
        self._queues.setdefault(key, deque())
        self._spawn(key, live, start)
        return True

    def _spawn(self, key: tuple[object, str], live: LiveTask, start: Start) -> None:
        worker = asyncio.get_running_loop().create_task(start(), context=context_for(live.row.scope))
        live.worker = worker
        self._workers.add(worker)
        # Not at the end of the run itself: one that is cancelled before it begins never gets there.
        worker.add_done_callback(lambda done: self._next(key, live, done))

    def _next(self, key: tuple[object, str], live: LiveTask, done: asyncio.Task[None]) -> None:
        self._workers.discard(done)
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("the run of task %s broke off", live.id, exc_info=error)
        self._put_away(live)
        queue = self._queues.get(key)
        while queue:
            live, start = queue.popleft()
            if not live.ended:
                self._spawn(key, live, start)
                return
            self._put_away(live)
        self._queues.pop(key, None)

    async def drain(self, seconds: float) -> None:
        """Let the runs finish for that long, those that wait for their conversation too, then cancel what is left."""
        if seconds > 0:
            await self._idle(seconds)
        waiting = [live for queue in self._queues.values() for live, _ in queue]
        self._queues.clear()
        if self._workers and seconds > 0:
            logger.warning("%d tasks have not ended within %g s and are cut off", len(self._workers), seconds)
        for live in waiting:
            self._put_away(live)
        self.stopping = True
        for worker in self._workers:
            worker.cancel()
        await self._idle(LAST_WORDS)
        if self._workers:
            logger.error(
                "%d runs go on although they were cancelled: the next start says what became of their tasks",
                len(self._workers),
            )

    async def _idle(self, seconds: float) -> None:
        up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, lambda: up.done() or up.set_result(None))
        try:
            while self._workers and not up.done():
                await asyncio.wait((*self._workers, up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            up.cancel()
