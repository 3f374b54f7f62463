"""Round-robin scheduler over keys, such as webhook hosts: one slow host never delays the others."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class FairScheduler(Generic[T]):
    """Runs at most `max_per_key` items of one key at once, and at most `max_total` in all.

    Items of one key start in the order they were enqueued; keys take turns. `start` is called when it is an item's
    turn, and returns False when there is nothing to do any more. Otherwise `release` must be called once it is done.
    """

    def __init__(self, start: Callable[[T], bool], *, max_per_key: int, max_total: int) -> None:
        self._start = start
        self._max_per_key = max_per_key
        self._max_total = max_total
        self._running = 0
        self._running_by_key: dict[str, int] = {}
        # The keys with waiting items; the one whose last turn is longest ago comes first.
        self._waiting: dict[str, deque[T]] = {}

    @property
    def waiting(self) -> int:
        """How many items wait for their turn."""
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        """How many items have started and are not done."""
        return self._running

    def enqueue(self, key: str, item: T) -> None:
        """Start an item now, or when it is its turn."""
        self._waiting.setdefault(key, deque()).append(item)
        self._start_waiting()

    def release(self, key: str) -> None:
        """Report that an item of this key is done, and start the next ones."""
        self._running -= 1
        remaining = self._running_by_key[key] - 1
        if remaining:
            self._running_by_key[key] = remaining
        else:
            del self._running_by_key[key]
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._running < self._max_total:
            # Linear, but few keys can be full at once: `max_total` bounds them.
            key = next((each for each in self._waiting if self._running_by_key.get(each, 0) < self._max_per_key), None)
            if key is None:
                return
            queue = self._waiting.pop(key)
            item = queue.popleft()
            if queue:
                self._waiting[key] = queue
            # Counted first, as `start` may call back into this.
            self._running += 1
            self._running_by_key[key] = self._running_by_key.get(key, 0) + 1
            if not self._start(item):
                self.release(key)
