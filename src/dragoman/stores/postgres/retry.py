"""Calls of the database that are repeated for some seconds after a lost connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dragoman.clock import sleep
from dragoman.model.error import ServerError
from dragoman.stores.postgres.database import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.clock import Clock

T = TypeVar("T")

# A server that has restarted, or a standby that takes over, is back within this time; no caller waits for longer.
RETRY_SECONDS = 5.0
FIRST_DELAY, LAST_DELAY = 0.05, 0.5
NO_ANSWER = "the database does not answer: try again with the same messageId"


class Retry:
    """Repeats calls that may be repeated.

    `now` are seconds on a monotonic clock.
    """

    def __init__(self, clock: Clock, now: Callable[[], float]) -> None:
        self._clock = clock
        self._now = now

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the database answers, for some seconds. Raises ServerError when it does not."""
        return (await self.call_counting(call))[0]

    async def call_counting(self, call: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """Like `call`; also says whether an earlier call may have been applied already."""
        started, delay, repeated = self._now(), FIRST_DELAY, False
        while True:
            try:
                return await call(), repeated
            except ConnectionLost as error:
                if self._now() - started >= RETRY_SECONDS:
                    raise ServerError(NO_ANSWER, retryAfter="1") from error
            await sleep(self._clock, delay)
            delay, repeated = min(2 * delay, LAST_DELAY), True
