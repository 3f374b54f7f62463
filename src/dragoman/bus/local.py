"""Wake-ups within one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dragoman.clock import Clock, Timer


class LocalWatch:
    """One listener. It is its own context manager: leaving it ends the listening.

    It has one timer for all its waits. When that rings although there were news since it was set, it is moved on: a
    timer for each wait, or a look at the clock, would cost as much as the rest of a wake-up.
    """

    __slots__ = ("_bus", "_clock", "_notified_ms", "_seconds", "_timer", "_waiter", "generation", "task_id")

    def __init__(self, bus: LocalBus, task_id: str, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._waiter: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._seconds = 0.0
        self._notified_ms = 0
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

    def wake(self, generation: int, now_ms: int) -> None:
        """Take the news."""
        if generation > self.generation:
            self.generation = generation
        self._notified_ms = now_ms
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait_past(self, generation: int, seconds: float) -> bool:
        """Wait until the task is known to be past that generation; False when there are no news for that long."""
        if self.generation > generation:
            return True
        self._waiter = asyncio.get_running_loop().create_future()
        if self._timer is None or seconds < self._seconds:
            self._set_timer(seconds)
        self._seconds = seconds
        try:
            await self._waiter
        finally:
            self._waiter = None
        return self.generation > generation

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        now = self._clock.now()
        remaining = self._seconds - (now - self._notified_ms) / 1000
        if remaining > 0:
            self._set_timer(min(remaining, self._seconds))  # no more than that, also when the clock was set back
        else:
            self.wake(0, now)


class _Callback:
    """A listener that is called and not waited for."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[int], None]) -> None:
        self._callback = callback

    def wake(self, generation: int, now_ms: int) -> None:
        """Take the news; 0 is none."""
        if generation:
            self._callback(generation)


class LocalBus:
    """The bus of a single process: a dictionary of listeners."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Of each task, in the order they came.
        self.listeners: dict[str, dict[LocalWatch | _Callback, None]] = {}

    def watch(self, task_id: str) -> LocalWatch:
        """Listen to a task for as long as the context is open."""
        return LocalWatch(self, task_id, self._clock)

    def add_callback(self, task_id: str, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back whenever a task has come further. Gives the way to stop that."""
        listener = _Callback(callback)
        self.listeners.setdefault(task_id, {})[listener] = None

        def stop() -> None:
            others = self.listeners.get(task_id)
            if others is not None and others.pop(listener, 0) is None and not others:
                del self.listeners[task_id]

        return stop

    def notify(self, task_id: str, generation: int) -> None:
        """Tell all listeners that the task has come this far."""
        listeners = self.listeners.get(task_id)
        if listeners:
            now = self._clock.now()
            # A copy: one that is called may stop listening.
            for listener in tuple(listeners):
                listener.wake(generation, now)

    def wake_all(self) -> None:
        """Let every listener look up, for instance because the server stops."""
        now = self._clock.now()
        for listeners in self.listeners.values():
            for listener in listeners:
                listener.wake(0, now)
