"""The floor: what HTTP and JSON alone cost. No tasks, no store: it only decodes, checks, and writes the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal
from uuid import uuid4

import msgspec
from msgspec import Struct

from bench.agents.words import chunk_text

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_ID = "5d6e1c2e-54a5-4a3b-9b1c-0f7c5f0f9a11"
_NOW = "2026-11-15T10:00:00.000Z"


class Part(Struct, omit_defaults=True):
    """A part of a message."""

    text: str | None = None
    data: Any = None


class Said(Struct, rename="camel", omit_defaults=True):
    """A message."""

    message_id: str
    role: Literal["ROLE_USER"]
    parts: list[Part]
    context_id: str | None = None
    task_id: str | None = None


class Params(Struct, omit_defaults=True):
    """The parameters of SendMessage and of SubscribeToTask."""

    message: Said | None = None
    id: str | None = None


class Request(Struct):
    """A JSON-RPC request."""

    jsonrpc: Literal["2.0"]
    id: int
    method: str
    params: Params


class Parade:
    """A stream with many readers: each waits for the next chunk by a future of its own, and that is all."""

    def __init__(self) -> None:
        self.chunks = 0
        self.pace = 0.0
        self.waiting: list[asyncio.Future[bytes]] = []
        self.running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Give every reader each chunk, then the end."""
        for number in range(self.chunks):
            self._give(_frame(number + 3, _artifact("parade", chunk_text(number), append=number > 0)))
            await asyncio.sleep(self.pace)
        self._give(_closing("parade", self.chunks))
        # Readers leave after this one.
        await asyncio.sleep(0)
        self._give(b"")

    def _give(self, frame: bytes) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(frame)

    def next(self) -> asyncio.Future[bytes]:
        """The next chunk, when it comes."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return future


_decode = msgspec.json.Decoder(Request).decode
_encode = msgspec.json.Encoder().encode
_parade = Parade()


async def answer(scope: Message, receive: Receive, send: Send) -> None:
    """Plain ASGI."""
    if scope["type"] != "http":
        return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    request = _decode(body)
    if request.method == "SendStreamingMessage":
        await _stream(send, _arguments(request)["n"])
    elif request.method == "SubscribeToTask":
        await _follow(send)
    else:
        await _reply(send, request)


def _arguments(request: Request) -> dict[str, Any]:
    assert request.params.message is not None
    return request.params.message.parts[0].data["arguments"]


async def _reply(send: Send, request: Request) -> None:
    message = request.params.message
    assert message is not None
    part = message.parts[0]
    if part.data is not None:
        _steer(part.data)
    message.task_id, message.context_id = str(uuid4()), str(uuid4())
    artifact = {"artifactId": "echo-result", "parts": [{"text": part.text or ""}], "name": "echo-result"}
    task = {
        "id": message.task_id,
        "contextId": message.context_id,
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": _NOW},
        "artifacts": [artifact],
        "history": [message],
    }
    body = _encode({"jsonrpc": "2.0", "id": request.id, "result": {"task": task}})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _steer(data: dict[str, Any]) -> None:
    if data["tool"] == "parade":
        _parade.chunks, _parade.pace = int(data["arguments"]["n"]), data["arguments"]["pace"]
    else:
        _parade.running = asyncio.get_running_loop().create_task(_parade.run())


async def _stream(send: Send, chunks: int) -> None:
    await _open(send)
    await _write(send, _frame(1, _task("SUBMITTED")))
    await _write(send, _frame(2, _status("WORKING")))
    for number in range(chunks):
        await _write(send, _frame(number + 3, _artifact("count", chunk_text(number), append=number > 0)))
        await asyncio.sleep(0)
    await _write(send, _closing("count", chunks))
    await send({"type": "http.response.body", "body": b""})


async def _follow(send: Send) -> None:
    await _open(send)
    await _write(send, _frame(2, _task("WORKING")))
    while frame := await _parade.next():
        await _write(send, frame)
    await send({"type": "http.response.body", "body": b""})


def _closing(name: str, chunks: int) -> bytes:
    whole = "".join(chunk_text(number) for number in range(chunks))
    return _frame(chunks + 3, _artifact(name, whole, last=True)) + _frame(chunks + 4, _status("COMPLETED"))


async def _open(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _write(send: Send, frame: bytes) -> None:
    await send({"type": "http.response.body", "body": frame, "more_body": True})


def _frame(number: int, event: dict[str, Any]) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (number, _encode({"jsonrpc": "2.0", "id": 1, "result": event}))


def _task(state: str) -> dict[str, Any]:
    status = {"state": f"TASK_STATE_{state}", "timestamp": _NOW}
    return {"task": {"id": _ID, "contextId": _ID, "status": status}}


def _status(state: str) -> dict[str, Any]:
    status = {"state": f"TASK_STATE_{state}", "timestamp": _NOW}
    return {"statusUpdate": {"taskId": _ID, "contextId": _ID, "status": status}}


def _artifact(name: str, text: str, *, append: bool = False, last: bool = False) -> dict[str, Any]:
    artifact = {"artifactId": f"{name}-result", "parts": [{"text": text}], "name": f"{name}-result"}
    update: dict[str, Any] = {"taskId": _ID, "contextId": _ID, "artifact": artifact}
    if append:
        update["append"] = True
    if last:
        update["lastChunk"] = True
    return {"artifactUpdate": update}


def app(store: str) -> Any:
    """The ASGI app; there is nothing to store."""
    assert store == "memory", "the floor stores nothing"
    return answer
