"""Which runs go on now, and which wait for their conversation."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from dragoman.engine.clock import wait

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from dragoman.engine.clock import Clock
    from dragoman.engine.live import LiveTask

    Start = Callable[[], Coroutine[Any, Any, None]]


class Runner:
    """Starts runs. Those of one conversation follow each other unless the agent says otherwise."""

    def __init__(self, clock: Clock, *, parallel: bool) -> None:
        self._clock = clock
        self._parallel = parallel
        self._queues: dict[tuple[object, str], deque[tuple[LiveTask, Start]]] = {}
        self._workers: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many runs go on now."""
        return len(self._workers)

    def start(self, live: LiveTask, start: Start) -> None:
        """Run now, or after the conversation's other runs."""
        key = (live.row.scope, live.folding.context_id)
        if not self._parallel and key in self._queues:
            self._queues[key].append((live, start))
            return
        self._queues.setdefault(key, deque())
        self._spawn(key, live, start)

    def _spawn(self, key: tuple[object, str], live: LiveTask, start: Start) -> None:
        worker = asyncio.get_running_loop().create_task(start())
        live.worker = worker
        self._workers.add(worker)
        worker.add_done_callback(lambda done: self._next(key, done))

    def _next(self, key: tuple[object, str], done: asyncio.Task[None]) -> None:
        self._workers.discard(done)
        if not done.cancelled():
            done.exception()
        queue = self._queues.get(key)
        while queue:
            live, start = queue.popleft()
            if not live.ended:
                self._spawn(key, live, start)
                return
        self._queues.pop(key, None)

    async def drain(self, seconds: float) -> None:
        """Let the runs finish for that long, then cancel what is left and wait for it to stop."""
        if self._workers and seconds > 0:
            idle = asyncio.ensure_future(asyncio.wait(self._workers))
            try:
                await wait(self._clock, idle, seconds)
            finally:
                idle.cancel()
        self._queues.clear()
        left = list(self._workers)
        for worker in left:
            worker.cancel()
        await asyncio.gather(*left, return_exceptions=True)
