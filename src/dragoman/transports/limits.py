"""Limits on slow callers and on work that holds up the event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from dragoman.clock import Clock, Timer
    from dragoman.model.error import A2AError

    Task = asyncio.Task[Any]

# In how many steps the time passes: whoever is too late is noticed up to one step later.
TICKS = 4


class ArrivalTimer:
    """Cancels tasks that wait for too long: between so many seconds and a quarter more.

    One timer serves all of them, and it is set only while somebody waits: nearly all requests are there at once, and
    must not pay for those that are not.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = seconds
        self._clock = clock
        self._ticks = 0
        self._timer: Timer | None = None
        # When each began, the longest waiting first.
        self._waiting: dict[Task, int] = {}
        self._timed_out: set[Task] = set()

    def start(self) -> Task:
        """Count the time of the running task from now on."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = self._ticks
        if self._timer is None:
            self._timer = self._clock.call_later(self.seconds / TICKS, self._tick)
        return task

    def restart(self) -> None:
        """Count the time of the running task once more, because it got on."""
        self.stop(self.start())  # the longest waiting come first
        self.start()

    def stop(self, task: Task) -> None:
        """A task waits no more."""
        self._waiting.pop(task, None)

    def timed_out(self, task: Task) -> bool:
        """True when a task that was just cancelled has been too slow, and nobody else wants it to end."""
        if task not in self._timed_out:
            return False
        self._timed_out.discard(task)
        return task.uncancel() == 0

    def _tick(self) -> None:
        self._ticks += 1
        for task, start_tick in list(self._waiting.items()):
            if self._ticks - start_tick <= TICKS:
                break
            del self._waiting[task]
            self._timed_out.add(task)
            task.cancel()
        self._timer = self._clock.call_later(self.seconds / TICKS, self._tick) if self._waiting else None


# Requests and answers of so many bytes take turns; smaller ones are done in a moment.
LARGE_BODY = 262_144


class CpuThrottle:
    """Lets one piece of long work happen at a time, and gives everybody else as much time after it as it took.

    Reading ten megabytes of JSON takes a tenth of a second in which nothing else happens. Without turns, ten callers
    who send them at once hold up all others for a second.
    """

    def __init__(self) -> None:
        self._busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_for_turn(self) -> None:
        """Wait for a turn. It lasts until the caller next waits for something."""
        loop = asyncio.get_running_loop()
        if self._busy:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():  # it was this one's turn
                    self._next()
                raise
        self._busy = True
        loop.call_soon(self._yield_time, loop, time.monotonic())

    def _yield_time(self, loop: asyncio.AbstractEventLoop, started: float) -> None:
        loop.call_later(time.monotonic() - started, self._next)

    def _next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._busy = False


logger = logging.getLogger("dragoman.audit")
# How many lines there may be in a second, and how long a name may be.
MAX_LINES_PER_SECOND = 100
_MAX_NAME = 200


class DenialLog:
    """Writes a line per caller and second at most, and not too many in all: nobody can fill the log with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._logged_callers: set[str] = set()

    def log(self, caller: str, error: A2AError) -> None:
        """Write down who was refused by which limit. Other errors are none of ours."""
        limit = error.metadata.get("limit")
        if limit is None:
            return
        second = self._clock.now() // 1000
        if second != self._second:
            self._second, self._logged_callers = second, set()
        if caller in self._logged_callers or len(self._logged_callers) >= MAX_LINES_PER_SECOND:
            return
        self._logged_callers.add(caller)
        name = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in caller[:_MAX_NAME])
        quoted_name = json.dumps(name, ensure_ascii=False)
        fields = {"event": "limited", "caller": name, "reason": limit}
        logger.warning("event=limited caller=%s reason=%s", quoted_name, limit, extra=fields)
