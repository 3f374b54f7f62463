"""Servers that are not like ours: their events have no numbers, or they have no subscriptions or no streams."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from dragoman import Agent, User
from dragoman.auth.inbound.scheme import InboundRequest

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
_NUMBER = re.compile(rb"^id: .*\n", re.MULTILINE)
_SUBSCRIPTIONS = ("SubscribeToTask", "tasks/resubscribe", ":subscribe")
_STREAMS = ("SendStreamingMessage", "message/stream", "tasks/sendSubscribe", ":stream")
_UNSUPPORTED = -32004


class ForeignServer:
    """The app of an agent as another implementation could serve it: without event numbers, over JSON-RPC and REST.

    Where it has no `subscriptions` or no `streams`, it refuses them: with the error of the protocol in JSON-RPC, and
    with 404 in REST. `is_polled` is set once a follower that was refused has read the task, or has sent its message
    without a stream.
    """

    def __init__(self, agent: Agent, *, subscriptions: bool = True, streams: bool = True) -> None:
        self._app = agent.app(store="memory:", drain=0)
        self._has_refused = False
        self.is_polled = threading.Event()
        self._refused = (() if subscriptions else _SUBSCRIPTIONS) + (() if streams else _STREAMS)

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await _body_of(receive)
        refusal = self._refusal(scope["path"], body)
        if refusal is not None:
            self._has_refused = True
            status, answer = refusal
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": answer})
            return
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Event:
            return unread.pop() if unread else await receive()

        async def send_without_numbers(message: Event) -> None:
            if message.get("body"):
                message["body"] = _NUMBER.sub(b"", message["body"])
            await send(message)

        headers = [each for each in scope["headers"] if each[0] != b"last-event-id"]
        # A message without a stream is answered at the end of its task, which may be waiting for this.
        if self._has_refused and b"essage" in body:
            self.is_polled.set()
        await self._app({**scope, "headers": headers}, receive_again, send_without_numbers)
        if self._has_refused:
            self.is_polled.set()

    def _refusal(self, path: str, body: bytes) -> tuple[int, bytes] | None:
        if path.endswith(tuple(each for each in self._refused if each.startswith(":"))):
            return 404, b"{}"
        request: dict[str, Any] = json.loads(body) if body.startswith(b"{") else {}
        if request.get("method") not in self._refused:
            return None
        error = {"code": _UNSUPPORTED, "message": "This operation is not supported"}
        return 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()


async def _body_of(receive: Receive) -> bytes:
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
    return body


class Door:
    """Lets nobody in. `knocks` counts the requests."""

    def __init__(self) -> None:
        self.knocks = 0

    async def __call__(self, request: InboundRequest) -> User | None:
        """Refuse a request."""
        self.knocks += 1
        return None
