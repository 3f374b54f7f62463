"""A server on a real port that answers, byte by byte, as a test wants."""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

CARD_PATH = "/.well-known/agent-card.json"


class Request(NamedTuple):
    """A request as it arrived; the names of its headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    @property
    def message_id(self) -> str:
        """The id of the message that it sends."""
        body = self.json
        return body.get("params", body)["message"]["messageId"]


class Close:
    """Close the connection without an answer."""


class Reset:
    """Break the connection off."""


class Hold:
    """Do not answer, until the caller leaves."""


class After:
    """Send these bytes, then close, reset or hold."""

    def __init__(self, sent: bytes, then: type[Close | Reset | Hold]) -> None:
        self.sent = sent
        self.then = then


Reply = bytes | After | AsyncIterator[bytes] | type[Close | Reset | Hold]
Script = Callable[[Request], Reply | Awaitable[Reply]]


class Stub:
    """Answers every request with what `answer` gives for it, and keeps what arrived. Used as `async with`."""

    def __init__(self, answer: Script, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.got: list[Request] = []
        self.connections = 0
        self.sent = 0
        self.url = ""
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.left = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._server.wait_closed()

    def paths(self, method: str = "") -> list[str]:
        """The paths that were asked for, with one method or any."""
        return [got.path for got in self.got if method in ("", got.method)]

    @property
    def posts(self) -> list[Request]:
        """The requests with the method POST."""
        return [got for got in self.got if got.method == "POST"]

    def drop(self) -> None:
        """Close every connection, as a server does that wants to be rid of idle ones."""
        for writer in list(self._writers):
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.left.set()
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, path, headers, body)
        self.got.append(request)
        reply = self.answer(request)
        if inspect.isawaitable(reply):
            reply = await reply
        return await self._send(reply, reader, writer)

    async def _send(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if isinstance(reply, type):
            if reply is Reset:
                writer.transport.abort()
            elif reply is Hold:
                await reader.read()
            return False
        if isinstance(reply, After):
            writer.write(reply.sent)
            await writer.drain()
            return await self._send(reply.then, reader, writer)
        if isinstance(reply, bytes):
            writer.write(reply)
            await writer.drain()
            return b"connection: close" not in reply.partition(b"\r\n\r\n")[0].lower()
        async for chunk in reply:
            writer.write(chunk)
            self.sent += len(chunk)
            await writer.drain()
        return False


# -- answers -----------------------------------------------------------------------------------------------------


def reply(body: Any = b"", status: int = 200, kind: str = "application/json", /, **headers: str) -> bytes:
    """A whole HTTP answer; what is not bytes is written as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Stub", f"Content-Length: {len(data)}"]
    if kind:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def head(status: int = 200, kind: str = "application/json", /, **headers: str) -> bytes:
    """The head of an answer whose body follows by other means."""
    lines = [f"HTTP/1.1 {status} Stub", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """One chunk of a body without a length."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def html(status: int = 200) -> bytes:
    """The page of a web server that knows nothing of agents."""
    return reply(b"<!doctype html><title>Welcome to nginx</title>", status, "text/html; charset=utf-8")


BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}


def card(*interfaces: tuple[str, str], name: str = "stub", version: str = "1.0", **more: Any) -> dict[str, Any]:
    """A card of 1.0 with these (url, transport); the version of the protocol is the same for all."""
    return {
        "name": name,
        "description": "",
        "version": "1",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": BINDINGS.get(transport, transport), "protocolVersion": version}
            for url, transport in interfaces
        ],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **more,
    }


def task(state: str = "TASK_STATE_COMPLETED", id: str = "t1") -> dict[str, Any]:
    """A task of 1.0 in a state."""
    return {"id": id, "contextId": "c1", "status": {"state": state}}


def result(request: Request, value: Any) -> bytes:
    """What a request asks for, as its transport wants it: a task, wrapped for a message."""
    is_rpc = request.path == "/"
    operation = request.json.get("method", "") if is_rpc else request.path
    wrapped = {"task": value} if "essage" in operation else value
    return reply({"jsonrpc": "2.0", "id": request.json["id"], "result": wrapped} if is_rpc else wrapped)


def stream(request: Request, *values: Any) -> bytes:
    """Those events as one stream, with numbers, and its end."""
    events = b"".join(event(request, value, number) for number, value in enumerate(values, 1))
    return head(200, "text/event-stream", Connection="close") + events


def event(request: Request, value: Any, number: int | None = None) -> bytes:
    """One event of a stream, as the transport of its request wants it."""
    data = {"jsonrpc": "2.0", "id": request.json["id"], "result": value} if request.path == "/" else value
    return (b"" if number is None else b"id: %d\n" % number) + b"data: " + json.dumps(data).encode() + b"\n\n"


class AgentStub(Stub):
    """A stub with a card at its usual place, so that a test answers only the rest."""

    def __init__(self, answer: Script, *transports: str, tls: ssl.SSLContext | None = None, **more: Any) -> None:
        super().__init__(self._card_or, tls)
        self.rest = answer
        self.transports = transports or ("jsonrpc",)
        self.card_headers: dict[str, str] = {}
        self.more = more

    @property
    def card(self) -> dict[str, Any]:
        """The card that is served."""
        return card(*((self.url + "/" if one == "jsonrpc" else self.url, one) for one in self.transports), **self.more)

    def _card_or(self, request: Request) -> Reply | Awaitable[Reply]:
        if request.path == CARD_PATH:
            return reply(self.card, **self.card_headers)
        return self.rest(request)
