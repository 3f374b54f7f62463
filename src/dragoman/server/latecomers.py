"""Connections on which no request arrives, and those on which nobody reads the answer.

uvicorn gives up on a kept connection that is silent, but waits for ever for a request that has begun, for the first
one, and for the rest of a body nobody wants any more. The app hears nothing of these: there is no request yet. An
answer that nobody reads stays in memory for ever, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

# In how many steps the time passes: whoever is too late is noticed up to one step later.
STEPS = 4
_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _Seen(NamedTuple):
    last: Any
    since: float


class _Stuck(NamedTuple):
    unsent: int
    since: float


class Latecomers:
    """Closes connections whose next request has not arrived for so many seconds, or a quarter more.

    It breaks those off that have taken nothing of an answer for as long, unless it is a stream.

    It looks at uvicorn's connections from time to time, so that requests which do arrive cost nothing.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = 0.0
        self._seen: dict[Any, _Seen] = {}
        self._stuck: dict[Any, _Stuck] = {}

    def look(self, connections: Iterable[Any]) -> None:
        """Look at all connections, if it is time to."""
        now = asyncio.get_running_loop().time()
        if not self._seconds or now < self._due:
            return
        self._due = now + self._seconds / STEPS
        self._look_at_readers(connections, now)
        seen: dict[Any, _Seen] = {}
        for connection in list(connections):
            last = connection.cycle
            if not _waits(connection, last):
                continue
            known = self._seen.get(connection)
            if known is None or known.last is not last:
                seen[connection] = _Seen(last, now)
            elif now - known.since < self._seconds:
                seen[connection] = known
            else:
                _close(connection, last)
        self._seen = seen

    def _look_at_readers(self, connections: Iterable[Any], now: float) -> None:
        stuck: dict[Any, _Stuck] = {}
        for connection in list(connections):
            cycle = connection.cycle
            if cycle is None or cycle.chunked_encoding:  # a stream has its own pace, and holds little
                continue
            unsent = connection.transport.get_write_buffer_size()
            known = self._stuck.get(connection)
            if not unsent:
                continue
            if known is None or known.unsent != unsent:
                stuck[connection] = _Stuck(unsent, now)
            elif now - known.since < self._seconds:
                stuck[connection] = known
            else:
                connection.transport.abort()  # to close it would wait until the rest has been read
        self._stuck = stuck


def _waits(connection: Any, last: Any) -> bool:
    """True when nobody works on a request of this connection, and uvicorn has not set a time for the next."""
    return last is None or (last.response_complete and connection.timeout_keep_alive_task is None)


def _close(connection: Any, last: Any) -> None:
    # With every request that begins uvicorn makes a scope: one that is not the last one's is that of half a request.
    if connection.scope is not (None if last is None else last.scope):
        connection.transport.write(_TIMEOUT)
    connection.transport.close()
