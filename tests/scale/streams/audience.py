"""Everybody who follows a task: what they got, what was missing, how late it was, and how often they had to try."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

_TICK = re.compile(rb'"text":"at (\d+)"')
_SNAPSHOT = b'{"task"'
_BEGUN = b'"text":"begun"'
_COMPLETED = b'"state":"TASK_STATE_COMPLETED"'


class Seat:
    """What one reader has of one task: every generation once and in order, or `problem` says what was wrong."""

    def __init__(self, audience: Audience, task_id: str) -> None:
        self._audience = audience
        self.task_id = task_id
        self.generation = 0
        self.is_over = False
        self.problem = ""
        self._at = 0.0

    def take(self, generation: int, data: bytes) -> None:
        """Take an event."""
        audience, now = self._audience, time.time()
        if self.generation and generation != self.generation + 1:
            self.fail(f"{generation} follows {self.generation}")
        elif self.is_over:
            self.fail(f"{generation} follows the end")
        self.generation = generation
        audience.behind.discard(self)
        if self._at:
            audience.longest_silence = max(audience.longest_silence, now - self._at)
        self._at = now
        if data.startswith(_SNAPSHOT):
            pass
        elif (tick := _TICK.search(data)) is not None:
            audience.ticks += 1
            audience.delays.append(now - int(tick[1]) / 1e9)
        elif _BEGUN in data:
            audience.begins += 1
        elif _COMPLETED in data:
            self.is_over = True
            audience.ended += 1
        audience.look()

    def fail(self, problem: str) -> None:
        """Note the first thing that went wrong."""
        self.problem = self.problem or problem
        self._audience.problems.append(f"{self.task_id}: {problem}")
        self._audience.look()


class Audience:
    """The sum of all readers.

    `ticks` and `begins` count events of these kinds, and `delays` are the seconds from a tick to its arrival. `open`
    are streams whose response has begun, `attempts` connections that were tried, and `failures` those that failed,
    by their reason. Who is `behind` has had no event since he was put there.
    """

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.begins = self.ticks = self.ended = 0
        self.open = self.attempts = 0
        self.failures: dict[str, int] = {}
        self.problems: list[str] = []
        self.delays: list[float] = []
        self.longest_silence = 0.0
        self.behind: set[Seat] = set()
        self._wanted: Callable[[], object] | None = None
        self._enough: asyncio.Future[None] | None = None

    def seat(self, task_id: str) -> Seat:
        """A seat for one more reader."""
        seat = Seat(self, task_id)
        self.seats.append(seat)
        return seat

    def count_failure(self, reason: str) -> None:
        """Count a connection that failed."""
        self.failures[reason] = self.failures.get(reason, 0) + 1

    def look(self) -> None:
        """Something has changed: is it what somebody waits for?"""
        if self._wanted is not None and (self.problems or self._wanted()) and self._enough is not None:
            self._wanted = None
            self._enough.set_result(None)

    async def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait until a condition holds. Raises AssertionError as soon as anybody has got something wrong."""
        if not condition():
            self._wanted, self._enough = condition, asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._enough
            except TimeoutError:
                raise AssertionError(f"not within {seconds:g} s: {self}") from None
            finally:
                self._wanted = None
        assert not self.problems, self.problems[:10]

    def __repr__(self) -> str:
        return (
            f"{len(self.seats)} readers, {self.open} open, {self.begins} begun, {self.ticks} ticks, "
            f"{self.ended} ended, {self.attempts} attempts, failures {self.failures}"
        )

    def percentile(self, share: float) -> float:
        """The delay that this share of the ticks did not exceed."""
        delays = sorted(self.delays)
        return delays[min(len(delays) - 1, int(len(delays) * share))]
