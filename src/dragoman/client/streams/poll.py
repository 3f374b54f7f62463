"""Polling a task whose agent does not stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.client.streams.backoff import Outage
from dragoman.clock import sleep
from dragoman.model.error import DragomanError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from dragoman.clock import Clock
    from dragoman.model.task import Task

# The shortest pause in seconds, and the pauses as a share of the time that the task has taken so far.
_MIN_POLL_PAUSE, _POLL_RATIO = 0.05, 0.1


async def poll_task(
    get_task: Callable[[], Awaitable[Task]], clock: Clock, max_pause: float, reconnect: float
) -> AsyncGenerator[Task, None]:
    """Yield the task again and again: soon at first, then after a tenth of the time it has taken so far.

    Pauses are at most `max_pause` seconds. An agent that cannot be reached is waited for as in a stream, for
    `reconnect` seconds. Raises the errors of `get_task`.
    """
    started, outage = clock.now(), Outage(reconnect, clock)
    while True:
        await sleep(clock, max(_MIN_POLL_PAUSE, min(max_pause, (clock.now() - started) / 1000 * _POLL_RATIO)))
        try:
            task = await get_task()
        except DragomanError as error:
            if not outage.covers(error):
                raise
            await outage.pause(error)
        else:
            outage.reset()
            yield task
