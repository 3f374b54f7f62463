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
    from collections.abc import Callable, Generator, Iterable

    from dragoman.clock import Clock
    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.settings import EngineSettings

# When to come back if nobody can say when something ends, in seconds.
RETRY_SECONDS = 1
# Of how many callers the rate is known at once. Whoever is forgotten begins anew.
MAX_CALLERS = 100_000
# What a request may take of the memory that is kept for small ones, in bytes.
SMALL_REQUEST_BYTES = 500_000
# The limit of the server, as errors name it.
SERVER_MEMORY = "memory"


def caller_of(user: User | None, address: str = "") -> str:
    """Whom a request counts for: the user, else all strangers at one address."""
    return f"user {user.id}" if user is not None else f"address {address or 'unknown'}"


def overloaded(text: str, limit: str, seconds: float = RETRY_SECONDS) -> Overloaded:
    """The error for a limit that was reached, and when to come back: whole seconds, at least one."""
    return Overloaded(f"{text}: try again later", limit=limit, retryAfter=str(max(1, math.ceil(seconds))))


def too_many_parts(most: int, parts: int) -> InvalidParams:
    """The error for a message that has too many parts."""
    return InvalidParams(f"a message has {most} parts at most, not {parts}", field="message.parts", limit="parts")


class CallerCounter:
    """How many of one thing each caller has; 0 as `most` is any number. Who has none is not remembered."""

    def __init__(self, limit: str, things: str, most: int) -> None:
        self._limit = limit
        self._things = things
        self._most = most
        self.counts: dict[str, int] = {}

    def check(self, caller: str) -> None:
        """Do nothing while there is room. Raises Overloaded."""
        if self._most and self.counts.get(caller, 0) >= self._most:
            raise overloaded(f"you have {self._most} {self._things}", self._limit)

    def add(self, caller: str, *, force: bool = False) -> None:
        """Count one more. Raises Overloaded when there is no room, unless it is there `anyway`."""
        if not self._most or not caller:
            return
        count = self.counts.get(caller, 0)
        if count >= self._most and not force:
            self.check(caller)
        self.counts[caller] = count + 1

    def remove(self, caller: str) -> None:
        """Count one less."""
        count = self.counts.get(caller, 0)
        if count > 1:
            self.counts[caller] = count - 1
        elif count:
            del self.counts[caller]


class MemoryQuota:
    """How many bytes of memory requests take, of each caller and of all; 0 as a limit is any number.

    The last quarter is for small ones: whoever sends large messages cannot keep others from asking at all.
    """

    def __init__(self, most: int = 0, caller_most: int = 0) -> None:
        self._most = most
        self._caller_most = caller_most
        self.used = 0
        self.callers: dict[str, int] = {}

    def reserve(self, caller: str, size: int, before: int = 0) -> None:
        """Count so many bytes more for a request that takes `before` bytes. Raises Overloaded when there is no room."""
        self._check(caller, size, before)
        self.count(caller, size)

    def _check(self, caller: str, size: int, before: int) -> None:
        most = self._most if before + size <= SMALL_REQUEST_BYTES else self._most // 4 * 3
        if self._most and self.used + size > most:
            raise overloaded("the memory for requests is full", SERVER_MEMORY)
        if self._caller_most and caller and self.callers.get(caller, 0) + size > self._caller_most:
            raise overloaded("your requests and running tasks take as much memory as they may", "caller_memory")

    def count(self, caller: str, size: int) -> None:
        """Count so many bytes more, which are there whether there is room or not."""
        self.used += size
        if caller:
            self.callers[caller] = self.callers.get(caller, 0) + size

    def release(self, caller: str, size: int) -> None:
        """Count so many bytes less."""
        self.used -= size
        left = self.callers.get(caller, 0) - size
        if left > 0:
            self.callers[caller] = left
        else:
            self.callers.pop(caller, None)


class Lease:
    """The memory of one request: held while it is read and answered, and by the run of its task until that is over."""

    __slots__ = ("_caller", "_holders", "_memory", "_size")

    def __init__(self, memory: MemoryQuota, caller: str, size: int = 0) -> None:
        self._memory = memory
        self._caller = caller
        self._size = size
        self._holders = 1

    def resize(self, size: int) -> None:
        """Count it as so many bytes from now on. Raises Overloaded when there is no room; nothing has changed then."""
        more = size - self._size
        if more > 0:
            self._memory.reserve(self._caller, more, self._size)
        else:
            self._memory.release(self._caller, -more)
        self._size = size

    @contextmanager
    def covering(self, size: int, *, force: bool = False) -> Generator[None]:
        """Count it as so many bytes at least for a while. Raises Overloaded, unless they are there `anyway`."""
        before = self._size
        if size > before and force:
            self._memory.count(self._caller, size - before)
            self._size = size
        elif size > before:
            self.resize(size)
        try:
            yield
        finally:
            if self._size > before:
                self.resize(before)

    def suspend(self) -> Callable[[], Lease]:
        """Hold it no more, for now. Gives the way to have as much again, whether there is room or not."""
        memory, caller, size = self._memory, self._caller, self._size
        self.release()

        def resume() -> Lease:
            memory.count(caller, size)
            return Lease(memory, caller, size)

        return resume

    def hold(self) -> None:
        """Have it held by one more: `release` must follow."""
        self._holders += 1

    def release(self) -> None:
        """Hold it no more. With its last holder the memory is free."""
        self._holders -= 1
        if not self._holders:
            self._memory.release(self._caller, self._size)
            self._size = 0


class Quota:
    """What callers have going on with one agent: runs and streams."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._streams_open = 0
        self.tasks = CallerCounter("caller_tasks", "tasks at work", settings.caller_tasks)
        self.streams = CallerCounter("caller_streams", "streams open", settings.caller_streams)
        # By the object that stands for a run: a task can have a second before the first is put away.
        self._runs: dict[object, str] = {}
        self._leases: dict[object, list[Lease]] = {}
        self._suspended: dict[object, list[Callable[[], Lease]]] = {}

    def reserve(self, caller: str, alive: int = 0) -> None:
        """Hold a place for a run, beside `alive` others: `begun` or `dropped` must follow. Raises Overloaded."""
        if alive >= self._settings.max_tasks:
            raise overloaded(f"{alive} tasks are at work", "tasks")
        self.tasks.add(caller)

    def cancel_reservation(self, caller: str) -> None:
        """Give back a place that was held: no run began."""
        self.tasks.remove(caller)

    def start_run(self, run: object | None, caller: str) -> None:
        """A run has begun in the place that was held; with None, none has."""
        if not caller:
            return
        if run is None or run in self._runs:  # or another message began it
            self.tasks.remove(caller)
        else:
            self._runs[run] = caller

    def hold_lease(self, run: object, lease: Lease) -> None:
        """Count the memory of a message until the run that got it is over."""
        lease.hold()
        self._leases.setdefault(run, []).append(lease)

    def suspend_leases(self, run: object) -> None:
        """A run that waits for its turn has its message on the disk: that takes no memory until it begins."""
        self._suspended[run] = [lease.suspend() for lease in self._leases.pop(run, ())]

    def resume_leases(self, run: object) -> None:
        """A run that had its message on the disk begins."""
        resumed = [resume() for resume in self._suspended.pop(run, ())]
        if resumed:
            self._leases.setdefault(run, []).extend(resumed)

    def recover(self, runs: Iterable[LiveTask]) -> None:
        """Count users' runs that began again after a crash, whether there are places or not."""
        for run in runs:
            if run.row.scope.owner:
                caller = caller_of(User(run.row.scope.owner))
                self.tasks.add(caller, force=True)
                self._runs[run] = caller

    def end_run(self, run: object) -> None:
        """A run is over. One that was never counted does not matter."""
        caller = self._runs.pop(run, None)
        if caller is not None:
            self.tasks.remove(caller)
        if self._leases:
            for lease in self._leases.pop(run, ()):
                lease.release()
        if self._suspended:
            self._suspended.pop(run, None)

    def check_stream(self, caller: str) -> None:
        """Do nothing while one more stream may be opened. Raises Overloaded."""
        if self._streams_open >= self._settings.max_streams:
            raise overloaded(f"{self._streams_open} streams are open", "streams")
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


class RateLimiter:
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
            raise overloaded(f"you may make {self._per_second:g} requests a second", "rate", excess / 1_000_000)
        self._rested[caller] = rested

    def _make_room(self, now: int) -> None:
        pause = max(self._room, 1_000_000)
        if not now < self._sweep_at <= now + pause:
            # Not more often than callers need to rest, so that a look at all of them is paid for by many requests.
            self._sweep_at = now + pause
            self._rested = {caller: rested for caller, rested in self._rested.items() if now < rested <= now + pause}
        if len(self._rested) >= MAX_CALLERS:
            del self._rested[next(iter(self._rested))]
