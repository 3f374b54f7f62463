"""NOTIFY and LISTEN in memory, with notifications that are late or lost, and connections that are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from cluster.link import Link
from cluster.world import NodeLoop, World


class Switchboard:
    """Carries notifications between the connections of all nodes."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self.connections: dict[BusLine, None] = {}
        self.delay = 0.004
        self.loss = 0.0

    def publish(self, channel: str, payload: str) -> None:
        """Send a payload to every connection, the sender's own included."""
        for line in self.connections:
            if self._random.random() >= self.loss:
                self._world.after(self._random.random() * self.delay, lambda line=line: line.receive(channel, payload))

    def cut(self, link: Link | None = None) -> None:
        """Cut the connections, of one node or of all."""
        for line in list(self.connections):
            if link is None or line.link is link:
                line.terminate()


class BusLine:
    """A connection for notifications, with the names of asyncpg."""

    def __init__(self, board: Switchboard, loop: NodeLoop, link: Link) -> None:
        self._board = board
        self._loop = loop
        self._listeners: list[Callable[[object, int, str, object], None]] = []
        self._on_terminated: list[Callable[[object], None]] = []
        self.link = link
        board.connections[self] = None

    def receive(self, channel: str, payload: str) -> None:
        """Pass a payload to the listeners, unless the connection is closed meanwhile."""
        if self in self._board.connections:
            for listener in self._listeners:
                self._loop.call_soon(listener, self, 0, channel, payload)

    def add_termination_listener(self, callback: Callable[[object], None]) -> None:
        """Call back when the connection is closed."""
        self._on_terminated.append(callback)

    async def add_listener(self, channel: str, callback: Callable[[object, int, str, object], None]) -> None:
        """LISTEN."""
        await self.execute("LISTEN")
        self._listeners.append(callback)

    async def execute(self, query: str) -> None:
        """Do nothing, on a connection that works."""
        await self.link.check(0)
        if self.is_closed():
            raise ConnectionError("the connection is closed")

    async def prepare(self, query: str) -> BusLine:
        """The only statement there is: NOTIFY."""
        await self.execute(query)
        return self

    async def fetch(self, channel: str, payloads: Sequence[str]) -> None:
        """NOTIFY."""
        await self.execute("NOTIFY")
        for payload in payloads:
            self._board.publish(channel, payload)

    async def close(self) -> None:
        """Close the connection."""
        self.terminate()

    def is_closed(self) -> bool:
        """True when the connection is closed, by either side."""
        return self not in self._board.connections

    def terminate(self) -> None:
        """Close the connection without a word."""
        if self._board.connections.pop(self, 0) is None:
            for callback in self._on_terminated:
                self._loop.call_soon(callback, self)
