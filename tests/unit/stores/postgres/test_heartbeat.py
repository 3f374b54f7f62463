"""Nodes that renew their leases, find dead ones, and come back when they were declared dead themselves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cluster.simulated_database import SimulatedDatabase
from unit.stores.postgres.faulty import FaultyDatabase
from unit.stores.postgres.heartbeat_task import SilentListener

from dragoman.stores.postgres.database import ConnectionLost, NodeInfo, Renewal
from dragoman.stores.postgres.heartbeat import STALL_SECONDS, Heartbeat, HeartbeatThread
from dragoman.stores.postgres.lease import NodeLease
from dragoman.testing.clock import ManualClock

LEASE = 6.0
INTERVAL = LEASE / 6


class Node(SilentListener):
    """A node with its own connection. `events` is what its heartbeat has found out."""

    def __init__(
        self,
        number: int,
        simulated: SimulatedDatabase,
        clock: ManualClock,
        *,
        lease: float = LEASE,
        name: str = "",
        keys: tuple[str, ...] = (),
        ended: tuple[int, ...] = (),
    ) -> None:
        self.database = FaultyDatabase(simulated)
        self.lease = NodeLease(lease, lambda: clock.now() / 1000)
        info = NodeInfo(number, name or f"node-{number}", ("hello",), "1", keys=keys)
        self.heartbeat = Heartbeat(self.database, info, self.lease, clock, ended=ended)
        self.events: list[str] = []
        self.is_responsive = True
        self.beating: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.heartbeat.start()
        self.beating = asyncio.ensure_future(self.heartbeat.run(self, lambda: self.is_responsive))

    def kill(self) -> None:
        assert self.beating is not None
        self.beating.cancel()

    def on_renewed(self) -> None:
        assert not self.lease.expired

    def on_dead(self) -> None:
        assert self.lease.expired
        self.events.append("dead")

    def on_joined(self, node: int) -> None:
        assert node == self.heartbeat.node
        self.events.append("joined")

    def on_peer_gone(self) -> None:
        self.events.append("peer gone")


class Cluster:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.simulated = SimulatedDatabase(lambda: self.clock.now() / 1000)
        self.nodes: list[Node] = []

    async def add(self, **settings: Any) -> Node:
        self.nodes.append(node := Node(len(self.nodes) + 1, self.simulated, self.clock, **settings))
        await node.start()
        return node

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def until(self, condition: Callable[[], bool]) -> float:
        """Let time pass until something has happened, and return how much."""
        for step in range(1000):
            if condition():
                return step / 10
            await self.advance(0.1)
        raise AssertionError("it did not happen")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    for node in cluster.nodes:
        node.kill()


async def test_a_node_that_was_killed_is_found_after_a_lease(cluster: Cluster) -> None:
    one, two = await cluster.add(), await cluster.add()
    await cluster.advance(100)
    assert (one.events, two.events) == ([], [])
    one.kill()
    passed = await cluster.until(lambda: two.events == ["peer gone"])
    assert LEASE - INTERVAL <= passed <= LEASE + 2 * INTERVAL
    assert one.lease.expired
    assert not (await cluster.simulated.beat(1)).alive


async def test_a_node_whose_process_has_ended_is_declared_dead_by_the_first_beat_of_the_next_one(
    cluster: Cluster,
) -> None:
    one, two = await cluster.add(), await cluster.add()
    await cluster.advance(10)
    one.kill()
    await cluster.add(ended=(1, 4711))
    assert not (await cluster.simulated.beat(1)).alive
    assert await cluster.until(lambda: two.events == ["peer gone"]) <= INTERVAL
    await cluster.advance(100)
    assert (await cluster.simulated.beat(2)).alive


async def test_a_node_that_leaves_is_gone_at_once(cluster: Cluster) -> None:
    one, two = await cluster.add(), await cluster.add()
    await cluster.advance(10)
    one.kill()
    await one.heartbeat.stop()
    assert one.lease.expired
    assert await cluster.until(lambda: two.events == ["peer gone"]) <= INTERVAL


async def test_nodes_with_different_leases_do_not_declare_each_other_dead(cluster: Cluster) -> None:
    patient, hasty = await cluster.add(lease=60), await cluster.add(lease=0.5)
    await cluster.advance(200)
    assert (patient.events, hasty.events) == ([], [])
    patient.kill()
    assert 50 <= await cluster.until(lambda: hasty.events == ["peer gone"]) <= 61


async def test_nodes_warn_once_of_another_that_has_their_name(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.add(name="web"), await cluster.add(name="web"), await cluster.add(name="other")
    await cluster.advance(100)
    warning = "another node is called web too: give each a name of its own with --node"
    assert [warning in text for text in caplog.messages] == [True, True]


async def test_a_node_that_is_about_to_stop_may_have_the_name_of_the_next_one(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    before = await cluster.add(name="web")
    before.heartbeat.beat_now(runs=False)
    await cluster.advance(INTERVAL)
    await cluster.add(name="web")
    await cluster.advance(100)
    assert caplog.messages == []


async def test_a_node_that_is_started_again_under_its_name_is_no_other(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    (await cluster.add(name="web")).kill()
    await cluster.add(name="web")
    await cluster.advance(100)
    assert caplog.messages == ["the node web does not renew its lease: its tasks are taken over"]


async def test_nodes_warn_of_another_whose_secret_they_lack(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    for keys in (("old",), ("old", "new"), ("new", "old")):
        await cluster.add(keys=keys)
    await cluster.advance(100)
    (warning,) = caplog.messages  # of the first node, about the last one
    assert warning.startswith("the node node-3 has another secret")
    assert warning.endswith("set the same DRAGOMAN_SECRET on all nodes")


async def test_an_outage_of_the_database_kills_nobody(cluster: Cluster) -> None:
    nodes = [await cluster.add() for _ in range(3)]
    await cluster.advance(10)
    for node in nodes:
        node.database.down = True
    await cluster.advance(LEASE + 0.1)
    assert all(node.lease.expired for node in nodes)
    await cluster.advance(100)
    # They come back one after the other: the first must not declare the last dead.
    for node in nodes:
        node.database.down = False
        await cluster.advance(LEASE / 3)
    await cluster.advance(100)
    assert [node.events for node in nodes] == [[], [], []]
    assert not any(node.lease.expired for node in nodes)
    assert [node.heartbeat.node for node in nodes] == [1, 2, 3]


async def test_a_database_that_answers_slowly_kills_nobody(cluster: Cluster) -> None:
    nodes = [await cluster.add() for _ in range(2)]
    await cluster.advance(10)

    async def stall(statement: Awaitable[Renewal]) -> Renewal:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cluster.clock.call_later(LEASE - 0.5, lambda: waiting.done() or waiting.set_result(None))
        await waiting
        return await statement

    nodes[0].database.fail("beat", stall)
    nodes[1].database.fail("beat", stall, stall)
    await cluster.advance(100)
    assert [node.events for node in nodes] == [[], []]
    assert [node.heartbeat.node for node in nodes] == [1, 2]


async def test_a_node_that_was_cut_off_joins_again_under_a_new_id(cluster: Cluster) -> None:
    one, two = await cluster.add(), await cluster.add()
    await cluster.advance(10)
    one.database.down = True
    await cluster.until(lambda: two.events == ["peer gone"])
    one.database.down = False
    one.database.fail("beat", "swallowed", "unsent")  # nobody is told of what is not certain
    await cluster.until(lambda: one.events == ["dead", "joined"])
    assert one.heartbeat.node != 1
    await cluster.advance(100)
    assert (one.events, two.events) == (["dead", "joined"], ["peer gone"])


async def test_nobody_joins_again_before_its_lease_is_certain(cluster: Cluster) -> None:
    one = await cluster.add()
    assert await cluster.simulated.bury(1, (await cluster.simulated.beat(1)).peers[0].beat)
    one.database.fail("join", "swallowed")
    await cluster.advance(INTERVAL)
    assert one.events == ["dead"]
    assert one.lease.expired
    one.database.fail("beat", "swallowed")
    await cluster.advance(INTERVAL)
    assert one.events == ["dead"]
    await cluster.advance(INTERVAL)
    assert one.events == ["dead", "joined"]


async def test_a_process_that_does_not_respond_does_not_renew(cluster: Cluster) -> None:
    one, two = await cluster.add(), await cluster.add()
    one.is_responsive = False
    await cluster.until(lambda: two.events == ["peer gone"])
    one.is_responsive = True
    await cluster.until(lambda: one.events == ["dead", "joined"])


async def test_a_beat_without_an_answer_is_given_up(cluster: Cluster) -> None:
    one = await cluster.add()

    async def hang(statement: Any) -> Any:
        statement.close()
        await asyncio.get_running_loop().create_future()

    one.database.fail("beat", hang)
    await cluster.advance(LEASE + 0.5)
    assert one.lease.expired
    await cluster.until(lambda: not one.lease.expired)
    assert one.events == []


async def test_errors_that_nobody_expects_do_not_end_the_beat(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    one = await cluster.add()

    async def fail(statement: Any) -> Any:
        statement.close()
        raise RuntimeError("no permission")

    one.database.fail("beat", fail)
    await cluster.advance(100)
    assert not one.lease.expired
    assert "no permission" in caplog.text


async def test_a_node_that_cannot_start_says_so(cluster: Cluster) -> None:
    node = Node(9, cluster.simulated, cluster.clock)
    node.database.down = True
    starting = asyncio.ensure_future(node.heartbeat.start())
    await cluster.advance(20)
    with pytest.raises(ConnectionLost):
        await starting


# -- the thread --------------------------------------------------------------------------------------------------------


class Ticks:
    """A clock for the thread that a test moves, and a database that counts beats; a test can wait for both."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.time = 0.0
        self.looks = 0
        self.beats = 0
        self.left = False

    def now(self) -> float:
        """The time. Every look of the thread counts."""
        with self.changed:
            if threading.current_thread() is not threading.main_thread():
                self.looks += 1
                self.changed.notify_all()
            return self.time

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Block the whole event loop until something is so."""
        with self.changed:
            assert self.changed.wait_for(condition, 30)

    async def join(self, node: NodeInfo) -> None: ...

    async def beat(self, node: int, *, runs: bool = True) -> Renewal:
        with self.changed:
            self.beats += 1
            self.changed.notify_all()
        return Renewal(True, ())

    async def bury(self, node: int, beat: int) -> bool:
        return False

    async def leave(self, node: int) -> None:
        self.left = True

    async def close(self) -> None: ...


@asynccontextmanager
async def thread(ticks: Ticks) -> AsyncIterator[HeartbeatThread]:
    heartbeat = Heartbeat(ticks, NodeInfo(1, "one", (), "1"), NodeLease(0.03, ticks.now))
    beating = HeartbeatThread(ticks.now)
    await beating.start(heartbeat, SilentListener())
    try:
        yield beating
    finally:
        await beating.stop()


async def test_a_loop_that_computes_keeps_its_lease_and_one_that_is_stuck_loses_it() -> None:
    ticks = Ticks()
    async with thread(ticks):
        ticks.time += STALL_SECONDS - 1
        before = ticks.beats
        ticks.wait_for(lambda: ticks.beats >= before + 5)
        with ticks.changed:
            ticks.time += 2
            # One beat may be under way.
            before, looks = ticks.beats, ticks.looks
        ticks.wait_for(lambda: ticks.looks >= looks + 20)
        assert ticks.beats <= before + 1
        assert not ticks.left
    assert ticks.left


async def test_a_thread_that_cannot_start_raises_where_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.stores.postgres.heartbeat.START_SECONDS", 0)

    class Refusing(Ticks):
        async def join(self, node: NodeInfo) -> None:
            raise ConnectionLost("refused")

    lease = NodeLease(0.03, time.monotonic)
    heartbeat = Heartbeat(Refusing(), NodeInfo(1, "one", (), "1"), lease)
    beating = HeartbeatThread(time.monotonic)
    with pytest.raises(ConnectionLost, match="refused"):
        await beating.start(heartbeat, SilentListener())
    await beating.stop()


async def test_a_thread_that_is_stopped_while_it_starts_leaves() -> None:
    joined = threading.Event()

    class Slow(Ticks):
        async def join(self, node: NodeInfo) -> None:
            await asyncio.to_thread(joined.wait, 30)

    slow = Slow()
    beating = HeartbeatThread(slow.now)
    lease = NodeLease(1000, slow.now)
    starting = asyncio.ensure_future(
        beating.start(Heartbeat(slow, NodeInfo(1, "one", (), "1"), lease), SilentListener())
    )
    await asyncio.sleep(0)
    starting.cancel()
    stopping = asyncio.ensure_future(beating.stop())
    await asyncio.sleep(0)
    joined.set()
    await stopping
    assert slow.left
