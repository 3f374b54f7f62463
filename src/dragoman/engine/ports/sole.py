"""Ownership for a single process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from dragoman.engine.ports.ownership import Claim, ClaimedTask, TaskClaim
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.engine.ports.ownership import OwnershipListener
    from dragoman.engine.ports.store import DedupeKey, Store, StoredTask, TaskRow


class MailStore(Protocol):
    """What a store that one process uses does itself with messages for its tasks."""

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None = None, generation: int | None = None
    ) -> int:
        """Add a message to a task as `Ownership.post` does, after all changes that are queued.

        Returns the number of the message, from 1; 0 when the task takes none.

        Raises:
            MessageRepeated: the dedupe key exists already.
            ServerError: the store cannot write now.
        """
        ...

    async def mail(self, number: int, after: int) -> list[tuple[int, bytes]]:
        """The messages that were added to a task with `post`, with their numbers, after number `after`."""
        ...


class SoleOwner:
    """The only engine on its store: every claim succeeds, and every task unfinished at startup is free to take."""

    shared: bool = False
    first_epoch: int = 0
    is_home: bool = True
    expired: bool = False
    free_runs: int = 1 << 30

    def __init__(self, store: Store) -> None:
        self._store = store
        # The port does not ask this of stores that several processes share: there, it is a matter of ownership.
        self._posting = cast("MailStore", store)

    def is_current(self, claim: Claim) -> bool:
        """True: nobody else claims anything."""
        return True

    async def claim(self, stored: StoredTask, *, revoke: bool = False) -> ClaimedTask | None:
        """Claim a task. Never returns None: there is no other process."""
        return ClaimedTask(stored, Claim(stored.row.number, 0), begun=stored.row.state is State.WORKING)

    def release(self, claim: Claim, *, begun: bool = False) -> None:
        """Do nothing: there is no other process to claim it."""

    async def wait_released(self) -> None:
        """Return at once: see `release`."""

    async def take(self, agent: str, *, parallel: bool, limit: int, queued: bool = True) -> list[ClaimedTask]:
        """All drafts and unfinished tasks of an agent, oldest first, whatever the limit."""
        drafts = [
            ClaimedTask(stored, Claim(stored.row.number, 0), begun=True, draft=True)
            for stored in await self._store.drafts(agent)
        ]
        tasks = [
            ClaimedTask(stored, Claim(stored.row.number, 0), begun=stored.row.state is not State.SUBMITTED)
            for stored in await self._store.unfinished(agent)
        ]
        return drafts + tasks

    async def wait_renewed(self) -> None:
        """Return at once: there is no lease."""

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None = None, generation: int | None = None
    ) -> bool:
        """Add the message of a caller to a task that is submitted, working or auth-required.

        Raises:
            MessageRepeated: the dedupe key exists already.
            ServerError: the store cannot write now.
        """
        return await self._posting.post(row, body, dedupe_key, generation) > 0

    async def mail(self, number: int, after: int) -> list[tuple[int, bytes]]:
        """The messages that were added to a task with `post`, with their numbers, after number `after`."""
        return await self._posting.mail(number, after)

    async def owned(self) -> Mapping[int, TaskClaim]:
        """Nothing: there is nothing to compare with."""
        return {}

    def subscribe(self, listener: OwnershipListener) -> Callable[[], None]:
        """Do nothing: nobody else changes tasks."""
        return lambda: None

    def announce_work(self) -> None:
        """Do nothing: nobody else takes tasks."""

    def count_run(self, change: int) -> None:
        """Do nothing: the number of runs has no limit of its own."""

    def retire(self) -> None:
        """Do nothing: there is no other process to run anything."""

    async def look_for_peers(self) -> None:
        """Return at once: there is no other process."""

    def has_peer(self, agent: str) -> bool:
        """False: there is no other process."""
        return False
