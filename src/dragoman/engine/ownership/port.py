"""The ownership port: claims on tasks, and the error for a lost claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from dragoman.model.error import ServerError

if TYPE_CHECKING:
    from dragoman.engine.ports.store import StoredTask, TaskRow


class Claim(NamedTuple):
    """The right to write one task. A claim with a later `epoch` revokes it (a fencing token)."""

    task: int
    epoch: int


class OwnershipLost(ServerError):
    """Another process owns the task now. A store reports it for a write whose claim was revoked.

    The run in this process stops and writes nothing more; the new owner decides what becomes of the task.
    """


class Ownership(Protocol):
    """Decides which process may write which task. A process owns the tasks it creates and claims all others."""

    async def claim(self, row: TaskRow) -> Claim | None:
        """Claim a stored task before answering, ending or restarting it. None when another process owns it."""
        ...

    def release(self, claim: Claim) -> None:
        """Give up a claim: no run in this process works on the task any more."""
        ...

    async def unowned(self, agent: str) -> list[StoredTask]:
        """The unfinished tasks of an agent that no process owns, oldest first: those a crash interrupted."""
        ...

    async def unowned_drafts(self, agent: str) -> list[StoredTask]:
        """The drafts of an agent that no process owns, oldest first."""
        ...
