"""What all stores of users have in common: the cache of accounts, the rules for names, and the errors."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from dragoman.model.error import ConfigError
from dragoman.model.user import Account, User, is_name

# Milliseconds a cached account is valid, should the notice of a change be lost.
FRESH_MS = 5000
MAX_CACHED = 8192
_MAX_PERMISSION_LENGTH = 200


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


def build_account(
    name: str, password: str, epoch: int, permissions: Iterable[str], ends: Iterable[int | None], now: int
) -> Account:
    """Build an account as it was read at the time `now`; `ends` is when its key and its permissions expire."""
    return Account(
        user=User(name, name, frozenset(permissions)),
        password=password,
        epoch=epoch,
        fresh_until=min((now + FRESH_MS, *(end for end in ends if end is not None))),
    )


def check_name(name: str) -> None:
    """Raise ConfigError unless this can be the name of a user."""
    if not is_name(name):
        raise ConfigError(f"{name!r} cannot be a name: use letters, digits and . @ + - _, at most 100")


def check_permission(permission: str) -> None:
    """Raise ConfigError unless this can be a permission."""
    if not permission or len(permission) > _MAX_PERMISSION_LENGTH or not permission.isprintable():
        raise ConfigError(f"a permission is a word of 1 to {_MAX_PERMISSION_LENGTH} characters")


def no_user_error(name: str) -> ConfigError:
    """Build the error for a user that does not exist, or was revoked."""
    return ConfigError(f"there is no user {name!r}; to create it, run `dragoman users add {name}`")


def user_exists_error(name: str) -> ConfigError:
    """Build the error for a name that is taken."""
    return ConfigError(f"there is a user {name!r} already: `dragoman users password {name}` sets another password")


def no_permission_error(name: str) -> ConfigError:
    """Build the error for a permission that a user does not have."""
    return ConfigError(f"{name} does not have that permission: `dragoman users list` shows which")


def key_error(name: str, hint: str, matches: int) -> ConfigError:
    """Build the error for a hint that matches no key of a user, or several."""
    many = "several keys that end" if matches else "no key that ends"
    return ConfigError(f"{name} has {many} in {hint!r}: `dragoman users list` shows which there are")
