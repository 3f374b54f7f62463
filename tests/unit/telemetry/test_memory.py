"""What telemetry does not keep: tracebacks of failed runs, messages of open streams."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from support.otlp_collector import collected_spans

from dragoman import Agent, Client, Context, Failed
from dragoman.model.message import Message
from dragoman.model.operation import SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest
from dragoman.telemetry.log_context import LOG_CONTEXT
from dragoman.transports.http import Request


class Large:
    """An object that an agent has made."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only what nobody refers to is freed; cycles stay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("is_traced", [False, True])
async def test_a_failed_run_keeps_nothing_of_the_agents_code(is_traced: bool) -> None:
    made: list[weakref.ref[Large]] = []
    agent = Agent("broken")

    @agent.skill(default=True)
    async def fail(ctx: Context) -> str:
        large = Large()
        made.append(weakref.ref(large))
        raise Failed("broken")  # which is not logged: a line of the log would keep it

    async def send() -> None:
        async with Client(agent.app(store="memory:")) as client:
            task = await client.send("go")
            assert task.error
            await asyncio.sleep(0)
            assert made[0]() is None

    if is_traced:
        with collected_spans():
            await send()
    else:
        await send()


async def receive() -> Any:
    """No request of these tests has a body."""


def test_a_request_keeps_short_ids_for_the_log_and_not_its_message() -> None:
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
    request = Request(scope, receive, [])
    message = Message("m1", Role.USER, (Part(text="x" * 100_000),), task_id="t" * 100_000, context_id="c1")
    references = sys.getrefcount(message)
    request.set_target("desk", SendMessageRequest(message))
    assert sys.getrefcount(message) == references
    assert request.log_fields() == {"agent": "desk", "task": "t" * 256, "context": "c1"}


async def test_a_run_that_waits_for_its_turn_does_not_keep_its_request(request: pytest.FixtureRequest) -> None:
    finish, agent = asyncio.Event(), Agent("desk")

    @agent.skill(default=True)
    async def wait(ctx: Context) -> str:
        await finish.wait()
        return "done"

    LOG_CONTEXT.enable()
    request.addfinalizer(lambda: LOG_CONTEXT.enable(on=False))
    app = agent.app(store="memory:")
    http = AsgiClient(app)
    for number in range(5):
        message = {"messageId": f"m{number}", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "go"}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).encode()
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        response = await http.send(HttpRequest("POST", "http://127.0.0.1/", headers, body))
        assert b"TASK_STATE" in await response.read()
    gc.collect()
    # Perhaps one, in the context of a timer that all runs share.
    assert len([each for each in gc.get_objects() if isinstance(each, Request)]) <= 1
    finish.set()
    await app.stop()
