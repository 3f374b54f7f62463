"""A client of ADK agents that costs little, the same for every bridge: JSON-RPC over one kept connection."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import msgspec

from bench import wire
from bench.http1 import Connection
from bench.replies import COMPLETED, Wrong
from bench.sse import EventCutter


class Line(Connection):
    """One question, then its answer."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[bytes] = []
        self._answer: asyncio.Future[bytes] | None = None

    async def ask(self, request: bytes) -> bytes:
        """Send a request and wait for the whole answer.

        Raises:
            Wrong: it is an error.
            ConnectionError: there is none.
        """
        self._chunks.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self.send(request)
        return await self._answer

    async def say(self, text: str) -> str:
        """Send a text and read the text of the completed task. Raises Wrong."""
        task = _result(await self.ask(_message("SendMessage", text)))["task"]
        if task["status"]["state"] != COMPLETED:
            raise Wrong(f"the task is {task['status']['state']}")
        return "".join(_text(artifact) for artifact in task["artifacts"])

    async def stream(self, text: str) -> tuple[str, int]:
        """Send a text and read the stream: the whole in the end, and how many chunks it came in.

        A chunk is a piece of an artifact, or what a status says while the task is at work. Raises Wrong.
        """
        said: list[str] = []
        whole = state = ""
        for _, data in EventCutter().feed(await self.ask(_message("SendStreamingMessage", text))):
            event = _result(data)
            if update := event.get("artifactUpdate"):
                if update.get("lastChunk") and not update.get("append"):
                    whole = _text(update["artifact"])
                else:
                    said.append(_text(update["artifact"]))
            elif update := event.get("statusUpdate"):
                state = update["status"]["state"]
                said.append(_text(update["status"].get("message", {})))
        whole = whole or "".join(said)
        pieces = [each for each in said if each and each != whole]
        if state != COMPLETED or "".join(pieces) != whole:
            raise Wrong(f"{len(pieces)} chunks that do not make the whole, and the task is {state}")
        return whole, len(pieces)

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
            self._answer.set_exception(Wrong(f"HTTP {status}: {body[:200]!r}"))

    def lost(self) -> None:
        """Without an answer, say so."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))


async def line_to(port: int) -> Line:
    """A connection to a server."""
    _, line = await asyncio.get_running_loop().create_connection(Line, "127.0.0.1", port)
    return line


def _message(method: str, text: str) -> bytes:
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    return wire.call(method, {"message": message})


def _result(body: bytes) -> dict[str, Any]:
    answer = msgspec.json.decode(body)
    if "result" not in answer:
        raise Wrong(f"an error: {body[:200]!r}")
    return answer["result"]


def _text(carrier: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in carrier.get("parts", ()))
