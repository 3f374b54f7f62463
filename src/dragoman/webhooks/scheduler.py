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

    def __init__(self, begin: Callable[[T], bool], *, each: int, most: int) -> None:
        self._begin = begin
        self._each = each
        self._most = most
        self._all = 0
        self._busy: dict[str, int] = {}
        # The places somebody waits at; the one whose turn was longest ago comes first.
        self._waiting: dict[str, deque[T]] = {}

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def join(self, place: str, item: T) -> None:
        """Begin now, or when it is this item's turn."""
        self._waiting.setdefault(place, deque()).append(item)
        self._fill()

    def leave(self, place: str) -> None:
        """Make room for the next."""
        self._all -= 1
        left = self._busy[place] - 1
        if left:
            self._busy[place] = left
        else:
            del self._busy[place]
        self._fill()

    def _fill(self) -> None:
        while self._all < self._most:
            # Few are full at once: there is not room for many.
            place = next((each for each in self._waiting if self._busy.get(each, 0) < self._each), None)
            if place is None:
                return
            queue = self._waiting.pop(place)
            item = queue.popleft()
            if queue:
                self._waiting[place] = queue
            # Counted first: `begin` may lead back here.
            self._all += 1
            self._busy[place] = self._busy.get(place, 0) + 1
            if not self._begin(item):
                self.leave(place)
