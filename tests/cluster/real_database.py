"""PostgreSQL below a simulated cluster: real statements, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from cluster.link import Backend
from cluster.world import World

from dragoman.engine.ports.store import Write
from dragoman.net.postgres import connect
from dragoman.stores.postgres.database import ChangeOutcome
from dragoman.stores.postgres.sql.database import PostgresDatabase
from dragoman.stores.postgres.sql.nodes import PostgresNodes

_CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_STATE = """
SELECT t.state, t.owner, t.begun, t.attempts, c.home FROM tasks t
LEFT JOIN contexts c ON c.scope = t.scope AND c.context_id = t.context_id WHERE t.number = $1
"""
_NOT_AWAITED = "UPDATE nodes SET seen = seen - interval '1 hour' WHERE id = $1"


class RealDatabase:
    """Both ports on PostgreSQL. Each of a few nodes has its own connection for commits, so that they meet there.

    In virtual time the clock of PostgreSQL hardly moves: with `is_hasty`, nobody waits for nodes that have left.
    """

    def __init__(self, url: str, now_ms: Callable[[], int], writers: int = 4, *, is_hasty: bool = False) -> None:
        self._url = url
        self._is_hasty = is_hasty
        self._control: Any = None
        self._tables = [PostgresDatabase(url, now_ms) for _ in range(writers)]
        self._nodes = PostgresNodes(url)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes if name in ("join", "beat", "bury") else self._tables[0], name)

    async def open(self) -> None:
        """Connect."""
        self._control = await connect(self._url)
        for tables in self._tables:
            await tables.open(())

    async def commit(self, node: int, changes: Sequence[Sequence[Write]]) -> list[ChangeOutcome]:
        """Commit on the connection of a node."""
        return await self._tables[node % len(self._tables)].commit(node, changes)

    async def leave(self, node: int) -> None:
        """Leave."""
        await self._nodes.leave(node)
        if self._is_hasty:
            await self._tables[0]._pool.run(lambda connection: connection.execute(_NOT_AWAITED, node))

    async def state_of(self, number: int) -> tuple[int, int | None, bool, int, str | None]:
        """State, owner, begun, attempts and home of a task."""
        return tuple(await self._control.fetchrow(_STATE, number))

    async def cut(self) -> None:
        """Cut all connections, in the middle of whatever they do."""
        await self._control.execute(_CUT)

    async def close(self) -> None:
        """Disconnect."""
        await self._control.close()
        await self._nodes.close()
        for tables in self._tables:
            await tables.close()


class RealBackend(Backend):
    """Executes statements on a loop of its own. Those that arrive at the same virtual time run side by side."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._waiting: list[tuple[Coroutine[Any, Any, Any], Callable[[Any, BaseException | None], None]]] = []

    def attach(self, world: World) -> None:
        """Execute what is waiting before time moves."""
        world.before_time_moves.append(self._flush)

    def execute(self, statement: Coroutine[Any, Any, Any], then: Callable[[Any, BaseException | None], None]) -> None:
        """Execute a statement with the others of this moment."""
        self._waiting.append((statement, then))

    def _flush(self) -> bool:
        if not self._waiting:
            return False
        waiting, self._waiting = self._waiting, []
        for (_, then), result in zip(waiting, self.run(_all([statement for statement, _ in waiting])), strict=True):
            if isinstance(result, BaseException):
                then(None, result)
            else:
                then(result, None)
        return True

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run to the end."""
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        """Forget what is waiting."""
        for statement, _ in self._waiting:
            statement.close()
        self.loop.close()


async def _all(statements: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*statements, return_exceptions=True)
