"""Users with their permissions and API keys: what is asked of a database, whichever it is, and a cache of accounts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeVar

from dragoman.clock import Clock, SystemClock
from dragoman.model.error import ConfigError
from dragoman.model.user import Account, Grant, KeySummary, User, UserSummary, is_name

# Milliseconds a cached account is valid, should the notice of a change be lost.
FRESH_MS = 5000
MAX_CACHED = 8192
_MAX_PERMISSION_LENGTH = 200

# An account has a row for each permission, or one without; $2 is the time of the lookup.
_ACCOUNT = "u.name, u.password, u.epoch, g.permission, g.until_ms"
_GRANTED = 'LEFT JOIN grants g ON g."user" = u."user" AND (g.until_ms IS NULL OR g.until_ms > $2)'
_BY_NAME = f"SELECT NULL, {_ACCOUNT} FROM users u {_GRANTED} WHERE u.name = $1 AND NOT u.revoked"  # noqa: S608 - constants only
_BY_KEY = f"""
SELECT k.until_ms, {_ACCOUNT} FROM api_keys k JOIN users u ON u."user" = k."user" {_GRANTED}
WHERE k.digest = $1 AND NOT u.revoked AND (k.until_ms IS NULL OR k.until_ms > $2)
"""  # noqa: S608
_ADD = """
INSERT INTO users (name, password, created_ms) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET revoked = false, password = excluded.password WHERE users.revoked
RETURNING "user"
"""
_GRANT = """
INSERT INTO grants ("user", permission, until_ms) VALUES ($1, $2, $3)
ON CONFLICT ("user", permission) DO UPDATE SET until_ms = excluded.until_ms
"""
_ADD_KEY = 'INSERT INTO api_keys (digest, "user", hint, created_ms, until_ms) VALUES ($1, $2, $3, $4, $5)'
_REVOKE = "UPDATE users SET revoked = true, password = '', epoch = epoch + 1 WHERE \"user\" = $1"
_USERS = """SELECT "user", name, created_ms, password <> '' FROM users WHERE NOT revoked ORDER BY name"""
_GRANTS = """
SELECT "user", permission, until_ms FROM grants WHERE until_ms IS NULL OR until_ms > $1 ORDER BY permission
"""
_KEYS = 'SELECT "user", hint, created_ms, until_ms FROM api_keys WHERE until_ms IS NULL OR until_ms > $1'

T = TypeVar("T")


class Statements(Protocol):
    """Carries out statements with parameters $1, $2, …, and returns their rows: as a connection of asyncpg does."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]: ...


Work = Callable[[Statements], Coroutine[Any, Any, T]]


class Users(ABC):
    """The users of a store, with their permissions and API keys.

    The administration methods block, work in any thread and process, need no `open`, and may be used while servers use
    the store; they raise ServerError or ConfigError when it cannot be used. The `async` ones are for a server, which
    caches accounts until a change is noticed.
    """

    # What keeps a selected row from other writers until the transaction ends; "" where there is only one.
    _row_lock: ClassVar[str]

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._cache = AccountCache()
        self._has_changed = False

    # -- for a server ----------------------------------------------------------------------------------------------

    @abstractmethod
    async def open(self) -> None:
        """Prepare for lookups. The store must be open, so that its tables exist."""

    @abstractmethod
    async def close(self) -> None:
        """Release what `open` acquired."""

    async def by_name(self, name: str) -> Account | None:
        """Return a user with the permissions that are valid now, or None. Raises ServerError when it cannot be read."""
        # Whatever a caller has typed: a database could not even take some of it.
        return await self._look_up(_BY_NAME, name) if is_name(name) else None

    async def by_key(self, digest: bytes) -> Account | None:
        """Return the user of a valid API key by its digest, or None. Raises ServerError when it cannot be read."""
        return await self._look_up(_BY_KEY, digest)

    # -- administration --------------------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self) -> None:
        """Create the tables, or migrate older ones, if no server has done so. Raises ConfigError."""

    def add(self, name: str, password: str = "", permissions: tuple[str, ...] = ()) -> None:
        """Add a user; `password` is a hash. A revoked user is added again without the old permissions.

        Raises:
            ConfigError: the name is invalid or taken; a permission is empty or too long.
        """
        if not is_name(name):
            raise ConfigError(f"{name!r} cannot be a name: use letters, digits and . @ + - _, at most 100")
        for permission in permissions:
            _check_permission(permission)

        async def work(statements: Statements) -> None:
            rows = await statements.fetch(_ADD, name, password, self._clock.now())
            if not rows:
                says = f"there is a user {name!r} already: `dragoman users password {name}` sets another password"
                raise ConfigError(says)
            for permission in permissions:
                await statements.fetch(_GRANT, rows[0][0], permission, None)

        self._change(work)

    def set_password(self, name: str, password: str) -> None:
        """Set another password hash, which invalidates the user's cookies. Raises ConfigError for an unknown user."""

        async def work(statements: Statements) -> None:
            user = await self._lock_user(statements, name)
            query = 'UPDATE users SET password = $2, epoch = epoch + 1 WHERE "user" = $1'
            await statements.fetch(query, user, password)

        self._change(work)

    def grant(self, name: str, permission: str, seconds: float | None = None) -> None:
        """Grant a permission, for a time or for good; it replaces an earlier grant of the same one.

        Raises:
            ConfigError: there is no such user, or the permission is empty or too long.
        """
        _check_permission(permission)

        async def work(statements: Statements) -> None:
            await statements.fetch(_GRANT, await self._lock_user(statements, name), permission, self._expiry(seconds))

        self._change(work)

    def add_key(self, name: str, digest: bytes, hint: str, seconds: float | None = None) -> None:
        """Add an API key, for a time or for good, and delete expired ones. `hint` is the part of it that may be shown.

        Raises:
            ConfigError: there is no such user.
        """

        async def work(statements: Statements) -> None:
            user, now = await self._lock_user(statements, name), self._clock.now()
            await statements.fetch('DELETE FROM api_keys WHERE "user" = $1 AND until_ms <= $2', user, now)
            await statements.fetch(_ADD_KEY, digest, user, hint, now, self._expiry(seconds))

        self._change(work)

    def revoke(self, name: str) -> None:
        """Revoke a user: no key, cookie or password is valid any more. Raises ConfigError for an unknown user."""

        async def work(statements: Statements) -> None:
            # The row stays, so that nobody else can take the name and with it the tasks.
            user = await self._lock_user(statements, name)
            await statements.fetch('DELETE FROM grants WHERE "user" = $1', user)
            await statements.fetch('DELETE FROM api_keys WHERE "user" = $1', user)
            await statements.fetch(_REVOKE, user)

        self._change(work)

    def revoke_permission(self, name: str, permission: str) -> None:
        """Revoke a permission. Raises ConfigError when there is no such user, or the user does not have it."""

        async def work(statements: Statements) -> None:
            user = await self._lock_user(statements, name)
            query = 'DELETE FROM grants WHERE "user" = $1 AND permission = $2 RETURNING permission'
            if not await statements.fetch(query, user, permission):
                raise ConfigError(f"{name} does not have that permission: `dragoman users list` shows which")

        self._change(work)

    def revoke_key(self, name: str, hint: str) -> None:
        """Revoke the API key with this hint. Raises ConfigError when there is no such user, no such key, or several."""

        async def work(statements: Statements) -> None:
            user = await self._lock_user(statements, name)
            matches = await statements.fetch('SELECT digest FROM api_keys WHERE "user" = $1 AND hint = $2', user, hint)
            if len(matches) != 1:
                many = "several keys that end" if matches else "no key that ends"
                raise ConfigError(f"{name} has {many} in {hint!r}: `dragoman users list` shows which there are")
            await statements.fetch("DELETE FROM api_keys WHERE digest = $1", matches[0][0])

        self._change(work)

    def account(self, name: str) -> Account | None:
        """Return a user with the permissions that are valid now; None when there is none, or it was revoked."""
        now = self._clock.now()

        async def work(statements: Statements) -> Account | None:
            return _account(await statements.fetch(_BY_NAME, name, now), now)

        return self._read(work)

    def list_users(self) -> list[UserSummary]:
        """List the users who were not revoked, by name, with their valid permissions and keys."""
        now = self._clock.now()

        async def work(statements: Statements) -> list[UserSummary]:
            users = await statements.fetch(_USERS)
            grants: dict[int, list[Grant]] = defaultdict(list)
            for user, *values in await statements.fetch(_GRANTS, now):
                grants[user].append(Grant(*values))
            keys: dict[int, list[KeySummary]] = defaultdict(list)
            for user, *values in await statements.fetch(_KEYS, now):
                keys[user].append(KeySummary(*values))
            # Sorted here: databases compare hints in ways of their own.
            age = attrgetter("created", "hint")
            return [
                UserSummary(name, created, bool(has_password), tuple(grants[user]), tuple(sorted(keys[user], key=age)))
                for user, name, created, has_password in users
            ]

        return self._read(work)

    # -- what a database does in its own way -------------------------------------------------------------------------

    @abstractmethod
    def _read(self, work: Work[T]) -> T:
        """Do what only reads."""

    @abstractmethod
    def _write(self, work: Work[None]) -> None:
        """Do something in one transaction, which is rolled back when it raises, and announce it to other processes."""

    @abstractmethod
    async def _fetch(self, query: str, *values: Any) -> Sequence[Any]:
        """Return the rows of one query, for a server. Raises ServerError when they cannot be read."""

    # -- internal ---------------------------------------------------------------------------------------------------

    def _change(self, work: Work[None]) -> None:
        self._write(work)
        # Its own changes count at once. The cache belongs to the server's event loop, and this may be any thread.
        self._has_changed = True

    async def _look_up(self, query: str, key: str | bytes) -> Account | None:
        if self._has_changed:
            self._has_changed = False
            self._cache.clear()
        now = self._clock.now()

        async def read() -> Account | None:
            return _account(await self._fetch(query, key, now), now)

        return self._cache.get(key, now) or await self._cache.load(key, read())

    async def _lock_user(self, statements: Statements, name: str) -> int:
        query = f'SELECT "user" FROM users WHERE name = $1 AND NOT revoked {self._row_lock}'  # noqa: S608
        rows = await statements.fetch(query, name)
        if not rows:
            raise ConfigError(f"there is no user {name!r}; to create it, run `dragoman users add {name}`")
        return rows[0][0]

    def _expiry(self, seconds: float | None) -> int | None:
        return None if seconds is None else self._clock.now() + int(seconds * 1000)


class AccountCache:
    """Accounts by name, and by the digest of a key, until they are no longer fresh. Not thread-safe."""

    def __init__(self) -> None:
        self._accounts: dict[str | bytes, Account] = {}
        self._generation = 0

    def clear(self) -> None:
        """Forget all accounts, also those that are being read now."""
        self._generation += 1
        self._accounts.clear()

    def get(self, key: str | bytes, now: int) -> Account | None:
        """Return the account of a name or a digest, if it was read a short time ago."""
        cached = self._accounts.get(key)
        return cached if cached is not None and now < cached.fresh_until else None

    async def load(self, key: str | bytes, read: Awaitable[Account | None]) -> Account | None:
        """Await an account, and keep it."""
        generation = self._generation
        account = await read
        # A result from before a change must not be cached after it.
        if account is not None and generation == self._generation:
            self._accounts.pop(key, None)
            while len(self._accounts) >= MAX_CACHED:
                del self._accounts[next(iter(self._accounts))]
            self._accounts[key] = account
        return account


def _account(rows: Sequence[Any], now: int) -> Account | None:
    """Build an account as it was read at the time `now`. Its key and its permissions may expire."""
    if not rows:
        return None
    key_until, name, password, epoch, *_ = rows[0]
    permissions = frozenset(row[4] for row in rows if row[4] is not None)
    ends = (key_until, *(row[5] for row in rows))
    fresh_until = min((now + FRESH_MS, *(end for end in ends if end is not None)))
    return Account(User(name, name, permissions), password, epoch, fresh_until)


def _check_permission(permission: str) -> None:
    if not permission or len(permission) > _MAX_PERMISSION_LENGTH or not permission.isprintable():
        raise ConfigError(f"a permission is a word of 1 to {_MAX_PERMISSION_LENGTH} characters")
