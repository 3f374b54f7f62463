"""Wake-ups within one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dragoman.engine.clock import wait

if TYPE_CHECKING:
    from types import TracebackType

    from dragoman.engine.clock import Clock


class LocalWatch:
    """One listener. It is its own context manager: leaving it ends the listening."""

    __slots__ = ("_bus", "_clock", "_waiter", "generation", "task_id")

    def __init__(self, bus: LocalBus, task_id: str, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._waiter: asyncio.Future[None] | None = None
        self.task_id = task_id
        self.generation = 0

    def __enter__(self) -> LocalWatch:
        self._bus.listeners.setdefault(self.task_id, []).append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        others = self._bus.listeners[self.task_id]
        others.remove(self)
        if not others:
            del self._bus.listeners[self.task_id]

    def wake(self, generation: int) -> None:
        """Take the news."""
        self.generation = max(self.generation, generation)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def past(self, generation: int, seconds: float) -> bool:
        """Wait until the task is known to be past that generation; False when the time is up first."""
        if self.generation > generation:
            return True
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await wait(self._clock, self._waiter, seconds)
        finally:
            self._waiter = None
        return self.generation > generation


class LocalBus:
    """The bus of a single process: a dictionary of listeners."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.listeners: dict[str, list[LocalWatch]] = {}

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
