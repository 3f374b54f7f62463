"""Which of several PostgreSQL servers took over last. A process moves on to it, and never goes back.

Every promotion of a standby begins a timeline with a higher number. A primary that was given up may come back, because
its machine was only away: it is on a lower one, and what is written there is lost to everybody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

    from dragoman.net.postgres import PostgresConnection


class Timeline(NamedTuple):
    """The history of a database up to now: which system it is a copy of, and after how many promotions."""

    system: int
    number: int


class _Place(NamedTuple):
    timeline: Timeline
    loop: asyncio.AbstractEventLoop


class Timelines:
    """The newest timeline that this process has seen of each system, and the connections. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[int, int] = {}
        self._connections: WeakKeyDictionary[PostgresConnection, _Place] = WeakKeyDictionary()

    def newest(self, system: int) -> int:
        """The number of the newest timeline of a system; 0 when none was seen."""
        return self._newest.get(system, 0)

    def number_of(self, connection: PostgresConnection) -> int:
        """The number of the timeline that a connection writes; 0 when that is unknown."""
        with self._lock:
            place = self._connections.get(connection)
        return 0 if place is None else place.timeline.number

    def join(self, connection: PostgresConnection, timeline: Timeline, loop: asyncio.AbstractEventLoop) -> bool:
        """Add a connection. One on a newer timeline ends all older ones of its system, whatever they wait for.

        Returns False, and adds nothing, when the connection is itself an old one.
        """
        with self._lock:
            if timeline.number < self.newest(timeline.system):
                return False
            self._newest[timeline.system] = timeline.number
            self._connections[connection] = _Place(timeline, loop)
            old = [
                (each, place.loop)
                for each, place in self._connections.items()
                if place.timeline.system == timeline.system and place.timeline.number < timeline.number
            ]
        for each, its_loop in old:
            _call_on(its_loop, each.terminate)
        return True


def _call_on(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and its connections with it
        loop.call_soon_threadsafe(callback)
