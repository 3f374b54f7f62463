"""The connection of a server on which users are looked up, and on which it learns that users have changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from dragoman.model.error import ConfigError, ServerError
from dragoman.net.postgres import PostgresConnection, PostgresUnreachable, connect, is_lost, parse_address
from dragoman.stores.postgres.admin.session import is_database_error

logger = logging.getLogger("dragoman.store")
# Where a change of users is announced to all nodes.
CHANNEL = "dragoman_users"
# Seconds that a lookup may take, and how long after a failed connection no other is tried.
_TIMEOUT = 5.0
_PAUSE = 1.0
_SETTINGS = {"application_name": "dragoman users"}
_NOT_NOW = "the users cannot be looked up now: try again in a moment"


class UserLookup:
    """Runs one query at a time, and calls `on_change` when users have changed, or may have.

    A lost connection is replaced with the next query.
    """

    def __init__(self, url: str, on_change: Callable[[], None]) -> None:
        self._url = url
        self._on_change = on_change
        self._connection: PostgresConnection | None = None
        self._lock = asyncio.Lock()
        self._next_attempt = 0.0
        self._is_closed = False

    async def close(self) -> None:
        """Disconnect. Later queries are refused."""
        self._is_closed = True
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                async with asyncio.timeout(_TIMEOUT):
                    await connection.close()

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a query. Raises ServerError when the database does not answer."""
        async with self._lock:
            if self._is_closed:
                raise ServerError("the store of users is closed")
            try:
                return await self._fetch(query, *values)
            except Exception as error:
                if not isinstance(error, PostgresUnreachable | ConfigError) and not is_database_error(error):
                    raise
                if is_lost(error):
                    self._disconnect()
                # The reason is for the log: callers need not know where the database is.
                logger.warning(
                    "users cannot be looked up: %s", parse_address(self._url).clean(str(error) or repr(error))
                )
                raise ServerError(_NOT_NOW) from None

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        if self._connection is not None:
            try:
                async with asyncio.timeout(_TIMEOUT):
                    return await self._connection.fetch(query, *values)
            except Exception as error:
                # A connection that was idle may be gone, which only its use shows: then once more on another.
                if not is_lost(error):
                    raise
                self._disconnect()
        connection = await self._connect()
        async with asyncio.timeout(_TIMEOUT):
            return await connection.fetch(query, *values)

    async def _connect(self) -> PostgresConnection:
        # Without the pause, all requests would wait for a database that does not answer, one after the other.
        if time.monotonic() < self._next_attempt:
            raise ServerError(_NOT_NOW)
        try:
            connection = self._connection = await connect(self._url, _SETTINGS, seconds=_TIMEOUT)
            await connection.add_listener(CHANNEL, lambda *_: self._on_change())
        except BaseException:
            self._next_attempt = time.monotonic() + _PAUSE
            self._disconnect()
            raise
        # What changed while nobody listened was not announced here.
        self._on_change()
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
