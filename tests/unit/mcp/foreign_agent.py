"""An agent that nobody's SDK made: JSON-RPC by hand, with the odd answers such agents give."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
NOTHING = object()


def card_of(url: str, **changes: Any) -> Json:
    """A card with the keys the tools' documentation shows, and what a card of 0.2 must have besides."""
    card = {
        "name": "By hand",
        "description": "Answers what it was told to",
        "url": url,
        "version": "3.1.4",
        "protocolVersion": "0.2.6",
        "capabilities": {"streaming": False, "pushNotifications": False, "stateTransitionHistory": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "talk", "name": "Talk", "description": "Talks", "tags": ["talk"]}],
    } | changes
    return {key: value for key, value in card.items() if value is not NOTHING}


class Problem(str):
    """An answer that is an error."""

    __slots__ = ()


class ForeignAgent:
    """An ASGI app. `answers` has a result for each method; one that is callable is given the params.

    `cards` has a body for each path that has a card: JSON to be sent, bytes as they are, or a (status, headers) pair.
    """

    def __init__(self) -> None:
        self.cards: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}
        self.statuses: dict[str, int] = {}
        self.rpc_path = "/"
        self.asked: list[str] = []
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.holds: dict[str, asyncio.Event] = {}
        self.arrivals = threading.Semaphore(0)  # one for each call that has come
        self._loop: asyncio.AbstractEventLoop | None = None

    def offers(self, url: str, *paths: str, **changes: Any) -> None:
        """Have a card at these paths, by default at both."""
        self.cards = {path: card_of(url, **changes) for path in paths or CARD_PATHS}

    def hold(self, method: str) -> None:
        """Answer this method only when it is let go."""
        self.holds[method] = asyncio.Event()

    def let_go(self, method: str) -> None:
        """Answer now; from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.holds.pop(method).set)

    def methods(self) -> list[str]:
        """The methods that were called, in turn."""
        return [body["method"] for body in self.bodies]

    async def __call__(self, scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http":
            return
        self._loop = asyncio.get_running_loop()
        path, method = scope["path"], scope["method"]
        self.asked.append(path)
        self.headers.append({name.decode().lower(): value.decode() for name, value in scope["headers"]})
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if method == "GET":
            await self._card(self.cards.get(path, NOTHING), send)
        elif path == self.rpc_path:
            await self._rpc(json.loads(body), send)
        else:
            await answer(send, 404, b"{}")

    async def _card(self, card: Any, send: Callable[..., Any]) -> None:
        if card is NOTHING:
            await answer(send, 404, b'{"detail":"Not Found"}')
        elif isinstance(card, tuple):
            await answer(send, card[0], b"", card[1])
        else:
            await answer(send, 200, card if isinstance(card, bytes) else json.dumps(card).encode())

    async def _rpc(self, request: Json, send: Callable[..., Any]) -> None:
        self.bodies.append(request)
        self.arrivals.release()
        method = request["method"]
        held = self.holds.get(method)
        if held is not None:
            await held.wait()
        if method in self.statuses:
            await answer(send, self.statuses[method], b"{}")
            return
        found: Json = {"jsonrpc": "2.0", "id": request["id"]}
        if isinstance(self.answers.get(method), Problem):
            found["error"] = {"code": -32000, "message": self.answers[method]}
        elif method in self.answers:
            made = self.answers[method]
            found["result"] = made(request["params"]) if callable(made) else made
        else:
            found["error"] = {"code": -32601, "message": "Method not found"}
        await answer(send, 200, json.dumps(found).encode())


async def answer(send: Callable[..., Any], status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    """Answer a request."""
    fields = {"Content-Type": "application/json", "Content-Length": str(len(body))} | (headers or {})
    pairs = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
