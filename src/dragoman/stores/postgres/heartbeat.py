"""The beat of a node: it renews the lease, and looks whether the other nodes still renew theirs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

from dragoman.clock import SystemClock, sleep, wait
from dragoman.stores.postgres.database import ConnectionLost, NodeInfo
from dragoman.stores.postgres.lease import Observer, new_node_id
from dragoman.stores.postgres.peer_check import PeerCheck
from dragoman.stores.postgres.retry import answer_within
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from dragoman.clock import Clock, Timer
    from dragoman.stores.postgres.database import NodeDatabase, Peer
    from dragoman.stores.postgres.lease import NodeLease

logger = logging.getLogger("dragoman.store")
T = TypeVar("T")

# A process whose event loop does nothing for so long is not alive: its lease is not renewed.
STALL_SECONDS = 30.0
# How often the event loop shows that it works.
TICK_SECONDS = 1.0
# How long to try to reach the database at the start, and to leave it at the end.
START_SECONDS, LEAVE_SECONDS = 10.0, 3.0


class NodeListener(Protocol):
    """Called when the beat has found something out."""

    def on_renewed(self) -> None:
        """The lease was renewed."""
        ...

    def on_dead(self) -> None:
        """Others have declared this node dead. It will join again under a new id."""
        ...

    def on_joined(self, node: int) -> None:
        """This process is the node with this new id now, and its lease is valid."""
        ...

    def on_peers(self, agents: frozenset[str]) -> None:
        """Other nodes are there that run tasks of these agents."""
        ...

    def on_peer_gone(self) -> None:
        """Another node has left, or was declared dead: its tasks can be taken."""
        ...


class Heartbeat:
    """Keeps one process registered as a node. It runs on any event loop, with its own connection to the database.

    Without `runs`, the node runs no tasks, and the others know that. `ended` are nodes whose processes have surely
    ended, as a parent process knows of its children: they are declared dead without waiting for their leases.
    """

    def __init__(
        self,
        database: NodeDatabase,
        info: NodeInfo,
        lease: NodeLease,
        clock: Clock | None = None,
        *,
        runs: bool = True,
        ended: Iterable[int] = (),
    ) -> None:
        self._database = database
        self._info = info = info._replace(lease=lease.seconds)
        self._lease = lease
        self._clock = clock or SystemClock()
        self._observer = Observer(lease.seconds)
        self._peer_check = PeerCheck(info)
        self._ended = frozenset(ended)
        self._peers: frozenset[int] = frozenset()
        self._runs = runs
        self._is_retired = False
        self._loop: asyncio.AbstractEventLoop | None = None  # while it beats
        self._pause: asyncio.Future[None] | None = None
        self._joined = False  # the node is registered
        self._is_new = True  # nobody was told that it is
        self._former: list[NodeInfo] = []  # what it was until others declared it dead, and is to be buried

    @property
    def node(self) -> int:
        """The id of this node. It changes when others have declared it dead."""
        return self._info.id

    async def start(self) -> None:
        """Register this node, and take its first lease.

        Raises:
            ConnectionLost: the database did not answer for some seconds.
        """
        started, self._is_retired = self._lease.now(), False
        while True:
            try:
                await self._renew(_Silent())
            except ConnectionLost:
                if self._lease.now() - started > START_SECONDS:
                    raise
                await sleep(self._clock, self._lease.interval)
            else:
                return

    async def run(self, listener: NodeListener, is_responsive: Callable[[], bool]) -> None:
        """Beat for ever, except while the process does not respond."""
        silent = False
        self._loop = asyncio.get_running_loop()
        while True:
            self._pause = self._loop.create_future()
            await wait(self._clock, self._pause, self._lease.interval)
            if not is_responsive():
                self._observer.reset()
                continue
            try:
                await self._renew(listener)
            except ConnectionLost as error:
                self._count("failed")
                self._observer.reset()
                if not silent:
                    logger.warning("the lease of this node cannot be renewed: %s", error)
                silent = True
            except Exception:
                self._count("failed")
                self._observer.reset()
                if not silent:
                    logger.exception("the lease of this node cannot be renewed")
                silent = True
            else:
                if silent:
                    logger.info("the lease of this node is renewed again")
                silent = False

    def beat_now(self, runs: bool) -> None:
        """Beat as soon as possible, and let the others know whether this node still runs tasks. Safe in any thread."""
        self._is_retired = not runs
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._end_pause)

    def _end_pause(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    async def stop(self) -> None:
        """Leave, so that others take over at once, and close the connection. A silent database is not waited for."""
        self._lease.end()
        with contextlib.suppress(ConnectionLost):
            if self._joined:
                await answer_within(self._clock, LEAVE_SECONDS, lambda: self._database.leave(self._info.id))
        with contextlib.suppress(ConnectionLost):
            await answer_within(self._clock, LEAVE_SECONDS, self._database.close)
        # A node that has left stays dead: whoever starts again is another one.
        self._joined, self._info = False, self._info._replace(id=new_node_id())

    async def _renew(self, listener: NodeListener) -> None:
        """Join if need be, renew, and declare dead who is. Raises ConnectionLost."""
        if not self._joined:
            await self._answer(lambda: self._database.join(self._info))
            self._joined = True
        sent = self._lease.now()
        runs = self._runs and not self._is_retired
        renewal = await self._answer(lambda: self._database.beat(self._info.id, runs=runs))
        self._count("renewed" if renewal.alive else "dead")
        if not renewal.alive:
            self._lease.end()
            self._observer.reset()
            self._joined, self._is_new = False, True
            self._former.append(self._info)
            self._info = self._info._replace(id=new_node_id())
            logger.warning(
                "the other nodes have declared this one dead and take its tasks over: it goes on as a new one"
            )
            listener.on_dead()
            await self._renew(listener)
            return
        self._lease.renew(sent)
        if self._is_new:
            self._is_new = False
            listener.on_joined(self._info.id)
        listener.on_renewed()
        while self._former:
            await self._answer(self._bury_former)
        await self._observe([peer for peer in renewal.peers if peer.id != self._info.id and not peer.dead], listener)

    def _count(self, outcome: str) -> None:
        if METRICS.on:
            # Recorded in the thread of the beat: nobody else counts these.
            METRICS.lease_renewals.add(1, (outcome,))

    async def _bury_former(self) -> None:
        """Make sure that the database knows a former self of this node as dead.

        A standby that was behind when it took over may never have heard of it. Others take over from a dead node only,
        and this one may have written something before it found out.
        """
        former = self._former[-1]
        await self._database.join(former)
        await self._database.leave(former.id)
        self._former.remove(former)

    async def _observe(self, peers: list[Peer], listener: NodeListener) -> None:
        for warning in () if self._is_retired else self._peer_check.check(peers):
            logger.warning("%s", warning)
        alive = {peer.id for peer in peers}
        silent = self._observer.observe(self._lease.now(), peers)
        for peer in peers:
            if (peer.id in self._ended or peer in silent) and await self._bury(peer):
                reason = "has ended" if peer.id in self._ended else "does not renew its lease"
                logger.warning("the node %s %s: its tasks are taken over", peer.name, reason)
                alive.discard(peer.id)
        listener.on_peers(frozenset(agent for peer in peers if peer.id in alive for agent in peer.agents))
        gone = self._peers - alive
        self._peers = frozenset(alive)
        if gone:
            listener.on_peer_gone()

    async def _bury(self, peer: Peer) -> bool:
        return await self._answer(lambda: self._database.bury(peer.id, peer.beat))

    async def _answer(self, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for an answer at most a lease: after that it would be of no use. Raises ConnectionLost."""
        return await answer_within(self._clock, self._lease.seconds, call)


class _Silent:
    """The listener of a node that starts: nobody depends on it yet."""

    def on_renewed(self) -> None: ...

    def on_dead(self) -> None: ...

    def on_joined(self, node: int) -> None: ...

    def on_peers(self, agents: frozenset[str]) -> None: ...

    def on_peer_gone(self) -> None: ...


class HeartbeatLoop(Protocol):
    """Where a heartbeat runs."""

    async def start(self, heartbeat: Heartbeat, listener: NodeListener) -> None:
        """Register the node, take its first lease, and beat from then on. Raises ConnectionLost."""
        ...

    async def stop(self) -> None:
        """Leave and stop."""
        ...


class HeartbeatThread:
    """Beats in a thread of its own, so that code that computes for long does not cost this node its tasks.

    It stops renewing when the event loop of the server has not ticked for `stall` seconds: then the server is stuck.
    """

    def __init__(self, now: Callable[[], float], stall: float = STALL_SECONDS) -> None:
        self._now = now
        self._stall = stall
        self._last_tick = now()
        self._ticker: Timer | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_stopped = False

    async def start(self, heartbeat: Heartbeat, listener: NodeListener) -> None:
        """Register the node, take its first lease, and beat from then on. Raises ConnectionLost."""
        started: Future[None] = Future()
        started.set_running_or_notify_cancel()  # so that giving up the wait for it does not cancel it
        self._is_stopped = False
        distant = _OnLoop(asyncio.get_running_loop(), listener)
        self._tick()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(heartbeat, distant, started)), name="dragoman-beat", daemon=True
        )
        self._thread.start()
        await asyncio.wrap_future(started)

    async def stop(self) -> None:
        """Leave and stop."""
        if self._ticker is not None:
            self._ticker.cancel()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._is_stopped = True  # for a thread that has not come so far as to listen
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(thread.join)

    def _tick(self) -> None:
        self._last_tick = self._now()
        self._ticker = SystemClock().call_later(TICK_SECONDS, self._tick)

    def _is_responsive(self) -> bool:
        return self._now() - self._last_tick < self._stall

    async def _run(self, heartbeat: Heartbeat, listener: NodeListener, started: Future[None]) -> None:
        """The whole life of the thread."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            await heartbeat.start()
        except BaseException as error:  # noqa: BLE001 - it is raised where the thread was started
            await heartbeat.stop()
            started.set_exception(error)
            return
        started.set_result(None)
        beating = asyncio.ensure_future(heartbeat.run(listener, self._is_responsive))
        if not self._is_stopped:
            await self._stopping.wait()
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await heartbeat.stop()


class _OnLoop:
    """Passes what the beat has found out to a listener on another event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: NodeListener) -> None:
        self._loop = loop
        self._listener = listener

    def _call(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(callback)

    def on_renewed(self) -> None:
        self._call(self._listener.on_renewed)

    def on_dead(self) -> None:
        self._call(self._listener.on_dead)

    def on_joined(self, node: int) -> None:
        self._call(lambda: self._listener.on_joined(node))

    def on_peers(self, agents: frozenset[str]) -> None:
        self._call(lambda: self._listener.on_peers(agents))

    def on_peer_gone(self) -> None:
        self._call(self._listener.on_peer_gone)
