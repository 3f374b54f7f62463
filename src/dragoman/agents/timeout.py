"""A time limit on what a task waits for, by the engine's clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from dragoman.clock import Clock

T = TypeVar("T")


class DeadlineExceeded(TimeoutError):
    """The time is over."""


class Timeout:
    """Cancels what is waited for when the time is over. Between two waits nobody is cancelled. Close it at the end."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._worker: asyncio.Task[object] | None = None
        self.expired = False
        self._timer = clock.call_later(seconds, self._expire)

    async def wait(self, work: Awaitable[T]) -> T:
        """Wait for it.

        Raises:
            Late: the time is over. What was waited for has been canceled.
        """
        worker = self._worker = asyncio.current_task()
        assert worker is not None
        try:
            result = await work
        except asyncio.CancelledError:
            if self.expired and worker.uncancel() == 0:
                raise DeadlineExceeded from None
            raise
        finally:
            self._worker = None
        if self.expired:  # and it went on all the same
            worker.uncancel()
            raise DeadlineExceeded
        return result

    def restart(self) -> None:
        """Let the time begin anew, unless it is over."""
        if not self.expired:
            self._timer.cancel()
            self._timer = self._clock.call_later(self._seconds, self._expire)

    def close(self) -> None:
        """There is no limit any more."""
        self._timer.cancel()

    def _expire(self) -> None:
        self.expired = True
        if self._worker is not None:
            self._worker.cancel()
