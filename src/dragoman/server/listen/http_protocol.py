"""uvicorn's HTTP/1.1 protocol with limits on the head of a request, and timeouts of connections.

uvicorn and its parser accept header lines, trailers, request lines and chunk extensions of any length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

# The overhead of a header line beside its name and value, as HTTP/2 counts it (RFC 9113, 6.5.2).
LINE = 32
# How many pipelined requests may wait on one connection.
PIPELINED = 128
# What a refused connection may still send before it is closed: closing with unread bytes resets the connection, and
# the response may be lost.
LINGER_SECONDS = 1.0
LINGER_BYTES = 1_000_000
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings")


class _LimitExceeded(Exception):
    """The head of a request is too large, or too many requests are pipelined. Raised to stop the parser."""


class HttpProtocol(HttpToolsProtocol):
    """One connection. A request whose head has more than `limit` bytes gets 431 and the connection is closed.

    When more than `PIPELINED` requests wait, the connection is closed after their responses. Offers to upgrade are
    ignored.
    The head is the request line, the header lines and the trailers, each line with 32 bytes more; the framing of a body
    chunk counts by itself. No buffer grows beyond twice the limit, so that parsing stays linear.
    """

    def __init__(self, *args: Any, limit: int, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._limit = limit
        # Bytes that the parser has not yet turned into a complete head or body, such as half a header line.
        self._pending = 0
        self._has_head = False
        self._offers_upgrade = False
        self._trailers = 0
        self._is_refused = False
        self._is_ending = False
        self._lingered = 0

    def data_received(self, data: bytes) -> None:
        """Feed received bytes to the parser, in pieces of at most the limit."""
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
        rest: bytes | memoryview | None = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _LimitExceeded):
                self._refuse()
                return
            text = "Invalid HTTP request received."
            self.logger.warning(text)
            self.send_400_response(text)
            return
        except httptools.HttpParserUpgrade as offer:
            rest = data[offer.args[0] :] if self._offers_upgrade else None
        if rest is not None:  # not while the exception is handled: it would be the context of those that follow
            self._ignore_upgrade(rest)
            return
        # Nothing is pending after a complete request: this is the only cost of ordinary ones.
        if self._pending and self._pending + (0 if self._has_head else self._lines()) > self._limit:
            self._refuse()

    def _ignore_upgrade(self, rest: bytes | memoryview) -> None:
        """Parse the head of a request again without its offer to upgrade, then `rest`, what came after the head.

        The parser takes everything after such a head for another protocol. Java's own client offers HTTP/2 with every
        request over plain HTTP.
        """
        parser: Any = self.parser
        lines = [b"%b %b HTTP/%b" % (parser.get_method(), self.url, parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token for token in value.split(b",") if token.strip().lower() not in _UPGRADE_HEADERS]
                lines += [b"%b: %b" % (name, b",".join(tokens))] if tokens else []
            elif name not in _UPGRADE_HEADERS:
                lines.append(b"%b: %b" % (name, value))
        self._offers_upgrade = False
        self.parser = parser = httptools.HttpRequestParser(self)
        # As the base class does: the answer to a request is sent although more have arrived.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed(b"\r\n".join([*lines, b"\r\n"]))
        if rest:
            self._feed(rest)

    def _lines(self) -> int:
        return LINE * len(self.headers) if self.headers else 0

    # -- parser callbacks ------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers after the body are dropped: they must not pass for headers."""
        if self._has_head:
            self._trailers += len(name) + len(value) + LINE
            if self._trailers > self._limit:
                raise _LimitExceeded
            return
        # Inlined from the base class: a super() call for every header would double the cost.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the size of the complete head."""
        # Few received bytes cannot be a large head.
        if self._pending + self._lines() > self._limit and self._head_size() > self._limit:
            raise _LimitExceeded
        self._pending = self._trailers = 0
        if self.parser.should_upgrade() and self._get_upgrade() is not None:
            self._offers_upgrade = True
            return
        self._has_head = True
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            raise _LimitExceeded

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + LINE for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body."""
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Reset for the next request."""
        self._pending = 0
        self._has_head = False
        if not self._offers_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with the next request; after a refused one the connection ends."""
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
                return  # earlier requests get their responses first; the connection ends after them
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


def close_after_responses(state: Any) -> None:
    """End every connection of a uvicorn server with the response to its current request, or to its next one.

    The response says so: clients and proxies connect again, to a server that stays.
    """
    state.default_headers = [*state.default_headers, (b"connection", b"close")]
    for connection in state.connections:
        if connection.cycle is not None:
            connection.cycle.keep_alive = False


# Connections are checked this many times per timeout: one that is late is noticed up to one step later.
STEPS = 4
_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _IdleConnection(NamedTuple):
    cycle: Any
    since: float


class _StalledResponse(NamedTuple):
    unsent: int
    since: float


class ConnectionTimeouts:
    """Closes connections whose next request has not arrived within `seconds`, or up to a quarter more.

    It aborts connections that have read nothing of a response for as long, unless it is a stream.

    It polls uvicorn's connections, so that ordinary requests cost nothing.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next_check = 0.0
        self._idle: dict[Any, _IdleConnection] = {}
        self._stalled: dict[Any, _StalledResponse] = {}

    def check(self, connections: Iterable[Any]) -> None:
        """Check all connections, if it is time to."""
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
            if cycle is None or cycle.chunked_encoding:  # a stream may be slow, and buffers little
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
                connection.transport.abort()  # close() would wait until the rest has been read
        self._stalled = stalled


def _is_idle(connection: Any, last: Any) -> bool:
    """True when no request of this connection is in progress, and uvicorn has no keep-alive timer for the next."""
    return last is None or (last.response_complete and connection.timeout_keep_alive_task is None)


def _close(connection: Any, last: Any) -> None:
    # uvicorn creates a scope when a request begins: one that is not the last cycle's is that of a partial request.
    if connection.scope is not (None if last is None else last.scope):
        connection.transport.write(_TIMEOUT)
    connection.transport.close()
