"""The nodes in PostgreSQL: who is there, and who is not any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from dragoman.model.error import ConfigError
from dragoman.net.postgres import PostgresUnreachable, connect
from dragoman.stores.postgres.database import NodeInfo, Peer, Renewal
from dragoman.stores.postgres.sql.schema import VERSION
from dragoman.stores.postgres.sql.session import Session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.net.postgres import PostgresConnection

T = TypeVar("T")
# How long the renewal of a lease takes at most, unless something is wrong.
SILENCE_SECONDS = 2.0

_JOIN = """
INSERT INTO nodes (id, name, agents, version, lease, keys, tables) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO NOTHING
"""
_BEAT = """
WITH renewed AS (
    UPDATE nodes SET beat = beat + 1, seen = clock_timestamp(), runs = $2 WHERE id = $1 AND NOT dead RETURNING id, beat
)
SELECT r.id IS NOT NULL, n.id, n.name, coalesce(r.beat, n.beat), n.dead, n.lease, n.keys,
    CASE WHEN n.runs THEN n.agents ELSE '{}' END
FROM nodes n LEFT JOIN renewed r ON r.id = n.id WHERE NOT n.dead
"""
_BURY = "UPDATE nodes SET dead = true WHERE id = $1 AND beat = $2 AND NOT dead RETURNING 1"
_LEAVE = "UPDATE nodes SET dead = true, stopped = true, seen = clock_timestamp() WHERE id = $1 AND NOT dead"


class PostgresNodes:
    """Keeps the leases of nodes, on a connection of its own. It implements the port `NodeDatabase`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: Session | None = None

    async def close(self) -> None:
        """Close the connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def join(self, node: NodeInfo) -> None:
        """Register a node. Raises ConnectionLost."""
        row = (node.id, node.name, list(node.agents), node.version, node.lease, list(node.keys), VERSION)
        await self._run(lambda connection: connection.execute(_JOIN, *row))

    async def beat(self, node: int, *, runs: bool = True) -> Renewal:
        """Renew the lease of a node, unless it is dead, and read all nodes. Raises ConnectionLost."""
        rows = await self._run(lambda connection: connection.fetch(_BEAT, node, runs))
        peers = [
            Peer(peer, name, beat, dead, lease, tuple(keys), tuple(agents))
            for _, peer, name, beat, dead, lease, keys, agents in rows
        ]
        return Renewal(any(is_renewed for is_renewed, *_ in rows), peers)

    async def bury(self, node: int, beat: int) -> bool:
        """Declare a node dead if its beat is still this one. Raises ConnectionLost."""

        async def work(connection: PostgresConnection) -> bool:
            return await connection.fetchval(_BURY, node, beat) is not None

        return await self._run(work)

    async def leave(self, node: int) -> None:
        """Declare a node dead that stops by itself. Raises ConnectionLost."""
        await self._run(lambda connection: connection.execute(_LEAVE, node))

    async def _run(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        # Made here, so that it belongs to the event loop of the caller.
        if self._session is None:
            self._session = Session(self._url)
        watch = asyncio.ensure_future(self._watch())
        try:
            return await self._session.run(work)
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        """Look for another server while this one is silent.

        A server whose machine is gone breaks no connection, so that all of them would wait for long. Connecting to one
        that was promoted ends them.
        """
        while True:
            await asyncio.sleep(SILENCE_SECONDS)
            with suppress(PostgresUnreachable, ConfigError):
                connection = await connect(self._url, seconds=SILENCE_SECONDS)
                connection.terminate()
