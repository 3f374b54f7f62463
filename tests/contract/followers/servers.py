"""Servers that are not like ours: without numbers, without subscriptions, without streams, or slow."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from dragoman import Agent

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_NUMBER = re.compile(rb"^id: .*\n", re.MULTILINE)
_SUBSCRIBES = {"SubscribeToTask", "tasks/resubscribe"}
_STREAMS = {"SendStreamingMessage", "message/stream"}
_UNSUPPORTED = -32004


class Foreign:
    """The app of an agent, changed into one that another implementation could be. It speaks JSON-RPC only.

    `numbers`: its events have numbers. `subscriptions`, `streams`: it has them. `pause`: seconds between what it sends.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        numbers: bool = True,
        subscriptions: bool = True,
        streams: bool = True,
        pause: float = 0.0,
    ) -> None:
        self._app = agent.app(store="memory:", drain=0)
        self._numbers = numbers
        self._refused = (set() if subscriptions else _SUBSCRIBES) | (set() if streams else _STREAMS)
        self._pause = pause
        self.refusals = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, is_read = b"", False
        while scope["method"] == "POST" and not is_read:
            message = await receive()
            body += message.get("body", b"")
            is_read = not message.get("more_body", False)
        if await self._refuse(body, send):
            return
        replayed = [{"type": "http.request", "body": body, "more_body": False}] if is_read else []

        async def receive_again() -> Message:
            return replayed.pop() if replayed else await receive()

        async def send_changed(message: Message) -> None:
            if not self._numbers and message.get("body"):
                message["body"] = _NUMBER.sub(b"", message["body"])
            if self._pause and message.get("body"):
                await asyncio.sleep(self._pause)
            await send(message)

        headers = [each for each in scope["headers"] if self._numbers or each[0] != b"last-event-id"]
        await self._app({**scope, "headers": headers}, receive_again, send_changed)

    async def _refuse(self, body: bytes, send: Send) -> bool:
        method = json.loads(body).get("method") if body.startswith(b"{") else None
        if method not in self._refused:
            return False
        self.refusals += 1
        error = {"code": _UNSUPPORTED, "message": "This operation is not supported"}
        answer = json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
        return True
