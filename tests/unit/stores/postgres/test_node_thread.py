"""Leases on a real PostgreSQL, renewed by threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from unit.stores.postgres.heartbeat_task import SilentListener

from dragoman.clock import SystemClock
from dragoman.stores.postgres.database import NodeInfo
from dragoman.stores.postgres.heartbeat import Heartbeat, HeartbeatThread
from dragoman.stores.postgres.lease import BEATS, NodeLease, monotonic, new_node_id
from dragoman.stores.postgres.sql.nodes import PostgresNodes

LEASE = 1.2
NEVER = 1000.0


class Observing(SilentListener):
    """A node with a thread; a test can wait for what it has found out, on the event loop or blocking it."""

    def __init__(self, url: str, stall: float = NEVER) -> None:
        self.lease = NodeLease(LEASE)
        self.nodes = PostgresNodes(url)
        self.heartbeat = Heartbeat(self.nodes, NodeInfo(new_node_id(), "one", ("agent",), "1"), self.lease)
        self.thread = HeartbeatThread(monotonic, stall)
        self.events: list[str] = []
        self.changed = asyncio.Event()

    def _add(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    async def wait_for(self, *events: str) -> None:
        async with asyncio.timeout(30):
            while self.events != list(events):
                await self.changed.wait()
                self.changed.clear()

    def on_dead(self) -> None:
        self._add("dead")

    def on_joined(self, node: int) -> None:
        self._add("joined")

    def on_peer_gone(self) -> None:
        self._add("peer gone")


@asynccontextmanager
async def node(url: str, stall: float = NEVER) -> AsyncIterator[Observing]:
    observing = Observing(url, stall)
    await observing.thread.start(observing.heartbeat, observing)
    try:
        yield observing
    finally:
        await observing.thread.stop()


class Neighbor(SilentListener):
    """A node in a thread with an event loop of its own, which goes on when the loop of the test is blocked."""

    def __init__(self, url: str) -> None:
        self.peer_gone = threading.Event()
        self._url = url
        self._stop: asyncio.Event
        self._beats = 0
        self._renewed = threading.Condition()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Neighbor:
        self._thread.start()
        self.wait_beats(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    def wait_beats(self, count: int) -> None:
        """Block until it has renewed its lease so many times more."""
        with self._renewed:
            until = self._beats + count
            assert self._renewed.wait_for(lambda: self._beats >= until, 30)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        info = NodeInfo(new_node_id(), "neighbor", ("agent",), "1")
        heartbeat = Heartbeat(PostgresNodes(self._url), info, NodeLease(LEASE), SystemClock())
        await heartbeat.start()
        beating = asyncio.ensure_future(heartbeat.run(self, lambda: True))
        await self._stop.wait()
        beating.cancel()
        await heartbeat.stop()

    def on_renewed(self) -> None:
        with self._renewed:
            self._beats += 1
            self._renewed.notify_all()

    def on_peer_gone(self) -> None:
        self.peer_gone.set()


async def test_a_node_that_dies_is_declared_dead_after_its_lease(postgres_url: str) -> None:
    dying = Observing(postgres_url)
    await dying.heartbeat.start()  # and never beats
    started = monotonic()
    async with node(postgres_url) as other:
        await other.wait_for("peer gone")
        assert monotonic() - started >= LEASE
        assert dying.lease.expired
    renewal = await dying.nodes.beat(dying.heartbeat.node)
    assert not renewal.alive
    assert list(renewal.peers) == []
    await dying.nodes.close()


async def test_a_node_whose_loop_computes_stays_and_one_that_is_stuck_is_replaced(postgres_url: str) -> None:
    with Neighbor(postgres_url) as neighbor:
        async with node(postgres_url):
            neighbor.wait_beats(2 * BEATS)  # which blocks the loop of the other for two leases
            assert not neighbor.peer_gone.is_set()
        assert neighbor.peer_gone.wait(30)  # it has left
        neighbor.peer_gone.clear()
        async with node(postgres_url, stall=LEASE) as stuck:
            identity = stuck.heartbeat.node
            assert neighbor.peer_gone.wait(30)
            await stuck.wait_for("dead", "joined")
            assert stuck.heartbeat.node != identity
            assert not stuck.lease.expired
