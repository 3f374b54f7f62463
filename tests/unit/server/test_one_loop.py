"""An app starts once and lives on one event loop: what happens on another one, after a stop, and after a failure."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from dragoman import Agent, Client, sync
from dragoman.errors import CannotConnect, ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from dragoman.server.http.app import App

CARD = "/.well-known/agent-card.json"
MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
RPC = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": MESSAGE}
OTHER_LOOP = r"started on another event loop, .*: run it with its lifespan, .*`with` block, .*`agent.app\(\)` is cheap"
STOPPED = r"was stopped, and an app starts once: build another one, .*`agent.app\(\)`"
SECONDS = 10


def make_agent() -> Agent:
    agent = Agent("echo", description="Says it again")

    @agent.skill
    def say(text: str) -> str:
        return text

    return agent


def make_app(**settings: Any) -> App:
    return make_agent().app(store="memory:", drain=0, **settings)


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the server has logged as an error."""
    return lambda: [
        each.getMessage() for each in caplog.records if each.name == "dragoman.server" and each.levelno >= logging.ERROR
    ]


# -- another event loop ------------------------------------------------------------------------------------------------


def test_a_test_client_in_a_with_block_starts_the_app_once() -> None:
    with TestClient(make_app()) as client:
        for _ in range(3):
            assert (
                client.post("/message:send", json=MESSAGE).json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            )


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/message:send", MESSAGE), ("POST", "/", RPC), ("GET", CARD, None), ("GET", "/healthz", None)],
)
def test_a_test_client_without_a_with_block_is_refused_from_its_second_request_on(
    method: str, path: str, body: Any, errors: Callable[[], list[str]]
) -> None:
    client = TestClient(make_app())
    assert client.request(method, path, json=body).status_code == 200
    assert not errors()
    answer = client.request(method, path, json=body)
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "reason": "the server cannot start: its log says why"}
    (error,) = errors()
    assert re.search(OTHER_LOOP, error)


def test_httpx_gets_the_same_in_a_second_run(errors: Callable[[], list[str]]) -> None:
    transport = httpx2.ASGITransport(app=make_app())

    async def send() -> int:
        async with httpx2.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return (await client.post("/message:send", json=MESSAGE)).status_code

    assert [asyncio.run(send()) for _ in range(2)] == [200, 503]
    assert re.search(OTHER_LOOP, errors()[0])


def test_no_method_of_an_app_is_called_on_another_event_loop() -> None:
    app = make_app()
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(app.start())
        for refused in (app.start(), app.drain(), app.stop()):
            with pytest.raises(ConfigError, match=OTHER_LOOP):
                second.run(refused)
        first.run(app.start())
        first.run(app.stop())


# -- after a stop ------------------------------------------------------------------------------------------------------


def test_the_error_for_a_second_test_client_says_to_build_another_app() -> None:
    app = make_app()
    with TestClient(app) as client:
        assert client.get(CARD).status_code == 200
    for outer in (app, in_another(app)):
        with pytest.raises(ConfigError, match=STOPPED), TestClient(outer):
            pytest.fail("it started")


def in_another(app: App) -> FastAPI:
    """An app of a framework that starts and stops one of ours, as the guide shows it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        await app.start()
        yield
        await app.stop()

    outer = FastAPI(lifespan=lifespan)
    outer.mount("/echo", app)
    return outer


async def test_an_app_that_was_stopped_does_not_start_again(errors: Callable[[], list[str]]) -> None:
    app = make_app()
    await app.start()
    await app.stop()
    await app.stop()
    with pytest.raises(ConfigError, match=STOPPED):
        await app.start()
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://testserver") as client:
        assert (await client.post("/message:send", json=MESSAGE)).status_code == 503
    assert re.search(STOPPED, errors()[0])


async def test_an_app_that_was_never_started_may_be_stopped_and_then_started() -> None:
    app = make_app()
    await app.stop()
    await app.start()
    await app.stop()


# -- after a failure ---------------------------------------------------------------------------------------------------


async def test_a_start_that_failed_may_be_tried_again(tmp_path: Path, errors: Callable[[], list[str]]) -> None:
    place = tmp_path / "tasks.db"
    place.mkdir()
    app = make_agent().app(store=f"sqlite:///{place}", drain=0, auth="cookie")
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://testserver") as client:
        with pytest.raises(ConfigError, match="the store"):
            await app.start()
        assert (await client.get(CARD)).status_code == 503
        assert errors()[0].startswith("the server cannot start: the store")
        place.rmdir()
        assert (await client.get(CARD)).status_code == 200
        assert (await client.post("/message:send", json=MESSAGE)).status_code == 401
    await app.stop()


# -- clients in the same process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [None, "0.3"], ids=["direct", "over-asgi"])
def test_clients_in_process_work_in_one_run_after_the_other(protocol: str | None) -> None:
    agent = make_agent()

    async def send() -> str:
        async with Client(agent, protocol=protocol) as client:
            return (await client.send("hi")).text

    assert [asyncio.run(send()) for _ in range(3)] == ["hi"] * 3


@pytest.mark.parametrize("protocol", [None, "0.3"], ids=["direct", "over-asgi"])
def test_one_client_in_process_that_nobody_closes_works_in_one_run_after_the_other(protocol: str | None) -> None:
    client = Client(make_agent(), protocol=protocol)

    async def send() -> str:
        async with asyncio.timeout(SECONDS):
            return (await client.send("hi")).text

    assert [asyncio.run(send()) for _ in range(3)] == ["hi"] * 3


@pytest.mark.parametrize("protocol", [None, "0.3"], ids=["direct", "over-asgi"])
def test_blocking_clients_in_process_work_one_after_the_other(protocol: str | None) -> None:
    agent = make_agent()
    for _ in range(2):
        with sync.Client(agent, protocol=protocol) as client:
            assert client.send("hi").text == "hi"


async def test_a_client_says_why_an_app_does_not_start() -> None:
    app = make_app()
    await app.start()
    await app.stop()
    async with Client(app) as client:
        with pytest.raises(CannotConnect, match=STOPPED):
            await client.send("hi")
