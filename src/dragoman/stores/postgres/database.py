"""The database port: what the store needs from PostgreSQL, one statement per call.

Everything above this port (group commit, unknown outcomes, leases, claims) is plain Python, so that tests can put a
database below it that delays, cuts and swallows replies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from dragoman.engine.ports.ownership import ClaimedTask
    from dragoman.engine.ports.rows import TaskTable
    from dragoman.engine.ports.store import DedupeKey, Note, Sweep, TaskRow, Write
    from dragoman.model.record import Record
    from dragoman.net.postgres import PostgresConnection

P = ParamSpec("P")
T = TypeVar("T")
# A function of `sql` that runs one statement.
Query = Callable[Concatenate["PostgresConnection", P], Awaitable[T]]


class ConnectionLost(Exception):
    """The connection was lost, or could not be made. The statement may have been applied, or may yet be."""


class CannotWrite(ConnectionLost):
    """The database answers and cannot write now: its disk is full, or can only be read. Nothing was applied."""


class InvalidValue(Exception):
    """The database cannot store a value. Nothing of the statement was applied."""


class ChangeOutcome(NamedTuple):
    """What became of the changes of one task in a commit.

    "refused" is a claim that is not this node's any more, a generation that does not follow, or a task that exists
    already or is gone. "busy" means that another task of the context is at work, "repeated" that the dedupe key exists.
    `queue` is True when the task has settled and others of its context are queued.
    """

    kind: Literal["committed", "refused", "busy", "repeated"]
    queue: bool = False


class TaskOwner(NamedTuple):
    """Who owns a task: the node, None when nobody does, with the epoch of the last claim and the last generation.

    The generation of a draft is 0. `task_id` says which task has this number.
    """

    owner: int | None
    epoch: int
    generation: int
    task_id: str


class NodeInfo(NamedTuple):
    """A node as it registers itself: a random id per process, a name, its agents and the version of Dragoman.

    `lease` is for how many seconds it counts on a renewal, `keys` the fingerprints of its secrets, newest first.
    """

    id: int
    name: str
    agents: tuple[str, ...]
    version: str
    lease: float = 0.0
    keys: tuple[str, ...] = ()


class Peer(NamedTuple):
    """A node as others see it.

    `beat` changes with every renewal of its lease. `agents` are those whose tasks it runs: none if it is a front.
    """

    id: int
    name: str
    beat: int
    dead: bool
    lease: float = 0.0
    keys: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


class Renewal(NamedTuple):
    """The result of a renewal: False when others have declared this node dead; and all nodes that are not dead."""

    alive: bool
    peers: Sequence[Peer]


class NodeDatabase(Protocol):
    """What keeps a node's lease. It has a connection of its own, never that of the writer.

    It connects when it is first called, and again after the connection was lost, within the event loop of the call:
    that of a thread of its own.
    """

    async def close(self) -> None:
        """Close the connection."""
        ...

    async def join(self, node: NodeInfo) -> None:
        """Register a node; once more is harmless. Raises ConnectionLost."""
        ...

    async def beat(self, node: int, *, runs: bool = True) -> Renewal:
        """Renew the lease of a node, unless it is dead, and read all nodes. Without `runs`, it is a front.

        Raises ConnectionLost.
        """
        ...

    async def bury(self, node: int, beat: int) -> bool:
        """Declare a node dead if its beat is still this one. Raises ConnectionLost."""
        ...

    async def leave(self, node: int) -> None:
        """Declare a node dead that stops by itself. Others take its tasks at once. Raises ConnectionLost."""
        ...


class Database(Protocol):
    """The tables of one store. Every method is one atomic statement, and raises ConnectionLost.

    Whoever gets ConnectionLost calls again; the method connects again. A statement whose connection was lost may still
    be applied later, also after its repetition.
    """

    async def open(self, tables: Sequence[TaskTable]) -> None:
        """Connect, create or migrate the tables of the store, and create those of plug-ins.

        Raises:
            ConfigError: the database cannot be reached or used; the text says what to do.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...

    async def numbers(self, count: int) -> int:
        """Reserve `count` task numbers, and return the first."""
        ...

    async def commit(self, node: int, changes: Sequence[Sequence[Write]]) -> list[ChangeOutcome]:
        """Apply the changes of many tasks: one sequence of changes per task, each whole or not at all.

        A sequence is in order, its records have consecutive generations, and its changes have one epoch (a created task
        has epoch 1 even if its creation says 0). Creating, opening or deleting a task, writing or deleting a draft, a
        dedupe key and beginning a `serial` run are first in a sequence. Nothing follows a deletion, or a final or
        waiting state. A sequence of changes of webhooks alone has no others.

        The statement may be repeated when its outcome is unknown. So a note is identified by the `key` of its change
        and its place in it (a key of 0 identifies nothing), a webhook that exists is replaced by the same one, and a
        dedupe key with the same task id is no repetition, unless the draft that had it is gone: an old statement must
        not bring that back. All other repetitions are "refused", or committed without effect.

        Raises:
            InvalidValue: a value cannot be stored; nothing was applied.
        """
        ...

    async def owners(self, node: int, numbers: Sequence[int]) -> dict[int, TaskOwner]:
        """Who owns these tasks and drafts now. It also writes the node's row, so that it waits for earlier commits."""
        ...

    async def claim(self, node: int, number: int, generation: int, *, revoke: bool) -> ClaimedTask | None:
        """Claim one task: a waiting one that nobody owns, one of this node's own (also a draft) or of a dead node.

        With `revoke`, any task that has not ended, whoever owns it, at whatever generation.
        """
        ...

    async def release(self, node: int, number: int, epoch: int, *, begun: bool = False) -> bool:
        """Give up a claim of this node on a task, which is queued again. False when it was not so.

        Unless `begun`, a task that has begun is left alone. One that is queued after it had begun stays begun.
        """
        ...

    async def take(
        self, node: int, agent: str, *, parallel: bool, limit: int, queued: bool = True
    ) -> list[ClaimedTask]:
        """Claim tasks of an agent that no live node owns: `queued` ones, and begun ones and drafts of dead nodes.

        `attempts` counts the runs of nodes that were declared dead: one that has left was not stopped by its tasks.
        What a dead node had claimed and not begun is queued again first. Unless `parallel`, a queued task is left alone
        while an older one of its context is unfinished. One whose context is pinned to another live node is left alone
        too, begun or not, and so is a queued one of a node that has left less than 30 seconds ago: it may come back.
        Pinned to a node that is gone, it is claimed with `home` set.
        """
        ...

    async def post(
        self, row: TaskRow, body: bytes, dedupe_key: DedupeKey | None, generation: int | None, key: int
    ) -> ChangeOutcome:
        """Add a message to a task that is submitted, working or auth-required. The same `key` is added once."""
        ...

    async def run(self, query: Query[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query of `sql`: one that reads, or changes what may be changed again when its answer is lost.

        Raises:
            InvalidValue: a value cannot be stored, and the query does not say what that means.
        """
        ...

    # What is read for the verdict on a change.

    async def records(self, number: int, after: int, limit: int) -> list[Record]:
        """The records of a task with a generation above `after`, in order, at most `limit`."""
        ...

    async def notes(self, number: int) -> list[Note]:
        """All notes of a task, in the order they were written."""
        ...

    async def reply(self, key: bytes, now_ms: int) -> bytes | None:
        """The bare message that answered a message with this dedupe key; None when there is none, or it expired."""
        ...

    async def sweep(self, rules: Sweep) -> int:
        """One step of retention. Returns how many tasks were touched; 0 when all is done."""
        ...

    async def check(self, node: int) -> None:
        """Write a row, to prove that the database takes writes."""
        ...
