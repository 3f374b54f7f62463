"""Ownership for a single process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.engine.ownership.port import Claim

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Store, StoredTask, TaskRow


class SoleOwner:
    """The only engine on its store: every claim succeeds, and every task unfinished at startup is unowned."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def claim(self, row: TaskRow) -> Claim | None:
        """Claim a task. Never returns None: there is no other process."""
        return Claim(row.number, 0)

    def release(self, claim: Claim) -> None:
        """Do nothing: there is no other process to claim it."""

    async def unowned(self, agent: str) -> list[StoredTask]:
        """All unfinished tasks of an agent, oldest first. Only correct at startup, before any run starts."""
        return await self._store.unfinished(agent)

    async def unowned_drafts(self, agent: str) -> list[StoredTask]:
        """All drafts of an agent, oldest first. Only correct at startup, before any run starts."""
        return await self._store.drafts(agent)
