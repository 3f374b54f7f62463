"""An ASGI app without a port, and readers that can be held back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from dragoman import Agent
from dragoman.server.build import build
from dragoman.server.config.settings import Settings
from dragoman.server.http.app import App

SECONDS = 30  # what hangs fails


class Reader:
    """Somebody who asks an app for something and keeps what it writes, as it was written.

    While `gate` is closed nothing more is taken: the app waits in `send`, as it does when a socket is full.
    """

    def __init__(self, app: App, method: str, path: str, body: bytes = b"", *, keep: bool = True) -> None:
        self._app = app
        self._body: bytes | None = body
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        self._scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
        self._keep = keep
        self._gone: asyncio.Future[Any] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.status = 0
        self.writes: list[bytes] = []
        self.count = 0
        self.on_write: Callable[[], None] = lambda: None

    async def ask(self) -> Reader:
        """Ask, and read until the answer is complete."""
        await self._app(self._scope, self._receive, self._send)
        return self

    def asking(self) -> asyncio.Task[Reader]:
        """Ask, and read while others go on."""
        return asyncio.create_task(self.ask())

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        self._gone = asyncio.get_running_loop().create_future()
        return await self._gone

    async def _send(self, message: Any) -> None:
        if not self.gate.is_set():
            await self.gate.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        body = message["body"]
        if body:
            self.count += 1
            if self._keep:
                self.writes.append(body)
            self.on_write()

    @property
    def json(self) -> Any:
        """The whole answer."""
        return json.loads(b"".join(self.writes))

    @property
    def events(self) -> Iterator[tuple[int, bytes]]:
        """The events of a stream: the number and the data of each."""
        for frame in re.sub(rb"^retry: \d+\n", b"", b"".join(self.writes)).split(b"\n\n"):
            if frame.startswith(b"id: "):
                number, _, data = frame.removeprefix(b"id: ").partition(b"\ndata: ")
                yield int(number), data


class Host:
    """An app and what tests ask of it."""

    def __init__(self, app: App) -> None:
        self.app = app

    @property
    def service(self) -> Any:
        return self.app._hosted[0].service

    def reader(self, method: str, path: str, body: Any = None, *, keep: bool = True) -> Reader:
        return Reader(self.app, method, path, b"" if body is None else json.dumps(body).encode(), keep=keep)

    def message(self, text: str = "go", **members: Any) -> dict[str, Any]:
        return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **members}

    async def begin(self, text: str = "go") -> str:
        """Start a task and give its id at once."""
        body = {"message": self.message(text), "configuration": {"returnImmediately": True}}
        return (await self.reader("POST", "/message:send", body).ask()).json["task"]["id"]

    def subscriber(self, task_id: str, **options: Any) -> Reader:
        return self.reader("GET", f"/tasks/{task_id}:subscribe", **options)

    def rpc(self, method: str, params: Any, *, id: Any = 1) -> Reader:
        return self.reader("POST", "/", {"jsonrpc": "2.0", "id": id, "method": method, "params": params})


HostAgent = Callable[..., Awaitable[Host]]


@pytest.fixture
async def host() -> AsyncIterator[HostAgent]:
    """Puts an app around an agent, with a store in memory by default."""
    apps: list[App] = []

    async def host(agent: Agent, *, store: str = "memory:", **parts: Any) -> Host:
        app = build((agent,), Settings(store=store, drain=0, push=False), **parts)
        apps.append(app)
        await app.start()
        return Host(app)

    yield host
    for app in apps:
        async with asyncio.timeout(SECONDS):
            await app.stop()


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Lets others run until a condition holds."""

    async def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - any condition, also one that a thread fulfills
                await asyncio.sleep(0)

    return until
