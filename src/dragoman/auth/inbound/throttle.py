"""Throttling of password attempts by address and name, and fair slots for their verification."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dragoman.auth.inbound.chain import CredentialCache
from dragoman.clock import Clock
from dragoman.model.error import Overloaded, ServerError

# How many keys a counter keeps. The one whose last failure is oldest is evicted first.
SIZE = 20_000
# How long a successful sign-in counts for an address and a name, in seconds.
SIGNED_IN_SECONDS = 30 * 24 * 3600.0


class FailureCounter:
    """Counts failures by key. Each failure after the first `free` ones doubles the delay, up to `longest`.

    Times are seconds. A count halves with every `half_life` that passes without a failure.
    """

    def __init__(
        self, clock: Clock, *, half_life: float, free: int = 0, longest: float = 0, first: float = 1, size: int = SIZE
    ) -> None:
        self._clock = clock
        self._half_life = int(half_life * 1000)
        self._free = free
        self._first = int(first * 1000)
        self._longest = int(longest * 1000)
        self._size = size
        # By key: the count, the time of the last failure, and the end of the delay. Ordered by last failure.
        self._failures: dict[str | bytes, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def count(self, key: str | bytes) -> int:
        """Return how many failures still count."""
        count, last, _ = self._failures.get(key, (0, 0, 0))
        return count >> min(max(0, self._clock.now() - last) // self._half_life, 63)

    def wait(self, key: str | bytes) -> float:
        """Return the seconds until the next attempt is allowed; 0 when it is allowed now."""
        _, _, until = self._failures.get(key, (0, 0, 0))
        # Never longer than the longest delay: the clock may have been set back.
        return min(max(0, until - self._clock.now()), self._longest) / 1000

    def add(self, key: str | bytes, extra: int = 0) -> None:
        """Count a failure. The delay is that of `extra` more failures."""
        now, count = self._clock.now(), self.count(key) + 1
        excess = count + extra - self._free
        wait = min(self._longest, self._first << min(excess - 1, 40)) if excess > 0 else 0
        self._failures.pop(key, None)
        while len(self._failures) >= self._size:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = (count, now, now + wait)

    def restart(self, key: str | bytes) -> None:
        """Restart the delay of the last failure: the attempt has ended only now."""
        entry = self._failures.get(key)
        if entry is not None:
            count, last, until = entry
            now = self._clock.now()
            self._failures[key] = (count, now, now + until - last)

    def reset(self, key: str | bytes) -> None:
        """Reset a key."""
        self._failures.pop(key, None)


class LoginThrottle:
    """Delays password attempts. Attempts from elsewhere never block the first attempt of an address.

    - One address and one name: five wrong passwords are free, then each doubles the delay, up to 15 minutes.
    - One address, any name: twenty are free, then each doubles the delay, up to a minute. A name that has signed in
      from the address before is not delayed by failures of other names there.
    - One name, any address: the more wrong passwords, the sooner and longer an address is delayed after its own,
      unless the name has signed in from it before.

    Existing and unknown names are treated alike. The state is in memory, bounded, and lost with the process; names are
    kept as digests only, because people type passwords into the name field.
    """

    def __init__(self, clock: Clock) -> None:
        self._pairs = FailureCounter(clock, free=5, longest=15 * 60, half_life=3600)
        self._addresses = FailureCounter(clock, free=20, longest=60, half_life=600)
        self._names = FailureCounter(clock, half_life=3600)
        self._signed_in: CredentialCache[bool] = CredentialCache(clock, SIGNED_IN_SECONDS, SIZE)

    def has_signed_in(self, address: str, name: str) -> bool:
        """True when this name has signed in from this address in the last 30 days."""
        return self._signed_in.get(self._signed_in.digest(address, name)) is not None

    def wait(self, address: str, name: str) -> float:
        """Return the seconds until the next attempt is allowed; 0 when it is allowed now."""
        pair = self._signed_in.digest(address, name)
        own = self._pairs.wait(pair)
        return own if self._signed_in.get(pair) is not None else max(own, self._addresses.wait(address))

    def begin(self, address: str, name: str) -> None:
        """Count an attempt as failed until `record_success`, so that concurrent attempts do not all count as the first.

        Raises:
            Overloaded: it is too early. The text and the metadata `retryAfter` say how long to wait.
        """
        self.check(address, name)
        pair = self._signed_in.digest(address, name)
        elsewhere = 0
        if self._signed_in.get(pair) is None:
            elsewhere = max(0, self._names.count(self._signed_in.digest(name)) - self._pairs.count(pair))
        self._pairs.add(pair, (elsewhere // 10).bit_length())

    def check(self, address: str, name: str) -> None:
        """Raise Overloaded, as `begin` does, when no password may be tried now."""
        wait = self.wait(address, name)
        if wait:
            seconds = format_seconds(wait)
            text = f"too many wrong passwords from here: try again in {seconds}"
            raise Overloaded(text, limit="passwords", retryAfter=seconds.partition(" ")[0])

    def record_failure(self, address: str, name: str) -> None:
        """Record that the password was wrong."""
        self._pairs.restart(self._signed_in.digest(address, name))
        self._addresses.add(address)
        self._names.add(self._signed_in.digest(name))

    def record_success(self, address: str, name: str) -> None:
        """Record that the password was right."""
        pair = self._signed_in.digest(address, name)
        self._pairs.reset(pair)
        self._signed_in.put(pair, True)


def format_seconds(wait: float) -> str:
    """Format a delay in whole seconds, at least one, with its unit."""
    seconds = max(1, -int(-wait // 1))
    return f"{seconds} second" if seconds == 1 else f"{seconds} seconds"


_Queues = dict[str, deque["asyncio.Future[None]"]]


class FairSlots:
    """A semaphore of `slots` with queues by address, which are served round-robin.

    At most `per_address` callers of one address wait, and at most `waiting` in all: beyond that, the last caller of
    the longest queue is refused. Callers with priority are served before all others and do not count towards `waiting`.
    """

    def __init__(self, slots: int, *, waiting: int = 1024, per_address: int = 32) -> None:
        self._free = slots
        self._max_waiting = waiting
        self._per_address = per_address
        self._priority: _Queues = {}
        self._normal: _Queues = {}
        self._waiting = 0
        self._is_closed = False

    @asynccontextmanager
    async def slot(self, address: str, *, priority: bool = False) -> AsyncGenerator[None]:
        """Wait for a slot and hold it within the context.

        Raises:
            Overloaded: too many are waiting. A caller that already waits may be refused in favor of other addresses.
            ServerError: the server is stopping.
        """
        if self._is_closed:
            raise ServerError("the server is stopping")
        if self._free:
            self._free -= 1
        else:
            await self._wait(self._priority if priority else self._normal, address)
        try:
            yield
        finally:
            self._release()

    def close(self) -> None:
        """Refuse all waiting callers, and all later ones."""
        self._is_closed = True
        for queues in (self._priority, self._normal):
            for queue in queues.values():
                for waiter in queue:
                    if not waiter.done():
                        waiter.set_exception(ServerError("the server is stopping"))
            queues.clear()
        self._waiting = 0

    async def _wait(self, queues: _Queues, address: str) -> None:
        if len(queues.get(address, ())) >= self._per_address:
            raise _overloaded()
        if queues is self._normal:
            self._make_room(len(queues.get(address, ())))
            self._waiting += 1
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queues.setdefault(address, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release()  # it got a slot and was canceled
            else:
                self._remove(queues, address, waiter)
            raise

    def _make_room(self, own: int) -> None:
        """Make room for a caller whose address has `own` callers waiting.

        Refuses the last caller of the longest queue, or raises Overloaded if no other queue is longer.
        """
        if self._waiting < self._max_waiting:
            return
        address = max(self._normal, key=lambda each: len(self._normal[each]))
        if len(self._normal[address]) <= own + 1:
            raise _overloaded()
        last = self._normal[address][-1]
        self._remove(self._normal, address, last)
        last.set_exception(_overloaded())

    def _remove(self, queues: _Queues, address: str, waiter: asyncio.Future[None]) -> None:
        queue = queues.get(address)
        if queue is None or waiter not in queue:
            return
        queue.remove(waiter)
        if not queue:
            del queues[address]
        if queues is self._normal:
            self._waiting -= 1

    def _release(self) -> None:
        for queues in (self._priority, self._normal):
            while queues:
                address, queue = next(iter(queues.items()))
                waiter = queue[0]
                self._remove(queues, address, waiter)
                if address in queues:  # its next caller goes behind the other addresses
                    queues[address] = queues.pop(address)
                if not waiter.done():
                    waiter.set_result(None)
                    return
        self._free += 1


def _overloaded() -> Overloaded:
    return Overloaded("too many sign in at once: try again later", limit="passwords", retryAfter="1")
