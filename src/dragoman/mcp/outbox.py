"""Events on their way to one webhook."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.client.backoff import sleep
from dragoman.mcp.problem import ToolProblem
from dragoman.model.error import CannotConnect, DragomanError
from dragoman.model.ids import new_id
from dragoman.net.exchange import HttpRequest, origin_of

if TYPE_CHECKING:
    from dragoman.engine.clock import Clock
    from dragoman.net.exchange import HttpClient, HttpResponse

logger = logging.getLogger("dragoman.mcp")
# What waits beyond these is dropped, the oldest first: a receiver that is away must not fill the memory.
MOST = 1000
MOST_BYTES = 16 * 1024 * 1024
AT_ONCE = 8
# Before the second try, and before the third and last.
PAUSES = (0.2, 1.0)
_SECONDS = 10.0
_ANSWER = 64 * 1024


class Outbox:
    """Brings events in the background: those of one task in order, those of several side by side.

    `check` is asked before each try whether the address may still be called, and raises ToolProblem when not.
    """

    def __init__(self, url: str, http: HttpClient, clock: Clock, check: Callable[[str], object]) -> None:
        self._url = url
        self._http = http
        self._clock = clock
        self._check = check
        # What waits, the oldest first, by a number that never comes again.
        self._bodies: dict[int, bytes] = {}
        self._size = 0
        self._count = 0
        # The numbers of each task, and the tasks nobody works on.
        self._lanes: dict[str, deque[int]] = {}
        self._ready: deque[str] = deque()
        self._dropped = 0
        self._is_failing = False
        self.workers: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many events nobody has begun to bring."""
        return len(self._bodies)

    def put(self, task_id: str, body: bytes) -> None:
        """Bring an event, after those of the same task."""
        self._count += 1
        self._bodies[self._count] = body
        self._size += len(body)
        lane = self._lanes.get(task_id)
        if lane is None:
            lane = self._lanes[task_id] = deque()
            self._ready.append(task_id)
        lane.append(self._count)
        self._make_room()
        if self._ready and len(self.workers) < AT_ONCE:
            worker = asyncio.create_task(self._work())
            self.workers.add(worker)
            worker.add_done_callback(self.workers.discard)

    def _make_room(self) -> None:
        while len(self._bodies) > 1 and (len(self._bodies) > MOST or self._size > MOST_BYTES):
            self._taken(next(iter(self._bodies)))
            if not self._dropped:
                logger.warning("the webhook at %s is too slow: the oldest events are dropped", origin_of(self._url))
            self._dropped += 1

    def _taken(self, number: int) -> bytes | None:
        """What waits under that number; None when it was dropped."""
        body = self._bodies.pop(number, None)
        if body is not None:
            self._size -= len(body)
        return body

    async def _work(self) -> None:
        while self._ready:
            task_id = self._ready.popleft()
            lane = self._lanes[task_id]
            body = self._taken(lane.popleft())
            try:
                if body is not None:
                    await self._bring(body)
            except Exception:
                logger.exception("an event could not be posted")
            # One at a time, then another task: a long stream does not hold up the others.
            if lane:
                self._ready.append(task_id)
            else:
                del self._lanes[task_id]
        if self._dropped and not self._bodies:
            logger.warning("the webhook at %s has missed %d events", origin_of(self._url), self._dropped)
            self._dropped = 0

    async def _bring(self, body: bytes) -> None:
        # The same for every try: a receiver can tell a repeat, where an answer was lost.
        headers = {"Content-Type": "application/json", "Idempotency-Key": new_id()}
        for pause in (*PAUSES, None):
            problem, may_pass = await self._tried(headers, body)
            if not problem:
                self._is_failing = False
                return
            if pause is None or not may_pass:
                # Of an address only the origin is logged: many have a secret in their path.
                level = logging.DEBUG if self._is_failing else logging.WARNING
                logger.log(level, "an event was not posted to the webhook at %s: %s", origin_of(self._url), problem)
                self._is_failing = True
                return
            await sleep(self._clock, pause)

    async def _tried(self, headers: dict[str, str], body: bytes) -> tuple[str, bool]:
        """What went wrong, if anything, and whether that may pass."""
        try:
            self._check(self._url)
            request = HttpRequest("POST", self._url, dict(headers), body, operation="Push", silence=_SECONDS)
            async with asyncio.timeout(_SECONDS):
                response = await self._http.send(request)
                await _dismiss(response)
        except ToolProblem:
            return "its address may not be called any more", False
        except TimeoutError:
            return "timeout", True
        except CannotConnect as error:
            return error.reason, True
        if 200 <= response.status < 300:
            return "", False
        return f"HTTP {response.status}", response.status >= 500


async def _dismiss(response: HttpResponse) -> None:
    try:
        with suppress(DragomanError):
            await response.read(_ANSWER)
    finally:
        await response.close()
