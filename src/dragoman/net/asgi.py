"""HTTP without a network: exchanges with an ASGI app in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from dragoman.model.error import CannotConnect
from dragoman.net.exchange import MAX_ANSWER, HttpRequest, too_large

Message = MutableMapping[str, Any]
AsgiApp = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

# How much an app may write before its reader has read: as a socket would.
_WINDOW = 64


class AsgiClient:
    """Carries exchanges to an app. The app lives as long as the client: its lifespan starts with the first request."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._requests: set[asyncio.Task[None]] = set()
        self._lifespan: _Lifespan | None = None

    async def send(self, request: HttpRequest) -> AsgiResponse:
        """See `HttpClient.send`."""
        if self._lifespan is None:
            self._lifespan = _Lifespan(self._app)
            await self._lifespan.start()
        exchange = AsgiResponse(request)
        task = asyncio.ensure_future(exchange.run(self._app))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        exchange.task = task
        try:
            await exchange.begun.wait()
        except asyncio.CancelledError:
            await exchange.close()
            raise
        if not exchange.status:
            raise CannotConnect(f"the app broke at {request.url}: {exchange.problem}", reason="CONNECTION_LOST")
        return exchange

    async def close(self) -> None:
        """See `HttpClient.close`."""
        for task in list(self._requests):
            task.cancel()
        if self._requests:
            await asyncio.wait(set(self._requests))
        if self._lifespan is not None:
            lifespan, self._lifespan = self._lifespan, None
            await lifespan.stop()


class AsgiResponse:
    """One exchange with an app; see `HttpResponse`."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_WINDOW)
        self._gone = asyncio.Event()
        self._asked = False
        self.begun = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.problem: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: AsgiApp) -> None:
        """Let the app answer."""
        try:
            await app(_scope(self._request), self._receive, self._send)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an app raises is a broken connection
            self.problem = error
        finally:
            self.begun.set()
            if not self._gone.is_set():
                with suppress(asyncio.QueueFull):
                    self._chunks.put_nowait(None)

    async def read(self, limit: int = MAX_ANSWER) -> bytes:
        """See `HttpResponse.read`."""
        found: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > limit:
                await self.close()
                raise too_large(limit)
            found.append(chunk)
        return b"".join(found)

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `HttpResponse.chunks`."""
        try:
            while True:
                if self._chunks.empty() and self.task is not None and self.task.done():
                    break
                chunk = await self._chunks.get()
                if chunk is None:
                    break
                yield chunk
            if self.problem is not None:
                raise CannotConnect(f"the app broke: {self.problem}", reason="CONNECTION_LOST") from self.problem
        finally:
            await self.close()

    async def close(self) -> None:
        """See `HttpResponse.close`."""
        self._gone.set()
        while not self._chunks.empty():  # an app that waits for room goes on, and finds nobody there
            self._chunks.get_nowait()

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._request.body or b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = _Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
            self.begun.set()
            return
        if self._gone.is_set():
            raise OSError("the caller has left")
        body = message.get("body", b"")
        if body:
            await self._chunks.put(body)
        if not message.get("more_body", False):
            await self._chunks.put(None)


class _Headers(dict[str, str]):
    """Found by their names in any case."""

    def __init__(self, pairs: Any) -> None:
        super().__init__((name.lower(), value) for name, value in pairs)

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key.lower(), default)

    def __getitem__(self, key: str) -> str:
        return super().__getitem__(key.lower())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and super().__contains__(key.lower())


class _Lifespan:
    """Starts and stops an app, if it wants to be told."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())
        self._said.put_nowait({"type": "lifespan.startup"})
        if await self._heard.get() == "lifespan.startup.failed":
            raise CannotConnect("the app did not start", arrived=False)

    async def stop(self) -> None:
        assert self._task is not None
        self._said.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        async def send(message: Message) -> None:
            self._heard.put_nowait(message["type"])

        try:
            await self._app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, self._said.get, send)
        except Exception:  # noqa: BLE001 - an app without a lifespan says so by raising
            pass
        finally:
            self._heard.put_nowait("over")


def _scope(request: HttpRequest) -> dict[str, Any]:
    parts = urlsplit(request.url)
    headers = [(b"host", parts.netloc.encode())]
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
        "server": (parts.hostname or "", parts.port or 80),
        "state": {},
    }
