"""The metric of operations: every call of a server, over every binding, whatever becomes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from dragoman import Agent, Client
from dragoman.errors import AuthError, InvalidParams, TaskNotFound
from dragoman.net.asgi import AsgiClient
from dragoman.net.exchange import HttpRequest
from dragoman.outputs import Reply
from dragoman.testing import served

from .conftest import Recorded

NAME = "counter"


def counter() -> Agent:
    agent = Agent(NAME, description="Counts")

    @agent.skill(default=True)
    async def count(to: int = 3) -> AsyncIterator[str]:
        for number in range(to):
            yield f"{number} "

    @agent.skill
    async def refuse() -> str:
        raise InvalidParams("no")

    @agent.skill
    async def never() -> AsyncIterator[str]:
        yield "begun"
        await asyncio.Event().wait()

    return agent


async def post(app: Any, body: bytes, path: str = "/", **headers: str) -> Any:
    headers = {"Content-Type": "application/json", **headers}
    response = await AsgiClient(app).send(HttpRequest("POST", f"http://127.0.0.1{path}", headers, body))
    return json.loads(await response.read())


@pytest.mark.parametrize("transport", ["jsonrpc", "rest", "grpc"])
@pytest.mark.parametrize("protocol", ["0.3", "1.0"])
async def test_a_call_is_recorded_by_agent_method_and_version(
    recorded: Recorded, protocol: str, transport: str
) -> None:
    pytest.importorskip("grpc")
    with served(counter(), grpc=0) as url:
        async with Client(url, transport=transport, protocol=protocol) as client:
            await client.send("go")
            with pytest.raises(TaskNotFound):
                await client.get_task("nothing")
    assert recorded.counts(recorded.metrics.operations) == {
        (NAME, "SendMessage", protocol, ""): 1,
        (NAME, "GetTask", protocol, "TASK_NOT_FOUND"): 1,
    }


async def test_a_call_in_process_is_recorded(recorded: Recorded) -> None:
    async with Client(counter()) as client:
        await client.send("go")
        async for _ in client.stream("go"):
            pass
    assert recorded.counts(recorded.metrics.operations) == {
        (NAME, "SendMessage", "1.0", ""): 1,
        (NAME, "SendStreamingMessage", "1.0", ""): 1,
    }


async def test_an_error_of_the_agent_is_recorded_by_its_reason(recorded: Recorded) -> None:
    async with Client(counter().app(store="memory:")) as client:
        with pytest.raises(InvalidParams):
            await client.send(tool="refuse")
    assert recorded.counts(recorded.metrics.operations) == {(NAME, "SendMessage", "1.0", "INVALID_PARAMS"): 1}


@pytest.mark.parametrize(
    ("path", "body", "method", "version", "reason"),
    [
        ("/", b"{", "", "1.0", "PARSE_ERROR"),
        ("/", b'{"jsonrpc": "2.0", "id": 1, "method": "x/y"}', "", "0.3", "METHOD_NOT_FOUND"),
        ("/", b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}', "SendMessage", "1.0", "INVALID_PARAMS"),
        ("/", b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get"}', "GetTask", "0.3", "INVALID_PARAMS"),
        ("/message:send", b"{", "SendMessage", "1.0", "PARSE_ERROR"),
        ("/v1/message:send", b"{}", "SendMessage", "0.3", "INVALID_PARAMS"),
        ("/tasks/a:b", b"{}", "", "1.0", "METHOD_NOT_FOUND"),
    ],
)
async def test_a_request_that_cannot_be_read_is_recorded(
    recorded: Recorded, path: str, body: bytes, method: str, version: str, reason: str
) -> None:
    answer = await post(counter().app(store="memory:"), body, path)
    assert answer["error"]
    assert recorded.counts(recorded.metrics.operations) == {(NAME, method, version, reason): 1}


@pytest.mark.parametrize("transport", ["jsonrpc", "rest", "grpc"])
async def test_a_caller_without_credentials_is_recorded(recorded: Recorded, transport: str) -> None:
    async def nobody(_: object) -> None:
        return None

    pytest.importorskip("grpc")
    with served(counter(), grpc=0, auth=nobody) as url:
        async with Client(url, transport=transport) as client:
            with pytest.raises(AuthError):
                await client.send("go")
    ((_, _, version, reason),) = recorded.counts(recorded.metrics.operations)
    assert (version, reason) == ("1.0", "UNAUTHENTICATED")


async def test_a_stream_is_recorded_at_its_end(recorded: Recorded) -> None:
    metric = recorded.metrics.operations
    async with Client(counter().app(store="memory:", drain=0)) as client:
        async with aclosing(aiter(client.stream(tool="never"))) as events:
            await anext(events)
            assert not recorded.counts(metric)
        await recorded.until(lambda: recorded.counts(metric))
        assert recorded.counts(metric) == {(NAME, "SendStreamingMessage", "1.0", "CANCELED"): 1}
        async for _ in client.stream("go"):
            pass
        label = (NAME, "SendStreamingMessage", "1.0", "")
        await recorded.until(lambda: label in recorded.counts(metric))
        assert recorded.counts(metric)[label] == 1


async def test_the_stream_of_a_mere_reply_is_recorded(recorded: Recorded) -> None:
    async def run(_: object) -> AsyncIterator[Reply]:
        yield Reply("yes")

    metric = recorded.metrics.operations
    async with Client(Agent(NAME, run=run, replies=True).app(store="memory:")) as client:
        async for _ in client.stream("go"):
            pass
        await recorded.until(lambda: recorded.counts(metric))
    assert recorded.counts(metric) == {(NAME, "SendStreamingMessage", "1.0", ""): 1}


async def test_the_time_of_a_call_is_that_of_its_run(recorded: Recorded) -> None:
    began, finish = asyncio.Event(), asyncio.Event()

    async def run(_: object) -> AsyncIterator[str]:
        began.set()
        await finish.wait()
        yield "done"

    metric = recorded.metrics.operations
    async with Client(Agent("slow", run=run).app(store="memory:")) as client:
        sending = asyncio.ensure_future(client.send("go"))
        await began.wait()
        assert not recorded.counts(metric)
        asyncio.get_running_loop().call_later(0.05, finish.set)
        await sending
    ((labels, seconds),) = recorded.sums(metric).items()
    assert labels == ("slow", "SendMessage", "1.0", "")
    assert 0.04 <= seconds < 5


async def test_nothing_is_recorded_while_metrics_are_off(unrecorded: Recorded) -> None:
    app = counter().app(store="memory:")
    async with Client(app) as client:
        await client.send("go")
        async for _ in client.stream("go"):
            pass
        await post(app, b"{")
    assert not unrecorded.names()
