"""A manual clock: time stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Timer

# asyncio cannot tell whether the loop is idle. What a timer starts is a chain of callbacks and tasks that wake each
# other, one per turn of the loop, so a fixed number of turns, longer than any such chain, stands for "idle".
_TURNS = 20


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that a test moves by hand, usable wherever Dragoman takes a clock. Nothing really waits.

    Exported as `dragoman.testing.Clock`.
    """

    def __init__(self, start_ms: int = 1_800_000_000_000) -> None:
        # Whole microseconds: moving ten times by 0.1 must reach a timer at 1.
        self._now = start_ms * 1000
        self._order = count()
        self._timers: list[tuple[int, int, _Timer]] = []

    def now(self) -> int:
        """Milliseconds since 1970."""
        return self._now // 1000

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` when the clock has been moved so many seconds."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (self._now + _microseconds(max(seconds, 0)), next(self._order), timer))
        return timer

    @property
    def pending(self) -> int:
        """The number of timers that have been neither called nor canceled."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def move(self, seconds: float) -> None:
        """Move the clock forward: every timer that comes due is called at its own time, in order.

        Raises:
            ValueError: `seconds` is negative.
        """
        until = self._target_time(seconds)
        while (callback := self._pop_due(until)) is not None:
            callback()
        self._now = until

    async def advance(self, seconds: float) -> None:
        """Move the clock like `move`, and let tasks run before, between and after the timers.

        Raises:
            ValueError: `seconds` is negative.
        """
        until = self._target_time(seconds)
        await _run_loop_turns()
        while (callback := self._pop_due(until)) is not None:
            callback()
            await _run_loop_turns()
        self._now = until
        await _run_loop_turns()

    def _target_time(self, seconds: float) -> int:
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        return self._now + _microseconds(seconds)

    def _pop_due(self, until: int) -> Callable[[], object] | None:
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                self._now = max(self._now, due)
                callback, timer.callback = timer.callback, None
                return callback
        return None


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


async def _run_loop_turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
