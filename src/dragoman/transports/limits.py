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
STEPS = 4


class Patience:
    """Cancels tasks that wait for too long: between so many seconds and a quarter more.

    One timer serves all of them, and it is set only while somebody waits: nearly all requests are there at once, and
    must not pay for those that are not.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = seconds
        self._clock = clock
        self._now = 0
        self._timer: Timer | None = None
        # When each began, the longest waiting first.
        self._waiting: dict[Task, int] = {}
        self._given_up: set[Task] = set()

    def begin(self) -> Task:
        """Count the time of the running task from now on."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = self._now
        if self._timer is None:
            self._timer = self._clock.call_later(self.seconds / STEPS, self._tick)
        return task

    def again(self) -> None:
        """Count the time of the running task once more, because it got on."""
        self.end(self.begin())  # the longest waiting come first
        self.begin()

    def end(self, task: Task) -> None:
        """A task waits no more."""
        self._waiting.pop(task, None)

    def gave_up(self, task: Task) -> bool:
        """True when a task that was just cancelled has been too slow, and nobody else wants it to end."""
        if task not in self._given_up:
            return False
        self._given_up.discard(task)
        return task.uncancel() == 0

    def _tick(self) -> None:
        self._now += 1
        for task, began in list(self._waiting.items()):
            if self._now - began <= STEPS:
                break
            del self._waiting[task]
            self._given_up.add(task)
            task.cancel()
        self._timer = self._clock.call_later(self.seconds / STEPS, self._tick) if self._waiting else None


# Requests and answers of so many bytes take turns; smaller ones are done in a moment.
LARGE = 262_144


class Pace:
    """Lets one piece of long work happen at a time, and gives everybody else as much time after it as it took.

    Reading ten megabytes of JSON takes a tenth of a second in which nothing else happens. Without turns, ten callers
    who send them at once hold up all others for a second.
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for a turn. It lasts until the caller next waits for something."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():  # it was this one's turn
                    self._next()
                raise
        self._is_taken = True
        loop.call_soon(self._rest, loop, time.monotonic())

    def _rest(self, loop: asyncio.AbstractEventLoop, began: float) -> None:
        loop.call_later(time.monotonic() - began, self._next)

    def _next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._is_taken = False


logger = logging.getLogger("dragoman.audit")
# How many lines there may be in a second, and how long a name may be.
LINES = 100
_LONGEST = 200


class Denials:
    """Writes a line per caller and second at most, and not too many in all: nobody can fill the log with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._told: set[str] = set()

    def note(self, caller: str, error: A2AError) -> None:
        """Write down who was refused by which limit. Other errors are none of ours."""
        limit = error.metadata.get("limit")
        if limit is None:
            return
        second = self._clock.now() // 1000
        if second != self._second:
            self._second, self._told = second, set()
        if caller in self._told or len(self._told) >= LINES:
            return
        self._told.add(caller)
        name = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in caller[:_LONGEST])
        shown = json.dumps(name, ensure_ascii=False)
        fields = {"event": "limited", "caller": name, "reason": limit}
        logger.warning("event=limited caller=%s reason=%s", shown, limit, extra=fields)
