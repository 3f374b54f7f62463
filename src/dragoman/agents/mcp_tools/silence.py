"""How long nothing may be heard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock, Timer

T = TypeVar("T")


class Silent(TimeoutError):
    """Nothing was heard for too long."""


class Silence:
    """Ends what one task waits for once nothing has been heard for so long. The time of day does not matter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._timer: Timer | None = None
        self._worker: asyncio.Task[object] | None = None
        self._is_late = False

    async def broken_by(self, work: Awaitable[T], seconds: float) -> T:
        """Wait for it; 0 seconds are for ever.

        Raises:
            Silent: nothing was heard. What was waited for has been canceled.
        """
        if not seconds:
            return await work
        self._seconds, self._worker, self._is_late = seconds, asyncio.current_task(), False
        assert self._worker is not None
        self._timer = self._clock.call_later(seconds, self._stop)
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_late and self._worker.uncancel() == 0:
                raise Silent from None
            raise
        finally:
            self._timer.cancel()
            self._timer = None

    def heard(self) -> None:
        """There is a sign of life: the time begins anew."""
        if self._timer is not None and not self._is_late:
            self._timer.cancel()
            self._timer = self._clock.call_later(self._seconds, self._stop)

    def _stop(self) -> None:
        assert self._worker is not None
        self._is_late = True
        self._worker.cancel()
