"""Clocks beside `dragoman.testing.Clock`, which moves by hand and does for most tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dragoman.clock import Timer
from dragoman.testing import Clock


class EagerClock:
    """Every wait is over in the next turn of the event loop. `slept` is how long each would have been, in seconds."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> int:
        """Milliseconds since 1970: the waits so far."""
        return int(sum(self.slept) * 1000)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back at once."""
        self.slept.append(seconds)
        return asyncio.get_running_loop().call_soon(callback)


class SettableClock(Clock):
    """A clock that moves by hand and can be set, too: its timers go on as if nothing had happened."""

    def __init__(self) -> None:
        super().__init__()
        self._offset_ms = 0

    def now(self) -> int:
        """Milliseconds since 1970, as far as this clock knows."""
        return super().now() + self._offset_ms

    def jump(self, seconds: float) -> None:
        """Set the clock forward or back, as an administrator or a time server does."""
        self._offset_ms += round(seconds * 1000)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back after that time on the timers, which no jump moves."""
        assert seconds >= 0, "nobody waits for the past"
        return super().call_later(seconds, callback)
