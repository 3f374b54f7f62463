"""Several nodes on one real database, and a stranger who holds locks, so that a test decides who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import structs
from unit.stores.postgres.changes import NOW, Change, appended, created, new_row

from dragoman.engine.ports.store import TaskRow
from dragoman.model.state import State
from dragoman.net.postgres import PostgresConnection, connect
from dragoman.stores.postgres.database import ChangeOutcome, NodeInfo
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.stores.postgres.sql.nodes import PostgresNodes


class ClusterNode:
    """A node with its own connections."""

    def __init__(self, number: int, url: str) -> None:
        self.id = number
        self.database = PostgresDatabase(url, lambda: NOW)
        self.nodes = PostgresNodes(url)

    async def start(self) -> None:
        await self.database.open(())
        await self.nodes.join(NodeInfo(self.id, f"node {self.id}", ("agent",), "1"))

    async def stop(self) -> None:
        await self.database.close()
        await self.nodes.close()

    async def die(self) -> None:
        """Others have declared it dead; its connections work on."""
        beats = {peer.id: peer.beat for peer in (await self.nodes.beat(self.id)).peers}
        assert await self.nodes.bury(self.id, beats[self.id])

    async def commit(self, *changes: Change | list[Change]) -> list[ChangeOutcome]:
        sequences = [change if isinstance(change, list) else [change] for change in changes]
        return await self.database.commit(self.id, [[one.write for one in sequence] for sequence in sequences])

    async def kinds(self, *changes: Change | list[Change]) -> list[str]:
        return [outcome.kind for outcome in await self.commit(*changes)]

    async def create(self, context: str = "", number: int | None = None, **parts: Any) -> TaskRow:
        """Create a task that runs here from now on, unless it has to wait."""
        row = structs.replace(new_row(context, number), state=State.WORKING)
        assert await self.kinds(created(row, **{"begins": True, "serial": True, **parts})) == ["committed"]
        return row

    async def append(self, row: TaskRow, state: State | None = None, *, epoch: int = 1, **parts: Any) -> str:
        """Write the next record; return what became of it."""
        return (await self.kinds(next_record(row, state, epoch=epoch, **parts)))[0]

    async def take(self, limit: int = 10, *, parallel: bool = False) -> list[int]:
        """Claim work; return the numbers of the tasks."""
        tasks = await self.database.take(self.id, "agent", parallel=parallel, limit=limit)
        return [task.claim.task for task in tasks]


def next_record(row: TaskRow, state: State | None = None, *, epoch: int = 1, **parts: Any) -> Change:
    """The record after the row's; a changed state is counted."""
    if state is not None:
        parts.setdefault("previous_state", row.state)
    return appended(row, row.generation + 1, state, epoch=epoch, **parts)


def draft_of(row: TaskRow, **parts: Any) -> Change:
    """A task that may be answered with a bare message."""
    return Change(row, draft=True, snapshot=b"draft", epoch=1, **parts)


class Cluster:
    """Nodes on one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._nodes: list[ClusterNode] = []
        self._strangers: list[PostgresConnection] = []

    async def node(self, **parameters: str) -> ClusterNode:
        """One more node; parameters are those of its URL."""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        node = ClusterNode(len(self._nodes) + 101, f"{self.url}?{query}" if query else self.url)
        self._nodes.append(node)
        await node.start()
        return node

    async def stranger(self) -> PostgresConnection:
        """A connection of its own, for locks and questions."""
        connection = await connect(self.url)
        self._strangers.append(connection)
        return connection

    @asynccontextmanager
    async def locked(self, *rows: TaskRow) -> AsyncIterator[PostgresConnection]:
        """Hold the rows of tasks: whoever wants to change them waits until the end of the block."""
        connection = await self.stranger()
        async with connection.transaction():
            for row in rows:
                await connection.execute("SELECT 1 FROM tasks WHERE number = $1 FOR UPDATE", row.number)
            yield connection

    async def until_waiting(self, count: int = 1) -> None:
        """Wait until so many statements wait for a lock."""
        connection = await self.stranger()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        async with asyncio.timeout(10):
            while await connection.fetchval(waiting) < count:
                pass

    async def value(self, query: str, *args: Any) -> Any:
        """Ask the database itself."""
        connection = await connect(self.url)
        try:
            return await connection.fetchval(query, *args)
        finally:
            await connection.close()

    async def close(self) -> None:
        await asyncio.gather(*(node.stop() for node in self._nodes), *(one.close() for one in self._strangers))
