"""A single server in virtual time: its disk outlives it, commits take a while, and may be refused."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from cluster.audit import AuditedDatabase, Effects
from cluster.hooks import Receiver, SimulatedDelivery
from cluster.machine import Cluster
from cluster.node import AGENTS, SETTINGS, close_services
from cluster.scripted_agent import ScriptedAgent, scripted_function
from cluster.world import World, WorldClock

from dragoman.bus.local import LocalBus
from dragoman.clock import sleep
from dragoman.engine.operations import Service
from dragoman.engine.ports.store import Write
from dragoman.model.error import ServerError
from dragoman.stores.memory import MemoryStore
from dragoman.stores.postgres.database import ChangeOutcome, TaskOwner
from dragoman.stores.sole import SoleWriter

FAULTS: dict[str, float] = {
    "kill": 3,
    "stop": 1,
    "fill_disk": 1,
    "slow_down_disk": 1,
    "fail_reads": 1,
    "fail_receiver": 1,
    "pause": 0.5,
}
# The longest time that a commit takes, in seconds.
QUICK = 0.004
SPEEDS = (QUICK, QUICK, 0.05, 0.5, 3.0)
NAME = "sole"
# What the audit knows the one server by, whichever process it is.
NODE = 0


class SimulatedDisk(MemoryStore):
    """What a server has written: it is there for the next one. `errors` are those of the last commit."""

    durable = True
    # What is on the disk: the process that uses it has an index of its own.
    duplicate_of = MemoryStore.read_duplicate
    reply = MemoryStore.read_reply

    def __init__(self) -> None:
        super().__init__()
        self.full_until = self.unreadable_until = 0.0
        self.speed = QUICK
        self.errors: list[BaseException | None] = []

    async def commit(self, node: int, changes: Sequence[Sequence[Write]]) -> list[ChangeOutcome]:
        """Apply changes in order. One that does not follow is refused."""
        self.errors = [self._apply(write) for (write,) in changes]
        return [ChangeOutcome("committed" if error is None else "refused") for error in self.errors]

    async def run(self, query: Callable[..., Any], /, *args: Any) -> Any:
        """Answer a query of PostgreSQL with the method of its name."""
        return await getattr(self, query.__name__)(*args)

    async def owners(self, node: int, numbers: Sequence[int]) -> dict[int, TaskOwner]:
        """Nobody: tasks of a single server have no owner in the store."""
        rows = {number: self._by_number[number].row for number in numbers if number in self._by_number}
        return {number: TaskOwner(None, 0, row.generation, row.id) for number, row in rows.items()}


class SimulatedFile(SoleWriter):
    """The store of one process: a queue of changes, group commits, and reads of what is on the disk."""

    durable = True

    def __init__(self, world: World, server: SoleServer, audit: AuditedDatabase, disk: SimulatedDisk) -> None:
        super().__init__()
        self._world = world
        self._server = server
        self._audit = audit
        self._disk = disk
        self._random = server.random
        self._queue: list[Write] = []
        self._is_committing = False
        self._is_severed = False
        # Numbers of an earlier process that were not committed may be given again, as in a file.
        self.next_number = disk.next_number

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk, name)

        async def read(*args: Any, **options: Any) -> Any:
            if self._random.random() < 0.5:
                await sleep(self._server.clock, self._random.random() * 0.005)
            if self._server.ready and self._world.now < self._disk.unreadable_until:
                raise ServerError("the store cannot be read now", retryAfter="1")
            return await method(*args, **options)

        return read

    async def open(self) -> None:
        """Load the keys that are on the disk."""
        for digest in await self._disk.dedupe_keys(self._server.clock.now()):
            self._keys.load(digest)

    async def check(self) -> None:
        """Raise ServerError when the disk is full."""
        if self._world.now < self._disk.full_until:
            raise _full()

    async def close(self) -> None:
        """Commit what is queued."""
        while self._queue or self._is_committing:
            await sleep(self._server.clock, 0.001)

    def sever(self) -> None:
        """The process is killed. What is on its way to the disk may be written, or not."""
        self._is_severed = True
        if self._is_committing and self._random.random() < 0.5:
            self._apply(self._queue[: self._random.randint(0, len(self._queue))])

    def queue(self, write: Write) -> None:
        self._queue.append(write)
        self._schedule()

    async def read_duplicate(self, key: bytes, now_ms: int) -> str | None:
        return await self.__getattr__("duplicate_of")(key, now_ms)

    async def read_reply(self, key: bytes, now_ms: int) -> bytes | None:
        return await self.__getattr__("reply")(key, now_ms)

    def _schedule(self) -> None:
        if self._queue and not self._is_committing and not self._is_severed:
            self._is_committing = True
            self._world.after(self._random.random() * self._disk.speed, self._commit)

    def _commit(self) -> None:
        if self._is_severed:
            return
        if self._server.loop.stopped:  # as SIGSTOP does to a process
            self._world.after(0.01, self._commit)
            return
        batch, self._queue = self._queue, []
        errors = self._apply(batch)
        self._world.after(self._random.random() * QUICK, lambda: self._report_all(batch, errors))

    def _apply(self, batch: Sequence[Write]) -> list[BaseException | None]:
        """Commit changes: all of them, unless the disk is full."""
        if self._world.now < self._disk.full_until:
            self._server.effects.pardon()
            return [_full()] * len(batch)
        _complete(self._audit.commit(NODE, [[write] for write in batch]))
        return self._disk.errors

    def _report_all(self, batch: Sequence[Write], errors: Sequence[BaseException | None]) -> None:
        if self._is_severed:
            return
        self._is_committing = False
        for write, error in zip(batch, errors, strict=True):
            self._server.loop.call_soon(self.report, write, error)
        self._schedule()


class SoleServer:
    """A process on a disk that no other process uses. Its attributes are those of a `SimulatedNode`."""

    links = ()
    runs_limit = None
    name = NAME

    def __init__(
        self,
        world: World,
        audit: AuditedDatabase,
        disk: SimulatedDisk,
        effects: Effects,
        random: Random,
        receiver: Receiver,
    ) -> None:
        self._world = world
        self.effects = effects
        self.random = random
        self.loop = world.add_loop(NAME)
        self.clock = clock = WorldClock(world)
        self.store = store = SimulatedFile(world, self, audit, disk)
        bus = LocalBus(clock)
        self.delivery = delivery = SimulatedDelivery(store, bus, clock, receiver)
        agents: dict[str, Any] = {
            name: ScriptedAgent(name, parallel=parallel, pinned=pinned, node=self, effects=effects)
            for name, (parallel, pinned) in AGENTS.items()
        }
        agents["function"] = scripted_function("function", self, effects)
        self.services = {name: Service(agent, store, bus, clock, SETTINGS, delivery) for name, agent in agents.items()}
        self.alive = True
        self.ready = self.stopping = False
        self.loop.spawn(self._start()).add_done_callback(lambda task: task.result())

    async def _start(self) -> None:
        await self.store.open()
        try:
            for service in self.services.values():
                await service.start()
        except ServerError:  # the disk is full: its operator tries again
            self.kill()
            return
        await self.delivery.start()
        self.ready = True

    def kill(self) -> None:
        """End the process at once: nothing is cleaned up."""
        if self.alive:
            self.alive = self.ready = False
            self.store.sever()
            self.effects.forget(self)
            self._world.kill(self.loop)

    def stop(self) -> None:
        """Stop the process properly."""
        if self.ready and not self.stopping:
            self.stopping = True
            self.loop.spawn(self._stop())

    async def _stop(self) -> None:
        await close_services(self.services.values())
        self.ready = False
        await self.delivery.close()
        await self.store.close()
        self.kill()

    def freeze(self, *, stopped: bool) -> None:
        """SIGSTOP, and SIGCONT."""
        if self.alive:
            self.loop.stopped = stopped


class SoleCluster(Cluster):
    """One server at a time on one disk, its callers, and the invariants."""

    forbidden_reasons = ("has lost events", "Internal error", "internal error")

    def __init__(self, seed: int, *, storm: float = 1) -> None:
        self.disk = SimulatedDisk()
        super().__init__(seed, nodes=1, storm=storm, faults=FAULTS, database=self.disk)

    def start_node(self, runs_limit: int | None = None, name: str | None = None) -> None:
        """Start the server, unless there is one."""
        if self.living:
            return
        with self.seeded():
            self.nodes.append(SoleServer(self.world, self.audit, self.disk, self.effects, self.random, self.receiver))  # pyright: ignore[reportArgumentType]

    def kill(self) -> None:
        """Kill the server. Another one starts at once, or a little later."""
        for node in self.living:
            self.trace.append(f"{self._time()} the server is killed")
            node.kill()
        self.world.after(self.random.choice((0.0, 0.01, 0.5)), self.start_node)

    def stop(self) -> None:
        """Stop the server properly, and start another when it has stopped."""
        for node in self.living:
            self.trace.append(f"{self._time()} the server stops")
            self.effects.pardon()
            node.stop()
            self.run(8.0, lambda: not self.living)
        self.start_node()

    def pause(self) -> None:
        """SIGSTOP, and SIGCONT some seconds later."""
        for node in self.living:
            node.freeze(stopped=True)
            self.world.after(self.random.choice((0.5, 5.0, 30.0)), lambda node=node: node.freeze(stopped=False))

    def fill_disk(self) -> None:
        """Refuse commits for a while."""
        seconds = self.random.choice((0.01, 0.3, 2.0, 10.0))
        self.trace.append(f"{self._time()} the disk is full for {seconds}")
        self.disk.full_until = self.world.now + seconds

    def fail_reads(self) -> None:
        """Refuse reads for a while."""
        seconds = self.random.choice((0.01, 0.3, 2.0))
        self.trace.append(f"{self._time()} the disk cannot be read for {seconds}")
        self.disk.unreadable_until = self.world.now + seconds

    def slow_down_disk(self) -> None:
        """Let commits take long, or no longer."""
        self.disk.speed = self.random.choice(SPEEDS)

    def heal(self) -> None:
        """End all faults."""
        self.disk.full_until = self.disk.unreadable_until = 0.0
        self.disk.speed = QUICK
        super().heal()


def _complete(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("the simulated disk waits for something")


def _full() -> ServerError:
    return ServerError("the store cannot take writes now: the disk is full", retryAfter="1")
