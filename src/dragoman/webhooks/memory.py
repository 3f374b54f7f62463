"""Webhook delivery without a store: three tries for each event, and the oldest are dropped when too many wait."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from dragoman.clock import sleep
from dragoman.model.error import CannotConnect
from dragoman.model.ids import new_id
from dragoman.net.exchange import origin_of
from dragoman.webhooks.request import post, post_request
from dragoman.webhooks.scheduler import FairScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.net.exchange import HttpClient

logger = logging.getLogger("dragoman.push")
# Limits of the queue. Beyond them the oldest events are dropped: a receiver that is down must not fill the memory.
MAX_EVENTS = 1000
MAX_BYTES = 16 * 1024 * 1024
MAX_CONCURRENT = 8
# Seconds before the second and before the third and last try.
RETRY_DELAYS = (0.2, 1.0)
_REQUEST_TIMEOUT = 10.0


class MemoryDelivery:
    """Delivers events to one webhook in the background: in order within a task, concurrently across tasks.

    `is_allowed` is called before each try and says whether the URL may still be called.
    """

    def __init__(self, url: str, http: HttpClient, clock: Clock, is_allowed: Callable[[str], bool]) -> None:
        self._url = url
        self._http = http
        self._clock = clock
        self._is_allowed = is_allowed
        # The queued bodies by number, oldest first. Numbers are never reused.
        self._bodies: dict[int, bytes] = {}
        self._size = 0
        self._last_number = 0
        self._scheduler = FairScheduler[tuple[str, int]](self._start, max_per_key=1, max_total=MAX_CONCURRENT)
        self._dropped_count = 0
        self._is_failing = False
        self._workers: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many events are queued and not yet being delivered."""
        return len(self._bodies)

    def put(self, task_id: str, body: bytes) -> None:
        """Queue an event, after those of the same task."""
        self._last_number += 1
        self._bodies[self._last_number] = body
        self._size += len(body)
        self._drop_oldest()
        self._scheduler.enqueue(task_id, (task_id, self._last_number))

    async def drain(self) -> None:
        """Wait until everything is delivered or given up."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def close(self, seconds: float) -> int:
        """Wait for at most `seconds`, then stop. Return how many events were still queued or being posted."""
        draining = asyncio.ensure_future(self.drain())
        await asyncio.wait((draining,), timeout=seconds)
        draining.cancel()
        undelivered = len(self._workers) + self.waiting
        self._bodies.clear()
        self._dropped_count = 0
        for worker in self._workers:
            worker.cancel()
        await self.drain()
        return undelivered

    def _drop_oldest(self) -> None:
        while len(self._bodies) > 1 and (len(self._bodies) > MAX_EVENTS or self._size > MAX_BYTES):
            self._pop_body(next(iter(self._bodies)))
            if not self._dropped_count:
                logger.warning("the webhook at %s is too slow: the oldest events are dropped", origin_of(self._url))
            self._dropped_count += 1

    def _pop_body(self, number: int) -> bytes | None:
        """Take a body out of the queue; None when it was dropped."""
        body = self._bodies.pop(number, None)
        if body is not None:
            self._size -= len(body)
        return body

    def _start(self, item: tuple[str, int]) -> bool:
        task_id, number = item
        worker = asyncio.create_task(self._deliver(number))
        self._workers.add(worker)
        worker.add_done_callback(partial(self._on_done, task_id))
        return True

    def _on_done(self, task_id: str, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._scheduler.release(task_id)
        if self._dropped_count and not self._bodies:
            logger.warning("the webhook at %s has missed %d events", origin_of(self._url), self._dropped_count)
            self._dropped_count = 0

    async def _deliver(self, number: int) -> None:
        body = self._pop_body(number)
        if body is None:
            return
        # The same for every try, so that a receiver recognizes a repeat after a lost response.
        key = new_id()
        try:
            for delay in (*RETRY_DELAYS, None):
                problem, is_retryable = await self._post(body, key)
                if not problem:
                    self._is_failing = False
                    return
                if delay is None or not is_retryable:
                    # Only the origin of a URL is logged: many webhook URLs have a secret in their path.
                    level = logging.DEBUG if self._is_failing else logging.WARNING
                    logger.log(level, "an event was not posted to the webhook at %s: %s", origin_of(self._url), problem)
                    self._is_failing = True
                    return
                await sleep(self._clock, delay)
        except Exception:
            logger.exception("an event could not be posted")

    async def _post(self, body: bytes, key: str) -> tuple[str, bool]:
        """Post once. Return the problem, "" for success, and whether a retry may help."""
        if not self._is_allowed(self._url):
            return "its address may not be called", False
        try:
            status, _ = await post(
                self._http, post_request(self._url, body, key, read_timeout=_REQUEST_TIMEOUT), _REQUEST_TIMEOUT
            )
        except TimeoutError:
            return "timeout", True
        except CannotConnect as error:
            return error.reason, True
        return ("", False) if 200 <= status < 300 else (f"HTTP {status}", status >= 500)
