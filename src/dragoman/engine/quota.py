"""Quotas and rate limits per caller: runs, streams, memory, requests per second.

A caller is a key made by `caller_of`. The empty key is this process itself: only the server-wide limits apply to it.
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

# The Retry-After when it cannot be predicted when a limit is free again.
RETRY_SECONDS = 1
# How many callers a rate limiter tracks at once. An evicted caller starts with a full burst.
MAX_CALLERS = 100_000
# Requests up to this size may use the memory reserved for small ones.
SMALL_REQUEST_BYTES = 500_000
# The name of the server-wide limit in errors.
SERVER_MEMORY = "memory"


def caller_of(user: User | None, address: str = "") -> str:
    """The key that quotas count a request for: the user, or the address of an anonymous caller."""
    return f"user {user.id}" if user is not None else f"address {address or 'unknown'}"


def overloaded(text: str, limit: str, seconds: float = RETRY_SECONDS) -> Overloaded:
    """Build the error for a reached limit, with `retryAfter` in whole seconds, at least one."""
    return Overloaded(f"{text}: try again later", limit=limit, retryAfter=str(max(1, math.ceil(seconds))))


def too_many_parts(limit: int, parts: int) -> InvalidParams:
    """Build the error for a message with too many parts."""
    return InvalidParams(f"a message has {limit} parts at most, not {parts}", field="message.parts", limit="parts")


class CallerCounter:
    """Counts one kind of resource per caller, up to `maximum`; 0 is unlimited. Callers at zero use no memory.

    `limit` is the name of the limit in errors, and `noun` what their texts call the resources.
    """

    def __init__(self, limit: str, noun: str, maximum: int) -> None:
        self._limit = limit
        self._noun = noun
        self._max = maximum
        self.counts: dict[str, int] = {}

    def check(self, caller: str) -> None:
        """Raise Overloaded when the caller has reached the maximum."""
        if self._max and self.counts.get(caller, 0) >= self._max:
            raise overloaded(f"you have {self._max} {self._noun}", self._limit)

    def add(self, caller: str, *, force: bool = False) -> None:
        """Count one more. Raises Overloaded at the maximum, unless `force`."""
        if not self._max or not caller:
            return
        count = self.counts.get(caller, 0)
        if count >= self._max and not force:
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
    """Counts the bytes of memory that requests use, per caller and in total; a limit of 0 is unlimited.

    The last quarter is reserved for small requests, so that large messages cannot block everybody else.
    """

    def __init__(self, max_bytes: int = 0, max_caller_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        self._max_caller_bytes = max_caller_bytes
        self.used = 0
        self.callers: dict[str, int] = {}

    def reserve(self, caller: str, size: int, before: int = 0) -> None:
        """Reserve `size` more bytes for a request that has `before` already. Raises Overloaded at a limit."""
        self._check(caller, size, before)
        self.count(caller, size)

    def _check(self, caller: str, size: int, before: int) -> None:
        limit = self._max_bytes if before + size <= SMALL_REQUEST_BYTES else self._max_bytes // 4 * 3
        if self._max_bytes and self.used + size > limit:
            raise overloaded("the memory for requests is full", SERVER_MEMORY)
        if self._max_caller_bytes and caller and self.callers.get(caller, 0) + size > self._max_caller_bytes:
            raise overloaded("your requests and running tasks take as much memory as they may", "caller_memory")

    def count(self, caller: str, size: int) -> None:
        """Count `size` bytes that are in use already, without checking the limits."""
        self.used += size
        if caller:
            self.callers[caller] = self.callers.get(caller, 0) + size

    def release(self, caller: str, size: int) -> None:
        """Release `size` bytes."""
        self.used -= size
        remaining = self.callers.get(caller, 0) - size
        if remaining > 0:
            self.callers[caller] = remaining
        else:
            self.callers.pop(caller, None)


class Lease:
    """The memory of one request, reference-counted: held while it is handled, and by its task's run until that ends."""

    __slots__ = ("_caller", "_holders", "_memory", "_size")

    def __init__(self, memory: MemoryQuota, caller: str, size: int = 0) -> None:
        self._memory = memory
        self._caller = caller
        self._size = size
        self._holders = 1

    def resize(self, size: int) -> None:
        """Change the lease to `size` bytes. Raises Overloaded at a limit and changes nothing then."""
        more = size - self._size
        if more > 0:
            self._memory.reserve(self._caller, more, self._size)
        else:
            self._memory.release(self._caller, -more)
        self._size = size

    @contextmanager
    def covering(self, size: int, *, force: bool = False) -> Generator[None]:
        """Raise the lease to at least `size` bytes within the context. Raises Overloaded at a limit, unless `force`."""
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
        """Release the lease for now. Returns a function that takes a new lease of the same size, ignoring limits."""
        memory, caller, size = self._memory, self._caller, self._size
        self.release()

        def resume() -> Lease:
            memory.count(caller, size)
            return Lease(memory, caller, size)

        return resume

    def hold(self) -> None:
        """Add a holder, which must call `release`."""
        self._holders += 1

    def release(self) -> None:
        """Remove a holder. The last one frees the memory."""
        self._holders -= 1
        if not self._holders:
            self._memory.release(self._caller, self._size)
            self._size = 0


class Quota:
    """The quotas of one agent: runs and streams per caller and in total. A run is identified by its LiveTask."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._streams_open = 0
        self.tasks = CallerCounter("caller_tasks", "tasks at work", settings.caller_tasks)
        self.streams = CallerCounter("caller_streams", "streams open", settings.caller_streams)
        # By LiveTask, not by task id: a task can have a second run before its first is released.
        self._runs: dict[object, str] = {}
        self._leases: dict[object, list[Lease]] = {}
        self._suspended: dict[object, list[Callable[[], Lease]]] = {}

    def reserve(self, caller: str, running: int = 0) -> None:
        """Reserve a slot for a run; `running` tasks are live. `start_run` or `cancel_reservation` must follow.

        Raises:
            Overloaded: the server or the caller has the maximum number of runs.
        """
        if running >= self._settings.max_tasks:
            raise overloaded(f"{running} tasks are at work", "tasks")
        self.tasks.add(caller)

    def cancel_reservation(self, caller: str) -> None:
        """Free a reserved slot: no run was started."""
        self.tasks.remove(caller)

    def start_run(self, run: object | None, caller: str) -> None:
        """Assign the reserved slot to a run; free the slot when `run` is None or has one already."""
        if not caller:
            return
        if run is None or run in self._runs:  # another message may have started it
            self.tasks.remove(caller)
        else:
            self._runs[run] = caller

    def hold_lease(self, run: object, lease: Lease) -> None:
        """Hold the memory of a message until its run ends."""
        lease.hold()
        self._leases.setdefault(run, []).append(lease)

    def suspend_leases(self, run: object) -> None:
        """Release the leases of a queued run whose message was unloaded to the store."""
        self._suspended[run] = [lease.suspend() for lease in self._leases.pop(run, ())]

    def resume_leases(self, run: object) -> None:
        """Take the suspended leases of a run again, when it starts."""
        resumed = [resume() for resume in self._suspended.pop(run, ())]
        if resumed:
            self._leases.setdefault(run, []).extend(resumed)

    def recover(self, runs: Iterable[LiveTask]) -> None:
        """Count runs for their users that no message has started here, ignoring limits: restarted or taken ones."""
        for run in runs:
            if run.row.scope.owner:
                caller = caller_of(User(run.row.scope.owner))
                self.tasks.add(caller, force=True)
                self._runs[run] = caller

    def end_run(self, run: object) -> None:
        """Free the slot and the leases of a run. A run that was never counted is ignored."""
        caller = self._runs.pop(run, None)
        if caller is not None:
            self.tasks.remove(caller)
        if self._leases:
            for lease in self._leases.pop(run, ()):
                lease.release()
        if self._suspended:
            self._suspended.pop(run, None)

    def check_stream(self, caller: str) -> None:
        """Raise Overloaded when no further stream may be opened."""
        if self._streams_open >= self._settings.max_streams:
            raise overloaded(f"{self._streams_open} streams are open", "streams")
        self.streams.check(caller)

    @contextmanager
    def stream(self, caller: str) -> Generator[None]:
        """Count a stream while the context is open. Checks the limits again. Raises Overloaded."""
        self.check_stream(caller)
        self._streams_open += 1
        self.streams.add(caller)
        try:
            yield
        finally:
            self._streams_open -= 1
            self.streams.remove(caller)


class RateLimiter:
    """Rate limit per caller: `per_second` requests on average, `burst` at once.

    This is a token bucket in GCRA form: for each caller it stores one number, the time at which the bucket is full
    again. A request moves that time by its cost; one that would move it further ahead than a whole burst is refused.
    Callers with a full bucket are dropped.
    """

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        self._per_second = per_second
        # In integer microseconds, so that sums are exact.
        self._cost = max(1, round(1_000_000 / per_second))
        self._burst_cost = self._cost * (burst or max(1, math.floor(per_second)))
        self._full_at: dict[str, int] = {}
        self._sweep_at = 0

    def __len__(self) -> int:
        """The number of callers that are tracked."""
        return len(self._full_at)

    def take(self, caller: str) -> None:
        """Count a request. Raises Overloaded when it exceeds the rate."""
        if not caller:
            return
        now = self._clock.now() * 1000
        full_at = self._full_at.get(caller)
        if full_at is None:
            self._evict(now)
            full_at = now
        elif not now < full_at <= now + self._burst_cost:  # the bucket is full, or the clock was set back
            full_at = now
        full_at += self._cost
        excess = full_at - now - self._burst_cost
        if excess > 0:
            raise overloaded(f"you may make {self._per_second:g} requests a second", "rate", excess / 1_000_000)
        self._full_at[caller] = full_at

    def _evict(self, now: int) -> None:
        pause = max(self._burst_cost, 1_000_000)
        if not now < self._sweep_at <= now + pause:
            # At most once per refill time, so that the cost of a full scan is spread over many requests.
            self._sweep_at = now + pause
            self._full_at = {caller: time for caller, time in self._full_at.items() if now < time <= now + pause}
        if len(self._full_at) >= MAX_CALLERS:
            del self._full_at[next(iter(self._full_at))]
