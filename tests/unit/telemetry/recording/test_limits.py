"""The metric of limits: every request that one has refused, by the name of the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Agent, Client
from dragoman.clock import SystemClock
from dragoman.errors import A2AError, Overloaded
from dragoman.server.config.settings import Limits
from dragoman.transports.limits import DenialLog

from .conftest import Recorded


async def echo(_: object) -> AsyncIterator[str]:
    yield "done"


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(body=100), "body"),
        (Limits(rate=0.001, burst=1), "rate"),
        (Limits(nesting=2), "nesting"),
        (Limits(parts=1), "parts"),
    ],
)
async def test_a_refused_request_is_counted_by_limit(recorded: Recorded, limits: Limits, limit: str) -> None:
    async with Client(Agent("a", run=echo).app(store="memory:", limits=limits), retries=0) as client:
        refused = 0
        for _ in range(3):
            try:
                await client.send("x" * 200, data={"a": {"b": {"c": 1}}})
            except A2AError:
                refused += 1
    assert refused
    assert recorded.counts(recorded.metrics.limits_hit) == {(limit,): refused}


async def test_tasks_and_streams_beyond_the_quota_are_counted(recorded: Recorded) -> None:
    began, finish = asyncio.Event(), asyncio.Event()

    async def run(_: object) -> AsyncIterator[str]:
        began.set()
        await finish.wait()
        yield "done"

    app = Agent("a", run=run).app(store="memory:", limits=Limits(tasks=1))
    async with Client(app, retries=0) as client:
        sending = asyncio.ensure_future(client.send("go"))
        await began.wait()
        with pytest.raises(Overloaded):
            await client.send("go")
        finish.set()
        await sending
    assert recorded.counts(recorded.metrics.limits_hit) == {("tasks",): 1}


async def test_a_limit_that_an_agent_makes_up_is_no_label(recorded: Recorded) -> None:
    agent = Agent("a")

    @agent.skill(default=True)
    async def refuse() -> str:
        raise Overloaded("too much", limit="of my own")

    async with Client(agent.app(store="memory:"), retries=0) as client:
        with pytest.raises(Overloaded):
            await client.send("go")
    assert recorded.counts(recorded.metrics.limits_hit) == {("other",): 1}


async def test_a_limit_that_is_no_name_is_counted_as_other(recorded: Recorded) -> None:
    limit: Any = ["not", "a", "name"]

    DenialLog(SystemClock()).log("user ann", Overloaded("too much", limit=limit))
    assert recorded.counts(recorded.metrics.limits_hit) == {("other",): 1}
