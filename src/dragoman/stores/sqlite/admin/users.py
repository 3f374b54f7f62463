"""Users with their permissions and API keys, in the file of the store."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from dragoman.clock import Clock, SystemClock
from dragoman.model.error import ServerError
from dragoman.model.user import Account, Grant, KeySummary, UserSummary
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
from dragoman.stores.sqlite.admin.health import open_read_only, schema_version
from dragoman.stores.sqlite.file import real_path, short_write
from dragoman.stores.sqlite.schema import VERSION, migrate, refuse_moved
from dragoman.stores.sqlite.store import SqliteStore

_COLUMNS = "users.user, users.name, users.password, users.epoch"
_IS_VALID = "(until_ms IS NULL OR until_ms > ?)"


def account(connection: sqlite3.Connection, name: str, now: int) -> Account | None:
    """Return a user who was not revoked, with the permissions that are valid now; None when there is none."""
    row = connection.execute(
        f"SELECT NULL, {_COLUMNS} FROM users WHERE name = ? AND NOT revoked",  # noqa: S608
        (name,),
    ).fetchone()
    return None if row is None else _account(connection, now, *row)


def account_of_key(connection: sqlite3.Connection, digest: bytes, now: int) -> Account | None:
    """Return the user of an API key; None when the key is unknown or has expired."""
    row = connection.execute(
        f"SELECT api_keys.until_ms, {_COLUMNS} FROM api_keys JOIN users USING (user) "  # noqa: S608
        f"WHERE digest = ? AND NOT revoked AND {_IS_VALID}",
        (digest, now),
    ).fetchone()
    return None if row is None else _account(connection, now, *row)


def _account(
    connection: sqlite3.Connection, now: int, until: int | None, user: int, name: str, password: str, epoch: int
) -> Account:
    grants = _grants(connection, user, now)
    permissions = (grant.permission for grant in grants)
    return build_account(name, password, epoch, permissions, (until, *(grant.until for grant in grants)), now)


def _grants(connection: sqlite3.Connection, user: int, now: int) -> tuple[Grant, ...]:
    query = f"SELECT permission, until_ms FROM grants WHERE user = ? AND {_IS_VALID} ORDER BY permission"  # noqa: S608
    return tuple(Grant(*row) for row in connection.execute(query, (user, now)).fetchall())


def _keys(connection: sqlite3.Connection, user: int, now: int) -> tuple[KeySummary, ...]:
    query = (
        f"SELECT hint, created_ms, until_ms FROM api_keys WHERE user = ? AND {_IS_VALID} "  # noqa: S608
        "ORDER BY created_ms, hint"
    )
    return tuple(KeySummary(*row) for row in connection.execute(query, (user, now)).fetchall())


def _user_key(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT user FROM users WHERE name = ? AND NOT revoked", (name,)).fetchone()
    if row is None:
        raise no_user_error(name)
    return int(row[0])


class SqliteUsers:
    """The users of one store.

    The administration methods block, work in any thread and process, need no `open`, and may be used while the
    store's server is running; they raise ServerError when the file stays busy, and sqlite3.Error when it cannot be
    used. The others are for a server: accounts are cached until a change is noticed. Without a path the users are in
    memory and last as long as this object.
    """

    def __init__(self, path: Path | None, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._cache = AccountCache()
        self._stamp = 0
        self._change_file: int | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._reader: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._changes = 0
        self._seen_changes = 0
        self._memory = _in_memory() if path is None else None
        if self._memory is not None:
            weakref.finalize(self, self._memory.close)

    # -- for a server ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open a connection and a thread for lookups. The store must be open, so that the file exists."""
        if self._path is not None:
            path = real_path(self._path)
            self._change_file = os.open(path.with_name(path.name + ".ckpt"), os.O_RDONLY | os.O_CREAT, 0o600)
            uri = f"{path.as_uri()}?mode=ro"
            self._reader = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            self._reader.execute("PRAGMA busy_timeout = 5000")
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dragoman-users")

    async def close(self) -> None:
        """Close the file. Users in memory stay, and can be opened again."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await asyncio.to_thread(pool.shutdown)
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._change_file is not None:
            os.close(self._change_file)
            self._change_file = None
        self._cache.clear()

    async def by_name(self, name: str) -> Account | None:
        """Return a user with the permissions that are valid now, or None. Raises ServerError when it cannot be read."""
        now = self._clear_cache_if_changed()
        cached = self._cache.get(name, now)
        if cached is not None:
            return cached
        return await self._cache.load(name, self._read(lambda reader: account(reader, name, now)))

    async def by_key(self, digest: bytes) -> Account | None:
        """Return the user of a valid API key by its digest, or None. Raises ServerError when it cannot be read."""
        now = self._clear_cache_if_changed()
        cached = self._cache.get(digest, now)
        if cached is not None:
            return cached
        return await self._cache.load(digest, self._read(lambda reader: account_of_key(reader, digest, now)))

    # -- administration --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the file, or migrate an older one, if no server has done so.

        Raises:
            ConfigError: it cannot be used, or an older server has it open.
        """
        if self._path is not None and not _is_migrated(self._path):
            asyncio.run(_open_once(self._path))

    def add(self, name: str, password: str = "", permissions: tuple[str, ...] = ()) -> None:
        """Add a user; `password` is a hash. A revoked user is added again without the old permissions.

        Raises:
            ConfigError: the name is invalid or taken; a permission is empty or too long.
        """
        check_name(name)
        for permission in permissions:
            check_permission(permission)
        with self._write_transaction() as db:
            existing = db.execute("SELECT user, revoked FROM users WHERE name = ?", (name,)).fetchone()
            if existing is None:
                values = (name, password, self._clock.now())
                db.execute("INSERT INTO users (name, password, created_ms) VALUES (?, ?, ?)", values)
            elif existing[1]:
                db.execute("UPDATE users SET revoked = 0, password = ? WHERE user = ?", (password, existing[0]))
            else:
                raise user_exists_error(name)
            for permission in permissions:
                _grant(db, name, permission, None)

    def set_password(self, name: str, password: str) -> None:
        """Set another password hash, which invalidates the user's cookies. Raises ConfigError for an unknown user."""
        with self._write_transaction() as db:
            values = (password, _user_key(db, name))
            db.execute("UPDATE users SET password = ?, epoch = epoch + 1 WHERE user = ?", values)

    def grant(self, name: str, permission: str, seconds: float | None = None) -> None:
        """Grant a permission, for a time or for good; it replaces an earlier grant of the same one.

        Raises:
            ConfigError: there is no such user, or the permission is empty or too long.
        """
        check_permission(permission)
        with self._write_transaction() as db:
            _grant(db, name, permission, self._expiry(seconds))

    def add_key(self, name: str, digest: bytes, hint: str, seconds: float | None = None) -> None:
        """Add an API key, for a time or for good, and delete expired ones. `hint` is the part of it that may be shown.

        Raises:
            ConfigError: there is no such user.
        """
        with self._write_transaction() as db:
            user, now = _user_key(db, name), self._clock.now()
            db.execute("DELETE FROM api_keys WHERE user = ? AND until_ms <= ?", (user, now))
            db.execute("INSERT INTO api_keys VALUES (?, ?, ?, ?, ?)", (digest, user, hint, now, self._expiry(seconds)))

    def revoke(self, name: str) -> None:
        """Revoke a user: no key, cookie or password is valid any more. Raises ConfigError for an unknown user."""
        with self._write_transaction() as db:
            # The row stays, so that nobody else can take the name and with it the tasks.
            user = (_user_key(db, name),)
            db.execute("DELETE FROM grants WHERE user = ?", user)
            db.execute("DELETE FROM api_keys WHERE user = ?", user)
            db.execute("UPDATE users SET revoked = 1, password = '', epoch = epoch + 1 WHERE user = ?", user)

    def revoke_permission(self, name: str, permission: str) -> None:
        """Revoke a permission. Raises ConfigError when there is no such user, or the user does not have it."""
        with self._write_transaction() as db:
            values = (_user_key(db, name), permission)
            if not db.execute("DELETE FROM grants WHERE user = ? AND permission = ?", values).rowcount:
                raise no_permission_error(name)

    def revoke_key(self, name: str, hint: str) -> None:
        """Revoke the API key with this hint. Raises ConfigError when there is no such user, no such key, or several."""
        with self._write_transaction() as db:
            values = (_user_key(db, name), hint)
            matches = db.execute("SELECT digest FROM api_keys WHERE user = ? AND hint = ?", values).fetchall()
            if len(matches) != 1:
                raise key_error(name, hint, len(matches))
            db.execute("DELETE FROM api_keys WHERE digest = ?", matches[0])

    def account(self, name: str) -> Account | None:
        """Return a user with the permissions that are valid now; None when there is none, or it was revoked."""
        with self._read_connection() as reader:
            return account(reader, name, self._clock.now())

    def list_users(self) -> list[UserSummary]:
        """List the users who were not revoked, by name, with their valid permissions and keys."""
        now = self._clock.now()
        with self._read_connection() as reader:
            rows = reader.execute(
                "SELECT user, name, created_ms, password <> '' FROM users WHERE NOT revoked ORDER BY name"
            ).fetchall()
            return [
                UserSummary(name, created, bool(has_password), _grants(reader, user, now), _keys(reader, user, now))
                for user, name, created, has_password in rows
            ]

    # -- internal ---------------------------------------------------------------------------------------------------

    def _clear_cache_if_changed(self) -> int:
        """Clear the cache when users have changed since the last call. Return the current time."""
        # On every call: it takes less than a microsecond, and a change can be written in half a millisecond.
        stamp = self._stamp if self._change_file is None else os.fstat(self._change_file).st_mtime_ns
        if stamp != self._stamp or self._changes != self._seen_changes:
            self._stamp = stamp
            self._seen_changes = self._changes
            self._cache.clear()
        return self._clock.now()

    async def _read(self, query: Callable[[sqlite3.Connection], Account | None]) -> Account | None:
        if self._pool is None:
            raise ServerError("the store of users is closed")

        def work() -> Account | None:
            with self._read_connection() as reader:
                return query(reader)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except sqlite3.Error as error:
            raise ServerError(f"the users cannot be looked up now: {error}") from error

    @contextmanager
    def _read_connection(self) -> Generator[sqlite3.Connection]:
        shared = self._memory or self._reader
        if shared is not None:
            with self._lock:
                yield shared
            return
        assert self._path is not None
        with closing(open_read_only(self._path)) as reader:
            reader.execute("PRAGMA busy_timeout = 5000")
            yield reader

    @contextmanager
    def _write_transaction(self) -> Generator[sqlite3.Connection]:
        """One transaction, rolled back when the block raises."""
        if self._memory is not None:
            with self._lock, self._memory:
                self._memory.execute("BEGIN")
                yield self._memory
        else:
            assert self._path is not None
            with short_write(self._path) as connection:
                refuse_moved(connection, self._path)
                yield connection
        # Only counted here: the cache belongs to the server's event loop, and this may be any thread.
        self._changes += 1

    def _expiry(self, seconds: float | None) -> int | None:
        return None if seconds is None else self._clock.now() + int(seconds * 1000)


def _grant(connection: sqlite3.Connection, name: str, permission: str, until: int | None) -> None:
    connection.execute(
        "INSERT INTO grants (user, permission, until_ms) VALUES (?, ?, ?) "
        "ON CONFLICT DO UPDATE SET until_ms = excluded.until_ms",
        (_user_key(connection, name), permission, until),
    )


def _in_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    migrate(connection, Path("memory"))
    return connection


def _is_migrated(path: Path) -> bool:
    if not path.exists():
        return False
    with closing(open_read_only(path)) as reader:
        return schema_version(reader, path) == VERSION


async def _open_once(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
