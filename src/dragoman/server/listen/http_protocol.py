"""HTTP/1.1 as uvicorn speaks it, with a bound on everything a request says beside its body.

uvicorn and its parser take header lines, trailers, request lines and chunk extensions of any length, from anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

# What a header line costs beside its name and its value, as HTTP/2 counts it (RFC 9113, 6.5.2).
LINE = 32
# How many requests may wait on one connection for the answer to those before them.
PIPELINED = 128
# What a refused connection may still send before it is closed: one that is closed on unread bytes is reset, and the
# answer may be lost with it.
LINGER_SECONDS = 1.0
LINGER_BYTES = 1_000_000


class _LimitExceeded(Exception):
    """The head of a request is too large, or too many requests wait. It stops the parser."""


class HttpProtocol(HttpToolsProtocol):
    """One connection. A request whose head has more than `limit` bytes is answered with 431 and the connection closed.

    The head is the request line, the header lines and the trailers, each line with 32 bytes more; what frames a chunk
    of the body counts by itself. No text grows beyond twice the limit, so that reading stays linear.
    """

    def __init__(self, *args: Any, limit: int, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._limit = limit
        # Bytes of which the parser has made no whole head and no body yet, such as half a header line.
        self._pending = 0
        self._has_head = False
        self._trailers = 0
        self._is_refused = False
        self._is_ending = False
        self._lingered = 0

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        self._unset_keepalive_if_required()
        if len(data) <= self._limit:
            self._feed(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), self._limit):
            if not self.transport.is_closing():
                self._feed(view[start : start + self._limit])

    def _feed(self, data: bytes | memoryview) -> None:
        if self._is_refused:
            self._discard(len(data))
            return
        self._pending += len(data)
        try:
            self.parser.feed_data(data)  # pyright: ignore[reportOptionalMemberAccess] - None once the connection is lost
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _LimitExceeded):
                self._refuse()
                return
            text = "Invalid HTTP request received."
            self.logger.warning(text)
            self.send_400_response(text)
            return
        except httptools.HttpParserUpgrade:  # nothing is upgraded here: the request goes on as it is
            self._unsupported_upgrade_warning()
        # Nothing is pending after a whole request: those that are never pay more than this.
        if self._pending and self._pending + (0 if self._has_head else self._lines()) > self._limit:
            self._refuse()

    def _lines(self) -> int:
        return LINE * len(self.headers) if self.headers else 0

    # -- what the parser found -------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line, or after the body a trailer, which nobody here reads: it must not pass for a header."""
        if self._has_head:
            self._trailers += len(name) + len(value) + LINE
            if self._trailers > self._limit:
                raise _LimitExceeded
            return
        # As in the class above, whose call would cost as much again: this is done for every header of every request.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        # What arrived in few bytes cannot be a large head.
        if self._pending + self._lines() > self._limit and self._head_size() > self._limit:
            raise _LimitExceeded
        self._pending = self._trailers = 0
        self._has_head = True
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            raise _LimitExceeded

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + LINE for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._pending = 0
        self._has_head = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A request was answered; after one that is too large there are no others."""
        if self._is_refused and not self.pipeline:
            self._end()
            return
        super().on_response_complete()
        if self._is_refused:
            self.flow.pause_reading()

    # -- refusing --------------------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        self._is_refused = True
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        if cycle is not None and not cycle.response_complete:
            if cycle.scope is not self.scope or cycle.response_started or self.pipeline:
                self.flow.pause_reading()
                return  # the answers to what was asked before come first: the connection ends after them
            cycle.disconnected = True  # it was reading its body
            cycle.message_event.set()
        if self.transport.is_closing():
            return
        body = msgspec.json.encode({"error": f"the head of the request has more than {self._limit} bytes"})
        headers = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[431] + headers + body)
        self._end()

    def _end(self) -> None:
        self._is_ending = True
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _discard(self, size: int) -> None:
        if not self._is_ending:
            self.flow.pause_reading()
            return
        self._lingered += size
        if self._lingered > LINGER_BYTES:
            self.transport.abort()


# In how many steps the time passes: whoever is too late is noticed up to one step later.
STEPS = 4
_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _IdleConnection(NamedTuple):
    cycle: Any
    since: float


class _StalledResponse(NamedTuple):
    unsent: int
    since: float


class ConnectionTimeouts:
    """Closes connections whose next request has not arrived for so many seconds, or a quarter more.

    It breaks those off that have taken nothing of an answer for as long, unless it is a stream.

    It looks at uvicorn's connections from time to time, so that requests which do arrive cost nothing.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next_check = 0.0
        self._idle: dict[Any, _IdleConnection] = {}
        self._stalled: dict[Any, _StalledResponse] = {}

    def check(self, connections: Iterable[Any]) -> None:
        """Look at all connections, if it is time to."""
        now = asyncio.get_running_loop().time()
        if not self._seconds or now < self._next_check:
            return
        self._next_check = now + self._seconds / STEPS
        self._abort_stalled(connections, now)
        idle: dict[Any, _IdleConnection] = {}
        for connection in list(connections):
            last = connection.cycle
            if not _is_idle(connection, last):
                continue
            entry = self._idle.get(connection)
            if entry is None or entry.cycle is not last:
                idle[connection] = _IdleConnection(last, now)
            elif now - entry.since < self._seconds:
                idle[connection] = entry
            else:
                _close(connection, last)
        self._idle = idle

    def _abort_stalled(self, connections: Iterable[Any], now: float) -> None:
        stalled: dict[Any, _StalledResponse] = {}
        for connection in list(connections):
            cycle = connection.cycle
            if cycle is None or cycle.chunked_encoding:  # a stream has its own pace, and holds little
                continue
            unsent = connection.transport.get_write_buffer_size()
            entry = self._stalled.get(connection)
            if not unsent:
                continue
            if entry is None or entry.unsent != unsent:
                stalled[connection] = _StalledResponse(unsent, now)
            elif now - entry.since < self._seconds:
                stalled[connection] = entry
            else:
                connection.transport.abort()  # to close it would wait until the rest has been read
        self._stalled = stalled


def _is_idle(connection: Any, last: Any) -> bool:
    """True when nobody works on a request of this connection, and uvicorn has not set a time for the next."""
    return last is None or (last.response_complete and connection.timeout_keep_alive_task is None)


def _close(connection: Any, last: Any) -> None:
    # With every request that begins uvicorn makes a scope: one that is not the last one's is that of half a request.
    if connection.scope is not (None if last is None else last.scope):
        connection.transport.write(_TIMEOUT)
    connection.transport.close()
