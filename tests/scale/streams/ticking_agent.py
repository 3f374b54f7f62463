"""An agent whose tasks say something every few seconds, or whenever a line on the standard input says `tick`.

A line `end` completes every task of this process. The tasks of a process that has stopped go on in another one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time

from dragoman import Agent, Context

agent = Agent("ticking", description="Says what time it is, again and again")
# Seconds between two events of a task; 0: only lines of the input cause them.
PERIOD = float(os.environ.get("TICK_SECONDS", "0"))


class Ticks:
    """The tasks that wait for the next tick, each with its timer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[bool]] = set()
        self._has_ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._loop.call_soon_threadsafe(self._wake, line.strip() == "end")

    def _wake(self, is_end: bool) -> None:
        self._has_ended = self._has_ended or is_end
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_result(not is_end)

    async def next(self, task_id: str) -> bool:
        """Wait for the next tick of a task. False when there is none."""
        if self._has_ended:
            return False
        waiter: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(_seconds_to_next(task_id), _tick, waiter) if PERIOD else None
        self._waiting.add(waiter)
        try:
            return await waiter
        finally:
            self._waiting.discard(waiter)
            if timer is not None:
                timer.cancel()


def _tick(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(True)


def _seconds_to_next(task_id: str) -> float:
    """Each task has a moment of its own in every period, on whatever node it runs: so the load is even."""
    phase = int(task_id[:8], 16) / 0xFFFFFFFF * PERIOD
    seconds = PERIOD - (time.time() - phase) % PERIOD
    return seconds if seconds > 0.1 else seconds + PERIOD  # timers are not as exact as the clock


_ticks: Ticks | None = None


@agent.skill(restart=True)
async def tick(ctx: Context) -> str:
    """Say when it is, until the end."""
    global _ticks
    _ticks = _ticks or Ticks()
    await ctx.progress("begun")
    while await _ticks.next(ctx.task_id):
        await ctx.progress(f"at {time.time_ns()}")
    return "over"
