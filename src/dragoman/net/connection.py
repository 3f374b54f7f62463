"""HTTP/1.1 on one connection: an answer as it arrives."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import httptools

from dragoman.model.error import BadResponse, CannotConnect
from dragoman.net.exchange import MAX_RESPONSE, Chunks, Headers, HttpRequest, redact_url, too_large_error

# How much of an answer may wait for its reader, as a socket's own buffer would.
_MAX_BUFFERED = 256 * 1024
_MAX_HEADER_BYTES = 64 * 1024
# Reads that follow each other faster than this are taken together: a stream of tiny events is read in larger pieces.
_COALESCE_SECONDS = 0.001
# How much is unpacked at once.
_DECOMPRESS_CHUNK = 1024 * 1024
_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 47}


class HttpConnection(asyncio.BufferedProtocol):
    """One connection. It carries one exchange at a time; `rested` is called when it is free for the next."""

    def __init__(self, on_idle: Callable[[HttpConnection], None], buffer: memoryview) -> None:
        self._on_idle = on_idle
        # Where bytes are read into. All connections of a loop share it: what is read is used up at once.
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._parser: Any = None
        self.answer: WireResponse | None = None
        self.idle_since = 0.0
        self._paused = False
        self._last_read = 0.0
        self._resume_timer: asyncio.TimerHandle | None = None

    # -- for the client ------------------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """True when another exchange may be tried on it."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes, request: HttpRequest) -> WireResponse:
        """Send a request; its answer comes bit by bit."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self.answer = response = WireResponse(self, request)
        self._transport.write(data)
        return response

    def abort(self) -> None:
        """Cut the connection, whatever is under way."""
        self.answer = None
        self._cancel_timer()
        if self._transport is not None:
            self._transport.abort()

    def set_paused(self, paused: bool) -> None:
        """Read no more, or go on reading."""
        if paused != self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = paused
            if paused:
                self._transport.pause_reading()
            elif self._resume_timer is None:
                self._transport.resume_reading()

    def coalesce_reads(self) -> None:
        """A reader has taken all there is: where pieces come fast, let some gather before the next is looked at."""
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
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read."""
        data = self._buffer[:nbytes]
        response = self.answer
        if response is None:  # nobody asked
            self.abort()
            return
        self._last_read = self._loop.time() if response.is_streamed else 0.0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("it wants to speak something else")
        except httptools.HttpParserError as error:
            self._fail(str(error))
        else:
            if not response.has_head:
                response.head_size += len(data)
                if response.head_size > _MAX_HEADER_BYTES:
                    self._fail("its headers do not end")

    def _fail(self, why: str) -> None:
        response = self.answer
        self.abort()
        if response is not None:
            where = redact_url(response.request.url)
            response.fail(CannotConnect(f"{where} does not answer in HTTP: {why}", reason="NOT_HTTP"))

    def eof_received(self) -> bool:
        """The other side has said all it will say."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        response, self.answer = self.answer, None
        self._cancel_timer()
        if response is None:
            return
        if exc is None and response.has_head and response.until_close:
            response.complete()
            return
        why = str(exc) if exc else "it was closed"
        if response.has_head:
            why = f"{why} in the middle of the answer"
        where = redact_url(response.request.url)
        # A connection that was kept open may be closed just when it is used again: then nobody has read the request.
        response.fail(CannotConnect(f"the connection to {where} broke: {why}", reason="CONNECTION_LOST"))

    # -- httptools -----------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        assert self.answer is not None
        headers, key, text = self.answer.headers, name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """The head is there."""
        response = self.answer
        assert response is not None
        status = self._parser.get_status_code()
        if status < 200:
            response.headers.clear()
            return
        response.status = status
        response.set_head(keep_alive=self._parser.should_keep_alive())

    def on_body(self, chunk: bytes) -> None:
        """Pass on a piece, without the marks of chunked transfer."""
        if self.answer is not None:
            self.answer.feed(chunk)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        response = self.answer
        if response is None or not response.has_head:  # 100 Continue and its like
            return
        keep_alive = self._parser.should_keep_alive() and response.keep_alive
        self.answer = None
        self._cancel_timer()
        self.set_paused(False)
        response.complete()
        if keep_alive and self.is_usable:
            self._on_idle(self)
        else:
            self.abort()


class WireResponse:
    """See `HttpResponse`."""

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

    # -- what the wire says --------------------------------------------------------------------------------------------

    def set_head(self, *, keep_alive: bool) -> None:
        """The head has arrived."""
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
                self.fail(BadResponse(f"{redact_url(self.request.url)} answers in {coding!r}, which nobody asked for"))
        self._wake()

    def feed(self, chunk: bytes) -> None:
        """A piece of the body has arrived."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > _MAX_BUFFERED:
            self._connection.set_paused(True)
        if self._waiter is not None:
            self._wake()

    def complete(self) -> None:
        """The body is whole."""
        self._done = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """Nothing more will come."""
        self._done = True
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # -- what its reader does ------------------------------------------------------------------------------------------

    async def wait_for_head(self) -> None:
        """Wait for the head. Raises CannotConnect."""
        while not self.has_head and not self._done:
            await self._wait()
        if not self.has_head:
            assert self._error is not None
            raise self._error

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        """See `HttpResponse.read`."""
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
        """See `HttpResponse.chunks`."""
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
        """See `HttpResponse.close`."""
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
            # One byte more than is wanted tells that it is too much, without making all of it.
            return decoder.decompress(decoder.unconsumed_tail + piece, min(limit + 1, _DECOMPRESS_CHUNK))
        except zlib.error as error:
            self._connection.abort()
            self.fail(BadResponse(f"{redact_url(self.request.url)} sends what cannot be unpacked: {error}"))
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
        self.fail(CannotConnect(f"{where} said nothing for {seconds:g} s", reason="TIMED_OUT"))
