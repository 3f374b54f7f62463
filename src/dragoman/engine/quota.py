"""How much a caller may have going on at once, and how often it may ask.

A caller is a key made by `caller_of`; the empty key is this process itself, which nothing is held against.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dragoman.model.error import InvalidParams, Overloaded
from dragoman.model.user import User

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from dragoman.engine.clock import Clock
    from dragoman.engine.live import LiveTask
    from dragoman.engine.options import EngineSettings

# When to come back if nobody can say when something ends, in seconds.
SOON = 1
# Of how many callers the rate is known at once. Whoever is forgotten begins anew.
CALLERS = 100_000


def caller_of(user: User | None, address: str = "") -> str:
    """Whom a request counts for: the user, else all strangers at one address."""
    return f"user {user.id}" if user is not None else f"address {address or 'unknown'}"


def busy(text: str, limit: str, seconds: float = SOON) -> Overloaded:
    """The error for a limit that was reached, and when to come back: whole seconds, at least one."""
    return Overloaded(f"{text}: try again later", limit=limit, retryAfter=str(max(1, math.ceil(seconds))))


class Tally:
    """How many of one thing each caller has; 0 as `most` is any number. Who has none is not remembered."""

    def __init__(self, limit: str, things: str, most: int) -> None:
        self._limit = limit
        self._things = things
        self._most = most
        self.counts: dict[str, int] = {}

    def check(self, caller: str) -> None:
        """Do nothing while there is room. Raises Overloaded."""
        if self._most and self.counts.get(caller, 0) >= self._most:
            raise busy(f"you have {self._most} {self._things}", self._limit)

    def add(self, caller: str, *, anyway: bool = False) -> None:
        """Count one more. Raises Overloaded when there is no room, unless it is there `anyway`."""
        if not self._most or not caller:
            return
        count = self.counts.get(caller, 0)
        if count >= self._most and not anyway:
            self.check(caller)
        self.counts[caller] = count + 1

    def remove(self, caller: str) -> None:
        """Count one less."""
        count = self.counts.get(caller, 0)
        if count > 1:
            self.counts[caller] = count - 1
        elif count:
            del self.counts[caller]


class Quota:
    """What callers have going on with one agent: runs and streams."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._streams_open = 0
        self.tasks = Tally("caller_tasks", "tasks at work", settings.caller_tasks)
        self.streams = Tally("caller_streams", "streams open", settings.caller_streams)
        # By the object that stands for a run: a task can have a second before the first is put away.
        self._runs: dict[object, str] = {}

    def check_parts(self, parts: int) -> None:
        """Do nothing when a message may have so many. Raises InvalidParams."""
        most = self._settings.max_parts
        if parts > most:
            raise InvalidParams(
                f"a message has {most} parts at most, not {parts}", field="message.parts", limit="parts"
            )

    def expect(self, caller: str, alive: int = 0) -> None:
        """Hold a place for a run, beside `alive` others: `begun` or `dropped` must follow. Raises Overloaded."""
        if alive >= self._settings.max_tasks:
            raise busy(f"{alive} tasks are at work", "tasks")
        self.tasks.add(caller)

    def dropped(self, caller: str) -> None:
        """Give back a place that was held: no run began."""
        self.tasks.remove(caller)

    def begun(self, run: object | None, caller: str) -> None:
        """A run has begun in the place that was held; with None, none has."""
        if not caller:
            return
        if run is None or run in self._runs:  # or another message began it
            self.tasks.remove(caller)
        else:
            self._runs[run] = caller

    def recover(self, runs: Iterable[LiveTask]) -> None:
        """Count users' runs that began again after a crash, whether there are places or not."""
        for run in runs:
            if run.row.scope.owner:
                caller = caller_of(User(run.row.scope.owner))
                self.tasks.add(caller, anyway=True)
                self._runs[run] = caller

    def ended(self, run: object) -> None:
        """A run is over. One that was never counted does not matter."""
        caller = self._runs.pop(run, None)
        if caller is not None:
            self.tasks.remove(caller)

    def check_stream(self, caller: str) -> None:
        """Do nothing while one more stream may be opened. Raises Overloaded."""
        if self._streams_open >= self._settings.max_streams:
            raise busy(f"{self._streams_open} streams are open", "streams")
        self.streams.check(caller)

    @contextmanager
    def stream(self, caller: str) -> Generator[None]:
        """Count a stream while it is open. Raises Overloaded: many may have been told that there is room."""
        self.check_stream(caller)
        self._streams_open += 1
        self.streams.add(caller)
        try:
            yield
        finally:
            self._streams_open -= 1
            self.streams.remove(caller)


class Rate:
    """Lets each caller ask so many times a second, and `burst` times at once. A caller who rests is forgotten.

    Of each caller one number is kept: when it will have rested enough to be as good as new. A request moves that by
    the time it costs; one that would move it further away than a whole burst is refused.
    """

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        self._per_second = per_second
        # In microseconds: whole numbers add up.
        self._cost = max(1, round(1_000_000 / per_second))
        self._room = self._cost * (burst or max(1, math.floor(per_second)))
        self._rested: dict[str, int] = {}
        self._sweep_at = 0

    def __len__(self) -> int:
        """How many callers are remembered."""
        return len(self._rested)

    def take(self, caller: str) -> None:
        """Count a request. Raises Overloaded when it is one too many."""
        if not caller:
            return
        now = self._clock.now() * 1000
        rested = self._rested.get(caller)
        if rested is None:
            self._make_room(now)
            rested = now
        elif not now < rested <= now + self._room:  # it has rested, or the clock was set back
            rested = now
        rested += self._cost
        excess = rested - now - self._room
        if excess > 0:
            raise busy(f"you may make {self._per_second:g} requests a second", "rate", excess / 1_000_000)
        self._rested[caller] = rested

    def _make_room(self, now: int) -> None:
        pause = max(self._room, 1_000_000)
        if not now < self._sweep_at <= now + pause:
            # Not more often than callers need to rest, so that a look at all of them is paid for by many requests.
            self._sweep_at = now + pause
            self._rested = {caller: rested for caller, rested in self._rested.items() if now < rested <= now + pause}
        if len(self._rested) >= CALLERS:
            del self._rested[next(iter(self._rested))]
