"""A store with several users."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Store


class _Shared:
    """The store itself, except that the first user opens it and the last one closes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._users = 0
        self._changing = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None:
        async with self._changing:
            if not self._users:
                await self._store.open()
            self._users += 1

    async def close(self) -> None:
        async with self._changing:
            if not self._users:
                return
            self._users -= 1
            if not self._users:
                await self._store.close()


def shared(store: Store) -> Store:
    """The store, opened by its first user and closed by its last."""
    return cast("Store", _Shared(store))
