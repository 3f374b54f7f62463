"""The injected clock, waiting on it, and A2A timestamps."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback."""
        ...


class Clock(Protocol):
    """Source of the current time and of timers. Tests inject one that moves by hand."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back on the running loop after that time."""
        ...


class SystemClock:
    """The system time and the timers of the running event loop."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back on the running loop after that time."""
        return asyncio.get_running_loop().call_later(seconds, callback)


async def wait(clock: Clock, future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for a future at most `seconds`, without cancelling it. True when it is done."""
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


async def sleep(clock: Clock, seconds: float) -> None:
    """Sleep for `seconds` on a clock."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if done.done() else done.set_result(None))
    try:
        await done
    finally:
        timer.cancel()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=8)  # the events of a short run share a millisecond
def timestamp(ms: int) -> str:
    """Format milliseconds since 1970 as `2026-11-15T10:00:00.000Z`."""
    second, rest = divmod(ms, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=4)  # hundreds of events share a second, and formatting one costs 2 µs
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def milliseconds(text: str) -> int:
    """Parse an ISO 8601 time into milliseconds since 1970; one without a zone is UTC.

    Raises:
        ValueError: the text is not an ISO 8601 time.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round((moment - _EPOCH) / timedelta(milliseconds=1))
