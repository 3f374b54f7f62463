"""HTTP/1.1 on one connection: an answer as it arrives."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import httptools

from dragoman.model.error import BadResponse, CannotConnect
from dragoman.net.exchange import MAX_ANSWER, Chunks, Headers, HttpRequest, shown, too_large

# How much of an answer may wait for its reader, as a socket's own buffer would.
_WINDOW = 256 * 1024
_MOST_HEADERS = 64 * 1024
# Reads that follow each other faster than this are taken together: a stream of tiny events is read in larger pieces.
_TOGETHER = 0.001
# How much is unpacked at once.
_UNPACKED = 1024 * 1024
_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 47}


class Wire(asyncio.BufferedProtocol):
    """One connection. It carries one exchange at a time; `rested` is called when it is free for the next."""

    def __init__(self, rested: Callable[[Wire], None], room: memoryview) -> None:
        self._rested = rested
        # Where bytes are read into. All connections of a loop share it: what is read is used up at once.
        self._room = room
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._parser: Any = None
        self.answer: Answer | None = None
        self.idle_since = 0.0
        self._paused = False
        self._last_read = 0.0
        self._resume: asyncio.TimerHandle | None = None

    # -- for the client ------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """True when another exchange may be tried on it."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, data: bytes, request: HttpRequest) -> Answer:
        """Send a request; its answer comes bit by bit."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self.answer = answer = Answer(self, request)
        self._transport.write(data)
        return answer

    def abort(self) -> None:
        """Cut the connection, whatever is under way."""
        self.answer = None
        self._forget_timer()
        if self._transport is not None:
            self._transport.abort()

    def hold(self, held: bool) -> None:
        """Read no more, or go on reading."""
        if held != self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = held
            if held:
                self._transport.pause_reading()
            elif self._resume is None:
                self._transport.resume_reading()

    def gather(self) -> None:
        """A reader has taken all there is: where pieces come fast, let some gather before the next is looked at."""
        now = self._loop.time()
        if now - self._last_read < _TOGETHER and self._resume is None and not self._paused and self.usable:
            assert self._transport is not None
            self._transport.pause_reading()
            self._resume = self._loop.call_later(_TOGETHER, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _forget_timer(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._go_on()

    # -- asyncio -------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Read."""
        data = self._room[:nbytes]
        answer = self.answer
        if answer is None:  # nobody asked
            self.abort()
            return
        self._last_read = self._loop.time() if answer.streamed else 0.0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse("it wants to speak something else")
        except httptools.HttpParserError as error:
            self._refuse(str(error))
        else:
            if not answer.begun:
                answer.head_size += len(data)
                if answer.head_size > _MOST_HEADERS:
                    self._refuse("its headers do not end")

    def _refuse(self, why: str) -> None:
        answer = self.answer
        self.abort()
        if answer is not None:
            where = shown(answer.request.url)
            answer.fail(CannotConnect(f"{where} does not answer in HTTP: {why}", reason="NOT_HTTP"))

    def eof_received(self) -> bool:
        """The other side has said all it will say."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        answer, self.answer = self.answer, None
        self._forget_timer()
        if answer is None:
            return
        if exc is None and answer.begun and answer.until_close:
            answer.complete()
            return
        why = str(exc) if exc else "it was closed"
        if answer.begun:
            why = f"{why} in the middle of the answer"
        where = shown(answer.request.url)
        # A connection that was kept open may be closed just when it is used again: then nobody has read the request.
        answer.fail(CannotConnect(f"the connection to {where} broke: {why}", reason="CONNECTION_LOST"))

    # -- httptools -----------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        assert self.answer is not None
        headers, key, text = self.answer.headers, name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """The head is there."""
        answer = self.answer
        assert answer is not None
        status = self._parser.get_status_code()
        if status < 200:
            answer.headers.clear()
            return
        answer.status = status
        answer.begin(keeps=self._parser.should_keep_alive())

    def on_body(self, chunk: bytes) -> None:
        """Pass on a piece, without the marks of chunked transfer."""
        if self.answer is not None:
            self.answer.take(chunk)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        answer = self.answer
        if answer is None or not answer.begun:  # 100 Continue and its like
            return
        keeps = self._parser.should_keep_alive() and answer.keeps
        self.answer = None
        self._forget_timer()
        self.hold(False)
        answer.complete()
        if keeps and self.usable:
            self._rested(self)
        else:
            self.abort()


class Answer:
    """See `HttpResponse`."""

    __slots__ = (
        "_chunks",
        "_decoder",
        "_done",
        "_error",
        "_size",
        "_waiter",
        "_wire",
        "begun",
        "head_size",
        "headers",
        "keeps",
        "request",
        "status",
        "streamed",
        "until_close",
    )

    def __init__(self, wire: Wire, request: HttpRequest) -> None:
        self._wire = wire
        self.request = request
        self.status = 0
        self.headers = Headers()
        self.begun = False
        self.keeps = True
        self.head_size = 0
        self.until_close = False
        self.streamed = False
        self._chunks: list[bytes] = []
        self._size = 0
        self._done = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._decoder: Any = None

    # -- what the wire says --------------------------------------------------------------------------------------------

    def begin(self, *, keeps: bool) -> None:
        """The head has arrived."""
        self.begun = True
        self.keeps = keeps
        headers = self.headers
        self.until_close = not keeps and "content-length" not in headers and "transfer-encoding" not in headers
        coding = headers.get("content-encoding", "").strip().lower()
        if coding and coding != "identity":
            if coding in _CODINGS:
                self._decoder = zlib.decompressobj(_CODINGS[coding])
            else:
                self._wire.abort()
                self.fail(BadResponse(f"{shown(self.request.url)} answers in {coding!r}, which nobody asked for"))
        self._wake()

    def take(self, chunk: bytes) -> None:
        """A piece of the body has arrived."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > _WINDOW:
            self._wire.hold(True)
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

    async def head(self) -> None:
        """Wait for the head. Raises CannotConnect."""
        while not self.begun and not self._done:
            await self._wait()
        if not self.begun:
            assert self._error is not None
            raise self._error

    async def read(self, limit: int = MAX_ANSWER) -> bytes:
        """See `HttpResponse.read`."""
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            await self.close()
            raise too_large(limit)
        pieces: list[bytes] = []
        size = 0
        while True:
            piece = self._taken(limit)
            if piece:
                size += len(piece)
                if size > limit:
                    await self.close()
                    raise too_large(limit)
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
        self.streamed = True
        while True:
            piece = self._taken(_WINDOW * 16)
            if piece:
                return piece
            if self._done:
                if self._error is not None:
                    raise self._error
                return None
            self._wire.gather()
            await self._wait()

    async def close(self) -> None:
        """See `HttpResponse.close`."""
        if not self._done:
            self._done = True
            self._wire.abort()

    def _taken(self, limit: int) -> bytes:
        decoder = self._decoder
        if not self._chunks and (decoder is None or not decoder.unconsumed_tail):
            return b""
        piece = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        self._wire.hold(False)
        if decoder is None:
            return piece
        try:
            # One byte more than is wanted tells that it is too much, without making all of it.
            return decoder.decompress(decoder.unconsumed_tail + piece, min(limit + 1, _UNPACKED))
        except zlib.error as error:
            self._wire.abort()
            self.fail(BadResponse(f"{shown(self.request.url)} sends what cannot be unpacked: {error}"))
            return b""

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        silence = self.request.silence
        timer = None if silence is None else loop.call_later(silence, self._silent)
        try:
            await waiter
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _silent(self) -> None:
        where, silence = shown(self.request.url), self.request.silence
        self._wire.abort()
        self.fail(CannotConnect(f"{where} said nothing for {silence:g} s", reason="TIMED_OUT"))
