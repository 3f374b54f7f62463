"""The port to a store, and what is written into one and read from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

from dragoman.model.record import Record
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.engine.ports.rows import ExtraRow, TaskTable, Value


class Scope(NamedTuple):
    """Whose tasks these are. A task is visible in its own scope only."""

    agent: str
    tenant: str
    owner: str


# "begun" is an effect of `once` that was about to happen, "once" what came of it; "attempt" is how often a run that
# may run again has begun.
NoteKind = Literal["request", "message", "ask", "answer", "begun", "once", "attempt"]


class Note(NamedTuple):
    """Something no stream shows, kept beside the record it belongs to."""

    generation: int
    kind: NoteKind
    body: bytes


class TaskRow(Struct, frozen=True):
    """What a store knows about a task without reading its journal."""

    number: int
    id: str
    scope: Scope
    context_id: str
    origin: str
    state: State
    status_ms: int
    generation: int
    created_ms: int


class StoredTask(NamedTuple):
    """A task at rest: its row, and the last snapshot with the generation it shows."""

    row: TaskRow
    snapshot: bytes | None
    snapshot_generation: int


class DedupeKey(NamedTuple):
    """The mark a message leaves, by which the same message is known again."""

    digest: bytes
    expires_ms: int


class PushState(IntEnum):
    """Whether a webhook is still owed something."""

    OPEN = 0
    DONE = 1
    DEAD = 2


# The `due_ms` of a webhook that somebody has woken by hand, until the server has seen that.
WOKEN = -1


class Push(Struct, frozen=True):
    """One webhook of one task. What it is owed is the task's journal after `cursor`: there is no other copy.

    `secrets` are sealed. `dialect` is the version in which it was registered. `created_ms` tells one webhook from
    another that took its place. It has failed `tries` times since `failing_ms`, and is not tried before `due_ms`.
    `error` says why, and keeps the last event that the receiver refused for good, also when all others have arrived.
    """

    task: int
    id: str
    dialect: str
    url: str
    secrets: bytes
    cursor: int
    created_ms: int
    tries: int = 0
    failing_ms: int = 0
    due_ms: int = 0
    state: PushState = PushState.OPEN
    error: str = ""


class Write(Struct):
    """One atomic change of one task. Writes are applied in the order they were given.

    `row` is the task's row after the change, and `before` the state it leaves, if it leaves one. `records` follow each
    other; the row has the generation of the last. `size` is about how many bytes there are to write. A created task
    either begins a conversation or `joins` one that may have tasks already. With `delete`, the task and all that
    belongs to it are gone. `pushes` are webhooks that are new or replaced, `unpushed` the ids of those that go;
    `progress` are webhooks that have come further: it changes nothing for those that are gone or have been replaced.
    A write of webhooks alone may carry an older row. `rows` are written into the tables of plug-ins.

    A `draft` is a task that nobody is shown before it is created, because it may yet be answered with a bare message.
    Its `snapshot` is the task as it would be created. With `opens`, the created task was a draft. A draft that is
    deleted may leave a `reply`, which is kept for as long as `repeat` says.

    `done` is called on the event loop once the change is durable, or with the error that kept it from being so.
    """

    row: TaskRow
    done: Callable[[BaseException | None], None]
    create: bool = False
    joins_context: bool = False
    previous_state: State | None = None
    records: tuple[Record, ...] = ()
    notes: tuple[Note, ...] = ()
    snapshot: bytes | None = None
    context_state: bytes | None = None
    dedupe_key: DedupeKey | None = None
    pushes: tuple[Push, ...] = ()
    deleted_pushes: tuple[str, ...] = ()
    push_progress: tuple[Push, ...] = ()
    rows: tuple[ExtraRow, ...] = ()
    delete: bool = False
    draft: bool = False
    opens_draft: bool = False
    reply: bytes | None = None
    size: int = 0


class Cursor(NamedTuple):
    """The last task of a page, from which the next page goes on."""

    status_ms: int
    number: int


class TaskQuery(Struct, frozen=True):
    """Which tasks to list, newest status first.

    A page ends before a task whose snapshot would make more than `budget` bytes of it, though never before its first.
    """

    scope: Scope
    context_id: str | None = None
    state: State | None = None
    since_ms: int | None = None
    limit: int = 50
    after: Cursor | None = None
    budget: int | None = None


class TaskPage(NamedTuple):
    """Some tasks, whether there are more, and how many the filters match in all."""

    tasks: Sequence[StoredTask]
    more: bool
    total: int

    @classmethod
    def of(cls, found: Iterable[StoredTask], query: TaskQuery, total: int) -> TaskPage:
        """The first of the tasks found, as many as the query takes. Of the others one is looked at, at most."""
        tasks: list[StoredTask] = []
        size = 0
        for stored in found:
            size += len(stored.snapshot or b"")
            if len(tasks) == query.limit or (tasks and query.budget is not None and size > query.budget):
                return cls(tasks, more=True, total=total)
            tasks.append(stored)
        return cls(tasks, more=False, total=total)


class Sweep(Struct, frozen=True):
    """What may go. Only ended tasks are ever touched; None leaves them alone.

    Tasks that ended before `ended_before_ms`, and the oldest ended ones above `keep_tasks`, are deleted. Of tasks
    that ended before `compact_before_ms` the snapshot stays and the events go. Dedupe keys that expired before
    `expired_before_ms` go, where the store does not see to that itself. One sweep touches at most `limit` tasks.
    """

    ended_before_ms: int | None = None
    keep_tasks: int | None = None
    compact_before_ms: int | None = None
    expired_before_ms: int | None = None
    limit: int = 200


class Store(Protocol):
    """Where tasks are kept. One store serves one engine; reads see every write that is done."""

    @property
    def durable(self) -> bool:
        """True when what was written outlives the process: then there is a restart to be prepared for."""
        ...

    def add_table(self, table: TaskTable) -> None:
        """Keep the table of a plug-in too, from the next `open` on. Its rows are written with their tasks, and go
        with them."""
        ...

    async def open(self) -> None:
        """Make ready. Raises ConfigError when it cannot be used."""
        ...

    async def close(self) -> None:
        """Finish what was written and let go."""
        ...

    def next_number(self) -> int:
        """A number no other task has, larger than all before."""
        ...

    def write(self, write: Write) -> None:
        """Queue a change. Never blocks; the outcome arrives through `write.done`."""
        ...

    async def task(self, task_id: str) -> StoredTask | None:
        """Find a task by its id."""
        ...

    async def records(self, number: int, after: int, limit: int) -> list[Record]:
        """The records of a task with a generation above `after`, in order, at most `limit`."""
        ...

    async def notes(self, number: int) -> list[Note]:
        """All notes of a task, in the order they were written."""
        ...

    async def page(self, query: TaskQuery) -> TaskPage:
        """One page of tasks."""
        ...

    async def context_state(self, scope: Scope, context_id: str) -> bytes | None:
        """The state kept for a conversation."""
        ...

    async def duplicate_of(self, key: bytes, now_ms: int) -> str | None:
        """The task a message with this mark was accepted into, if that was recently."""
        ...

    async def reply(self, key: bytes, now_ms: int) -> bytes | None:
        """The bare message that one with this mark was answered with, if that was recently."""
        ...

    async def dedupe_keys(self, now_ms: int) -> list[bytes]:
        """The marks of all messages that were accepted recently."""
        ...

    async def unfinished(self, agent: str) -> list[StoredTask]:
        """The tasks of an agent that are submitted or working, oldest first."""
        ...

    async def drafts(self, agent: str) -> list[StoredTask]:
        """The drafts of an agent, oldest first; the snapshot is the task as it would have been created."""
        ...

    async def pushes(self, number: int) -> list[Push]:
        """The webhooks of a task, oldest first."""
        ...

    async def undelivered_pushes(self, *, woken: bool = False) -> list[tuple[Push, TaskRow]]:
        """The webhooks that are not done, dead ones too, with their tasks, oldest first; or only those `WOKEN`."""
        ...

    async def read_row(self, table: TaskTable, key: int) -> ExtraRow | None:
        """A row of a plug-in's table."""
        ...

    async def replace_row(self, row: ExtraRow, version: Value) -> bool:
        """Change a row of a plug-in's table, if it still has that version. False when it has not, or is not there.

        Raises:
            ServerError: it cannot be written now.
        """
        ...

    async def last_key(self, table: TaskTable) -> int:
        """The largest key in a plug-in's table; 0 when it is empty."""
        ...

    async def sweep(self, rules: Sweep) -> int:
        """Delete and compact some of what the rules name, in a moment: others want to write too.

        Gives how many tasks were touched, and at least 1 while there is more to do: 0 means all is done.
        """
        ...

    async def check(self) -> None:
        """Raise when the store cannot take a write now."""
        ...
