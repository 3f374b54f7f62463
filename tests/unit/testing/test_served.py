"""A real port for a test."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import pytest

from dragoman.testing import served


async def hello(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello from " + scope["path"].encode()})


class Living:
    """An app that tells how far its lifespan has come."""

    def __init__(self, *, refuses: str | None = None, raises: Exception | None = None) -> None:
        self.refuses = refuses
        self.raises = raises
        self.life: list[str] = []
        self.thread: threading.Thread | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.life.append("request")
            await hello(scope, receive, send)
            return
        self.thread = threading.current_thread()
        while (message := await receive())["type"] != "lifespan.shutdown":
            self.life.append(message["type"])
            if self.refuses is not None:
                await send({"type": "lifespan.startup.failed", "message": self.refuses})
                if self.raises is not None:
                    raise self.raises
                return
            await send({"type": "lifespan.startup.complete"})
        self.life.append("lifespan.shutdown")
        await send({"type": "lifespan.shutdown.complete"})


class Giver:
    """Something with an `app`, like an agent."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}

    def app(self, **settings: Any) -> Any:
        self.settings = settings
        return hello


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read()


def test_an_app_answers_on_a_real_port_until_the_block_ends() -> None:
    with served(hello) as url:
        assert urlsplit(url).hostname == "127.0.0.1"
        assert url == f"http://127.0.0.1:{urlsplit(url).port}"
        assert get(f"{url}/x") == b"hello from /x"
    with pytest.raises(urllib.error.URLError):
        get(url)


def test_two_servers_have_two_ports() -> None:
    with served(hello) as one, served(hello) as two:
        assert one != two
        assert get(one) == get(two) == b"hello from /"


async def test_it_serves_a_test_that_has_an_event_loop_of_its_own() -> None:
    with served(hello) as url:
        assert await asyncio.to_thread(get, url) == b"hello from /"


def test_the_app_starts_before_the_first_request_and_stops_at_the_end() -> None:
    app = Living()
    with served(app) as url:
        assert app.life == ["lifespan.startup"]
        get(url)
    assert app.life == ["lifespan.startup", "request", "lifespan.shutdown"]
    assert app.thread is not None
    assert not app.thread.is_alive()


def test_an_app_that_refuses_to_start_raises_its_reason() -> None:
    with pytest.raises(RuntimeError, match="no disk left"), served(Living(refuses="no disk left")):
        pytest.fail("it started")


def test_the_exception_behind_a_refusal_is_raised_itself() -> None:
    app = Living(refuses="the traceback as text", raises=LookupError("no such agent"))
    with pytest.raises(LookupError, match="no such agent"), served(app):
        pytest.fail("it started")


def test_an_exception_of_the_test_still_stops_the_server() -> None:
    app = Living()
    with pytest.raises(ZeroDivisionError), served(app):
        raise ZeroDivisionError
    assert app.life[-1] == "lifespan.shutdown"


def test_an_agent_is_served_from_memory_by_default() -> None:
    giver = Giver()
    with served(giver) as url:
        assert get(url) == b"hello from /"
    assert giver.settings == {"store": "memory:", "drain": 1}
    with served(giver, store="sqlite:///x.db", drain=2, dedupe=0):
        assert giver.settings == {"store": "sqlite:///x.db", "drain": 2, "dedupe": 0}


def test_an_app_is_taken_as_it_is_although_it_has_one_inside() -> None:
    class Middleware:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await self.app({**scope, "path": "/inside"}, receive, send)

    with served(Middleware(hello)) as url:
        assert get(url) == b"hello from /inside"


def test_settings_for_an_app_that_takes_none_are_an_error() -> None:
    with pytest.raises(TypeError, match="takes no settings: store"), served(hello, store="memory:"):
        pytest.fail("it started")


def test_a_request_that_never_ends_does_not_keep_the_server_from_stopping() -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await asyncio.Event().wait()

    with served(endless) as url, socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), 10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(9) == b"HTTP/1.1 "
