"""Task numbers, reserved in blocks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dragoman.clock import sleep
from dragoman.model.error import ServerError
from dragoman.stores.postgres.database import ConnectionLost
from dragoman.stores.postgres.retry import SILENCE_SECONDS, answer_within

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.stores.postgres.database import Database

logger = logging.getLogger("dragoman.store")

# At 5,000 new tasks a second a block lasts 200 ms. The larger the blocks are, the less the numbers of several nodes say
# about which task is older.
BLOCK = 1024
RETRY_DELAY = 0.2
# A number contains the day on which it was reserved, and the events of a day are dropped some time after it.
RENEW_MS = 1_800_000
# A number that was reserved so long ago is not used: this process was suspended, or the database was away.
STALE_MS = 43_200_000


class TaskNumbers:
    """Task numbers of this node, ascending. The next block is reserved before the last number is used."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._next: int = 0
        self._end: int = 0
        self._since_ms = 0  # when those were reserved
        self._reserved: tuple[int, int] | None = None  # the first number of the next block, and since when
        self._refill: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Reserve the first block. Raises ConnectionLost."""
        now = self._clock.now()
        first = await self._database.numbers(BLOCK)
        self._next, self._end, self._since_ms, self._reserved = first, first + BLOCK, now, None

    async def renew(self) -> None:
        """Give up numbers that were reserved half an hour ago: no task gets the number of a day long past.

        Raises:
            ConnectionLost: the database does not answer; the old ones are used on.
        """
        if self._age(self._since_ms) >= RENEW_MS:
            await self.open()

    def next(self) -> int:
        """Allocate a number. Raises ServerError when the database did not reserve more in time."""
        if self._next == self._end or self._age(self._since_ms) >= STALE_MS:
            if self._reserved is None or self._age(self._reserved[1]) >= STALE_MS:
                self._next, self._end, self._reserved = 0, 0, None
                self._start_refill()
                raise ServerError(
                    "no task numbers are left, because the database does not answer: try again with the same messageId",
                    retryAfter="1",
                )
            (self._next, self._since_ms), self._reserved = self._reserved, None
            self._end = self._next + BLOCK
        number = self._next
        self._next = number + 1
        if self._reserved is None and self._end - number <= BLOCK // 2:
            self._start_refill()
        return number

    def _age(self, since_ms: int) -> int:
        return abs(self._clock.now() - since_ms)  # the clock may be set

    def close(self) -> None:
        """Stop reserving numbers."""
        if self._refill is not None:
            self._refill.cancel()

    def _start_refill(self) -> None:
        if self._refill is None or self._refill.done():
            self._refill = asyncio.get_running_loop().create_task(self._reserve())

    async def _reserve(self) -> None:
        while True:
            now = self._clock.now()
            try:
                first = await answer_within(self._clock, SILENCE_SECONDS, lambda: self._database.numbers(BLOCK))
            except ConnectionLost:
                await sleep(self._clock, RETRY_DELAY)
            else:
                self._reserved = first, now
                return
