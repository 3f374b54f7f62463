"""A time limit on awaits of a task, measured by the engine's clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from dragoman.clock import Clock

T = TypeVar("T")


class DeadlineExceeded(TimeoutError):
    """The time limit has passed."""


class Timeout:
    """Cancels the current `wait` when the time limit passes; never cancels between two waits. Call `close` at the end.

    `expired` is True once the limit has passed.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._worker: asyncio.Task[object] | None = None
        self.expired = False
        self._timer = clock.call_later(seconds, self._expire)

    async def wait(self, work: Awaitable[T]) -> T:
        """Await `work` within the time limit.

        Raises:
            DeadlineExceeded: the limit has passed. `work` was canceled, unless the limit had passed before the call:
                then it ran to its end and its result is dropped.
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
        if self.expired:  # the awaited work suppressed the cancellation
            worker.uncancel()
            raise DeadlineExceeded
        return result

    def restart(self) -> None:
        """Restart the time limit, unless it has passed."""
        if not self.expired:
            self._timer.cancel()
            self._timer = self._clock.call_later(self._seconds, self._expire)

    def close(self) -> None:
        """Remove the time limit."""
        self._timer.cancel()

    def _expire(self) -> None:
        self.expired = True
        if self._worker is not None:
            self._worker.cancel()
