"""HTTP without a network: an app in this process behaves like one behind a port."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.errors import BadResponse, CannotConnect
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}


class App:
    """An app that counts its starts, and answers with what `answer` does."""

    def __init__(self, answer: Any = None, starts: Any = None) -> None:
        self.answer = answer
        self.starts = starts
        self.started = self.stopped = 0
        self.scopes: list[Any] = []
        self.gone = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            if self.starts is not None:
                await self.starts()
            self.started += 1
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.stopped += 1
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.scopes.append(scope)
        assert self.started == 1
        if self.answer is not None:
            await self.answer(receive, send, self)
            return
        body = (await receive())["body"]
        await send(START)
        await send({"type": "http.response.body", "body": b"got " + body})


async def read(http: AsgiClient, body: bytes | None = b"it", **more: Any) -> bytes:
    response = await http.send(HttpRequest("POST", "http://user@app.example/a%20b?c=d", {"X-Own": "1"}, body, **more))
    return await response.read()


async def test_a_request_reaches_the_app_as_a_server_would_hand_it_over() -> None:
    app = App()
    http = AsgiClient(app)
    assert await read(http) == b"got it"
    (scope,) = app.scopes
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c=d")
    assert dict(scope["headers"]) == {b"host": b"app.example", b"x-own": b"1", b"content-length": b"2"}
    await http.close()
    assert (app.started, app.stopped) == (1, 1)


async def test_many_first_requests_start_the_app_once_and_wait_until_it_has() -> None:
    go_on = asyncio.Event()
    app = App(starts=go_on.wait)
    http = AsgiClient(app)
    requests = [asyncio.ensure_future(read(http)) for _ in range(10)]
    await asyncio.sleep(0)
    # One that loses patience takes nothing from the others.
    requests[0].cancel()
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*requests[1:]) == [b"got it"] * 9
    await http.close()
    assert (app.started, app.stopped) == (1, 1)


async def test_an_app_that_does_not_start_is_an_error_every_time() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    http = AsgiClient(app)
    for _ in range(2):
        with pytest.raises(CannotConnect, match="did not start: no database") as caught:
            await read(http)
        assert caught.value.arrived is False
    await http.close()


def test_another_app_is_built_after_a_close_and_on_another_event_loop() -> None:
    apps: list[App] = []

    def build() -> App:
        apps.append(App())
        return apps[-1]

    http = AsgiClient(build(), build)

    async def read_twice_and_close() -> None:
        await read(http)
        await read(http)
        await http.close()

    asyncio.run(read_twice_and_close())
    asyncio.run(read_twice_and_close())
    asyncio.run(read(http))  # nobody closes it
    asyncio.run(read_twice_and_close())
    assert [app.started for app in apps] == [1, 1, 1, 1]
    assert [app.stopped for app in apps] == [1, 1, 0, 1]


async def test_an_app_without_a_lifespan_is_called_all_the_same() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    http = AsgiClient(app)
    assert await read(http) == b""
    await http.close()


async def test_an_app_that_breaks_is_a_lost_connection() -> None:
    async def before(receive: Any, send: Any, app: App) -> None:
        raise ValueError("broken")

    async def within(receive: Any, send: Any, app: App) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("broken")

    async def short(receive: Any, send: Any, app: App) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    for answer in (before, within, short):
        http = AsgiClient(App(answer))
        with pytest.raises(CannotConnect) as caught:
            await read(http)
        assert caught.value.reason == "CONNECTION_LOST"
        await http.close()


async def test_an_app_that_says_nothing_is_given_up_after_the_silence() -> None:
    async def never(receive: Any, send: Any, app: App) -> None:
        await asyncio.Event().wait()

    async def no_more(receive: Any, send: Any, app: App) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await asyncio.Event().wait()

    for answer in (never, no_more):
        http = AsgiClient(App(answer))
        with pytest.raises(CannotConnect, match="nothing for 0") as caught:
            await read(http, read_timeout=0.05)
        assert caught.value.reason == "TIMED_OUT"
        await http.close()


async def test_chunks_arrive_as_they_are_sent_and_an_app_ahead_of_its_reader_waits() -> None:
    sent = 0

    async def endless(receive: Any, send: Any, app: App) -> None:
        nonlocal sent
        await send(START)
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                sent += 1
        except OSError:
            app.gone.set()

    app = App(endless)
    http = AsgiClient(app)
    response = await http.send(HttpRequest("GET", "http://app.example/"))
    chunks = response.chunks()
    assert await anext(chunks) == b"x"
    for _ in range(200):
        await asyncio.sleep(0)
    assert sent < 100
    await response.close()
    async with asyncio.timeout(10):
        await app.gone.wait()
    await http.close()


async def test_an_answer_is_read_up_to_the_limit() -> None:
    http = AsgiClient(App())
    response = await http.send(HttpRequest("POST", "http://app.example/", {}, b"x" * 100))
    with pytest.raises(BadResponse, match="larger than 100 bytes"):
        await response.read(100)
    await http.close()


async def test_headers_are_found_in_any_case() -> None:
    http = AsgiClient(App())
    response = await http.send(HttpRequest("GET", "http://app.example/"))
    assert response.headers["Content-Type"] == response.headers.get("content-TYPE") == "text/plain"
    assert "CONTENT-type" in response.headers
    assert response.headers.get("x", "none") == "none"
    await response.read()
    await http.close()
