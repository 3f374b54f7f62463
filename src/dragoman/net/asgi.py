"""An in-process HTTP client that calls an ASGI app directly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from dragoman.model.error import CannotConnect, TimedOut
from dragoman.net.exchange import MAX_RESPONSE, Chunks, Headers, HttpRequest, read_limited, redact_url

T = TypeVar("T")
Message = MutableMapping[str, Any]
AsgiApp = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

# How many chunks an app may write ahead of its reader, like a socket buffer.
_MAX_QUEUED = 64


class AsgiClient:
    """An `HttpClient` for an ASGI app. The lifespan of the app starts with the first request and ends with `close`.

    An app may have only one lifespan. So `renew` builds another app for each further one: that of the first request
    after `close`, or on another event loop. Without it, the same app gets them all.
    """

    def __init__(self, app: AsgiApp, renew: Callable[[], AsgiApp] | None = None) -> None:
        self._app = app
        self._renew = renew
        self._requests: set[asyncio.Task[None]] = set()
        self._lifespan: _Lifespan | None = None
        self._is_used = False

    async def send(self, request: HttpRequest) -> AsgiResponse:
        lifespan = self._lifespan
        if lifespan is None or lifespan.loop is not asyncio.get_running_loop():
            lifespan = self._lifespan = self._new_lifespan()
        if not lifespan.started:
            await lifespan.start()
        response = AsgiResponse(request)
        task = asyncio.ensure_future(response.run(self._app))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        response.task = task
        try:
            await _with_read_timeout(request, response.head_received.wait())
        except BaseException:
            await response.close()
            raise
        if not response.status:
            raise CannotConnect(
                f"the app broke at {redact_url(request.url)}: {response.failure}", reason="CONNECTION_LOST"
            )
        return response

    def _new_lifespan(self) -> _Lifespan:
        if self._is_used and self._renew is not None:
            self._app = self._renew()
        self._is_used = True
        return _Lifespan(self._app)

    async def close(self) -> None:
        for task in list(self._requests):
            task.cancel()
        if self._requests:
            await asyncio.wait(set(self._requests))
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.stop()


class AsgiResponse:
    """One exchange with an app, as an `HttpResponse`."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED)
        self._disconnected = asyncio.Event()
        self._body_sent = False
        self.head_received = asyncio.Event()
        self.status = 0
        self.headers = Headers()
        self.exception: BaseException | None = None
        self.is_complete = False
        self.task: asyncio.Task[None] | None = None

    @property
    def failure(self) -> str:
        """What went wrong in the app, as text."""
        return repr(self.exception) if self.exception is not None else "it stopped in the middle of the response"

    async def run(self, app: AsgiApp) -> None:
        """Run the app on the request."""
        try:
            await app(_scope(self._request), self._receive, self._send)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an app raises is a broken connection
            self.exception = error
        finally:
            self.head_received.set()
            if not self._disconnected.is_set():
                with suppress(asyncio.QueueFull):
                    self._chunks.put_nowait(None)

    async def read(self, limit: int = MAX_RESPONSE) -> bytes:
        try:
            return await read_limited(limit, self.chunks())
        finally:
            await self.close()

    def chunks(self) -> AsyncIterator[bytes]:
        return Chunks(self.next_chunk)

    async def next_chunk(self) -> bytes | None:
        """Return the next chunk, None at the end. Raises CannotConnect when the app fails or times out."""
        chunk = None
        try:
            if not (self._chunks.empty() and self.task is not None and self.task.done()):
                waits = self._chunks.empty() and self._request.read_timeout is not None
                chunk = await (_with_read_timeout(self._request, self._chunks.get()) if waits else self._chunks.get())
            if chunk is None and not self.is_complete:
                raise CannotConnect(f"the app broke: {self.failure}", reason="CONNECTION_LOST") from self.exception
        except CannotConnect:
            await self.close()
            raise
        if chunk is None:
            await self.close()
        return chunk

    async def close(self) -> None:
        self._disconnected.set()
        while not self._chunks.empty():  # an app that waits for space in the queue continues, and gets OSError
            self._chunks.get_nowait()

    async def _receive(self) -> Message:
        if not self._body_sent:
            self._body_sent = True
            return {"type": "http.request", "body": self._request.body or b"", "more_body": False}
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            pairs = message.get("headers", ())
            self.headers = Headers((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in pairs)
            self.head_received.set()
            return
        if self._disconnected.is_set():
            raise OSError("the caller has left")
        body = message.get("body", b"")
        if body:
            await self._chunks.put(body)
        if not message.get("more_body", False):
            self.is_complete = True
            await self._chunks.put(None)


class _Lifespan:
    """Runs the lifespan protocol of an app on the running event loop, if the app supports it."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self.loop = asyncio.get_running_loop()
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self.started = False

    async def start(self) -> None:
        """Start the app once, however many callers there are. Raises CannotConnect to each of them if it fails."""
        async with self._starting:
            if self.started:
                return
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._run())
                self._to_app.put_nowait({"type": "lifespan.startup"})
            event = await self._from_app.get()
            if event["type"] == "lifespan.startup.failed":
                await asyncio.wait({self._task})
                self._from_app, self._to_app = asyncio.Queue(), asyncio.Queue()
                reason = event.get("message")
                raise CannotConnect(f"the app did not start{f': {reason}' if reason else ''}", arrived=False)
            self.started = True

    async def stop(self) -> None:
        if self._task is not None:
            self._to_app.put_nowait({"type": "lifespan.shutdown"})
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        async def send(message: Message) -> None:
            self._from_app.put_nowait(message)

        try:
            # An app without a lifespan raises.
            with suppress(Exception):
                await self._app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, self._to_app.get, send)
        finally:
            self._from_app.put_nowait({"type": "over"})


async def _with_read_timeout(request: HttpRequest, waiting: Awaitable[T]) -> T:
    """Wait for at most the read timeout. Raises CannotConnect."""
    if request.read_timeout is None:
        return await waiting
    try:
        async with asyncio.timeout(request.read_timeout):
            return await waiting
    except TimeoutError:
        text = f"{redact_url(request.url)} said nothing for {request.read_timeout:g} s"
        raise TimedOut(text) from None


def _scope(request: HttpRequest) -> dict[str, Any]:
    parts = urlsplit(request.url)
    headers = [(b"host", parts.netloc.rpartition("@")[2].encode())]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    if request.body is not None:
        headers.append((b"content-length", str(len(request.body)).encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": parts.scheme,
        "path": unquote(parts.path) or "/",
        "raw_path": (parts.path or "/").encode("ascii", "replace"),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)),
        "state": {},
    }
