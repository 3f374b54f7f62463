"""One HTTP/1.1 client connection, and the response that is being received on it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import httptools

from dragoman.model.error import CLIENT_CLOSED, BadResponse, CannotConnect, TimedOut
from dragoman.net.exchange import (
    MAX_RESPONSE,
    Chunks,
    Headers,
    HttpRequest,
    other_scheme_hint,
    redact_url,
    too_large_error,
)

# How many bytes of a body may wait for their reader before reading pauses.
_MAX_BUFFERED = 256 * 1024
# How a record of TLS begins that carries an alert.
_TLS_ALERT = b"\x15\x03"
_MAX_HEADER_BYTES = 64 * 1024
# Reads that follow each other faster than this are coalesced: a stream of tiny events is read in larger chunks.
_COALESCE_SECONDS = 0.001
# How much is decompressed at once.
_DECOMPRESS_CHUNK = 1024 * 1024
# The content codings that are decompressed, with the `wbits` argument of zlib.
_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 47}


def client_closed(request: HttpRequest) -> CannotConnect:
    """Build the error for a request that was in flight when its client was closed. It is not retried."""
    return CannotConnect(f"the client was closed before {redact_url(request.url)} answered", reason=CLIENT_CLOSED)


class HttpConnection(asyncio.BufferedProtocol):
    """A client connection for one exchange at a time; `on_idle` is called when it is free for the next."""

    def __init__(self, on_idle: Callable[[HttpConnection], None], buffer: memoryview) -> None:
        self._on_idle = on_idle
        # The read buffer. All connections of a loop share it: bytes are parsed before the next read.
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._parser: Any = None
        self.response: WireResponse | None = None
        self.idle_since = 0.0
        self._paused = False
        self._last_read = 0.0
        self._resume_timer: asyncio.TimerHandle | None = None
        # The values of headers that a response has more than once.
        self._repeated: dict[str, list[str]] = {}

    # -- for the client ------------------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """True while the connection is open."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes, request: HttpRequest) -> WireResponse:
        """Send an encoded request and return the response that will be filled as bytes arrive."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self.response = response = WireResponse(self, request)
        self._transport.write(data)
        return response

    def abort(self) -> None:
        """Abort the connection, also in the middle of an exchange."""
        self.response = None
        self._cancel_timer()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Abort the connection because its client is closed; a request in flight fails."""
        response = self.response
        self.abort()
        if response is not None:
            response.fail(client_closed(response.request))

    def set_paused(self, paused: bool) -> None:
        """Pause or resume reading."""
        if paused != self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = paused
            if paused:
                self._transport.pause_reading()
            elif self._resume_timer is None:
                self._transport.resume_reading()

    def coalesce_reads(self) -> None:
        """Pause reading for a moment after a reader emptied the buffer, if chunks arrive fast."""
        now = self._loop.time()
        if (
            now - self._last_read < _COALESCE_SECONDS
            and self._resume_timer is None
            and not self._paused
            and self.is_usable
        ):
            assert self._transport is not None
            self._transport.pause_reading()
            self._resume_timer = self._loop.call_later(_COALESCE_SECONDS, self._resume_reading)

    def _resume_reading(self) -> None:
        self._resume_timer = None
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _cancel_timer(self) -> None:
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume_reading()

    # -- asyncio -------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared read buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read."""
        data = self._buffer[:nbytes]
        response = self.response
        if response is None:  # unsolicited data
            self.abort()
            return
        self._last_read = self._loop.time() if response.is_streamed else 0.0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("it switches to another protocol")
        except httptools.HttpParserError as error:
            # An alert of TLS: the request was sent to a port that speaks TLS.
            is_tls = not response.has_head and bytes(data[:2]) == _TLS_ALERT
            self._fail(other_scheme_hint(response.request.url) if is_tls else str(error))
        else:
            if not response.has_head:
                response.head_size += len(data)
            if response.head_size > _MAX_HEADER_BYTES and self.response is response:
                self._fail("its headers are too long")

    def _fail(self, why: str) -> None:
        response = self.response
        self.abort()
        if response is not None:
            where = redact_url(response.request.url)
            response.fail(CannotConnect(f"{where} does not answer in HTTP: {why}", reason="NOT_HTTP"))

    def eof_received(self) -> bool:
        """Let the transport close: the server sends nothing more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the current response, or complete one that ends with the connection."""
        response, self.response = self.response, None
        self._cancel_timer()
        if response is None:
            return
        if exc is None and response.has_head and response.until_close:
            response.complete()
            return
        why = str(exc) if exc else "it was closed"
        # Before a byte has come, the parser has the status of the answer before.
        status = self._parser.get_status_code() if response.has_head or response.head_size else 0
        # An informational response is no answer yet, nor is the beginning of a number.
        status = status if status >= 200 else None
        if status is not None:
            why = f"{why} in the middle of the answer"
        where = redact_url(response.request.url)
        # `arrived` stays None: a server that closes an idle connection just as it is reused has not read the request.
        response.fail(CannotConnect(f"the connection to {where} broke: {why}", reason="CONNECTION_LOST", status=status))

    # -- httptools -----------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers only count."""
        response = self.response
        assert response is not None
        if response.has_head:
            response.head_size += len(name) + len(value)
            return
        headers, key, text = response.headers, name.decode("latin-1").lower(), value.decode("latin-1")
        if key in headers:
            self._repeated.setdefault(key, [headers[key]]).append(text)
        else:
            headers[key] = text

    def on_headers_complete(self) -> None:
        """Set the head of the response, unless it is informational."""
        response = self.response
        assert response is not None
        status = self._parser.get_status_code()
        if self._repeated:  # joined once: a server may send one name any number of times
            response.headers.update((name, ", ".join(texts)) for name, texts in self._repeated.items())
            self._repeated.clear()
        if status < 200:
            response.headers.clear()
            return
        response.status = status
        response.set_head(keep_alive=self._parser.should_keep_alive())

    def on_body(self, chunk: bytes) -> None:
        """Feed a chunk of the body, without the chunked transfer coding."""
        if self.response is not None:
            self.response.feed(chunk)

    def on_message_complete(self) -> None:
        """Complete the response, and return the connection to its pool."""
        response = self.response
        if response is None or not response.has_head:  # an informational response such as 100 Continue
            return
        keep_alive = self._parser.should_keep_alive() and response.keep_alive
        self.response = None
        self._cancel_timer()
        self.set_paused(False)
        response.complete()
        if keep_alive and self.is_usable:
            self._on_idle(self)
        else:
            self.abort()


class WireResponse:
    """An `HttpResponse` that an `HttpConnection` fills as bytes arrive."""

    __slots__ = (
        "_chunks",
        "_connection",
        "_decoder",
        "_done",
        "_error",
        "_size",
        "_waiter",
        "has_head",
        "head_size",
        "headers",
        "is_streamed",
        "keep_alive",
        "request",
        "status",
        "until_close",
    )

    def __init__(self, connection: HttpConnection, request: HttpRequest) -> None:
        self._connection = connection
        self.request = request
        self.status = 0
        self.headers = Headers()
        self.has_head = False
        self.keep_alive = True
        self.head_size = 0
        self.until_close = False
        self.is_streamed = False
        self._chunks: list[bytes] = []
        self._size = 0
        self._done = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._decoder: Any = None

    # -- for the connection --------------------------------------------------------------------------------------------

    def set_head(self, *, keep_alive: bool) -> None:
        """Take the head that has arrived, and prepare decompression."""
        self.has_head = True
        self.keep_alive = keep_alive
        headers = self.headers
        self.until_close = not keep_alive and "content-length" not in headers and "transfer-encoding" not in headers
        coding = headers.get("content-encoding", "").strip().lower()
        if coding and coding != "identity":
            if coding in _CODINGS:
                self._decoder = zlib.decompressobj(_CODINGS[coding])
            else:
                self._connection.abort()
                self.fail(BadResponse(f"{redact_url(self.request.url)} answers in {coding!r}, which was not requested"))
        self._wake()

    def feed(self, chunk: bytes) -> None:
        """Take a chunk of the body; reading pauses when too much is buffered."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > _MAX_BUFFERED:
            self._connection.set_paused(True)
        if self._waiter is not None:
            self._wake()

    def complete(self) -> None:
        """Mark the body as complete."""
        self._done = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """End the response with an error; the first one counts."""
        self._done = True
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # -- for the reader ------------------------------------------------------------------------------------------------

    async def wait_for_head(self) -> None:
        """Wait for the head. Raises CannotConnect."""
        while not self.has_head and not self._done:
            await self._wait()
        if not self.has_head:
            assert self._error is not None
            raise self._error

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            await self.close()
            raise too_large_error(limit)
        pieces: list[bytes] = []
        size = 0
        while True:
            piece = self._take_chunk(limit)
            if piece:
                size += len(piece)
                if size > limit:
                    await self.close()
                    raise too_large_error(limit)
                pieces.append(piece)
            elif self._done:
                break
            else:
                await self._wait()
        if self._error is not None:
            await self.close()
            raise self._error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def chunks(self) -> AsyncIterator[bytes]:
        return Chunks(self._next)

    async def _next(self) -> bytes | None:
        self.is_streamed = True
        while True:
            piece = self._take_chunk(_MAX_BUFFERED * 16)
            if piece:
                return piece
            if self._done:
                if self._error is not None:
                    raise self._error
                return None
            self._connection.coalesce_reads()
            await self._wait()

    async def close(self) -> None:
        if not self._done:
            self._done = True
            self._connection.abort()

    def _take_chunk(self, limit: int) -> bytes:
        decoder = self._decoder
        if not self._chunks and (decoder is None or not decoder.unconsumed_tail):
            return b""
        piece = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self._connection.set_paused(False)
        if decoder is None:
            return piece
        try:
            # One byte over the limit is enough to detect an oversized body without decompressing all of it.
            return decoder.decompress(decoder.unconsumed_tail + piece, min(limit + 1, _DECOMPRESS_CHUNK))
        except zlib.error as error:
            self._connection.abort()
            self.fail(BadResponse(f"{redact_url(self.request.url)} sends a body that cannot be decompressed: {error}"))
            return b""

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        seconds = self.request.read_timeout
        timer = None if seconds is None else loop.call_later(seconds, self._time_out)
        try:
            await waiter
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _time_out(self) -> None:
        where, seconds = redact_url(self.request.url), self.request.read_timeout
        self._connection.abort()
        self.fail(TimedOut(f"{where} said nothing for {seconds:g} s"))
