"""Users with their permissions and API keys, in the database that all nodes share."""

from __future__ import annotations

from typing import Any

from dragoman.clock import Clock
from dragoman.model.error import ServerError
from dragoman.net.postgres import PostgresConnection, parse_address
from dragoman.stores.postgres.admin.lookup import CHANNEL, UserLookup
from dragoman.stores.postgres.admin.session import run, run_unchecked
from dragoman.stores.postgres.sql.schema import migrate
from dragoman.stores.users import T, Users, Work


class PostgresUsers(Users):
    """The users of one store, for any number of nodes.

    A node caches accounts. Every change is announced with NOTIFY, and a node that misses the notice reads again after
    a few seconds. A lookup needs the database: without it, callers whose account is no longer fresh get ServerError.
    """

    _row_lock = "FOR UPDATE"

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._url = url
        self._lookup: UserLookup | None = None

    async def open(self) -> None:
        """Get ready for lookups. The store must be open, so that the tables exist. The first one connects."""
        self._lookup = UserLookup(self._url, self._cache.clear)

    async def close(self) -> None:
        """Disconnect."""
        lookup, self._lookup = self._lookup, None
        if lookup is not None:
            await lookup.close()
        self._cache.clear()

    def prepare(self) -> None:
        """Create the tables, or migrate older ones, if no server has done so. Raises ConfigError."""
        run_unchecked(self._url, lambda connection: migrate(connection, parse_address(self._url).text))

    def _read(self, work: Work[T]) -> T:
        async def snapshot(connection: PostgresConnection) -> T:
            async with connection.transaction():
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return await work(connection)

        return run(self._url, snapshot)

    def _write(self, work: Work[None]) -> None:
        async def transaction(connection: PostgresConnection) -> None:
            async with connection.transaction():
                await work(connection)
                await connection.execute("SELECT pg_notify($1, '')", CHANNEL)

        run(self._url, transaction)

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        if self._lookup is None:
            raise ServerError("the store of users is closed")
        return await self._lookup.fetch(query, *values)
