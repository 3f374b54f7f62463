"""Runs one piece of work on a connection of its own, for callers that block."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dragoman.model.error import ConfigError, DragomanError, ServerError
from dragoman.net.postgres import PostgresConnection, PostgresUnreachable, connect, is_forbidden, parse_address
from dragoman.stores.postgres.sql.schema import VERSION, check_version, no_rights_error

T = TypeVar("T")
Work = Callable[[PostgresConnection], Awaitable[T]]
# Somebody waits for the command: it must not wait forever for a lock.
_SETTINGS = {"application_name": "dragoman administration", "lock_timeout": "10s"}


def run(url: str, work: Work[T], *, oldest: int = VERSION) -> T:
    """Await `work` with a connection to a store of this version. Works in any thread, also where an event loop runs.

    `oldest` is the oldest version of the tables that the work can use.

    Raises:
        ConfigError: the URL or the login is wrong, or the database is no store of this version.
        ServerError: the database cannot be reached now, or the work failed.
    """

    async def checked(connection: PostgresConnection) -> T:
        name = parse_address(url).text
        version = await check_version(connection, name)
        if version == 0:
            raise ConfigError(f"{name} has no tables yet: start a server on it once")
        if version < oldest:
            raise ConfigError(f"an older version of Dragoman wrote {name}: start a server on it once to upgrade it")
        return await work(connection)

    return run_unchecked(url, checked)


def run_unchecked(url: str, work: Work[T]) -> T:
    """Await `work` with a connection to whatever database the URL names. Raises as `run` does."""

    async def session() -> T:
        connection = await connect(url, _SETTINGS)
        try:
            return await work(connection)
        finally:
            connection.terminate()

    try:
        with ThreadPoolExecutor(1, thread_name_prefix="dragoman-administration") as pool:
            return pool.submit(asyncio.run, session()).result()
    except DragomanError:
        raise
    except PostgresUnreachable as error:
        raise ServerError(str(error)) from None
    except Exception as error:
        if not is_database_error(error):
            raise
        address = parse_address(url)
        if is_forbidden(error):
            raise no_rights_error(address.text, error) from None
        raise ServerError(f"PostgreSQL at {address.text}: {address.clean(str(error))}") from None


def is_database_error(error: BaseException) -> bool:
    """True for what a connection raises: an error of the server, of the driver or of the network."""
    import asyncpg

    return isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | OSError | TimeoutError)
