"""Agents that misbehave."""

from __future__ import annotations

import asyncio
import http.client
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pytest

from dragoman.testing import faults, served
from dragoman.testing.faults import GARBAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM = [
    b": alive\n\n",
    b"id: 1\ndata: one\n\nid: 2\nda",
    b"ta: two\n",
    b"\nid: 3\ndata: three\n\n",
    b"data: four\n\n",
]


class Streamer:
    """Streams on POST /stream, answers JSON elsewhere."""

    def __init__(self, chunks: list[bytes] | None = None) -> None:
        self.chunks = STREAM if chunks is None else chunks
        self.settings: dict[str, Any] = {}
        self.requests: list[str] = []

    def app(self, **settings: Any) -> Any:
        self.settings = settings
        return self._answer

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        while (await receive()).get("more_body"):
            pass
        self.requests.append(scope["path"])
        streams = scope["path"] == "/stream"
        kind = b"text/event-stream; charset=utf-8" if streams else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", kind)]})
        for chunk in self.chunks if streams else [b'{"ok":', b"true}"]:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def connected(app: Any) -> Iterator[http.client.HTTPConnection]:
    with served(app) as url:
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=10)
        try:
            yield connection
        finally:
            connection.close()


def read(connection: http.client.HTTPConnection, method: str, path: str) -> tuple[bytes, bool]:
    """The body, and whether it came to its end."""
    connection.request(method, path, b"{}" if method == "POST" else None)
    response = connection.getresponse()
    try:
        return response.read(), True
    except http.client.IncompleteRead as error:
        return error.partial, False
    finally:
        response.close()


def test_without_faults_everything_passes() -> None:
    with connected(faults(Streamer())) as connection:
        assert read(connection, "POST", "/stream") == (b"".join(STREAM), True)
        assert read(connection, "GET", "/card") == (b'{"ok":true}', True)


@pytest.mark.parametrize(
    ("events", "body"),
    [
        (0, b""),
        (1, b": alive\n\nid: 1\ndata: one\n\n"),
        (2, b": alive\n\nid: 1\ndata: one\n\nid: 2\ndata: two\n\n"),
        (4, b"".join(STREAM)),
    ],
)
def test_a_stream_is_cut_right_after_that_many_events(events: int, body: bytes) -> None:
    with connected(faults(Streamer(), cut_after=events)) as connection:
        assert read(connection, "POST", "/stream") == (body, False)


def test_a_shorter_stream_ends_as_it_should() -> None:
    with connected(faults(Streamer(), cut_after=5)) as connection:
        assert read(connection, "POST", "/stream") == (b"".join(STREAM), True)


def test_every_stream_is_cut_anew_and_other_answers_are_whole() -> None:
    app = faults(Streamer(), cut_after=1)
    with connected(app) as connection:
        for _ in range(2):
            assert read(connection, "POST", "/stream")[1] is False
            connection.close()
            assert read(connection, "POST", "/") == (b'{"ok":true}', True)


def test_events_are_counted_whatever_ends_their_lines() -> None:
    chunks = [b"data: 1\r\ndata: more\r\n\r\n", b"data: 2\r\r", b"data: 3\n\n"]
    with connected(faults(Streamer(chunks), cut_after=2)) as connection:
        assert read(connection, "POST", "/stream") == (chunks[0] + chunks[1], False)


def test_posts_are_answered_with_garbage_and_do_nothing() -> None:
    agent = Streamer()
    with connected(faults(agent, garbage=True)) as connection:
        body, whole = read(connection, "POST", "/")
        assert (body, whole) == (GARBAGE, True)
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(body)
        assert read(connection, "GET", "/card") == (b'{"ok":true}', True)
    assert agent.requests == ["/card"]


async def test_an_answer_is_late_although_the_work_is_done_at_once() -> None:
    worked = asyncio.Event()
    sent: list[Any] = []

    async def working(scope: Any, receive: Any, send: Any) -> None:
        worked.set()
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    answer = asyncio.create_task(faults(working, delay=3600)({"type": "http", "method": "GET"}, send, send))
    await worked.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert sent == []
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer


def test_a_late_answer_is_whole() -> None:
    with connected(faults(Streamer(), delay=0.001)) as connection:
        assert read(connection, "POST", "/stream") == (b"".join(STREAM), True)


def test_faults_can_be_combined() -> None:
    with connected(faults(Streamer(), delay=0.001, cut_after=1)) as connection:
        assert read(connection, "POST", "/stream") == (b": alive\n\nid: 1\ndata: one\n\n", False)


async def test_an_app_that_swallows_the_cut_is_cut_all_the_same() -> None:
    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        try:
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        except OSError:
            return

    async def send(message: Any) -> None:
        pass

    with pytest.raises(ConnectionResetError):
        await faults(stubborn, cut_after=1)({"type": "http", "method": "POST"}, send, send)


def test_settings_reach_the_agent_which_keeps_its_tasks_in_memory() -> None:
    agent = Streamer()
    faults(agent, garbage=True, dedupe=5)
    assert agent.settings == {"store": "memory:", "drain": 1, "dedupe": 5}
