"""The metrics of several nodes: wake-ups, leases and takeovers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from unit.bus.test_postgres_bus import Process, running
from unit.stores.postgres.test_heartbeat import INTERVAL
from unit.stores.postgres.test_heartbeat import Cluster as Beating

from dragoman import Agent, Client, Context
from dragoman.bus.local import LocalBus
from dragoman.clock import SystemClock
from dragoman.engine.settings import EngineSettings
from dragoman.server.agent.in_process import connect
from dragoman.stores.memory import MemoryStore
from dragoman.stores.postgres.sql.nodes import PostgresNodes

from .conftest import Recorded

SECRET = "s" * 32


def worker(*, restart: bool, begun: asyncio.Event | None = None) -> tuple[Agent, asyncio.Event]:
    """An agent whose run says that it has begun, and goes on for ever the first time."""
    agent, begun = Agent("worker"), begun or asyncio.Event()

    @agent.skill(default=True, restart=restart)
    async def work(ctx: Context) -> str:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return "done"

    return agent, begun


# -- wake-ups --------------------------------------------------------------------------------------------------------


async def test_a_stream_that_a_commit_of_its_own_process_wakes_is_counted(recorded: Recorded) -> None:
    bus = LocalBus(SystemClock())
    bus.notify("a", 1)
    bus.sample()
    assert not recorded.counts(recorded.metrics.wakeups)
    with bus.watch("a"), bus.watch("a"):
        bus.notify("a", 2)
        bus.notify("b", 1)
    bus.sample()
    bus.sample()
    assert recorded.counts(recorded.metrics.wakeups) == {("local",): 2}


async def test_wakeups_by_other_processes_and_by_the_poll_are_counted_as_such(
    recorded: Recorded, empty_postgres_url: str
) -> None:
    here, there = Process(empty_postgres_url, {}), Process(empty_postgres_url, {"b": 7})
    async with running(here, there):
        with there.bus.watch("a") as far, there.bus.watch("b"):
            waiting = asyncio.ensure_future(far.wait_past(3, 60))
            await asyncio.sleep(0)
            here.bus.notify("a", 4)
            assert await asyncio.wait_for(waiting, 10)
            there.bus.sample()
            assert recorded.counts(recorded.metrics.wakeups) == {("notify",): 1}
            there.bus.observe("b", 7)
            there.bus.observe("b", 7)
            there.bus.sample()
    assert recorded.counts(recorded.metrics.wakeups) == {("notify",): 1, ("poll",): 1}


# -- leases ----------------------------------------------------------------------------------------------------------


async def test_renewals_of_the_lease_are_counted_by_outcome(recorded: Recorded) -> None:
    metric, cluster = recorded.metrics.lease_renewals, Beating()
    one = await cluster.add()
    await cluster.advance(10 * INTERVAL)
    assert recorded.counts(metric) == {("renewed",): 11}
    one.database.fail("beat", "unsent", "swallowed")
    await cluster.advance(3 * INTERVAL)
    assert recorded.counts(metric) == {("renewed",): 12, ("failed",): 2}
    one.kill()


async def test_a_node_that_was_declared_dead_is_counted(recorded: Recorded) -> None:
    cluster = Beating()
    one = await cluster.add()
    await cluster.simulated.leave(1)
    await cluster.until(lambda: one.events == ["dead", "joined"])
    assert recorded.counts(recorded.metrics.lease_renewals)["dead",] == 1
    one.kill()


async def test_a_lease_has_some_seconds_left(recorded: Recorded, postgres_url: str) -> None:
    agent, _ = worker(restart=True)
    app = agent.app(store=postgres_url, secret=SECRET, drain=0, lease=6)
    async with Client(app) as client:
        await client.card()
        app.monitor.sample()
        assert 0 < recorded.counts(recorded.metrics.lease_left)[()] <= 6
    app.monitor.sample()
    assert recorded.counts(recorded.metrics.lease_left)[()] == 0


# -- takeovers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("restart", "outcome"), [(True, "restarted"), (False, "failed")])
async def test_a_task_that_a_crash_has_interrupted_is_counted_by_what_became_of_it(
    recorded: Recorded, restart: bool, outcome: str
) -> None:
    agent, begun = worker(restart=restart)
    store = MemoryStore()
    for _ in range(2):
        client: Any = Client(agent)
        client._connection = connect(agent, store=store, settings=EngineSettings(drain=0))
        async with client:
            if not begun.is_set():
                await client.send("go", wait=False)
                await begun.wait()
                assert not recorded.counts(recorded.metrics.takeovers)
            else:
                assert [task.id async for task in client.list_tasks()]
    assert recorded.counts(recorded.metrics.takeovers) == {("worker", outcome): 1}


async def test_a_task_of_a_dead_node_is_counted_where_it_was_taken(recorded: Recorded, postgres_url: str) -> None:
    agent, begun = worker(restart=True)
    again, _ = worker(restart=True, begun=begun)
    one = Client(agent.app(store=postgres_url, secret=SECRET, drain=0, node="one"))
    two = Client(again.app(store=postgres_url, secret=SECRET, drain=0, node="two"))
    async with one, two:
        task = await one.send("go", wait=False)
        await begun.wait()
        await two.get_task(task)
        nodes = PostgresNodes(postgres_url)
        (dead,) = [peer.id for peer in (await nodes.beat(0)).peers if peer.name == "one"]
        await nodes.leave(dead)
        await nodes.close()
        assert (await two.wait(task)).text == "done"
        # It was perhaps not the first to take the task, and it finds out later than others that it is dead.
        await recorded.until(lambda: ("dead",) in recorded.counts(recorded.metrics.lease_renewals))
    assert recorded.counts(recorded.metrics.takeovers)["worker", "restarted"] >= 1
