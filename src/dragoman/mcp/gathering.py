"""What a stream writes to a task, gathered and put together now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman.model.error import ResponseTooLarge
from dragoman.model.json import encode
from dragoman.model.task import Task

if TYPE_CHECKING:
    from dragoman.client.event import Event

# So many bytes of a task are taken in from a stream.
MOST_BYTES = 32 * 1024 * 1024
# At least so many seconds pass between two times, and so many times as long as it took.
_PAUSE = 0.2
_SHARE = 10


class Gathering:
    """Holds back what is new in a task: to put it together costs more, the longer the task is."""

    def __init__(self, learn: Callable[[Task], None]) -> None:
        self._learn = learn
        self._newest: Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._brought = 0

    def weigh(self, event: Event) -> None:
        """Count what an event brings. Raises ResponseTooLarge when the task has become too large."""
        self._brought += len(encode(event.raw))
        if self._brought <= MOST_BYTES:
            return
        # What came may have replaced what came before. Half of it counts: not every event is worth this look.
        weight = len(encode(event.task or event.raw))
        if weight > MOST_BYTES:
            self.forget()
            text = f"the task has grown beyond {MOST_BYTES >> 20} MB: call get_task to see how it is"
            raise ResponseTooLarge(text, limit=MOST_BYTES)
        self._brought = weight // 2

    def hold(self, event: Event) -> None:
        """Learn of an event a little later, together with those that come meanwhile."""
        self._newest = event
        if self._timer is None:
            pause = max(0.0, self._next - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause, self.settle)

    def forget(self) -> None:
        """Nothing is to be learned any more: all that was held is known, or too much."""
        self._newest = None

    def settle(self) -> None:
        """Learn what is held, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        event, self._newest = self._newest, None
        begun = time.monotonic()
        task = None if event is None else event.task
        if task is not None:
            self._learn(task)
            ended = time.monotonic()
            self._next = ended + max(_PAUSE, _SHARE * (ended - begun))
