"""What a program says while nobody listens: it has asked, and goes on before its answer comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

# How much is kept before the program has to wait.
_MOST = 256


class Backlog:
    """Events for whoever listens next, in order. Nothing is lost: a program that says too much is made to wait."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._full: asyncio.Future[None] | None = None

    def add(self, event: Event) -> asyncio.Future[None] | None:
        """Keep an event. Gives what to wait for before the next, if there are too many."""
        self._events.append(event)
        if len(self._events) < _MOST:
            return None
        self._full = self._full or asyncio.get_running_loop().create_future()
        return self._full

    def put_back(self, events: Iterable[Event]) -> None:
        """Keep events that come before all others."""
        self._events.extendleft(reversed(list(events)))

    def take(self) -> list[Event]:
        """All there are; the program may go on."""
        events, self._events = list(self._events), deque()
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)
        return events
