"""The metric of a client's operations at agents elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from dragoman import Agent, Client
from dragoman.errors import CannotConnect, TaskNotFound
from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse
from dragoman.testing import served

from .conftest import Recorded


async def count(_: object) -> AsyncIterator[str]:
    for number in range(3):
        yield f"{number} "


@pytest.mark.parametrize("transport", ["jsonrpc", "rest", "grpc"])
@pytest.mark.parametrize("protocol", ["0.3", "1.0"])
async def test_a_call_of_an_agent_elsewhere_is_recorded(recorded: Recorded, protocol: str, transport: str) -> None:
    pytest.importorskip("grpc")
    metric = recorded.metrics.client_operations
    with served(Agent("far", run=count), grpc=0) as url:
        async with Client(url, protocol=protocol, transport=transport) as client:
            await client.send("go")
            async for _ in client.stream("go"):
                pass
            with pytest.raises(TaskNotFound):
                await client.get_task("nothing")
    assert recorded.counts(metric) == {
        ("SendMessage", protocol, ""): 1,
        ("SendStreamingMessage", protocol, ""): 1,
        ("GetTask", protocol, "TASK_NOT_FOUND"): 1,
    }


async def test_a_stream_that_is_left_is_no_error(recorded: Recorded) -> None:
    client = Client(Agent("far", run=count).app(store="memory:"))
    async with client, aclosing(aiter(client.stream("go"))) as events:
        await anext(events)
        assert not recorded.counts(recorded.metrics.client_operations)
    assert recorded.counts(recorded.metrics.client_operations) == {("SendStreamingMessage", "1.0", ""): 1}


async def test_an_agent_that_cannot_be_reached_is_recorded_by_the_reason(recorded: Recorded) -> None:
    async with Client("http://127.0.0.1:9", retries=0) as client:
        with pytest.raises(CannotConnect):
            await client.send("go")
    assert recorded.counts(recorded.metrics.client_operations) == {("SendMessage", "", "CANNOT_CONNECT"): 1}


async def test_retries_are_one_operation(recorded: Recorded) -> None:
    tries = 0

    async def break_twice(request: HttpRequest, call_next: CallNext) -> HttpResponse:
        nonlocal tries
        if request.method == "POST":
            tries += 1
            if tries < 3:
                raise CannotConnect("broken", reason="CONNECTION_LOST")
        return await call_next(request)

    app = Agent("far", run=count).app(store="memory:")
    async with Client(app, interceptors=[break_twice]) as client:
        await client.send("go")
    assert tries == 3
    assert recorded.counts(recorded.metrics.client_operations) == {("SendMessage", "1.0", ""): 1}


async def test_calls_in_the_same_process_are_not_recorded(recorded: Recorded) -> None:
    async with Client(Agent("near", run=count)) as client:
        await client.send("go")
    assert not recorded.counts(recorded.metrics.client_operations)
