"""The ownership port: which process may write a task, and how processes that share a store work together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dragoman.model.error import ServerError

if TYPE_CHECKING:
    from dragoman.engine.ports.store import DedupeKey, StoredTask, TaskRow


class Claim(NamedTuple):
    """The right to write one task. A claim with a later `epoch` revokes it (a fencing token).

    `attempts` is how often another process took over a run of the task that had begun, because its process was gone.
    None where the store does not count that: then the notes of the task say it.
    """

    task: int
    epoch: int
    attempts: int | None = None


class ClaimedTask(NamedTuple):
    """A task that this process has claimed, as it was stored right after the claim.

    `begun` is True when the agent's code may have been called for its last message. `draft` is True when it is a draft.
    `home` is the node that had its session, when that node is gone and the session with it.
    """

    stored: StoredTask
    claim: Claim
    begun: bool = False
    draft: bool = False
    home: str | None = None


class TaskClaim(NamedTuple):
    """A task that this process owns according to the store: epoch of the claim, last mail number, agent and id."""

    epoch: int
    mail: int
    agent: str = ""
    task_id: str = ""


class OwnershipLost(ServerError):
    """Another process owns the task now. A store reports it for a write whose claim was revoked.

    The run in this process stops and writes nothing more; the new owner decides what becomes of the task. Whoever waits
    for the task goes on from its journal.
    """


class ContextBusy(OwnershipLost):
    """A run cannot begin: another task of its context is at work. The task goes back to the queue."""


class MessageRepeated(ServerError):
    """Another task has accepted the same message within the dedupe window. Nothing was written."""


class Ownership(Protocol):
    """Decides which process may write which task. A process owns the tasks it creates and claims all others.

    With `shared`, other processes use the same store: every decision is made by the store, and memory serves streams
    only. The lease, the listeners and the limit of runs are meaningful with `shared` only.
    """

    @property
    def shared(self) -> bool:
        """True when other processes may use the same store."""
        ...

    @property
    def first_epoch(self) -> int:
        """The epoch of the claim on a task that this process creates."""
        ...

    @property
    def is_home(self) -> bool:
        """True when the sessions of all conversations are in this process, as far as there are any."""
        ...

    def is_current(self, claim: Claim) -> bool:
        """True when nobody can have revoked a claim of this process: then the store need not be asked."""
        ...

    async def claim(self, stored: StoredTask, *, revoke: bool = False) -> ClaimedTask | None:
        """Claim a stored task before answering, ending or restarting it.

        Returns None when another process owns it, or it has moved on since it was read. With `revoke`, the claim of
        another process is revoked and the generation may have moved on; then None means that the task has ended or is
        gone.

        Raises:
            ServerError: the store does not answer.
        """
        ...

    def release(self, claim: Claim, *, begun: bool = False) -> None:
        """Give up a claim: no run in this process works on the task any more.

        Work that has not begun is queued, and announced to all processes; with `begun`, so is work that has, and may
        begin again.
        """
        ...

    async def wait_released(self) -> None:
        """Wait until the claims that were given up so far are so in the store, and announced."""
        ...

    async def take(self, agent: str, *, parallel: bool, limit: int, queued: bool = True) -> list[ClaimedTask]:
        """Claim unfinished tasks of an agent that no process works on, oldest first: queued, or those of dead nodes.

        Unless `parallel`, a task waits until the older ones of its context have ended or paused. Without `queued`, only
        those are claimed that had begun on a dead node. For a single process these are the tasks that a crash
        interrupted; it must ask once, at startup.

        Raises:
            ServerError: the store does not answer.
        """
        ...

    # -- the lease of this process -------------------------------------------------------------------------------------

    @property
    def expired(self) -> bool:
        """True when this process could not renew its lease in time: it must start nothing until it has."""
        ...

    async def wait_renewed(self) -> None:
        """Wait until the lease is valid. Raises OwnershipLost when others have declared this process dead meanwhile."""
        ...

    # -- tasks of other processes --------------------------------------------------------------------------------------

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None = None, generation: int | None = None
    ) -> bool:
        """Add the message of a caller to a task that is submitted, working or auth-required, and wake its owner.

        `generation` is the one that the task must have. Returns False when the task has none of these states any more,
        or another generation.

        Raises:
            MessageRepeated: the dedupe key exists already.
            ServerError: the store does not answer.
        """
        ...

    async def mail(self, number: int, after: int) -> list[tuple[int, bytes]]:
        """The messages that were added to a task with `post`, with their numbers, after number `after`."""
        ...

    async def owned(self) -> Mapping[int, TaskClaim]:
        """The tasks that this process owns according to the store, by number. Raises ServerError."""
        ...

    # -- callbacks -----------------------------------------------------------------------------------------------------

    def subscribe(self, listener: OwnershipListener) -> Callable[[], None]:
        """Call a listener from now on. Returns a function that unsubscribes."""
        ...

    def announce_work(self) -> None:
        """Tell all processes, this one included, that there may be tasks to take."""
        ...

    # -- runs ----------------------------------------------------------------------------------------------------------

    @property
    def free_runs(self) -> int:
        """How many more runs this process may start; 0 when it is at its limit, or only accepts messages."""
        ...

    def count_run(self, change: int) -> None:
        """Count a run that starts (1) or has ended (-1)."""
        ...

    def retire(self) -> None:
        """Start no more runs from now on: `free_runs` is 0, and messages are accepted for other processes only."""
        ...

    async def look_for_peers(self) -> None:
        """Look now who else is there, and let them know about this process. A silent store is not waited for."""
        ...

    def has_peer(self, agent: str) -> bool:
        """True when another process is there that may run tasks of this agent, as far as the last look showed."""
        ...


class OwnershipListener(Protocol):
    """Called on the event loop when something concerns the tasks of one engine."""

    def on_work(self) -> None:
        """There may be tasks to take."""
        ...

    def on_touched(self, task_ids: Sequence[str]) -> None:
        """Another process has changed these tasks. Those that are live here got mail, or their claim was revoked."""
        ...

    def on_lost(self, numbers: Iterable[int] | None) -> None:
        """The claims of these tasks are lost; None is all: this process was declared dead and has a new identity."""
        ...
