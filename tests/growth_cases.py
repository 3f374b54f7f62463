"""What strangers may repeat, and what it costs: each case does with `n` of something what a server or a client does.

`python tests/growth_cases.py` measures all of them, and prints the table of docs/architecture.md.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any
from uuid import uuid4

from dragoman import Agent
from dragoman.agents.mcp_tools.stdio import parse_header, truncate_depth
from dragoman.cli.talk.text_display import TextDisplay
from dragoman.client.cards import parse_max_age
from dragoman.dialects.cards.rules.validate import card_problems
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import fold
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus
from dragoman.net.connection import HttpConnection
from dragoman.net.exchange import HttpRequest
from dragoman.schema.arguments import Schema
from dragoman.telemetry.printable import json_escaped, one_line
from dragoman.transports.grpc.codec import codec_of
from dragoman.transports.sse import SseReader

Work = Callable[[], object]
TIMES = 8
"""How many times as much is repeated in the second measurement."""
MOST = 3 * TIMES
"""How many times as long that may take: three times as long as linear, and far from the 64 of what is quadratic."""
UNNOTICED = 0.003
"""Seconds below which a measurement says nothing."""


class InProcess:
    """An agent in this process, called with ASGI messages as a stranger may make them."""

    def __init__(self) -> None:
        agent = Agent("echo", description="Says it again")

        @agent.skill
        async def say(text: str) -> str:
            return text[:10]

        self.loop = asyncio.new_event_loop()
        limits = {"parts": 10**7, "rate": 0, "values": 10**8, "body": 10**8, "keep_tasks": 10}
        self._app = agent.app(store="memory:", limits=limits, open_list=True)
        self.loop.run_until_complete(self._app.start())

    def close(self) -> None:
        self.loop.run_until_complete(self._app.stop())
        self.loop.close()

    def post(
        self, body: bytes, path: str = "/", headers: Any = (), query: bytes = b"", version: bytes = b"1.0"
    ) -> Work:
        """Return what sends a request."""
        plain = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"a2a-version", version)]
        method = "POST" if body else "GET"
        scope = {"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path}
        scope |= {"raw_path": path.encode(), "query_string": query, "headers": [*plain, *headers]}
        scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}

        async def call() -> None:
            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": body}

            async def send(message: dict[str, Any]) -> None:
                pass

            await self._app(dict(scope), receive, send)

        return lambda: self.loop.run_until_complete(call())


def rpc(method: str = "SendMessage", **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def sent(**fields: Any) -> bytes:
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hi"}], **fields}
    return rpc(message=message, configuration={"returnImmediately": True})


def sent_03(**fields: Any) -> bytes:
    parts = [{"kind": "text", "text": "hi"}]
    message = {"messageId": str(uuid4()), "kind": "message", "role": "user", "parts": parts, **fields}
    return rpc("message/send", message=message, configuration={"blocking": False})


def raw_sent(text: bytes) -> bytes:
    """A message with something in it that is written by hand."""
    return sent(metadata={"x": "HERE"}).replace(b'"HERE"', text)


SERVER: dict[str, tuple[int, Callable[[InProcess, int], Work]]] = {
    "one header, repeated": (5000, lambda at, n: at.post(sent(), headers=[(b"x-a", b"y" * 100)] * n)),
    "different headers": (5000, lambda at, n: at.post(sent(), headers=[(b"x-%d" % i, b"y") for i in range(n)])),
    "cookies": (5000, lambda at, n: at.post(sent(), headers=[(b"cookie", b"user=1; " * n)])),
    "A2A-Extensions": (
        5000,
        lambda at, n: at.post(sent(), headers=[(b"a2a-extensions", b"https://e.example/x, " * n)]),
    ),
    "different extensions": (
        3000,
        lambda at, n: at.post(
            sent(), headers=[(b"a2a-extensions", b",".join(b"https://e.x/%d" % i for i in range(n)))]
        ),
    ),
    "A2A-Version": (5000, lambda at, n: at.post(sent(), headers=[(b"a2a-version", b"1.0, " * n)])),
    "Accept": (5000, lambda at, n: at.post(b"", headers=[(b"accept", b"text/html;q=0.9, " * n)])),
    "If-None-Match": (
        5000,
        lambda at, n: at.post(b"", "/.well-known/agent-card.json", headers=[(b"if-none-match", b'"abc", ' * n)]),
    ),
    "Authorization": (5000, lambda at, n: at.post(sent(), headers=[(b"authorization", b"Bearer a " * n)])),
    "X-Forwarded-For": (5000, lambda at, n: at.post(sent(), headers=[(b"x-forwarded-for", b"10.0.0.1, " * n)])),
    "baggage and tracestate": (
        5000,
        lambda at, n: at.post(
            sent(),
            headers=[(b"traceparent", b"00-" + b"a" * n), (b"baggage", b"a=b;c=d," * n), (b"tracestate", b"a=b," * n)],
        ),
    ),
    "query, one name": (5000, lambda at, n: at.post(b"", "/tasks", query=b"pageSize=1&" * n)),
    "query, different names": (
        5000,
        lambda at, n: at.post(b"", "/tasks", query=b"&".join(b"x%d=1" % i for i in range(n))),
    ),
    "segments of a path": (5000, lambda at, n: at.post(b"", "/a" * n)),
    "escapes in a path": (5000, lambda at, n: at.post(b"", "/tasks/" + "%25" * n)),
    "parts": (3000, lambda at, n: at.post(sent(parts=[{"text": "x"}] * n))),
    "data parts": (3000, lambda at, n: at.post(sent(parts=[{"data": {"a": 1}}] * n))),
    "parts in 0.3": (3000, lambda at, n: at.post(sent_03(parts=[{"kind": "text", "text": "x"}] * n), version=b"0.3")),
    "unknown fields of parts in 0.3": (
        3000,
        lambda at, n: at.post(sent_03(parts=[{"kind": "text", "text": "x", "some_thing": 1}] * n), version=b"0.3"),
    ),
    "one JSON key, repeated": (20_000, lambda at, n: at.post(raw_sent(b"{" + b'"a":1,' * n + b'"b":2}'))),
    "different JSON keys": (20_000, lambda at, n: at.post(sent(metadata={f"k{i}": i for i in range(n)}))),
    "one key of the message, repeated": (
        20_000,
        lambda at, n: at.post(sent().replace(b'"role"', b'"contextId":"c",' * n + b'"role"')),
    ),
    "unknown fields": (20_000, lambda at, n: at.post(sent(**{f"k{i}": i for i in range(n)}))),
    "nested lists": (20_000, lambda at, n: at.post(raw_sent(b"[" * n + b"]" * n))),
    "nested objects": (20_000, lambda at, n: at.post(raw_sent(b'{"a":' * n + b"1" + b"}" * n))),
    "backslashes": (50_000, lambda at, n: at.post(raw_sent(b'"' + b"\\\\" * n + b'"'))),
    "quotes": (50_000, lambda at, n: at.post(raw_sent(b'"' + b'\\"[' * n + b'"'))),
    "digits": (20_000, lambda at, n: at.post(raw_sent(b"1" * n))),
    "spaces": (50_000, lambda at, n: at.post(b" " * n + sent())),
    "a batch": (2000, lambda at, n: at.post(b"[" + b",".join([sent()] * n) + b"]")),
    "referenceTaskIds": (5000, lambda at, n: at.post(sent(referenceTaskIds=[f"t{i}" for i in range(n)]))),
    "extensions of a message": (5000, lambda at, n: at.post(sent(extensions=[f"https://e.x/{i}" for i in range(n)]))),
    "acceptedOutputModes": (
        5000,
        lambda at, n: at.post(
            rpc(message=json.loads(sent())["params"]["message"], configuration={"acceptedOutputModes": ["text/x"] * n})
        ),
    ),
    "a long text": (500_000, lambda at, n: at.post(sent(parts=[{"text": "ab " * n}]))),
    "a long method": (50_000, lambda at, n: at.post(rpc("x" * n))),
}

TASK = Task("t", "c", TaskStatus(State.WORKING))


def _chunk(text: str, artifact: str = "a") -> ArtifactUpdate:
    return ArtifactUpdate("t", "c", Artifact(artifact, (Part(text=text),)), append=True)


def _statuses(n: int) -> list[StatusUpdate]:
    messages = [Message(f"m{i}", Role.AGENT, (Part(text=str(i)),), metadata={"progress": i}) for i in range(n)]
    return [StatusUpdate("t", "c", TaskStatus(State.WORKING, each)) for each in messages]


def _fed(pieces: list[bytes]) -> Work:
    def feed() -> None:
        reader = SseReader()
        for piece in pieces:
            reader.feed(piece)

    return feed


def _card(**more: Any) -> bytes:
    card = {
        **{"name": "x", "description": "", "version": "1", "skills": [], "capabilities": {}},
        **{"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]},
        "supportedInterfaces": [{"url": "https://e.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    }
    return json.dumps(card | more).encode()


def _skill(number: int) -> dict[str, Any]:
    return {"id": f"s{number}", "name": "x", "description": "", "tags": ["a"]}


def _response(head: bytes) -> Work:
    async def read() -> None:
        class Transport(asyncio.Transport):
            def write(self, data: Any) -> None:
                pass

            def abort(self) -> None:
                pass

            def is_closing(self) -> bool:
                return False

        buffer = memoryview(bytearray(len(head)))
        connection = HttpConnection(lambda _: None, buffer)
        connection.connection_made(Transport())
        connection.send(b"", HttpRequest("GET", "http://127.0.0.1/"))
        buffer[:] = head
        connection.buffer_updated(len(head))

    return lambda: asyncio.run(read())


def _shown(text: str) -> Work:
    def show() -> None:
        with redirect_stdout(StringIO()):
            display = TextDisplay(renders=True)
            for start in range(0, len(text), 1000):
                display.add(text[start : start + 1000])
            display.end()

    return show


def _checked(schema: dict[str, Any], value: Any) -> Work:
    return lambda: Schema(schema).problems(value)


_CODEC = codec_of("lf.a2a.v1")
_LEVELS = {"levels": 100, "values": 10**9}


def _decoded(message: dict[str, Any], *, tail: bytes = b"") -> Work:
    data = _CODEC.encode("SendMessageRequest", {"message": message}) + tail
    return lambda: _CODEC.decode("SendMessageRequest", data, **_LEVELS)


OTHERS: dict[str, tuple[int, Callable[[int], Work]]] = {
    "gRPC: parts": (3000, lambda n: _decoded({"messageId": "m", "parts": [{"text": "x"}] * n})),
    "gRPC: keys of a Struct": (
        3000,
        lambda n: _decoded({"messageId": "m", "metadata": {f"k{i}": 1 for i in range(n)}}),
    ),
    "gRPC: unknown fields": (5000, lambda n: _decoded({"messageId": "m"}, tail=b"\xc2\x3e\x01x" * n)),
    "gRPC: one field, repeated": (5000, lambda n: _decoded({"messageId": "m"}, tail=b"\x0a\x03\x0a\x01m" * n)),
    "chunks of one artifact": (20_000, lambda n: lambda: fold(TASK, [_chunk("abc")] * n)),
    "artifacts": (20_000, lambda n: lambda: fold(TASK, [_chunk("abc", f"a{i}") for i in range(n)])),
    "status messages": (10_000, lambda n: lambda: fold(TASK, _statuses(n))),
    "SSE: lines of one event": (30_000, lambda n: _fed([b"data: x\n" * n + b"\n"])),
    "SSE: fields nobody knows": (30_000, lambda n: _fed([b"x: y\n" * n + b"data: x\n\n"])),
    "SSE: events": (30_000, lambda n: _fed([b"data: x\n\n" * n])),
    "SSE: an event in tiny pieces": (30_000, lambda n: _fed([b"data: "] + [b"x"] * n + [b"\n\n"])),
    "SSE: newlines of Macs in tiny pieces": (30_000, lambda n: _fed([b"data: x\r"] * n)),
    "SSE: comments": (30_000, lambda n: _fed([b": x\n"] * n)),
    "response: one header, repeated": (3000, lambda n: _response(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * n + b"\r\n")),
    "response: trailers": (
        3000,
        lambda n: _response(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: yyyyyyyyyy\r\n" * n + b"\r\n"
        ),
    ),
    "response: Cache-Control": (50_000, lambda n: lambda: parse_max_age("max-age " * n)),
    "card: skills": (1000, lambda n: lambda: card_problems(_card(skills=[_skill(i) for i in range(n)]))),
    "card: the same skill": (1000, lambda n: lambda: card_problems(_card(skills=[_skill(1)] * n))),
    "card: interfaces": (
        1000,
        lambda n: (
            lambda: card_problems(_card(supportedInterfaces=[{"url": f"https://e.example/{i}"} for i in range(n)]))
        ),
    ),
    "schema: uniqueItems": (
        300,
        lambda n: _checked(
            {"properties": {"a": {"type": "array", "uniqueItems": True}}}, {"a": [{"x": i} for i in range(n)]}
        ),
    ),
    "schema: items that are wrong": (
        3000,
        lambda n: _checked({"properties": {"a": {"items": {"type": "string"}}}}, {"a": list(range(n))}),
    ),
    "schema: unknown arguments": (
        3000,
        lambda n: _checked({"properties": {}, "additionalProperties": False}, {f"k{i}": 1 for i in range(n)}),
    ),
    "schema: a pattern": (
        3000,
        lambda n: _checked({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * n + "b"}),
    ),
    "MCP: brackets": (30_000, lambda n: lambda: truncate_depth(b"[" * n + b"]" * n)),
    "MCP: members of a head": (30_000, lambda n: lambda: parse_header(b'{"id":1,' * n)),
    "terminal: paragraphs": (100, lambda n: _shown("some *words* of it\n\n" * n)),
    "terminal: one paragraph": (100, lambda n: _shown("some *words* of it\n" * n)),
    "terminal: brackets": (300, lambda n: _shown("[" * n)),
    "terminal: stars": (300, lambda n: _shown("*a_" * n)),
    "terminal: quotes": (300, lambda n: _shown("> " * n + "a")),
    "terminal: lists": (100, lambda n: _shown("- a\n" * n)),
    "control characters": (50_000, lambda n: lambda: one_line("\x1b[2J\n" * n)),
    "control characters in JSON": (50_000, lambda n: lambda: json_escaped('"\u202e"' * n)),
}


def seconds(work: Work, rounds: int = 3) -> float:
    """The CPU time of this thread that something takes, at best."""
    best = float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            began = time.thread_time()
            work()
            best = min(best, time.thread_time() - began)
    finally:
        gc.enable()
    return best


def growth(make: Callable[[int], Work], n: int) -> tuple[float, float]:
    """The seconds for `n`, and for eight times as many."""
    return seconds(make(n)), seconds(make(TIMES * n))


def cases(at: InProcess) -> Iterator[tuple[str, int, Callable[[int], Work]]]:
    """All cases: the name, how many to begin with, and what makes the work."""
    for name, (n, make) in SERVER.items():
        yield name, n, lambda count, make=make: make(at, count)
    for name, (n, make) in OTHERS.items():
        yield name, n, make


def main() -> None:
    """Print the table."""
    logging.disable()
    at = InProcess()
    print("| repeated | n | ms for n | ms for 8 n | times |\n|---|---|---|---|---|")
    for name, n, make in cases(at):
        try:
            few, many = growth(make, n)
        except Exception as error:  # noqa: BLE001 - the table says so
            print(f"| {name} | {n:,} | {type(error).__name__}: {error}")
            continue
        print(f"| {name} | {n:,} | {1000 * few:.2f} | {1000 * many:.2f} | {many / few:.1f} |", flush=True)
    at.close()


if __name__ == "__main__":
    main()
