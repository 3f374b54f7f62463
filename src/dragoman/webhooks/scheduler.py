"""Round-robin scheduler over places, such as the hosts of webhooks: one slow place never delays the others."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class FairScheduler(Generic[T]):
    """Lets at most `each` items of one place, and at most `most` in all, be at work.

    Those of one place go in the order they came; places take turns. `begin` is called when it is an item's turn, and
    says whether it still wants it: then `leave` follows when it is done.
    """

    def __init__(self, start: Callable[[T], bool], *, max_per_key: int, max_total: int) -> None:
        self._start = start
        self._max_per_key = max_per_key
        self._max_total = max_total
        self._running = 0
        self._running_by_key: dict[str, int] = {}
        # The places somebody waits at; the one whose turn was longest ago comes first.
        self._waiting: dict[str, deque[T]] = {}

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def enqueue(self, key: str, item: T) -> None:
        """Begin now, or when it is this item's turn."""
        self._waiting.setdefault(key, deque()).append(item)
        self._start_waiting()

    def release(self, key: str) -> None:
        """Make room for the next."""
        self._running -= 1
        remaining = self._running_by_key[key] - 1
        if remaining:
            self._running_by_key[key] = remaining
        else:
            del self._running_by_key[key]
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._running < self._max_total:
            # Few are full at once: there is not room for many.
            key = next((each for each in self._waiting if self._running_by_key.get(each, 0) < self._max_per_key), None)
            if key is None:
                return
            queue = self._waiting.pop(key)
            item = queue.popleft()
            if queue:
                self._waiting[key] = queue
            # Counted first: `begin` may lead back here.
            self._running += 1
            self._running_by_key[key] = self._running_by_key.get(key, 0) + 1
            if not self._start(item):
                self.release(key)
