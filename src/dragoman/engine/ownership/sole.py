"""Ownership in one process: every task is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.engine.ownership.port import Claim

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Store, StoredTask, TaskRow


class SoleOwner:
    """The only engine on its store. Nobody else writes, so that whatever is unfinished at the start is unowned."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def claim(self, row: TaskRow) -> Claim | None:
        """Take a task: nobody else can have it."""
        return Claim(row.number, 0)

    def release(self, claim: Claim) -> None:
        """Do nothing: there is nobody to leave it to."""

    async def unowned(self, agent: str) -> list[StoredTask]:
        """All unfinished tasks of an agent, oldest first. Only right before it begins to work."""
        return await self._store.unfinished(agent)

    async def unowned_drafts(self, agent: str) -> list[StoredTask]:
        """All drafts of an agent, oldest first. Only right before it begins to work."""
        return await self._store.drafts(agent)
