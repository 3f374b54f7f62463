"""Connections that are made when they are needed, and again after they were lost."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from dragoman.model.error import ConfigError
from dragoman.net.postgres import (
    PostgresConnection,
    PostgresUnreachable,
    connect,
    is_conflict,
    is_lost,
    is_refused,
    is_unstorable,
    parse_address,
)
from dragoman.stores.postgres.database import CannotWrite, ConnectionLost, InvalidValue

logger = logging.getLogger("dragoman.store")
T = TypeVar("T")

# Every query has an index made for it. Before the first ANALYZE of a growing table the planner guesses wrong, and a
# prepared statement keeps the plan: these settings leave it no choice but the index.
PLANS = {
    "application_name": "dragoman",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # A table that looks small is not read as a whole for a few rows.
    "random_page_cost": "0.01",
}
# Seconds before a statement that lost a conflict is repeated: up to the first value, which doubles up to the second.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_CLOSE_SECONDS = 2.0


class Session:
    """One connection. Statements that run at the same time wait for each other."""

    def __init__(self, url: str, settings: Mapping[str, str] | None = None) -> None:
        self._url = url
        self._settings = {**PLANS, **(settings or {})}
        self._connection: PostgresConnection | None = None
        self._lock = asyncio.Lock()

    @property
    def is_connected(self) -> bool:
        """True when there is a connection."""
        return self._connection is not None and not self._connection.is_closed()

    async def run(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Run statements. What lost a conflict with others is run again: `work` is a statement or a transaction.

        Raises:
            ConnectionLost: there is no connection, or it was lost meanwhile.
            CannotWrite: the database cannot write now.
            InvalidValue: a value cannot be stored.
        """
        async with self._lock:
            pause = _FIRST_PAUSE
            while True:
                connection = await self._connect()
                try:
                    return await work(connection)
                except asyncio.CancelledError:
                    self.terminate()  # whoever gave up did not get the answer, and nobody else may take it for his
                    raise
                except Exception as error:
                    if is_refused(error):
                        # Not given up: a server without room may have none for a new connection either.
                        raise CannotWrite(" ".join(str(error).split())) from error
                    if is_lost(error):
                        self.terminate()
                        raise ConnectionLost(parse_address(self._url).clean(str(error))) from error
                    if is_unstorable(error):
                        raise InvalidValue(str(error)) from error
                    if not is_conflict(error):
                        raise
                await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 - so that those in conflict part
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def open(self) -> None:
        """Connect.

        Raises:
            ConnectionLost: no server can be reached now.
            ConfigError: that is not possible; the text says what to do.
        """
        async with self._lock:
            try:
                self._connection = await connect(self._url, self._settings)
            except PostgresUnreachable as error:
                raise ConnectionLost(str(error)) from None

    async def _connect(self) -> PostgresConnection:
        if self._connection is None or self._connection.is_closed():
            try:
                self._connection = await connect(self._url, self._settings)
            except (PostgresUnreachable, ConfigError) as error:
                raise ConnectionLost(str(error)) from None
        return self._connection

    async def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is None or connection.is_closed():
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await connection.close()
        except Exception:  # noqa: BLE001 - it is given up anyway
            connection.terminate()

    def terminate(self) -> None:
        """Give the connection up at once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


class SessionPool:
    """A few connections for statements that may run at the same time."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._free = asyncio.Semaphore(size)
        # The one that was used last is used next: the others stay unused when there is little to do.
        self._idle: list[Session] = []
        self._sessions: list[Session] = []

    async def run(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Run statements on a connection of their own. Raises what `Session.run` raises."""
        async with self._free:
            if self._idle:
                session = self._idle.pop()
            else:
                session = Session(self._url)
                self._sessions.append(session)
            try:
                return await session.run(work)
            finally:
                # One without a connection is used last: the server may have no more of them.
                self._idle.insert(len(self._idle) if session.is_connected else 0, session)

    async def close(self) -> None:
        """Disconnect all."""
        await asyncio.gather(*(session.close() for session in self._sessions))
