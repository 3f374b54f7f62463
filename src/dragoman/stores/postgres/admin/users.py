"""Users with their permissions and API keys, in the database that all nodes share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from dragoman.clock import Clock, SystemClock
from dragoman.model.error import ServerError
from dragoman.model.user import Account, Grant, KeySummary, UserSummary, is_name
from dragoman.net.postgres import PostgresConnection, parse_address
from dragoman.stores.accounts import (
    AccountCache,
    build_account,
    check_name,
    check_permission,
    key_error,
    no_permission_error,
    no_user_error,
    user_exists_error,
)
from dragoman.stores.postgres.admin.lookup import CHANNEL, UserLookup
from dragoman.stores.postgres.admin.session import run, run_unchecked
from dragoman.stores.postgres.sql.schema import migrate

# The columns of an account; $2 is the time of the lookup.
_ACCOUNT = """u.name, u.password, u.epoch,
ARRAY(SELECT g.permission FROM grants g WHERE g."user" = u."user" AND (g.until_ms IS NULL OR g.until_ms > $2)),
ARRAY(SELECT g.until_ms FROM grants g WHERE g."user" = u."user" AND g.until_ms > $2)
"""
_BY_NAME = f"SELECT NULL::bigint, {_ACCOUNT} FROM users u WHERE u.name = $1 AND NOT u.revoked"
_BY_KEY = f"""
SELECT k.until_ms, {_ACCOUNT} FROM api_keys k JOIN users u USING ("user")
WHERE k.digest = $1 AND NOT u.revoked AND (k.until_ms IS NULL OR k.until_ms > $2)
"""
_ADD = """
INSERT INTO users (name, password, created_ms) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET revoked = false, password = excluded.password WHERE users.revoked
RETURNING "user"
"""
_GRANT = """
INSERT INTO grants ("user", permission, until_ms) VALUES ($1, $2, $3)
ON CONFLICT ("user", permission) DO UPDATE SET until_ms = excluded.until_ms
"""
_USERS = """SELECT "user", name, created_ms, password <> '' FROM users WHERE NOT revoked ORDER BY name COLLATE "C" """
_GRANTS = """
SELECT "user", permission, until_ms FROM grants WHERE until_ms IS NULL OR until_ms > $1
ORDER BY permission COLLATE "C"
"""
_KEYS = """
SELECT "user", hint, created_ms, until_ms FROM api_keys WHERE until_ms IS NULL OR until_ms > $1
ORDER BY created_ms, hint COLLATE "C"
"""


class PostgresUsers:
    """The users of one store, for any number of nodes.

    A node caches accounts. Every change is announced with NOTIFY, and a node that misses the notice reads again after
    a few seconds. A lookup needs the database: without it, callers whose account is no longer fresh get ServerError.
    """

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._url = url
        self._clock = clock or SystemClock()
        self._cache = AccountCache()
        self._lookup: UserLookup | None = None
        self._has_changed = False

    # -- for a server ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Get ready for lookups. The store must be open, so that the tables exist. The first one connects."""
        self._lookup = UserLookup(self._url, self._cache.clear)

    async def close(self) -> None:
        """Disconnect."""
        lookup, self._lookup = self._lookup, None
        if lookup is not None:
            await lookup.close()
        self._cache.clear()

    async def by_name(self, name: str) -> Account | None:
        """Return a user with the permissions that are valid now, or None. Raises ServerError when it cannot be read."""
        now = self._begin_lookup()
        cached = self._cache.get(name, now)
        if cached is not None:
            return cached
        if not is_name(name):
            return None  # whatever a caller has typed; the database could not even take some of it
        return await self._cache.load(name, self._read(_BY_NAME, name, now))

    async def by_key(self, digest: bytes) -> Account | None:
        """Return the user of a valid API key by its digest, or None. Raises ServerError when it cannot be read."""
        now = self._begin_lookup()
        return self._cache.get(digest, now) or await self._cache.load(digest, self._read(_BY_KEY, digest, now))

    # -- administration --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the tables, or migrate older ones, if no server has done so. Raises ConfigError."""
        run_unchecked(self._url, lambda connection: migrate(connection, parse_address(self._url).text))

    def add(self, name: str, password: str = "", permissions: tuple[str, ...] = ()) -> None:
        """Add a user; `password` is a hash. A revoked user is added again without the old permissions.

        Raises:
            ConfigError: the name is invalid or taken; a permission is empty or too long.
        """
        check_name(name)
        for permission in permissions:
            check_permission(permission)

        async def work(connection: PostgresConnection) -> None:
            user = await connection.fetchval(_ADD, name, password, self._clock.now())
            if user is None:
                raise user_exists_error(name)
            for permission in permissions:
                await connection.execute(_GRANT, user, permission, None)

        self._change(work)

    def set_password(self, name: str, password: str) -> None:
        """Set another password hash, which invalidates the user's cookies. Raises ConfigError for an unknown user."""

        async def work(connection: PostgresConnection) -> None:
            user = await _lock_user(connection, name)
            await connection.execute(
                'UPDATE users SET password = $2, epoch = epoch + 1 WHERE "user" = $1', user, password
            )

        self._change(work)

    def grant(self, name: str, permission: str, seconds: float | None = None) -> None:
        """Grant a permission, for a time or for good; it replaces an earlier grant of the same one.

        Raises:
            ConfigError: there is no such user, or the permission is empty or too long.
        """
        check_permission(permission)

        async def work(connection: PostgresConnection) -> None:
            await connection.execute(_GRANT, await _lock_user(connection, name), permission, self._expiry(seconds))

        self._change(work)

    def add_key(self, name: str, digest: bytes, hint: str, seconds: float | None = None) -> None:
        """Add an API key, for a time or for good, and delete expired ones. `hint` is the part of it that may be shown.

        Raises:
            ConfigError: there is no such user.
        """

        async def work(connection: PostgresConnection) -> None:
            user, now = await _lock_user(connection, name), self._clock.now()
            await connection.execute('DELETE FROM api_keys WHERE "user" = $1 AND until_ms <= $2', user, now)
            await connection.execute(
                'INSERT INTO api_keys (digest, "user", hint, created_ms, until_ms) VALUES ($1, $2, $3, $4, $5)',
                digest,
                user,
                hint,
                now,
                self._expiry(seconds),
            )

        self._change(work)

    def revoke(self, name: str) -> None:
        """Revoke a user: no key, cookie or password is valid any more. Raises ConfigError for an unknown user."""

        async def work(connection: PostgresConnection) -> None:
            # The row stays, so that nobody else can take the name and with it the tasks.
            user = await _lock_user(connection, name)
            await connection.execute('DELETE FROM grants WHERE "user" = $1', user)
            await connection.execute('DELETE FROM api_keys WHERE "user" = $1', user)
            await connection.execute(
                "UPDATE users SET revoked = true, password = '', epoch = epoch + 1 WHERE \"user\" = $1", user
            )

        self._change(work)

    def revoke_permission(self, name: str, permission: str) -> None:
        """Revoke a permission. Raises ConfigError when there is no such user, or the user does not have it."""

        async def work(connection: PostgresConnection) -> None:
            user = await _lock_user(connection, name)
            deleted = 'DELETE FROM grants WHERE "user" = $1 AND permission = $2 RETURNING true'
            if not await connection.fetchval(deleted, user, permission):
                raise no_permission_error(name)

        self._change(work)

    def revoke_key(self, name: str, hint: str) -> None:
        """Revoke the API key with this hint. Raises ConfigError when there is no such user, no such key, or several."""

        async def work(connection: PostgresConnection) -> None:
            user = await _lock_user(connection, name)
            matches = await connection.fetch('SELECT digest FROM api_keys WHERE "user" = $1 AND hint = $2', user, hint)
            if len(matches) != 1:
                raise key_error(name, hint, len(matches))
            await connection.execute("DELETE FROM api_keys WHERE digest = $1", matches[0][0])

        self._change(work)

    def account(self, name: str) -> Account | None:
        """Return a user with the permissions that are valid now; None when there is none, or it was revoked."""
        now = self._clock.now()

        async def work(connection: PostgresConnection) -> Account | None:
            return _account(await connection.fetchrow(_BY_NAME, name, now), now)

        return run(self._url, work)

    def list_users(self) -> list[UserSummary]:
        """List the users who were not revoked, by name, with their valid permissions and keys."""
        now = self._clock.now()

        async def work(connection: PostgresConnection) -> list[UserSummary]:
            grants: dict[int, list[Grant]] = defaultdict(list)
            keys: dict[int, list[KeySummary]] = defaultdict(list)
            async with connection.transaction():
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                users = await connection.fetch(_USERS)
                for user, *values in await connection.fetch(_GRANTS, now):
                    grants[user].append(Grant(*values))
                for user, *values in await connection.fetch(_KEYS, now):
                    keys[user].append(KeySummary(*values))
            return [
                UserSummary(name, created, has_password, tuple(grants[user]), tuple(keys[user]))
                for user, name, created, has_password in users
            ]

        return run(self._url, work)

    # -- internal ---------------------------------------------------------------------------------------------------

    def _change(self, work: Callable[[PostgresConnection], Awaitable[None]]) -> None:
        """Do something in one transaction, and announce it to all nodes when it is committed."""

        async def transaction(connection: PostgresConnection) -> None:
            async with connection.transaction():
                await work(connection)
                await connection.execute("SELECT pg_notify($1, '')", CHANNEL)

        run(self._url, transaction)
        # Its own changes count at once. The cache belongs to the server's event loop, and this may be any thread.
        self._has_changed = True

    def _begin_lookup(self) -> int:
        """Return the current time."""
        if self._has_changed:
            self._has_changed = False
            self._cache.clear()
        return self._clock.now()

    async def _read(self, query: str, key: str | bytes, now: int) -> Account | None:
        if self._lookup is None:
            raise ServerError("the store of users is closed")
        return _account(await self._lookup.fetch_row(query, key, now), now)

    def _expiry(self, seconds: float | None) -> int | None:
        return None if seconds is None else self._clock.now() + int(seconds * 1000)


async def _lock_user(connection: PostgresConnection, name: str) -> int:
    user = await connection.fetchval('SELECT "user" FROM users WHERE name = $1 AND NOT revoked FOR UPDATE', name)
    if user is None:
        raise no_user_error(name)
    return user


def _account(row: Any, now: int) -> Account | None:
    if row is None:
        return None
    until, name, password, epoch, permissions, ends = row
    return build_account(name, password, epoch, permissions, (until, *ends), now)
