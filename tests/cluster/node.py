"""One simulated node: the real engine, store, ownership and bus, on loops of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import Any

from cluster.audit import Effects
from cluster.hooks import Receiver, SimulatedDelivery
from cluster.link import Link, Network
from cluster.scripted_agent import ScriptedAgent, scripted_function
from cluster.switchboard import BusLine, Switchboard
from cluster.world import NodeLoop, World, WorldClock

from dragoman.bus.postgres import PostgresBus
from dragoman.clock import sleep
from dragoman.engine.operations import Service
from dragoman.engine.settings import EngineSettings
from dragoman.model.error import CannotConnect, ConfigError, ServerError
from dragoman.stores.postgres.heartbeat import Heartbeat, NodeListener
from dragoman.stores.postgres.lease import NodeLease
from dragoman.stores.postgres.sql import reader
from dragoman.stores.postgres.store import PostgresStore

LEASE = 6.0
# How long a node that has drained lets its last responses be read.
CONNECTION_SECONDS = 0.2
# Repeats are recognized for as long as a simulation lasts.
SETTINGS = EngineSettings(drain=3, dedupe=10_000_000)
# The agents of every node: whether they are parallel, and whether a context stays on its node.
AGENTS = {"serial": (False, False), "parallel": (True, False), "pinned": (False, True), "function": (False, False)}


async def close_services(services: Collection[Service]) -> None:
    """Drain and close the services of a process, as its server does."""
    await asyncio.gather(*(service.drain() for service in services))
    await asyncio.gather(*(service.close() for service in services))


class LoopBeating:
    """Beats on a second loop, as the thread of a real node does: it goes on while the first loop is busy."""

    def __init__(self, main: NodeLoop, beats: NodeLoop) -> None:
        self._main = main
        self._beats = beats
        self._heartbeat: Heartbeat | None = None
        self._task: asyncio.Task[Any] | None = None

    async def start(self, heartbeat: Heartbeat, listener: NodeListener) -> None:
        """Register the node, take its first lease, and beat from then on."""
        self._heartbeat = heartbeat
        await self._elsewhere(heartbeat.start())
        self._task = self._beats.spawn(heartbeat.run(_OnMain(self._main, listener), lambda: not self._main.stuck))

    async def stop(self) -> None:
        """Leave and stop."""
        if self._task is not None:
            self._beats.call_soon(self._task.cancel)
        if self._heartbeat is not None:
            await self._elsewhere(self._heartbeat.stop())

    def _elsewhere(self, work: Any) -> asyncio.Future[Any]:
        """Run on the second loop, and wait on the first."""
        future: asyncio.Future[Any] = self._main.create_future()

        def done(task: asyncio.Task[Any]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is None:
                self._main.call_soon(lambda: future.done() or future.set_result(None))
            else:
                self._main.call_soon(lambda: future.done() or future.set_exception(error))

        self._beats.spawn(work).add_done_callback(done)
        return future


class _OnMain:
    """Passes what the beat has found out to the first loop."""

    def __init__(self, loop: NodeLoop, listener: NodeListener) -> None:
        self._loop = loop
        self._listener = listener

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._listener, name)
        return lambda *args: self._loop.call_soon(method, *args)


class _SimulatedBus(PostgresBus):
    """The bus on simulated connections."""

    def __init__(self, clock: WorldClock, line: Callable[[], BusLine], link: Link, *args: Any, **options: Any) -> None:
        super().__init__(clock, "", *args, **options)
        self._line = line
        self._link = link

    async def _connect(self) -> BusLine:
        await self._link.check(0)
        return self._line()


class SimulatedNode:
    """A server process. `ready` is True once it serves, and until it has drained after `stop`.

    `alive` is False when it was killed or has stopped.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        board: Switchboard,
        effects: Effects,
        random: Random,
        name: str,
        runs_limit: int | None = None,
        receiver: Receiver | None = None,
    ) -> None:
        self._world = world
        self._effects = effects
        self._board = board
        self.name = name
        self.runs_limit = runs_limit
        self.loop = world.add_loop(name)
        self.beats = world.add_loop(f"{name}-beats")
        self.link = Link(network, self.loop)
        self.beat_link = Link(network, self.beats)
        self.bus_link = Link(network, self.loop)
        self._clock = clock = WorldClock(world)
        self.store = PostgresStore(
            self.link,
            self.beat_link,
            name=name,
            agents=tuple(AGENTS),
            runs_limit=runs_limit,
            lease=NodeLease(LEASE, lambda: world.now),
            clock=clock,
            heartbeat_loop=LoopBeating(self.loop, self.beats),
        )
        ownership = self.store.ownership
        self.bus = _SimulatedBus(
            clock,
            lambda: BusLine(board, self.loop, self.bus_link),
            self.bus_link,
            partial(self.link.run, reader.generations),
            on_foreign=ownership.on_touched,
            on_work=ownership.on_work,
            jitter=random.random,
        )
        ownership.connect(self.bus.announce_work, self.bus.notify)
        agents: dict[str, Any] = {
            name: ScriptedAgent(name, parallel=parallel, pinned=pinned, node=self, effects=effects)
            for name, (parallel, pinned) in AGENTS.items()
        }
        agents["function"] = scripted_function("function", self, effects)
        self.delivery = SimulatedDelivery(self.store, self.bus, clock, receiver, ownership=ownership)
        self.services = {
            name: Service(agent, self.store, self.bus, clock, SETTINGS, self.delivery, ownership=ownership)
            for name, agent in agents.items()
        }
        self.alive = True
        self.ready = self.stopping = False
        self.loop.spawn(self._start()).add_done_callback(lambda task: task.result())

    @property
    def links(self) -> tuple[Link, Link, Link]:
        """Its connections to the database."""
        return self.link, self.beat_link, self.bus_link

    async def _start(self) -> None:
        try:
            await self.store.open()
            await self.bus.open()
            for service in self.services.values():
                await service.start()
            await self.delivery.start()
        except (CannotConnect, ConfigError, ServerError):  # it does not start: its operator tries again
            self.kill()
            return
        self.ready = True

    def kill(self) -> None:
        """End the process at once: nothing is cleaned up."""
        if not self.alive:
            return
        self.alive = self.ready = False
        for link in self.links:
            link.sever()
        self._board.cut(self.bus_link)
        self._effects.forget(self)
        self._world.kill(self.loop)
        self._world.kill(self.beats)

    def stop(self) -> None:
        """Stop the process properly. Until it has drained, it answers."""
        if self.ready and not self.stopping:
            self.stopping = True
            self.loop.spawn(self._stop())

    async def _stop(self) -> None:
        await close_services(self.services.values())
        self.ready = False
        await sleep(self._clock, CONNECTION_SECONDS)
        await self.delivery.close()
        await self.bus.close()
        await self.store.close()
        self.kill()

    def freeze(self, *, stopped: bool) -> None:
        """SIGSTOP, and SIGCONT."""
        self.loop.stopped = self.beats.stopped = stopped

    def hang(self, *, stopped: bool) -> None:
        """The event loop is busy with something else, and again free. The beats go on."""
        self.loop.stopped = stopped
