"""An app and a browser that has opened its console, in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman import Agent
from dragoman.clock import Clock
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest
from dragoman.server.build import build
from dragoman.server.config.loader import load_settings
from dragoman.server.http.app import App

TOKEN = "the-token-of-this-start"
BASE = "http://127.0.0.1"


class Browser:
    """Sends requests to an app, with the cookie of the console once it has opened it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._client = AsgiClient(app)
        self._cookie = ""

    async def open_console(self) -> None:
        response = await self._client.send(HttpRequest("GET", f"{BASE}/?token={TOKEN}", {"Accept": "text/html"}))
        await response.read()
        self._cookie = response.headers["Set-Cookie"].partition(";")[0]

    async def get(self, path: str) -> tuple[int, Any]:
        return await self._send("GET", f"/console/api/{path}", None)

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        return await self._send("POST", f"/console/api/{path}", body)

    async def call(self, method: str, params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self._send("POST", "/", body))[1]

    async def say(self, text: str) -> Any:
        message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
        return await self.call("SendMessage", {"message": message})

    async def _send(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        headers = {"A2A-Version": "1.0", "Sec-Fetch-Site": "same-origin"}
        if self._cookie:
            headers["Cookie"] = self._cookie
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        response = await self._client.send(HttpRequest(method, BASE + path, headers, data))
        return response.status, msgspec.json.decode(await response.read())


@asynccontextmanager
async def console_of(
    agents: Sequence[Agent], clock: Clock | None = None, *, opened: bool = True, **settings: Any
) -> AsyncGenerator[Browser]:
    """Start an app, and open its console."""
    loaded = load_settings({"store": "memory:", "drain": 0, **settings}, environ={}, config=None, cwd=Path())
    app = build(agents, replace(loaded, console_token=TOKEN), clock=clock)
    await app.start()
    try:
        browser = Browser(app)
        if opened:
            await browser.open_console()
        yield browser
    finally:
        await app.stop()
