"""User keys and passwords: hashing, verification, and throttling of wrong passwords."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple, Protocol

from dragoman.auth.inbound.chain import CredentialCache
from dragoman.auth.inbound.scheme import InvalidCredential
from dragoman.auth.inbound.throttle import FairSlots, LoginThrottle, format_seconds
from dragoman.clock import Clock
from dragoman.engine.shielded import shielded
from dragoman.model.error import ConfigError
from dragoman.model.user import Account

KEY_PREFIX = "dk_"
_KEY_BYTES = 32
_MAX_KEY = 100


class UserStore(Protocol):
    """The store of users. Changes take effect with the next request. The methods raise ServerError if it fails."""

    async def by_name(self, name: str) -> Account | None:
        """Return a user with its current permissions. A user's id is its name."""
        ...

    async def by_key(self, digest: bytes) -> Account | None:
        """Return the user of a key, while the key is valid."""
        ...


def new_key() -> str:
    """Generate a key for a user. It is displayed once and stored as a digest."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def is_key(text: str) -> bool:
    """True when a text has the format of a user's key."""
    return text.startswith(KEY_PREFIX) and len(text) <= _MAX_KEY


def key_digest(key: str) -> bytes:
    """Return the stored digest of a key. Keys are long and random, so a plain digest cannot be reversed."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


CACHE_SECONDS = 300.0
MIN_LENGTH, MAX_LENGTH = 8, 1024
WRONG_CREDENTIALS = "the name or the password is wrong"
# One verification takes 64 MB and keeps four cores busy for a while.
_CONCURRENCY = max(1, (os.cpu_count() or 1) // 4)
# The `nice` value of the verifying threads, so that the event loop has priority on a busy core.
_NICE = 10


class Hasher(Protocol):
    """Hashes and verifies passwords. Both are slow on purpose."""

    def hash(self, password: str) -> str:
        """Return the hash of a password."""
        ...

    def verify(self, hashed: str, password: str) -> bool:
        """True when the password matches the hash."""
        ...


class Argon2:
    """Argon2id with the low-memory parameters that its authors recommend."""

    def __init__(self) -> None:
        from argon2 import PasswordHasher

        self._hasher = PasswordHasher()

    def hash(self, password: str) -> str:
        """Return the hash of a password."""
        return self._hasher.hash(password)

    def verify(self, hashed: str, password: str) -> bool:
        """True when the password matches the hash."""
        from argon2.exceptions import Argon2Error, InvalidHashError

        try:
            return self._hasher.verify(hashed, password)
        except (Argon2Error, InvalidHashError):
            return False


def new_password(password: str, hasher: Hasher | None = None) -> str:
    """Return the hash of a new password.

    Raises:
        ConfigError: the password is too short or too long.
    """
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise ConfigError(f"a password has {MIN_LENGTH} to {MAX_LENGTH} characters, this one has {len(password)}")
    return (hasher or Argon2()).hash(password)


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere the priority is that of the whole process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class _Outcome(NamedTuple):
    """The result of a verification: the account, or the cause of failure and the user, for the audit log."""

    account: Account | None
    cause: str = ""
    user: str = ""


class Passwords:
    """Verifies names and passwords.

    A wrong password delays the next attempt (`LoginThrottle`); accounts are never locked. Verification is slow, and its
    slots are shared fairly by address. An unknown name gets the same response after the same work, one hash.
    """

    def __init__(
        self, users: UserStore, clock: Clock, hasher: Hasher | None = None, *, concurrency: int = _CONCURRENCY
    ) -> None:
        self._users = users
        self._hasher = hasher or Argon2()
        self._pool = ThreadPoolExecutor(
            concurrency, thread_name_prefix="dragoman-password", initializer=_lower_priority
        )
        self._slots = FairSlots(concurrency)
        self._throttle = LoginThrottle(clock)
        self._cache: CredentialCache[int] = CredentialCache(clock, CACHE_SECONDS)
        self._pending: dict[bytes, asyncio.Future[_Outcome | None]] = {}
        self._dummy_hash: str | None = None

    async def check(self, name: str, password: str, address: str = "") -> Account:
        """Return the account with this name and password; `address` is the client's.

        Raises:
            InvalidCredential: it is wrong. If the next try must wait, the text and the metadata `retryAfter` say so.
            Overloaded: it is too early for another try, or too many are being checked already.
            ServerError: the store of users cannot be read, or the server is stopping.
        """
        # Before the cache: a throttled caller must learn nothing from a cache hit.
        self._throttle.check(address, name)
        digest = self._cache.digest(address, name, password)
        cached = await self._cached_account(name, digest)
        if cached is not None:
            return cached
        outcome: _Outcome | None = None
        while outcome is None and (pending := self._pending.get(digest)) is not None:
            outcome = await asyncio.shield(pending)  # same credentials and address: one verification for all
        if outcome is None:
            outcome = await self._compare_once(name, password, address, digest)
        if outcome.account is None:
            raise self._denial(outcome, address, name)
        return outcome.account

    def close(self) -> None:
        """Stop the threads and refuse waiting callers."""
        self._slots.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _cached_account(self, name: str, digest: bytes) -> Account | None:
        epoch = self._cache.get(digest)
        account = await self._users.by_name(name) if epoch is not None else None
        return None if account is None or account.epoch != epoch else account

    async def _compare_once(self, name: str, password: str, address: str, digest: bytes) -> _Outcome:
        pending = self._pending[digest] = asyncio.get_running_loop().create_future()
        outcome: _Outcome | None = None
        try:
            priority = self._throttle.has_signed_in(address, name)
            async with self._slots.slot(address, priority=priority):
                # Only now: a caller who got no slot has made no attempt.
                self._throttle.begin(address, name)
                # Whoever gives up from here on has made one, which counts.
                outcome = await shielded(self._compare(name, password, address, digest))
            return outcome
        finally:
            del self._pending[digest]
            pending.set_result(outcome)

    async def _compare(self, name: str, password: str, address: str, digest: bytes) -> _Outcome:
        account = await self._users.by_name(name)
        hashed = account.password if account is not None else ""
        matches = await asyncio.get_running_loop().run_in_executor(self._pool, self._verify, hashed, password)
        if account is not None and matches and hashed:
            self._throttle.record_success(address, name)
            self._cache.put(digest, account.epoch)
            return _Outcome(account)
        self._throttle.record_failure(address, name)
        return (
            _Outcome(None, "unknown-user") if account is None else _Outcome(None, "wrong-password", account.user.name)
        )

    def _verify(self, hashed: str, password: str) -> bool:
        if self._dummy_hash is None:
            # Verified for unknown users, so that it takes as long.
            self._dummy_hash = self._hasher.hash(secrets.token_urlsafe())
        return self._hasher.verify(hashed or self._dummy_hash, password)

    def _denial(self, outcome: _Outcome, address: str, name: str) -> InvalidCredential:
        wait = self._throttle.wait(address, name)
        if not wait:
            return InvalidCredential(WRONG_CREDENTIALS, cause=outcome.cause, user=outcome.user)
        seconds = format_seconds(wait)
        text = f"{WRONG_CREDENTIALS}: try again in {seconds}"
        return InvalidCredential(text, cause=outcome.cause, user=outcome.user, retryAfter=seconds.partition(" ")[0])
