"""Wake-ups within one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from dragoman.engine.clock import Clock, Timer


class LocalWatch:
    """One listener. It is its own context manager: leaving it ends the listening.

    It has one timer for all its waits, which is moved on when it rings too early: news come far more often than
    nothing comes for long, and a timer for each would cost as much as the rest of a wake-up.
    """

    __slots__ = ("_bus", "_clock", "_due", "_rings", "_timer", "_waiter", "generation", "task_id")

    def __init__(self, bus: LocalBus, task_id: str, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._waiter: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        # When the wait is over and when the timer rings, in milliseconds since 1970.
        self._due = 0.0
        self._rings = 0.0
        self.task_id = task_id
        self.generation = 0

    def __enter__(self) -> LocalWatch:
        self._bus.listeners.setdefault(self.task_id, {})[self] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        others = self._bus.listeners[self.task_id]
        del others[self]
        if not others:
            del self._bus.listeners[self.task_id]

    def wake(self, generation: int) -> None:
        """Take the news."""
        if generation > self.generation:
            self.generation = generation
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def past(self, generation: int, seconds: float) -> bool:
        """Wait until the task is known to be past that generation; False when the time is up first."""
        if self.generation > generation:
            return True
        self._waiter = asyncio.get_running_loop().create_future()
        self._due = self._clock.now() + seconds * 1000
        if self._timer is None or self._due < self._rings:
            self._set_timer(seconds)
        try:
            await self._waiter
        finally:
            self._waiter = None
        return self.generation > generation

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = self._clock.now() + seconds * 1000
        self._timer = self._clock.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        left = (self._due - self._clock.now()) / 1000
        if left > 0:
            self._set_timer(left)
        else:
            self.wake(0)


class LocalBus:
    """The bus of a single process: a dictionary of listeners."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Of each task, in the order they came.
        self.listeners: dict[str, dict[LocalWatch, None]] = {}

    def watch(self, task_id: str) -> LocalWatch:
        """Listen to a task for as long as the context is open."""
        return LocalWatch(self, task_id, self._clock)

    def notify(self, task_id: str, generation: int) -> None:
        """Tell all listeners that the task has come this far."""
        for listener in self.listeners.get(task_id, ()):
            listener.wake(generation)

    def wake_all(self) -> None:
        """Let every listener look up, for instance because the server stops."""
        for listeners in list(self.listeners.values()):
            for listener in listeners:
                listener.wake(0)
