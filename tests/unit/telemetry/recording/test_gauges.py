"""What is under way now: runs, streams and threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing

from dragoman import Agent, Client

from .conftest import Recorded


async def test_runs_and_streams_are_counted_while_they_are_under_way(recorded: Recorded) -> None:
    finish, metrics = asyncio.Event(), recorded.metrics

    async def run(_: object) -> AsyncIterator[str]:
        yield "begun"
        await finish.wait()

    app = Agent("gauged", run=run).app(store="memory:")

    def sample() -> tuple[float, float]:
        app.monitor.sample()
        label = ("gauged",)
        return recorded.counts(metrics.tasks_in_progress)[label], recorded.counts(metrics.streams)[label]

    async with Client(app) as client:
        assert sample() == (0, 0)
        async with aclosing(aiter(client.stream("go"))) as events:
            await anext(events)
            await client.send("go", wait=False)
            assert sample() == (2, 1)
        await recorded.until(lambda: sample() == (2, 0))
        finish.set()
        await recorded.until(lambda: sample() == (0, 0))


async def test_nothing_is_under_way_at_a_server_that_has_stopped(recorded: Recorded) -> None:
    async def run(_: object) -> AsyncIterator[str]:
        yield "begun"
        await asyncio.Event().wait()

    app = Agent("stopped", run=run).app(store="memory:", drain=0)
    async with Client(app) as client:
        await client.send("go", wait=False)
        app.monitor.sample()
        assert recorded.counts(recorded.metrics.tasks_in_progress)["stopped",] == 1
        await app.stop()
    assert recorded.counts(recorded.metrics.tasks_in_progress)["stopped",] == 0
    assert recorded.counts(recorded.metrics.streams)["stopped",] == 0


async def test_busy_threads_are_counted_by_pool(recorded: Recorded) -> None:
    agent, begun, finish = Agent("threaded"), threading.Event(), threading.Event()

    @agent.skill(default=True)
    def block() -> str:
        begun.set()
        finish.wait(10)
        return "done"

    app = agent.app(store="memory:")

    def busy() -> float:
        app.monitor.sample()
        return recorded.counts(recorded.metrics.busy_threads)["skills",]

    async with Client(app) as client:
        before = busy()
        sending = asyncio.ensure_future(client.send("go"))
        await recorded.until(begun.is_set)
        assert busy() == before + 1
        assert recorded.counts(recorded.metrics.threads)[()] == threading.active_count()
        finish.set()
        await sending
        await recorded.until(lambda: busy() == before)
    assert ("helpers",) in recorded.counts(recorded.metrics.busy_threads)
