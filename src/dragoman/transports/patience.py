"""Waiting for callers who are slow, for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from dragoman.engine.clock import Clock, Timer

    Task = asyncio.Task[Any]

# In how many steps the time passes: whoever is too late is noticed up to one step later.
STEPS = 4


class Patience:
    """Cancels tasks that wait for too long: between so many seconds and a quarter more.

    One timer serves all of them, and it is set only while somebody waits: nearly all requests are there at once, and
    must not pay for those that are not.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = seconds
        self._clock = clock
        self._now = 0
        self._timer: Timer | None = None
        # When each began, the longest waiting first.
        self._waiting: dict[Task, int] = {}
        self._given_up: set[Task] = set()

    def begin(self) -> Task:
        """Count the time of the running task from now on."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = self._now
        if self._timer is None:
            self._timer = self._clock.call_later(self.seconds / STEPS, self._tick)
        return task

    def again(self) -> None:
        """Count the time of the running task once more, because it got on."""
        self.end(self.begin())  # the longest waiting come first
        self.begin()

    def end(self, task: Task) -> None:
        """A task waits no more."""
        self._waiting.pop(task, None)

    def gave_up(self, task: Task) -> bool:
        """True when a task that was just cancelled has been too slow, and nobody else wants it to end."""
        if task not in self._given_up:
            return False
        self._given_up.discard(task)
        return task.uncancel() == 0

    def _tick(self) -> None:
        self._now += 1
        for task, began in list(self._waiting.items()):
            if self._now - began <= STEPS:
                break
            del self._waiting[task]
            self._given_up.add(task)
            task.cancel()
        self._timer = self._clock.call_later(self.seconds / STEPS, self._tick) if self._waiting else None
