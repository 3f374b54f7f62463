"""Time as a part that can be replaced: no test sleeps."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Forget the callback."""
        ...


class Clock(Protocol):
    """The time of day and the passing of time."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back on the running loop after that time."""
        ...


class SystemClock:
    """The clock on the wall and the running event loop's timers."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back on the running loop after that time."""
        return asyncio.get_running_loop().call_later(seconds, callback)


async def wait(clock: Clock, future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for a future at most that long; the future itself is left alone. True when it is done."""
    if future.done():
        return True
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = clock.call_later(seconds, wake)
    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        future.remove_done_callback(wake)
    return future.done()
