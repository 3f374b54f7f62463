"""How long to wait before trying again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock
    from dragoman.model.error import DragomanError

FIRST = 0.2
LONGEST = 8.0
# Nobody waits longer because a server says so.
LONGEST_ASKED = 60.0


class Backoff:
    """Counts failures in a row. The first try again is at once, then each waits about twice as long as the last.

    The waits are blurred, so that many callers of one server do not come back together.
    """

    def __init__(self, retries: int, clock: Clock) -> None:
        self._retries = retries
        self._clock = clock
        self.failures = 0

    def succeeded(self) -> None:
        """Start again from nothing."""
        self.failures = 0

    async def pause(self, problem: Exception) -> None:
        """Wait before the next try, as long as the server asks for. Raises `problem` when there have been enough."""
        self.failures += 1
        if self.failures > self._retries:
            raise problem
        delay = 0.0 if self.failures == 1 else min(LONGEST, FIRST * 2 ** (self.failures - 2))
        delay *= 0.5 + random.random() / 2  # noqa: S311 - nothing secret
        await sleep(self._clock, max(delay, min(getattr(problem, "retry_after", 0.0), LONGEST_ASKED)))


def asked_to_wait(error: DragomanError, status: int, headers: Mapping[str, str], clock: Clock) -> DragomanError:
    """The error of an answer, with how long its server asks to be left alone."""
    if status in (429, 503):
        vars(error)["retry_after"] = _seconds(headers.get("Retry-After", "").strip(), clock)
    return error


def _seconds(text: str, clock: Clock) -> float:
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - clock.now() / 1000)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


async def sleep(clock: Clock, seconds: float) -> None:
    """Let time pass on that clock."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()
