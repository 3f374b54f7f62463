"""The trace of a request goes through agents that call others, however they call them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from opentelemetry import trace as otel
from support.otlp_collector import collected_spans

import dragoman.sync
from dragoman import Agent, Client
from dragoman.testing import served

TRACER = otel.get_tracer("test")
PARENT = {"traceparent": f"00-{7:032x}-{8:016x}-01", "tracestate": "a=1", "baggage": "team=blue"}


def front(url: str) -> Agent:
    return Agent.from_a2a(url)


def calling(url: str) -> Agent:
    agent = Agent("calling")

    @agent.skill
    async def ask(text: str) -> str:
        """Ask the other agent with a tool."""
        async with Client(url) as client:
            return await client.as_tool()(text)

    return agent


def blocking(url: str) -> Agent:
    agent = Agent("blocking")

    @agent.skill
    def ask(text: str) -> str:
        """Ask the other agent with a tool that blocks, in a thread."""
        with dragoman.sync.Client(url) as client:
            return client.as_tool()(text)

    return agent


@pytest.fixture(params=[front, calling, blocking])
def agent(request: pytest.FixtureRequest, trace_reporter: str) -> Agent:
    return request.param(trace_reporter)


async def test_the_incoming_trace_is_passed_on(agent: Agent) -> None:
    with served(agent) as address:
        async with Client(address, headers=PARENT) as client:
            assert json.loads((await client.send("go")).text) == PARENT
        async with Client(address) as client:
            assert json.loads((await client.send("go")).text) == {}


async def test_requests_at_the_same_time_keep_their_traces_apart(agent: Agent) -> None:
    with served(agent) as address:

        async def one(number: int) -> None:
            headers = {"traceparent": f"00-{number:032x}-{1:016x}-01"}
            async with Client(address, headers=headers) as client:
                assert json.loads((await client.send("go")).text) == headers

        await asyncio.gather(*(one(number) for number in range(1, 9)))


async def test_the_call_of_the_other_agent_is_below_the_run(agent: Agent) -> None:
    with collected_spans() as spans:
        with served(agent) as address, TRACER.start_as_current_span("asking"):
            async with Client(address) as client:
                trace_headers = json.loads((await client.send("go")).text)
        by_id: dict[str, Any] = {each.span_id: each for each in spans.spans}
        span = by_id[trace_headers["traceparent"].split("-")[2]]
        path = [span]
        while path[0].parent_id:
            path.insert(0, by_id[path[0].parent_id])
        hop = [("SendMessage", "CLIENT"), ("SendMessage", "SERVER"), ("invoke_agent", "INTERNAL")]
        found = [(each.name.split()[0].replace("Streaming", ""), each.kind) for each in path]
        assert found == [("asking", "INTERNAL"), *hop, *hop]
        assert [each.name for each in path][-1] == "invoke_agent reporter"
