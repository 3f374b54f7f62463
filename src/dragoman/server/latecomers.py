"""Connections on which no request arrives.

uvicorn gives up on a kept connection that is silent, but waits for ever for a request that has begun, for the first
one, and for the rest of a body nobody wants any more. The app hears nothing of these: there is no request yet.
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


class Latecomers:
    """Closes connections whose next request has not arrived for so many seconds, or a quarter more.

    It looks at uvicorn's connections from time to time, so that requests which do arrive cost nothing.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = 0.0
        self._seen: dict[Any, _Seen] = {}

    def look(self, connections: Iterable[Any]) -> None:
        """Look at all connections, if it is time to."""
        now = asyncio.get_running_loop().time()
        if not self._seconds or now < self._due:
            return
        self._due = now + self._seconds / STEPS
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


def _waits(connection: Any, last: Any) -> bool:
    """True when nobody works on a request of this connection, and uvicorn has not set a time for the next."""
    return last is None or (last.response_complete and connection.timeout_keep_alive_task is None)


def _close(connection: Any, last: Any) -> None:
    # With every request that begins uvicorn makes a scope: one that is not the last one's is that of half a request.
    if connection.scope is not (None if last is None else last.scope):
        connection.transport.write(_TIMEOUT)
    connection.transport.close()
