"""Asks several servers at once for a session that takes writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.model.error import ConfigError
from dragoman.net.failover.timelines import Timeline, Timelines

if TYPE_CHECKING:
    from dragoman.net.postgres import PostgresConnection

# How long to wait for a host that is silent when another takes writes, and how often those that refuse are asked while
# one is silent.
SILENT_SECONDS = 0.25
# Those of this process.
TIMELINES = Timelines()


class PostgresUnreachable(Exception):
    """No server can be reached now, or none that takes writes. The text says which and what to do."""


class HostSession(NamedTuple):
    """A session with a host. The timeline is None if the host does not tell."""

    host: str
    connection: PostgresConnection
    timeline: Timeline | None


class HostSearch:
    """Finds the host that takes writes. `opens` opens a session with each: it raises PostgresUnreachable, ConfigError.

    Nobody waits for a host that is silent when another one takes writes. While one is silent and all others refuse,
    they are asked again, for `seconds`: a standby among them may be promoted in that time.
    """

    def __init__(self, opens: Sequence[Callable[[], Coroutine[Any, Any, HostSession]]], seconds: float) -> None:
        self._opens = opens
        self._seconds = seconds
        self._asked: dict[asyncio.Task[HostSession], int] = {}
        self._opened: dict[int, HostSession] = {}
        self.problems: dict[int, Exception] = {}

    async def find(self) -> PostgresConnection | None:
        """Return the session to use: of several that take writes, with the host that was promoted last.

        None when there is no such host; `problems` are the reasons then.
        """
        try:
            await self._ask_until_found()
            return self._choose()
        finally:
            self._close()

    async def _ask_until_found(self) -> None:
        now = asyncio.get_running_loop().time
        ends = now() + self._seconds
        places = range(len(self._opens))
        self._ask(places)
        while self._asked:
            done, _ = await asyncio.wait(self._asked, timeout=SILENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                place = self._asked.pop(attempt)
                try:
                    self._opened[place] = attempt.result()
                except (PostgresUnreachable, ConfigError) as error:
                    self.problems[place] = error
            if not done and self._opened:
                return
            if not done and now() < ends:
                self._ask([place for place in places if place not in self._asked.values()])

    def _ask(self, places: Sequence[int]) -> None:
        for place in places:
            self._asked[asyncio.ensure_future(self._opens[place]())] = place

    def _choose(self) -> PostgresConnection | None:
        def rank(place: int) -> tuple[int, int]:
            timeline = self._opened[place].timeline
            return timeline.number if timeline is not None else 0, -place

        while self._opened:
            place = max(self._opened, key=rank)
            host, connection, timeline = self._opened.pop(place)
            if timeline is None or TIMELINES.join(connection, timeline, asyncio.get_running_loop()):
                return connection
            connection.terminate()
            self.problems[place] = PostgresUnreachable(
                f"{host} takes writes although a standby was promoted in its place (its timeline is {timeline.number}, "
                f"the newest is {TIMELINES.newest(timeline.system)}): make it a standby of the new primary, or restart "
                "this program if you have restored that server on purpose"
            )
        return None

    def _close(self) -> None:
        """End the sessions that were not chosen."""
        for opened in self._opened.values():
            opened.connection.terminate()
        for attempt in self._asked:
            attempt.cancel()
            attempt.add_done_callback(_give_up)


def _give_up(attempt: asyncio.Task[HostSession]) -> None:
    """End the connection of an attempt that nobody waits for any more."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().connection.terminate()
