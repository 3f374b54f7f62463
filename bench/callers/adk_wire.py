"""A client that costs little, the same for every bridge: JSON-RPC over one kept connection, every answer checked."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from bench import wire
from bench.agents.words import TOOL, adk_chunk_text
from bench.http1 import Connection
from bench.sse import EventCutter

COMPLETED = "TASK_STATE_COMPLETED"


class Line(Connection):
    """One question, then its answer, on a connection that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[bytes] = []
        self._answer: asyncio.Future[bytes] | None = None

    async def ask(self, request: bytes) -> bytes:
        """Send a request and wait for the whole answer. Raises ValueError when it is an error."""
        self._chunks.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self.send(request)
        return await self._answer

    def body(self, chunk: bytes) -> None:
        """Keep."""
        self._chunks.append(chunk)

    def answered(self, status: int) -> None:
        """Give the answer."""
        assert self._answer is not None
        body = b"".join(self._chunks)
        if status == 200:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(ValueError(f"HTTP {status}: {body[:200]!r}"))

    def lost(self) -> None:
        """Without an answer, say so."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))


class WireCaller:
    """See `Caller`. With `tool` every turn calls a tool. `received` counts the bytes of all answers."""

    chunk_text = staticmethod(adk_chunk_text)

    def __init__(self, port: int, *, tool: bool) -> None:
        self._port = port
        self._before = TOOL if tool else ""
        self._line: Line | None = None

    @property
    def received(self) -> int:
        """Bytes that came so far, headers and the marks of chunked transfer included."""
        return 0 if self._line is None else self._line.received

    async def echo(self, text: str) -> str:
        """See `Caller.echo`."""
        task = _result(await self._ask("SendMessage", self._before + text))["task"]
        if task["status"]["state"] != COMPLETED:
            raise ValueError(f"the task is {task['status']['state']}")
        return "".join(_text(artifact) for artifact in task["artifacts"])

    async def count(self, chunks: int) -> tuple[str, int]:
        """See `Caller.count`. A chunk is a piece of an artifact, or what a status says while the task is at work."""
        said: list[str] = []
        whole = state = ""
        for _, data in EventCutter().feed(await self._ask("SendStreamingMessage", f"count {chunks}")):
            event = _result(data)
            if update := event.get("artifactUpdate"):
                if update.get("lastChunk"):
                    whole = _text(update["artifact"])
                else:
                    said.append(_text(update["artifact"]))
            elif update := event.get("statusUpdate"):
                state = update["status"]["state"]
                said.append(_text(update["status"].get("message", {})))
        pieces = [text for text in said if text and text != whole]
        if state != COMPLETED or "".join(pieces) != whole:
            raise ValueError(f"{len(pieces)} chunks that do not make the whole, and the task is {state}")
        return whole, len(pieces)

    async def close(self) -> None:
        """See `Caller.close`."""
        if self._line is not None:
            self._line.close()

    async def _ask(self, method: str, text: str) -> bytes:
        if self._line is None:
            loop = asyncio.get_running_loop()
            _, self._line = await loop.create_connection(Line, "127.0.0.1", self._port)
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        return await self._line.ask(wire.call(method, {"message": message}))


def _result(body: bytes) -> dict[str, Any]:
    answer = msgspec.json.decode(body)
    if "result" not in answer:
        raise ValueError(f"an error: {body[:200]!r}")
    return answer["result"]


def _text(carrier: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in carrier.get("parts", ()))


def caller(url: str) -> WireCaller:
    """A caller of the agent at a URL, whose fragment says whether a tool is called."""
    parts = urlsplit(url)
    assert parts.port is not None
    return WireCaller(parts.port, tool=parts.fragment == "tool")
