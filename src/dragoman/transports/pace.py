"""Turns for work that holds up the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque

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
