"""Time: the Clock that everything waits by, and how A2A spells an instant."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
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


async def sleep(clock: Clock, seconds: float) -> None:
    """Let time pass on that clock."""
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
    """Spell milliseconds as `2026-11-15T10:00:00.000Z`."""
    second, rest = divmod(ms, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=4)  # hundreds of events share a second, and formatting one costs 2 µs
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def milliseconds(text: str) -> int:
    """Read an ISO 8601 time; one without a zone is UTC.

    Raises:
        ValueError: the text is not a time.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round((moment - _EPOCH) / timedelta(milliseconds=1))
