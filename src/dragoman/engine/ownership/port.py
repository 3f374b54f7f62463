"""The port to ownership: who may write a task, and what happens when it may not any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from dragoman.model.error import ServerError

if TYPE_CHECKING:
    from dragoman.engine.ports.store import StoredTask, TaskRow


class Claim(NamedTuple):
    """The right to write one task. A claim with a later `epoch` ends it."""

    task: int
    epoch: int


class OwnershipLost(ServerError):
    """Somebody else may write the task now. A store reports it for a write whose claim has ended.

    Whoever worked on the task here stops and writes nothing more; what becomes of it is the new owner's business.
    """


class Ownership(Protocol):
    """Decides who may write which task. A task that is created here is ours; all others have to be claimed."""

    async def claim(self, row: TaskRow) -> Claim | None:
        """Take a task at rest, to answer it, to end it or to run it again. None when somebody else has it."""
        ...

    def release(self, claim: Claim) -> None:
        """Nobody here works on the task any more."""
        ...

    async def unowned(self, agent: str) -> list[StoredTask]:
        """The unfinished tasks of an agent that nobody works on, oldest first: what a crash has left over."""
        ...

    async def unowned_drafts(self, agent: str) -> list[StoredTask]:
        """The drafts that nobody works on, oldest first."""
        ...
