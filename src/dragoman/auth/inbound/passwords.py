"""Passwords: hashed, compared, counted, and slow for those who guess."""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol
from weakref import WeakValueDictionary

from dragoman.auth.inbound.recall import Recall
from dragoman.auth.inbound.users import UserStore
from dragoman.engine.clock import Clock
from dragoman.model.account import Account
from dragoman.model.error import ConfigError, Overloaded

ATTEMPTS = 5
LOCK_MS = 15 * 60 * 1000
REMEMBERED = 300.0
SHORTEST, LONGEST = 8, 1024
WRONG = "the name or the password is wrong, or there were too many attempts: wait 15 minutes and try again"
# Each takes 64 MB and all of a core for a while.
_AT_ONCE = 2
_WAITING = 64


class Hasher(Protocol):
    """Makes and compares hashes. Both take long, on purpose."""

    def hash(self, password: str) -> str:
        """The hash of a password."""
        ...

    def verify(self, hashed: str, password: str) -> bool:
        """True when it is the password."""
        ...


class Argon2:
    """Argon2id with the parameters that its authors recommend where memory counts."""

    def __init__(self) -> None:
        from argon2 import PasswordHasher

        self._hasher = PasswordHasher()

    def hash(self, password: str) -> str:
        """The hash of a password."""
        return self._hasher.hash(password)

    def verify(self, hashed: str, password: str) -> bool:
        """True when it is the password."""
        from argon2.exceptions import Argon2Error, InvalidHashError

        try:
            return self._hasher.verify(hashed, password)
        except (Argon2Error, InvalidHashError):
            return False


def new_password(password: str, hasher: Hasher | None = None) -> str:
    """The hash of a password that is being set.

    Raises:
        ConfigError: it is too short or too long.
    """
    if not SHORTEST <= len(password) <= LONGEST:
        raise ConfigError(f"a password has {SHORTEST} to {LONGEST} characters, this one has {len(password)}")
    return (hasher or Argon2()).hash(password)


class Passwords:
    """Checks names and passwords.

    After five wrong passwords a user is locked for 15 minutes. Nothing tells whether a name exists or is locked: the
    answer is the same, and so is the work, one hash and one write.
    """

    def __init__(self, users: UserStore, clock: Clock, hasher: Hasher | None = None) -> None:
        self._users = users
        self._clock = clock
        self._hasher = hasher or Argon2()
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="dragoman-password")
        self._recall: Recall[int] = Recall(clock, REMEMBERED)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting = 0
        self._nobody: str | None = None

    async def check(self, name: str, password: str) -> Account | None:
        """The user with this name and this password, or None.

        Raises:
            Overloaded: too many are being checked already.
        """
        digest = self._recall.digest(name, password)
        known = await self._remembered(name, digest)
        if known is not None:
            return known
        if self._waiting >= _WAITING:
            raise Overloaded("too many sign in at once: try again later")
        self._waiting += 1
        try:
            # One after the other: else a thousand guesses at once would all count as the first.
            turn = self._turns.get(name)
            if turn is None:
                turn = self._turns[name] = asyncio.Lock()
            async with turn:
                return await self._remembered(name, digest) or await self._compare(name, password, digest)
        finally:
            self._waiting -= 1

    async def cause(self, name: str) -> tuple[str, str]:
        """Why a check failed, for the audit log, and the name if there is such a user."""
        account = await self._users.by_name(name)
        if account is None:
            return "unknown-user", ""
        return "locked" if self._is_locked(account) else "wrong-password", account.user.name

    def close(self) -> None:
        """Let go of the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _remembered(self, name: str, digest: bytes) -> Account | None:
        epoch = self._recall.get(digest)
        account = await self._users.by_name(name) if epoch is not None else None
        if account is None or account.epoch != epoch or self._is_locked(account):
            return None
        return account

    async def _compare(self, name: str, password: str, digest: bytes) -> Account | None:
        loop = asyncio.get_running_loop()
        nobody = self._nobody
        if nobody is None:
            # What passwords of unknown users are compared with, so that it takes as long.
            nobody = await loop.run_in_executor(self._pool, self._hasher.hash, secrets.token_urlsafe())
            self._nobody = nobody
        account = await self._users.by_name(name)
        hashed = account.password if account is not None and account.password else nobody
        fits = await loop.run_in_executor(self._pool, self._hasher.verify, hashed, password)
        if account is None or not account.password or not fits or self._is_locked(account):
            await self._users.failed(name, allowed=ATTEMPTS, lock_ms=LOCK_MS)
            return None
        if account.failures:
            await self._users.succeeded(name)
        self._recall.put(digest, account.epoch)
        return account

    def _is_locked(self, account: Account) -> bool:
        return account.locked_until > self._clock.now()
