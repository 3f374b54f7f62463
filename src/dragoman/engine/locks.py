"""Async locks by key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import TracebackType


class KeyedLocks:
    """One lock per key. Locks exist only while they are held or waited for."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, KeyLock] = {}

    def hold(self, key: Hashable) -> KeyLock:
        """Return the key's lock, an async context manager."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = KeyLock(self._locks, key)
        return lock


class KeyLock(asyncio.Lock):
    """The lock of one key; it removes itself from the dictionary with its last user."""

    def __init__(self, locks: dict[Hashable, KeyLock], key: Hashable) -> None:
        super().__init__()
        self._locks = locks
        self._key = key
        self._users = 0

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self.acquire()
        except BaseException:
            self._remove_user()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._remove_user()

    def _remove_user(self) -> None:
        self._users -= 1
        if not self._users:
            del self._locks[self._key]
