"""A server on a real port that says, byte by byte, what a test wants it to say."""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, NamedTuple

CARD_PATH = "/.well-known/agent-card.json"


class Got(NamedTuple):
    """A request as it arrived; the names of its headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message_id(self) -> str:
        said = self.json
        return said.get("params", said)["message"]["messageId"]


class Close:
    """Close the connection without a word."""


class Reset:
    """Break the connection off."""


class Hold:
    """Say nothing at all, until the caller leaves."""


class After:
    """Say that, then do the other: close, reset or hold."""

    def __init__(self, words: bytes, then: type) -> None:
        self.words = words
        self.then = then


Said = bytes | After | AsyncIterator[bytes] | type


class Stub:
    """Answers every request with what `answer` gives for it, and keeps what arrived. Used as `async with`."""

    def __init__(self, answer: Callable[[Got], Any], tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.got: list[Got] = []
        self.connections = 0
        self.sent = 0
        self.url = ""
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.left = asyncio.Event()

    async def __aenter__(self) -> Stub:
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
        return [got.path for got in self.got if method in ("", got.method)]

    @property
    def posts(self) -> list[Got]:
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
        got = Got(method, path, headers, body)
        self.got.append(got)
        said = self.answer(got)
        if inspect.isawaitable(said):
            said = await said
        return await self._say(said, reader, writer)

    async def _say(self, said: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if said is Close:
            return False
        if said is Reset:
            writer.transport.abort()
            return False
        if said is Hold:
            await reader.read()
            return False
        if isinstance(said, After):
            writer.write(said.words)
            await writer.drain()
            return await self._say(said.then, reader, writer)
        if isinstance(said, bytes):
            writer.write(said)
            await writer.drain()
            return b"connection: close" not in said.partition(b"\r\n\r\n")[0].lower()
        async for chunk in said:
            writer.write(chunk)
            self.sent += len(chunk)
            await writer.drain()
        return False


# -- what a server says ----------------------------------------------------------------------------------------------


def reply(body: Any = b"", status: int = 200, kind: str = "application/json", **headers: str) -> bytes:
    """A whole HTTP answer; what is not bytes is written as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(data)}"]
    if kind:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def head(status: int = 200, kind: str = "application/json", **headers: str) -> bytes:
    """The head of an answer whose body is said by other means."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """One chunk of a body without a length."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def html(status: int = 200) -> bytes:
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
    return {"id": id, "contextId": "c1", "status": {"state": state}}


def result(got: Got, value: Any) -> bytes:
    """What a request asks for, as its transport wants it: a task, wrapped for a message."""
    wrapped = {"task": value} if "essage" in (got.json.get("method", "") if got.path == "/" else got.path) else value
    if got.path == "/":
        return reply({"jsonrpc": "2.0", "id": got.json["id"], "result": wrapped})
    return reply(wrapped)


def stream(got: Got, *values: Any) -> bytes:
    """Those events as one stream, with numbers, and its end."""
    events = b"".join(event(got, value, number) for number, value in enumerate(values, 1))
    return head(200, "text/event-stream", Connection="close") + events


def event(got: Got, value: Any, number: int | None = None) -> bytes:
    said = {"jsonrpc": "2.0", "id": got.json["id"], "result": value} if got.path == "/" else value
    return (b"" if number is None else b"id: %d\n" % number) + b"data: " + json.dumps(said).encode() + b"\n\n"


class AgentStub(Stub):
    """A stub with a card at its usual place, so that only the rest need be said."""

    def __init__(
        self, answer: Callable[[Got], Any], *transports: str, tls: ssl.SSLContext | None = None, **more: Any
    ) -> None:
        super().__init__(self._card_or, tls)
        self.rest = answer
        self.transports = transports or ("jsonrpc",)
        self.card_headers: dict[str, str] = {}
        self.more = more

    @property
    def card(self) -> dict[str, Any]:
        return card(*((self.url + "/" if one == "jsonrpc" else self.url, one) for one in self.transports), **self.more)

    def _card_or(self, got: Got) -> Any:
        if got.path == CARD_PATH:
            return reply(self.card, **self.card_headers)
        return self.rest(got)
