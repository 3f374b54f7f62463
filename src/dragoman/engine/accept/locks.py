"""One at a time, per key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import TracebackType


class KeyedLocks:
    """A lock for every key that somebody holds or waits for, and none for the others."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, KeyLock] = {}

    def hold(self, key: Hashable) -> KeyLock:
        """Hold the key's lock, as an async context manager."""
        held = self._locks.get(key)
        if held is None:
            held = self._locks[key] = KeyLock(self._locks, key)
        return held


class KeyLock(asyncio.Lock):
    """The lock of one key, which goes when nobody wants it any more."""

    def __init__(self, locks: dict[Hashable, KeyLock], key: Hashable) -> None:
        super().__init__()
        self._of = locks
        self._key = key
        self._users = 0

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            del self._of[self._key]
