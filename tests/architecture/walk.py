"""Counts the files and the Python calls of the package that one warm request passes, in all threads.

    python tests/architecture/walk.py [-v] [--steps] [send|stream|call|tool|webhook ...]

send      SendMessage over JSON-RPC 1.0, SQLite, from the ASGI scope to the response
stream    SendStreamingMessage with five chunks, SQLite
call      `Client.send` to an agent in this process, memory
tool      SendMessage that calls a tool of an MCP server object in this process, SQLite
webhook   SendMessage with a webhook, SQLite, until a receiver on loopback has been told that the task is completed

Each walk runs in a process of its own. A request is counted right after twenty that warm up, so the end of the last
of them counts with it, and so does what happens in the 50 ms after its own response. This is done five times, and the
median shown, because threads meet differently each time. Each resumption of a coroutine is a call, as Python's
profiler sees it. `--steps` lists the functions in the order of their first call. The figures are those of Python 3.11;
later versions inline comprehensions and count fewer.
Only public names of the package are used, so this can be run on any version of it (PYTHONPATH=TREE/src).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from uuid import uuid4

import dragoman
from dragoman import Agent, Client

PACKAGE = str(Path(dragoman.__file__).parent) + os.sep
WARM_UPS = 20
COUNTED = 5
SETTLE_SECONDS = 0.05
LIMIT_SECONDS = 20
COMPLETED = b"TASK_STATE_COMPLETED"

# Runs ten times a second, whatever requests there are.
NOT_COUNTED = "telemetry/loop.py"

Request = Callable[[], Awaitable[None]]


class CallCounter:
    """Counts calls of functions of the package by file, while it is on, in this thread and those begun after it."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.steps: dict[str, None] = {}
        self._is_on = False
        threading.setprofile(self._profile)

    async def count(self, request: Request) -> Counter[str]:
        """The calls that one request makes, by file."""
        self.files = Counter()
        self.steps = {}
        sys.setprofile(self._profile)
        self._is_on = True
        await request()
        await asyncio.sleep(SETTLE_SECONDS)
        self._is_on = False
        sys.setprofile(None)
        return self.files

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_on and event == "call":
            file = frame.f_code.co_filename
            if file.startswith(PACKAGE):
                file = file.removeprefix(PACKAGE)
                if file == NOT_COUNTED:
                    return
                self.files[file] += 1
                self.steps[f"{file} {frame.f_code.co_qualname}"] = None


# -- the requests ------------------------------------------------------------------------------------------------------


def echo_agent() -> Agent:
    """An agent that says back what it is told."""
    agent = Agent("walk", description="walks")

    @agent.skill
    async def echo(text: str) -> str:
        """Say it back."""
        return text

    return agent


def counting_agent() -> Agent:
    """An agent that streams five chunks."""
    agent = Agent("walk", description="walks")

    @agent.skill
    async def count(text: str) -> AsyncIterator[str]:
        """Stream five chunks."""
        for number in range(5):
            yield f"{number} {text} "

    return agent


def tool_agent() -> Agent:
    """An agent with one tool of an MCP server in this process."""
    from mcp.server import MCPServer

    server = MCPServer("walk")

    @server.tool(structured_output=False)
    async def echo(text: str) -> str:
        """Say it back."""
        return text

    return Agent.from_mcp(server)


def sqlite() -> str:
    """The address of a new, empty store."""
    return f"sqlite:///{tempfile.mkdtemp(prefix='walk-')}/tasks.db"


async def post(app: Any, method: str, part: dict[str, Any], configuration: dict[str, Any] | None = None) -> bytes:
    """Call an ASGI app with a JSON-RPC 1.0 request; the body of its response."""
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part]}
    params: dict[str, Any] = {"message": message}
    if configuration is not None:
        params["configuration"] = configuration
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    sent: list[bytes] = []
    incoming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not incoming:
            await asyncio.Event().wait()  # the caller stays connected
        return incoming.pop()

    async def send(event: dict[str, Any]) -> None:
        sent.append(event.get("body", b""))

    headers = {"content-type": "application/json", "a2a-version": "1.0", "host": "127.0.0.1"}
    headers["content-length"] = str(len(body))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return b"".join(sent)


async def expect_completed(response: Awaitable[bytes]) -> None:
    """Raise AssertionError unless a task was completed."""
    body = await response
    assert COMPLETED in body, body


class Receiver:
    """A webhook on loopback that notices the event that ends a task."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.url = ""

    async def open(self) -> None:
        """Listen on a free port."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            length = 0
            while head not in (b"\r\n", b""):
                name, _, value = head.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
                head = await reader.readline()
            body = await reader.readexactly(length)
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
            if COMPLETED in body:
                self.ended.set()


# -- the walks: each opens what it needs and gives the request that is repeated ----------------------------------------


async def send() -> Request:
    """SendMessage."""
    app = echo_agent().app(store=sqlite())
    return lambda: expect_completed(post(app, "SendMessage", {"text": "hi"}))


async def stream() -> Request:
    """SendStreamingMessage."""
    app = counting_agent().app(store=sqlite())
    return lambda: expect_completed(post(app, "SendStreamingMessage", {"text": "hi"}))


async def grpc() -> Request:
    """SendMessage over gRPC."""
    from grpc.aio import insecure_channel

    from dragoman.transports.grpc.codec import codec_of

    app, codec = echo_agent().app(store=sqlite(), grpc=0), codec_of("lf.a2a.v1")
    await app.start()
    method = insecure_channel(app.grpc_address).unary_unary("/lf.a2a.v1.A2AService/SendMessage")

    async def request() -> None:
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        body = await method(codec.encode("SendMessageRequest", {"message": message}))
        assert codec.decode("SendMessageResponse", body)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

    return request


async def call() -> Request:
    """`Client.send`."""
    client = Client(echo_agent())

    async def request() -> None:
        answer = await client.send("hi")
        assert answer.text == "hi", answer

    return request


async def tool() -> Request:
    """A tool call."""
    app = tool_agent().app(store=sqlite())
    part = {"data": {"tool": "echo", "arguments": {"text": "hi"}}}
    return lambda: expect_completed(post(app, "SendMessage", part))


async def webhook() -> Request:
    """SendMessage with a webhook."""
    receiver = Receiver()
    await receiver.open()
    app = echo_agent().app(store=sqlite(), push_allow="127.0.0.1")
    configuration = {"taskPushNotificationConfig": {"url": receiver.url}}

    async def request() -> None:
        receiver.ended.clear()
        await expect_completed(post(app, "SendMessage", {"text": "hi"}, configuration))
        await asyncio.wait_for(receiver.ended.wait(), LIMIT_SECONDS)

    return request


WALKS = {walk.__name__: walk for walk in (send, stream, grpc, call, tool, webhook)}


class Walk(NamedTuple):
    """What one warm request does: its calls by file, and its functions in the order of their first call."""

    files: dict[str, int]
    steps: list[str]


async def measure(name: str) -> Walk:
    """The calls of one warm request."""
    counter = CallCounter()  # before the store starts its threads
    request = await WALKS[name]()
    walks: list[Counter[str]] = []
    for _ in range(COUNTED):
        for _ in range(WARM_UPS):
            await request()
        walks.append(await counter.count(request))
    await counter.count(request)  # nothing is left of the one before: these are its own steps, from the first on
    return Walk(sorted(walks, key=Counter.total)[COUNTED // 2], list(counter.steps))


def measured_apart(name: str) -> Walk:
    """The calls of one warm request, in a process of its own."""
    command = [sys.executable, __file__, "--json", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * LIMIT_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Walk(*json.loads(done.stdout))


def main(words: list[str]) -> None:
    """Show what the command line asks for."""
    names = [word for word in words if not word.startswith("-")]
    if "--json" in words:
        print(json.dumps(asyncio.run(measure(names[0]))), flush=True)
        os._exit(0)  # apps were never told to stop: their threads would be waited for
    for name in names or WALKS:
        files, steps = measured_apart(name)
        if "-v" in words:
            for file, calls in sorted(files.items()):
                print(f"  {calls:4} {file}")
        if "--steps" in words:
            print("", *steps, sep="\n  ")
        print(f"{name}: {len(files)} files, {sum(files.values())} calls")


if __name__ == "__main__":
    # The log is not part of a walk; an MCP server in this process would turn it on.
    logging.getLogger("dragoman").setLevel(logging.WARNING)
    main(sys.argv[1:])
