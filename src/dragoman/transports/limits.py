"""Limits on slow callers and on work that blocks the event loop, and the audit log of refused requests."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from dragoman.telemetry.log_context import fields_of_caller
from dragoman.telemetry.metrics.catalog import METRICS
from dragoman.telemetry.metrics.registry import OTHER

if TYPE_CHECKING:
    from typing import Any

    from dragoman.clock import Clock, Timer
    from dragoman.model.error import A2AError

    Task = asyncio.Task[Any]

logger = logging.getLogger("dragoman.audit")

# A timeout is counted in this many ticks, so it is noticed up to one tick late.
TICKS = 4
# The maximum of lines per second, and of characters of a caller's name.
MAX_LINES_PER_SECOND = 100
# The limits that metrics name.
LIMITS = frozenset(
    (
        "body",
        "caller_memory",
        "caller_streams",
        "caller_tasks",
        "memory",
        "nesting",
        "parts",
        "passwords",
        "rate",
        "request_timeout",
        "streams",
        "tasks",
        "values",
    )
)
_MAX_NAME = 200


class ArrivalTimer:
    """Cancels asyncio tasks that wait too long for a request: after `seconds` to 1.25 times `seconds`.

    One timer serves all tasks and runs only while one waits: nearly all requests arrive at once and must not pay for
    those that do not.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = seconds
        self._clock = clock
        self._ticks = 0
        self._timer: Timer | None = None
        # The tick at which each started, the longest waiting first.
        self._waiting: dict[Task, int] = {}
        self._timed_out: set[Task] = set()

    def start(self) -> Task:
        """Start the timeout of the running task, and return the task."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = self._ticks
        if self._timer is None:
            self._timer = self._clock.call_later(self.seconds / TICKS, self._tick)
        return task

    def restart(self) -> None:
        """Restart the timeout of the running task, because it made progress."""
        self.stop(self.start())  # keeps the longest waiting first
        self.start()

    def stop(self, task: Task) -> None:
        """Stop the timeout of a task."""
        self._waiting.pop(task, None)

    def timed_out(self, task: Task) -> bool:
        """True when this timer cancelled the task, and nobody else did; the cancellation is then undone."""
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


# Bodies above this many bytes are throttled and counted; smaller ones take no noticeable time.
LARGE_BODY = 262_144


class CpuThrottle:
    """Runs one piece of CPU-bound work at a time, and leaves the event loop free for as long as it took.

    Decoding ten megabytes of JSON blocks the loop for a tenth of a second. Without turns, ten callers who send them at
    once would block all others for a second.
    """

    def __init__(self) -> None:
        self._busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_for_turn(self) -> None:
        """Wait for a turn. It ends when the caller next yields to the event loop."""
        loop = asyncio.get_running_loop()
        if self._busy:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():  # its turn had come: pass it on
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


class DenialLog:
    """Logs refused requests: at most one line per caller and second, and a limited number in all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._logged_callers: set[str] = set()

    def log(self, caller: str, error: A2AError) -> None:
        """Log who was refused by which limit; an error without a limit is ignored."""
        limit = error.metadata.get("limit")
        if limit is None:
            return
        if METRICS.on:
            # Agents raise errors too, with whatever they like in them.
            METRICS.limits_hit.add(1, (name if (name := str(limit)) in LIMITS else OTHER,))
        second = self._clock.now() // 1000
        if second != self._second:
            self._second, self._logged_callers = second, set()
        if caller in self._logged_callers or len(self._logged_callers) >= MAX_LINES_PER_SECOND:
            return
        self._logged_callers.add(caller)
        name = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in caller[:_MAX_NAME])
        quoted_name = json.dumps(name, ensure_ascii=False)
        fields = {"event": "limited", "reason": limit} | fields_of_caller(name)
        logger.warning("event=limited caller=%s reason=%s", quoted_name, limit, extra=fields)
