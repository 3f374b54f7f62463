"""The bus of a single process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dragoman.clock import Clock, Timer

# Where a wake-up comes from: a commit of this process, one of another that has reported it, a look into the store.
LOCAL, NOTIFY, POLL = "local", "notify", "poll"


class LocalWatch:
    """A subscription to one task, and its own context manager: leaving the context unsubscribes.

    It has one timer for all its waits, which is moved on when it fires after a notification: a timer for each wait, or
    reading the clock, would cost as much as the rest of a wake-up.
    """

    __slots__ = (
        "_bus",
        "_clock",
        "_notified_ms",
        "_seconds",
        "_timer",
        "_waiter",
        "generation",
        "task_id",
        "timed_out",
    )

    def __init__(self, bus: LocalBus, task_id: str, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._waiter: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._seconds = 0.0
        self._notified_ms = 0
        self.task_id = task_id
        self.generation = 0
        self.timed_out = False

    def __enter__(self) -> LocalWatch:
        self._bus.listeners.setdefault(self.task_id, {})[self] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        others = self._bus.listeners[self.task_id]
        del others[self]
        if not others:
            del self._bus.listeners[self.task_id]

    def wake(self, generation: int, now_ms: int) -> None:
        """Record a notification and wake the waiter."""
        if generation > self.generation:
            self.generation = generation
        self._notified_ms = now_ms
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def rewind(self, generation: int, now_ms: int) -> None:
        """Forget announced generations that the store does not have any more, and wake the waiter."""
        self.generation = generation
        self.wake(0, now_ms)

    async def wait_past(self, generation: int, seconds: float) -> bool:
        """Wait for a notification. True when the task is past `generation`; False after another wake-up or a timeout.

        The timeout counts from the last notification: it is `seconds` at most.
        """
        self.timed_out = False
        if self.generation > generation:
            return True
        self.generation = generation  # so that `observe` wakes nobody for what is read already
        self._waiter = asyncio.get_running_loop().create_future()
        if self._timer is None or seconds < self._seconds:
            self._set_timer(seconds)
        self._seconds = seconds
        try:
            await self._waiter
        finally:
            self._waiter = None
        return self.generation > generation

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        now = self._clock.now()
        remaining = self._seconds - (now - self._notified_ms) / 1000
        if remaining > 0:
            self._set_timer(min(remaining, self._seconds))  # bounded, in case the clock was set back
        else:
            self.timed_out = True
            self.wake(0, now)


class _Callback:
    """A subscription that calls a function."""

    __slots__ = ("_callback", "generation")

    def __init__(self, callback: Callable[[int], None]) -> None:
        self._callback = callback
        self.generation = 0

    def wake(self, generation: int, now_ms: int) -> None:
        """Call back with the generation; 0 is a wake-up without one, and ignored."""
        if generation:
            if generation > self.generation:
                self.generation = generation
            self._callback(generation)

    def rewind(self, generation: int, now_ms: int) -> None:
        """Forget later generations."""
        self.generation = generation


class LocalBus:
    """Notifies the subscribers of one process, from a dictionary by task id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By task id, in the order of subscription.
        self.listeners: dict[str, dict[LocalWatch | _Callback, None]] = {}
        # Wake-ups since the last `sample`, by source: there is one for each event of a stream.
        self._wakeups = {LOCAL: 0, NOTIFY: 0, POLL: 0}

    def sample(self) -> None:
        """Add the wake-ups since the last call to the metrics."""
        for source, count in self._wakeups.items():
            if count:
                METRICS.wakeups.add(count, (source,))
                self._wakeups[source] = 0

    async def open(self) -> None:
        """Do nothing: there is no other process."""

    async def close(self) -> None:
        """Do nothing, as `open`."""

    def watch(self, task_id: str) -> LocalWatch:
        """Subscribe to a task while the context manager is open."""
        return LocalWatch(self, task_id, self._clock)

    def add_callback(self, task_id: str, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back with the generation whenever a task has new records. Returns a function that unsubscribes."""
        listener = _Callback(callback)
        self.listeners.setdefault(task_id, {})[listener] = None

        def stop() -> None:
            others = self.listeners.get(task_id)
            if others is not None and others.pop(listener, 0) is None and not others:
                del self.listeners[task_id]

        return stop

    def notify(self, task_id: str, generation: int, source: str = LOCAL) -> None:
        """Notify all subscribers that the task has reached `generation`. Metrics say which `source` knows that."""
        listeners = self.listeners.get(task_id)
        if listeners:
            if METRICS.on:
                self._wakeups[source] += len(listeners)
            now = self._clock.now()
            # A copy, because a callback may unsubscribe.
            for listener in tuple(listeners):
                listener.wake(generation, now)

    def observe(self, task_id: str, generation: int | None) -> None:
        """Wake the subscribers that are behind a generation that was read from the store; None is a task that is gone.

        Those that are ahead of it are woken too: the store may have lost something, as by the promotion of a standby
        that was behind. Unlike `notify`, it wakes nobody without reason, so that all tasks can be observed again and
        again.
        """
        now = self._clock.now()
        for listener in tuple(self.listeners.get(task_id, ())):
            if generation == listener.generation:
                continue
            if METRICS.on:
                self._wakeups[POLL] += 1
            if generation is None or generation > listener.generation:
                listener.wake(generation or 0, now)
            else:
                listener.rewind(generation, now)

    def wake_all(self) -> None:
        """Wake every subscriber without a new generation, for instance because the server stops."""
        now = self._clock.now()
        for listeners in self.listeners.values():
            for listener in listeners:
                listener.wake(0, now)
