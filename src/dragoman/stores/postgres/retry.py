"""Calls of the database that are repeated after a lost connection, or one that has gone silent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from dragoman.clock import sleep
from dragoman.model.error import ServerError
from dragoman.stores.postgres.database import CannotWrite, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.clock import Clock

T = TypeVar("T")

# A server that has restarted, or a standby that takes over, is back within this time; no caller waits for longer.
RETRY_SECONDS = 5.0
# Hardly a statement takes so long: the connection is dead, and nobody has noticed yet.
SILENCE_SECONDS = 10.0
FIRST_DELAY, LAST_DELAY = 0.05, 0.5
NO_ANSWER = "the database does not answer: try again with the same messageId"
NO_WRITES = "the database cannot take writes now: try again with the same messageId"


class ConnectionTimeout(ConnectionLost):
    """There was no answer for long. As with any lost connection, the statement may have been applied, or may yet be."""


class Retry:
    """Repeats calls that may be repeated.

    `now` are seconds on a monotonic clock.
    """

    def __init__(self, clock: Clock, now: Callable[[], float]) -> None:
        self._clock = clock
        self._now = now

    async def call(self, call: Callable[[], Awaitable[T]], silence: float = SILENCE_SECONDS) -> T:
        """Call until the database answers, for some seconds. Raises ServerError when it does not.

        A call that takes longer than `silence` is given up and repeated.
        """
        return (await self.call_counting(call, silence))[0]

    async def call_counting(self, call: Callable[[], Awaitable[T]], silence: float = SILENCE_SECONDS) -> tuple[T, bool]:
        """Like `call`; also says whether an earlier call may have been applied already."""
        started, delay, repeated = self._now(), FIRST_DELAY, False
        while True:
            try:
                return await answer_within(self._clock, silence, call), repeated
            except ConnectionLost as error:
                if self._now() - started >= RETRY_SECONDS:
                    raise unavailable(error) from error
                repeated = repeated or not isinstance(error, CannotWrite)
            await sleep(self._clock, delay)
            delay = min(2 * delay, LAST_DELAY)


def unavailable(error: ConnectionLost) -> ServerError:
    """Build the error for callers of a database that was asked in vain: whether it is silent, or refuses to write."""
    return ServerError(NO_WRITES if isinstance(error, CannotWrite) else NO_ANSWER, retryAfter="1")


async def answer_within(clock: Clock, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Wait for an answer for some seconds. Raises ConnectionTimeout when there is none, and what `call` raises."""
    task = asyncio.current_task()
    assert task is not None
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = clock.call_later(seconds, expire)
    try:
        return await call()
    except asyncio.CancelledError:
        if not expired or task.uncancel():
            raise
        raise ConnectionTimeout(f"it has not answered for {seconds:.0f} s") from None
    finally:
        timer.cancel()
