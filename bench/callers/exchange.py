"""Bare exchanges over HTTP: the port of `dragoman.net` without the client above it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

from bench.agents.words import chunk_text
from bench.replies import check_echo
from dragoman.net.exchange import HttpRequest

if TYPE_CHECKING:
    from dragoman.net.exchange import HttpClient, HttpResponse

_HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}


class ExchangeCaller:
    """See `Caller`. It reads no more of an answer than it must."""

    def __init__(self, http: HttpClient, url: str) -> None:
        self._http = http
        self._url = f"{url}/"

    async def echo(self, text: str) -> str:
        """See `Caller.echo`."""
        response = await self._post("SendMessage", {"text": text})
        check_echo(await response.read(), text)
        return text

    async def count(self, chunks: int) -> tuple[str, int]:
        """See `Caller.count`. The text is not taken out of the events, only the last chunk looked for."""
        response = await self._post("SendStreamingMessage", {"data": {"tool": "count", "arguments": {"n": chunks}}})
        body = bytearray()
        async for piece in response.chunks():
            body += piece
        events = body.count(b"\n\n")
        if chunk_text(chunks - 1).encode() not in body:
            raise ValueError("the last chunk is missing")
        return "".join(chunk_text(number) for number in range(chunks)), events

    async def close(self) -> None:
        """See `Caller.close`."""
        await self._http.close()

    async def _post(self, method: str, part: dict[str, object]) -> HttpResponse:
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part]}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}).encode()
        response = await self._http.send(HttpRequest("POST", self._url, dict(_HEADERS), body))
        if response.status != 200:
            raise ValueError(f"HTTP {response.status}")
        return response
