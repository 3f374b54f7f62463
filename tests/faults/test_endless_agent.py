"""Agents that send without end: a limit for each task, whoever of us reads it."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import mcp
import pytest
from mcp.client.stdio import StdioServerParameters
from support import stub_server
from support.command import DRAGOMAN, clean_environment, dragoman
from support.server_process import ServerProcess

from dragoman import Client
from dragoman.client.cards import CardCache
from dragoman.clock import SystemClock
from dragoman.errors import ConfigError, ResponseTooLarge, TaskFailed
from dragoman.testing import served

LIMIT = 1024 * 1024
# Nothing here sends for ever: who does not stop before this has no limit. Sockets and windows hold a few MB of it.
END = 48 * LIMIT
MOST = 64 << 20  # a few times what the buffers of both ends take
PIECE = "x" * 60_000
SECONDS = 30

Json = dict[str, Any]
Send = Callable[[Any], Any]


class Endless:
    """An agent whose task never ends; `way` is how it brings more and more."""

    def __init__(self) -> None:
        self.way = "append"
        self.streams = True
        self.sent: int = 0
        self.artifacts = 0
        self.asked: list[str] = []
        self.canceled = threading.Event()
        self.left = threading.Event()

    def card(self, url: str) -> Json:
        skills = [{"id": "go", "name": "go", "description": "goes", "tags": ["x"]}]
        more: Json = {"description": "Does not stop", "capabilities": {"streaming": self.streams}, "skills": skills}
        return stub_server.card((f"{url}/", "jsonrpc"), name="endless", **more)

    def task(self, *artifacts: Json, state: str = "TASK_STATE_WORKING") -> Json:
        return {"id": "t", "contextId": "c", "status": {"state": state}, "artifacts": list(artifacts)}

    def current(self) -> Json:
        return self.task()

    def artifact(self, name: str, text: str = PIECE) -> Json:
        return {"artifactId": name, "parts": [{"text": text}]}

    async def __call__(self, scope: Any, receive: Callable[..., Any], send: Send) -> None:
        if scope["type"] != "http":
            return
        host = dict(scope["headers"])[b"host"].decode()
        if scope["method"] == "GET":
            await self._json(send, self.card(f"http://{host}"))
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        asked = json.loads(body)
        method = asked["method"]
        self.asked.append(method)
        if method in ("SendStreamingMessage", "SubscribeToTask"):
            await self._stream(receive, send)
            return
        result = self.current()
        if method == "CancelTask":
            self.canceled.set()
            result = self.task(state="TASK_STATE_CANCELED")
        elif method == "GetTask" and self.way == "polls":
            self.artifacts += 1
            result = self.task(self.artifact(f"a{self.artifacts}", PIECE * 4))
        elif self.way == "one answer":
            result = self.task(self.artifact("a", "x" * 2 * LIMIT))
        await self._json(
            send,
            {"jsonrpc": "2.0", "id": asked["id"], "result": {"task": result} if method == "SendMessage" else result},
        )

    async def _json(self, send: Send, answer: Json) -> None:
        body = json.dumps(answer).encode()
        self.sent += len(body)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, receive: Callable[..., Any], send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        packed = self.way == "gzip"
        if packed:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(receive())
        first = self._event({"task": self.task()})
        begun = self.sent
        while self.sent < END and not gone.done():
            piece = first + self._more()
            first = b""
            self.sent += len(piece)
            if packed:
                piece = gzip.compress(piece + self._more() * 64)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
            if self.way in ("breaks", "copies") and self.sent - begun > LIMIT // 3:
                break
        if gone.done():
            self.left.set()
        gone.cancel()
        await send({"type": "http.response.body", "body": b""})

    def _event(self, result: Json) -> bytes:
        return b"data: %s\n\n" % json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()

    def _more(self) -> bytes:
        if self.way == "comments":
            return b": %s\n\n" % PIECE.encode()
        if self.way == "one event":
            return b"data: %s" % PIECE.encode()
        if self.way == "statuses":
            message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": PIECE}]}
            status = {"state": "TASK_STATE_WORKING", "message": message}
            return self._event({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}})
        self.artifacts += 1
        name = f"a{self.artifacts}" if self.way in ("artifacts", "breaks") else "a"
        update = {"taskId": "t", "contextId": "c", "artifact": self.artifact(name), "append": self.way != "replace"}
        return self._event({"artifactUpdate": update})


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
def url(endless: Endless, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    # A port may have been another agent's a minute ago.
    monkeypatch.setattr("dragoman.client.connect.SHARED_CARDS", CardCache(SystemClock()))
    with served(endless) as url:
        yield url


# -- the client --------------------------------------------------------------------------------------------------------

WAYS = ["append", "replace", "artifacts", "statuses", "comments", "one event", "gzip", "breaks"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_stream_without_end_is_left_at_the_limit(endless: Endless, url: str, way: str) -> None:
    endless.way = way
    async with asyncio.timeout(SECONDS), Client(url, limit=LIMIT) as client:
        with pytest.raises(ResponseTooLarge, match=r"(larger|more) than 1 MB") as caught:
            async for _ in client.stream("go"):
                pass
    assert (caught.value.limit, caught.value.reason) == (LIMIT, "RESPONSE_TOO_LARGE")
    assert way != "append" or "raise `limit` of the Client, or `--limits-remote-bytes`" in str(caught.value)
    assert endless.sent < MOST
    assert "CancelTask" not in endless.asked
    if way != "breaks":
        assert await asyncio.to_thread(endless.left.wait, SECONDS)


async def test_send_and_subscribe_have_the_same_limit(endless: Endless, url: str) -> None:
    async with asyncio.timeout(SECONDS), Client(url, limit=LIMIT) as client:
        with pytest.raises(ResponseTooLarge):
            await client.send("go")
        with pytest.raises(ResponseTooLarge):
            async for _ in client.subscribe("t"):
                pass
    assert endless.sent < 2 * MOST


async def test_a_task_that_grows_whenever_it_is_looked_at_is_left_too(endless: Endless, url: str) -> None:
    endless.way, endless.streams = "polls", False
    async with asyncio.timeout(SECONDS), Client(url, limit=LIMIT) as client:
        with pytest.raises(ResponseTooLarge, match="more than 1 MB"):
            async for _ in client.stream("go"):
                pass
    assert endless.sent < MOST


async def test_one_answer_is_not_larger_than_the_limit(endless: Endless, url: str) -> None:
    endless.way = "one answer"
    async with asyncio.timeout(SECONDS), Client(url, limit=LIMIT) as client:
        with pytest.raises(ResponseTooLarge, match=r"larger than 1 MB.*--limits-remote-bytes"):
            await client.get_task("t")
    async with asyncio.timeout(SECONDS), Client(url, limit=3 * LIMIT) as client:
        assert len((await client.get_task("t")).text) == 2 * LIMIT


async def test_without_a_limit_a_task_is_read_to_its_end(endless: Endless, url: str) -> None:
    async with asyncio.timeout(SECONDS), Client(url, limit=None) as client:
        seen = 0
        async for event in client.stream("go"):
            seen += len(event.text)
            if seen > 8 * LIMIT:
                break
    assert seen > 8 * LIMIT


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_more_than_nothing(limit: int) -> None:
    with pytest.raises(ConfigError, match="limit is bytes above 0, or None"):
        Client("http://127.0.0.1:1", limit=limit)


class Copying(Endless):
    """Breaks off again and again, and begins each stream with the whole task; it grows a little and then ends."""

    def current(self) -> Json:
        state = "TASK_STATE_COMPLETED" if self.artifacts >= 6 else "TASK_STATE_WORKING"
        return self.task(self.artifact("a", PIECE * 8 + "y" * self.artifacts), state=state)

    async def _stream(self, receive: Callable[..., Any], send: Send) -> None:
        self.artifacts += 1
        body = self._event({"task": self.current()})
        self.sent += len(body)
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def test_a_copy_of_what_is_known_does_not_count_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.client.connect.SHARED_CARDS", CardCache(SystemClock()))
    agent = Copying()
    with served(agent) as url:
        async with asyncio.timeout(SECONDS), Client(url, limit=LIMIT) as client:
            stream = client.stream("go")
            async for _ in stream:
                pass
    assert stream.task.state.final
    assert agent.sent > 2 * LIMIT


# -- those who use it --------------------------------------------------------------------------------------------------


def test_the_command_line_leaves_a_task_without_end_and_says_how_to_cancel_it(
    endless: Endless, url: str, tmp_path: Path
) -> None:
    done = dragoman(tmp_path, "send", url, "go", "--limits-remote-bytes", str(LIMIT))
    # What was read is printed, as it came.
    assert done.returncode == 3
    assert set(done.stdout) == {"x", "\n"} and len(done.stdout) <= LIMIT
    hint, error = done.stderr.splitlines()
    assert hint == f"the task is still running; to cancel it: dragoman cancel {url} t"
    assert error.startswith("dragoman: the task has brought more than 1 MB, and nothing more of it is read.")
    assert "--limits-remote-bytes" in error
    assert endless.sent < MOST


def test_a_variable_sets_the_limit_of_the_command_line(endless: Endless, url: str, tmp_path: Path) -> None:
    for value, code in ((str(LIMIT), 3), ("much", 2)):
        environment = clean_environment(tmp_path, DRAGOMAN_LIMITS_REMOTE_BYTES=value)
        done = dragoman(tmp_path, "send", url, "go", environment=environment)
        assert done.returncode == code, done.stderr
    assert endless.sent < MOST


def test_a_server_in_front_fails_the_task_cancels_the_one_behind_and_stays(
    endless: Endless, url: str, tmp_path: Path
) -> None:
    flags = ("--limits-remote-bytes", str(LIMIT))
    with ServerProcess.serve(
        tmp_path, "--a2a", url, *flags, store=None, environment=clean_environment(tmp_path)
    ) as server:
        with pytest.raises(TaskFailed, match="sends more than 1 MB, the limit of this server"):
            asyncio.run(_called(server.url))
        assert endless.canceled.wait(SECONDS)
        assert httpx2.get(f"{server.url}/healthz", timeout=SECONDS).status_code == 200
    assert endless.sent < MOST


async def _called(url: str) -> None:
    async with asyncio.timeout(SECONDS), Client(url) as client:
        (await client.send("go")).raise_for_state()


async def test_an_mcp_host_receives_an_error_for_a_task_without_end(endless: Endless, url: str, tmp_path: Path) -> None:
    program = StdioServerParameters(
        command=DRAGOMAN[0],
        args=[*DRAGOMAN[1:], "mcp", url, "--limits-remote-bytes", str(LIMIT)],
        cwd=tmp_path,
        env=clean_environment(tmp_path),
    )
    async with asyncio.timeout(SECONDS), mcp.Client(program) as client:
        begun = await client.call_tool("send_streaming_message", {"agent_id": url, "text": "go"})
        task_id = json.loads(begun.content[0].text)["task_id"]  # pyright: ignore
        expected = await client.call_tool("subscribe_to_task", {"task_id": task_id, "wait_seconds": SECONDS})
    assert "the task has brought more than 1 MB" in str(expected)
    assert endless.sent < MOST
