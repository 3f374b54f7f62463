"""A simulation of computers: a clock that jumps from event to event, cores, and threads that take turns on them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

Then = Callable[[], object]
# Work that is left because floating-point numbers are not exact, in seconds.
_ROUNDING = 1e-9


class Timeline:
    """What happens when. Nothing takes time but what says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = count()
        self._events: list[tuple[float, int, Then]] = []

    def after(self, seconds: float, then: Then) -> None:
        """Call something later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), then))

    def run(self, until: float) -> None:
        """Let time pass up to a moment."""
        while self._events and self._events[0][0] <= until:
            self.now, _, then = heapq.heappop(self._events)
            then()
        self.now = until


class Cores:
    """The cores of one computer, which share themselves among the threads that have work.

    A thread may be kept on one core; the others are wherever there is room. Every thread gets as much as the next one,
    as far as its core allows it (max-min fairness): that is what the scheduler of Linux comes to.
    """

    def __init__(self, timeline: Timeline, number: int) -> None:
        self.timeline = timeline
        self.number = number
        self._left: dict[Thread, float] = {}
        self._speed: dict[Thread, float] = {}
        self._since = 0.0
        self._plan = 0

    def start(self, thread: Thread, seconds: float) -> None:
        """Give a thread work; it is called when the work is done."""
        self._pass_time()
        self._left[thread] = seconds
        self._plan_next()

    def _pass_time(self) -> None:
        passed, self._since = self.timeline.now - self._since, self.timeline.now
        if passed:
            for thread, speed in self._speed.items():
                self._left[thread] -= passed * speed

    def _plan_next(self) -> None:
        self._speed = self._speeds()
        self._plan += 1
        if self._left:
            seconds = min(left / self._speed[thread] for thread, left in self._left.items())
            self.timeline.after(max(0.0, seconds), lambda plan=self._plan: self._on_done(plan))

    def _on_done(self, plan: int) -> None:
        if plan != self._plan:
            return  # something has changed since
        self._pass_time()
        done = [thread for thread, left in self._left.items() if left <= _ROUNDING]
        for thread in done:
            del self._left[thread]
        self._plan_next()
        for thread in done:
            thread.on_done()

    def _speeds(self) -> dict[Thread, float]:
        """The part of a core that each thread gets."""
        pinned = {core: [thread for thread in self._left if thread.core == core] for core in range(self.number)}
        floating = [thread for thread in self._left if thread.core is None]
        speeds: dict[Thread, float] = {}
        open_cores = set(pinned)
        while True:
            threads = len(floating) + sum(len(pinned[core]) for core in open_cores)
            level = min(1.0, len(open_cores) / threads) if threads else 1.0
            full = [core for core in open_cores if len(pinned[core]) * level > 1 + _ROUNDING]
            for core in full:
                speeds.update(dict.fromkeys(pinned[core], 1 / len(pinned[core])))
                open_cores.discard(core)
            if not full:
                break
        speeds.update(dict.fromkeys(floating, level))
        for core in open_cores:
            speeds.update(dict.fromkeys(pinned[core], level))
        return speeds


class Thread:
    """Does one thing after the other, in the order in which they come. `busy` is how long it has computed."""

    def __init__(self, cores: Cores, core: int | None = None) -> None:
        self._cores = cores
        self.core = core
        self.busy = 0.0
        self._queue: deque[tuple[Callable[[], float] | float, Then]] = deque()
        self._then: Then | None = None

    @property
    def idle(self) -> bool:
        """True when it has nothing to do."""
        return self._then is None

    def run(self, seconds: float | Callable[[], float], then: Then, *, first: bool = False) -> None:
        """Compute for that long when it is its turn. A function decides at that moment how long."""
        if first:
            self._queue.appendleft((seconds, then))
        else:
            self._queue.append((seconds, then))
        if self.idle:
            self._next()

    def _next(self) -> None:
        if not self._queue:
            self._then = None
            return
        seconds, self._then = self._queue.popleft()
        work = seconds() if callable(seconds) else seconds
        self.busy += work
        self._cores.start(self, work)

    def on_done(self) -> None:
        """Its cores say that the work is done."""
        then = self._then
        assert then is not None
        then()
        self._next()


class Disk:
    """Makes things durable: one sync at a time, and whoever comes meanwhile shares the next one (group commit)."""

    def __init__(self, timeline: Timeline, seconds: Callable[[float], float]) -> None:
        self._timeline = timeline
        self._seconds = seconds
        self._waiting: list[tuple[float, Then]] = []
        self._is_busy = False
        self.syncs = 0

    def sync(self, amount: float, then: Then) -> None:
        """Write something and call when it is durable. The time depends on all that is written with it."""
        self._waiting.append((amount, then))
        if not self._is_busy:
            self._start()

    def _start(self) -> None:
        batch, self._waiting = self._waiting, []
        self._is_busy = True
        self.syncs += 1
        self._timeline.after(self._seconds(sum(amount for amount, _ in batch)), lambda: self._end(batch))

    def _end(self, batch: list[tuple[float, Then]]) -> None:
        self._is_busy = False
        if self._waiting:
            self._start()
        for _, then in batch:
            then()
