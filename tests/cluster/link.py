"""The way from one node to the database, with faults: delays, cuts, lost replies and late effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from math import ceil
from random import Random
from typing import Any, Literal, NamedTuple

from cluster.world import NodeLoop, World

from dragoman.stores.postgres.database import ConnectionLost

Fate = Literal["reply", "refuse", "cut", "swallow", "zombie"]


class Weather(NamedTuple):
    """How likely each fault is, and the longest delay of a statement and of its reply, in seconds.

    "refuse" fails at once; "cut" fails later, and the statement is never applied; "swallow" applies it and loses the
    reply; "zombie" fails, and the statement is applied later, perhaps after later ones.
    """

    delay: float = 0.004
    refuse: float = 0.0
    cut: float = 0.0
    swallow: float = 0.0
    zombie: float = 0.0

    def draw(self, random: Random) -> Fate:
        """What becomes of one statement."""
        number = random.random()
        for fate, chance in (
            ("refuse", self.refuse),
            ("cut", self.cut),
            ("swallow", self.swallow),
            ("zombie", self.zombie),
        ):
            if number < chance:
                return fate
            number -= chance
        return "reply"


CALM = Weather()
# The longest time until a statement is applied whose client is gone, in seconds: mostly at once.
ZOMBIE_DELAYS = (0.01, 0.1, 1.0, 10.0)


class Backend:
    """Executes statements on a database whose methods never wait for anything."""

    def execute(self, statement: Coroutine[Any, Any, Any], then: Callable[[Any, BaseException | None], None]) -> None:
        """Execute a statement now, and call back with its result or its error."""
        try:
            statement.send(None)
        except StopIteration as stop:
            then(stop.value, None)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            then(None, error)
        else:
            raise AssertionError("the simulated database waits for something")


class _Statement:
    """A statement on its way. `future` is the caller's."""

    __slots__ = ("applied", "future", "loop", "lost")

    def __init__(self, loop: NodeLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.applied = False
        self.lost = False  # the caller has got its error, or is gone


class Network:
    """All links to one database, and what happens to the database itself.

    With a `grid`, statements arrive at multiples of it only, many at the same time.
    """

    def __init__(self, world: World, database: Any, random: Random, backend: Backend | None = None) -> None:
        self.world = world
        self.database = database
        self.random = random
        self.backend = backend or Backend()
        self.links: list[Link] = []
        self.down_until = 0.0
        self.statements = 0
        self.grid = 0.0

    def arrival(self, seconds: float) -> float:
        """When a statement arrives that takes so long: seconds from now."""
        if not self.grid:
            return seconds
        now = self.world.now
        return ceil((now + seconds) / self.grid) * self.grid - now

    def restart(self, seconds: float = 0.0) -> None:
        """Restart the database at once: all connections are cut, nothing committed is lost."""
        self.down_until = max(self.down_until, self.world.now + seconds)
        for link in self.links:
            link.cut()


class Link:
    """What one node sees of the database: any method of it, with faults.

    `severed` is True when the node was killed: nothing comes back any more. `down_until` is when a broken network of
    this node works again.
    """

    def __init__(self, network: Network, loop: NodeLoop) -> None:
        self._network = network
        self._loop = loop
        self._open: dict[_Statement, None] = {}
        self.weather = CALM
        self.severed = False
        self.down_until = 0.0
        network.links.append(self)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return self._add(name, getattr(self._network.database, name))

    async def run(self, query: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Send a query, as a statement of its name."""
        name = query.__name__
        call = vars(self).get(name) or self._add(name, partial(self._network.database.run, query))
        return await call(*args, **options)

    def _add(self, name: str, method: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            return await self._send(method, args, options)

        setattr(self, name, call)
        return call

    async def open(self, tables: object = ()) -> None:
        """Do nothing: every statement connects."""

    async def close(self) -> None:
        """Do nothing."""

    def sever(self) -> None:
        """Cut the node off for good, because it was killed. What is on its way may arrive, or not."""
        self.severed = True
        for statement in self._open:
            statement.lost = True
            if not statement.applied and self._network.random.random() < 0.5:
                statement.applied = True  # it never arrives
        self._network.links.remove(self)

    def cut(self) -> None:
        """Cut the connections: nobody gets a reply, and what has not arrived never does."""
        for statement in list(self._open):
            statement.applied = True
            self._fail(statement, "the connection was cut")

    def break_network(self, seconds: float) -> None:
        """Cut the connections, and refuse new ones for a while."""
        self.down_until = max(self.down_until, self._network.world.now + seconds)
        self.cut()

    async def _send(self, method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        network, world = self._network, self._network.world
        statement = _Statement(self._loop)
        if self.severed:
            return await statement.future
        self._open[statement] = None
        network.statements += 1
        random, delay = network.random, self.weather.delay
        fate = self.weather.draw(random)

        def refuse() -> None:
            self._fail(statement, "the database does not answer")

        def apply() -> None:
            if statement.applied:
                return
            statement.applied = True
            if self._is_down and not statement.lost:
                refuse()
                return
            network.backend.execute(method(*args, **options), reply)

        def reply(result: Any, error: BaseException | None) -> None:
            if fate == "swallow":
                world.after(random.random() * delay, refuse)
            elif not statement.lost:
                world.after(random.random() * delay, lambda: self._resolve(statement, result, error))

        if self._is_down or fate == "refuse":
            statement.applied = True
            world.after(random.random() * delay, refuse)
        elif fate == "cut":
            statement.applied = True
            world.after(random.random() * 20 * delay, refuse)
        elif fate == "zombie":
            world.after(0, refuse)
            world.after(network.arrival(random.random() * random.choice(ZOMBIE_DELAYS)), apply)
        else:
            world.after(network.arrival(random.random() * delay), apply)
        return await statement.future

    @property
    def _is_down(self) -> bool:
        return self._network.world.now < max(self.down_until, self._network.down_until)

    def _fail(self, statement: _Statement, reason: str) -> None:
        self._resolve(statement, None, ConnectionLost(reason))

    def _resolve(self, statement: _Statement, result: Any, error: BaseException | None) -> None:
        self._open.pop(statement, None)
        if statement.lost:
            return
        statement.lost = True
        self._loop.call_soon(_set, statement.future, result, error)


def _set(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
