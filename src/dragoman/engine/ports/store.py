"""The store port, and the types that are written to a store and read from it."""

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
    """Agent, tenant and owner of a task. A task is visible in its own scope only."""

    agent: str
    tenant: str
    owner: str


# "request" is the encoded `StoredRequest` and "message" a follow-up. "ask" is a question that paused the task, "answer"
# the message that resumed it; "resumed" is the same of the server's own code, which is not in the history: what a login
# has told the server is not for all who read the task. "begun" is written before `ctx.once` calls its function and
# "once" after it, with the result; "attempt" counts how often a restartable run has started.
NoteKind = Literal["request", "message", "ask", "answer", "resumed", "begun", "once", "attempt"]


class Note(NamedTuple):
    """Internal data stored with the record it belongs to. Streams never carry notes.

    `mail` numbers the messages that were added with `Ownership.post`, from 1; it is 0 for all other notes.
    """

    generation: int
    kind: NoteKind
    body: bytes
    mail: int = 0


class JournalRecord(NamedTuple):
    """A record as it is stored, with the time of its commit; None for one of a version that stored none."""

    generation: int
    at_ms: int | None
    body: bytes


class TaskRow(Struct, frozen=True):
    """The columns of a task: what a store returns without reading its journal.

    `number` is the key of the task in its store; later tasks have larger numbers. `status_ms` is the time of its last
    status, and `generation` the number of its last record.
    """

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
    """A task read from a store: its row, and its last snapshot with the generation of that snapshot.

    In a store that several processes share, `mail` is the number of the last message that was added with
    `Ownership.post`, `snapshot_mail` that of the last one in the snapshot, and `epoch` the epoch of its last claim.
    """

    row: TaskRow
    snapshot: bytes | None
    snapshot_generation: int
    mail: int = 0
    snapshot_mail: int = 0
    epoch: int = 0


class DedupeKey(NamedTuple):
    """Identifies a message for deduplication: a SHA-256 digest, when it expires, and when the message came.

    Without `at_ms`, the message came at the time of its task's last status.
    """

    digest: bytes
    expires_ms: int
    at_ms: int = 0


class Verdict(NamedTuple):
    """What a store says of a change before it is committed.

    `duplicate_of` is the id of the task that has its dedupe key, perhaps not committed either. Then nothing was
    written, and `Write.done` is not called. Otherwise the change is accepted, though its commit may still be refused.
    """

    duplicate_of: str = ""


ACCEPTED = Verdict()


class PushState(IntEnum):
    """Delivery state of a webhook: OPEN has or may get events to deliver, DONE has none, DEAD was given up."""

    OPEN = 0
    DONE = 1
    DEAD = 2


# The `due_ms` of a webhook that `dragoman push retry` has woken, until the server notices it.
WOKEN = -1


class Push(Struct, frozen=True):
    """One webhook of one task. Its queue is the task's journal after `cursor`: there is no other copy.

    `secrets` are encrypted. `dialect` is the protocol version it was registered in. `created_ms` distinguishes a
    webhook from one that replaced it under the same id. Delivery has failed `tries` times since `failing_ms` and is not
    retried before `due_ms`. `error` is the reason; it also records the last event that the receiver refused for good,
    even after later events were delivered.

    In a store that several processes share, the process that stored a webhook delivers to it, until another claims it;
    `epoch` changes with every claim.
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
    epoch: int = 0


class Write(Struct):
    """One atomic change of one task. Writes are applied in the order they are queued.

    `row` is the task's row after the change, `previous_state` its state before a status change. `records` have
    consecutive generations; the row has the generation of the last. `size` estimates the bytes to write. A created task
    starts a new context unless `joins_context`, when the context may have tasks already. With `delete`, the task and
    all that belongs to it are removed. `pushes` are new or replaced webhooks, `deleted_pushes` the ids of removed ones;
    `push_progress` updates cursors and is ignored for webhooks that were deleted, replaced or claimed by others. A
    write of webhooks alone may carry an older row. `rows` are written to plug-in tables.

    A `draft` is a task that no query returns before it is created, because the agent may still answer with a bare
    message. Its `snapshot` is the task as it would be created. With `opens_draft`, the created task was a draft. A
    deleted draft may leave a `reply`, which is stored until `dedupe_key` expires.

    The last fields are for stores that several processes share; others ignore them. `epoch` is that of the claim under
    which the change is made: records, notes and drafts are refused unless this process owns the task under it; 0 checks
    no claim. A created task is owned by this process with epoch 1 unless `queued`, which leaves it to whoever takes it
    first. With `begins`, the run begins with this change. Runs of one context are `serial` unless the agent is
    parallel: beginning one occupies the context, unless the task is the first of a new context, which nobody else can
    know yet. A change to a final or waiting state ends the claim, and frees the context. With `pins`, the context
    belongs to this node from now on. `mail` is the number of the last message from `Ownership.mail` that the snapshot
    contains. The store itself assigns `key`, which tells a change that is sent again from another one like it.

    `done` is called on the event loop once the change is durable, or with the error that prevented it.
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
    epoch: int = 0
    queued: bool = False
    begins: bool = False
    serial: bool = False
    pins: bool = False
    mail: int = 0
    key: int = 0


class Cursor(NamedTuple):
    """Sort key of the last task of a page: the next page starts after it."""

    status_ms: int
    number: int


class TaskQuery(Struct, frozen=True):
    """Filters and limits of a task list, newest status first.

    A page ends before the task whose snapshot would take it above `budget` bytes, but has at least one task.
    """

    scope: Scope
    context_id: str | None = None
    state: State | None = None
    since_ms: int | None = None
    limit: int = 50
    after: Cursor | None = None
    budget: int | None = None


class ScopeFilter(Struct, frozen=True):
    """Selects scopes by their parts; None selects all. An empty tuple of agents selects none."""

    agents: tuple[str, ...] | None = None
    tenant: str | None = None
    owner: str | None = None

    def matches(self, scope: Scope) -> bool:
        """True when a scope is selected."""
        return (
            (self.agents is None or scope.agent in self.agents)
            and (self.tenant is None or scope.tenant == self.tenant)
            and (self.owner is None or scope.owner == self.owner)
        )


class TaskSearch(Struct, frozen=True):
    """Filters and limits of a search for tasks of several scopes, newest status first.

    The time of a task's last status is at least `since_ms` and less than `until_ms`. A page ends as in `TaskQuery`.
    """

    scopes: ScopeFilter = ScopeFilter()
    context_id: str | None = None
    state: State | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int = 50
    after: Cursor | None = None
    budget: int | None = None


class SearchPage(NamedTuple):
    """A page of the tasks that a search finds, and whether more follow."""

    tasks: Sequence[StoredTask]
    more: bool

    @classmethod
    def of(cls, matches: Iterable[StoredTask], query: TaskSearch | TaskQuery) -> SearchPage:
        """Build a page from `matches` in order, up to the query's limits. Reads at most one match beyond the page."""
        tasks: list[StoredTask] = []
        size = 0
        for stored in matches:
            size += len(stored.snapshot or b"")
            if len(tasks) == query.limit or (tasks and query.budget is not None and size > query.budget):
                return cls(tasks, more=True)
            tasks.append(stored)
        return cls(tasks, more=False)


class TaskPage(NamedTuple):
    """A page of tasks, whether more follow, and how many tasks match in total."""

    tasks: Sequence[StoredTask]
    more: bool
    total: int

    @classmethod
    def of(cls, matches: Iterable[StoredTask], query: TaskQuery, total: int) -> TaskPage:
        """Build a page from `matches` in order, up to the query's limits. Reads at most one match beyond the page."""
        return cls(*SearchPage.of(matches, query), total)


class Sweep(Struct, frozen=True):
    """Retention rules for one sweep. Only ended tasks are ever touched; None disables a rule.

    Tasks that ended before `ended_before_ms`, and the oldest ended ones above `keep_tasks`, are deleted. Tasks that
    ended before `compact_before_ms` keep their snapshot and lose their events and notes; a store may do that with all
    tasks of a day, some days later. Dedupe keys that expired before `expired_before_ms` are deleted, unless the store
    expires them itself. One step touches at most `limit` tasks.
    """

    ended_before_ms: int | None = None
    keep_tasks: int | None = None
    compact_before_ms: int | None = None
    expired_before_ms: int | None = None
    limit: int = 200


class Store(Protocol):
    """Stores the tasks and journals of all agents of a server. Reads see every completed write."""

    @property
    def durable(self) -> bool:
        """True when writes survive the process, so that the engine has to prepare for a restart."""
        ...

    def add_table(self, table: TaskTable) -> None:
        """Add a plug-in table, effective at the next `open`. Its rows are written and deleted with their tasks."""
        ...

    async def open(self) -> None:
        """Open the store. Raises ConfigError when it cannot be used."""
        ...

    async def close(self) -> None:
        """Complete the queued writes and close the store."""
        ...

    def next_number(self) -> int:
        """Allocate a task number, larger than all before it."""
        ...

    def write(self, write: Write) -> Verdict | None:
        """Queue a change. Never blocks; the outcome is reported through `write.done` after this call has returned.

        A store with one writer says at once whether the dedupe key of the change is new. None when only the commit can
        tell: then `done` may get `MessageRepeated`.

        A change is applied completely or refused. Refused is one whose records do not follow the stored generation of
        its task, and one that creates a task whose id or number exists. `done` gets the error:

        - `OwnershipLost` when another process owns the task now: the engine leaves the task to it.
        - `ContextBusy` when the run cannot begin yet, and `MessageRepeated` when another task has the dedupe key.
        - Another `ServerError` when the store cannot write now; callers read its text.
        - Any other exception for everything else. Callers read only that the store cannot take writes.

        After any error the engine stops the run and writes nothing more for it; unless ownership was lost, it fails the
        task as soon as the store takes writes again.
        """
        ...

    async def task(self, task_id: str) -> StoredTask | None:
        """Read a task by its id; None when there is none, or only a draft."""
        ...

    async def records(self, number: int, after: int, limit: int) -> list[Record]:
        """The records of a task with a generation above `after`, in order, at most `limit`."""
        ...

    async def journal(self, number: int, after: int, limit: int, budget: int) -> list[JournalRecord]:
        """The records of a task as `records`, with the times of their commits.

        The list ends with the record whose body takes it to `budget` bytes.
        """
        ...

    async def notes(self, number: int) -> list[Note]:
        """All notes of a task, in the order they were written."""
        ...

    async def page(self, query: TaskQuery) -> TaskPage:
        """Read one page of tasks."""
        ...

    async def search(self, query: TaskSearch) -> SearchPage:
        """Read one page of the tasks of several scopes."""
        ...

    async def counts(self, scopes: ScopeFilter) -> dict[State, int]:
        """How many tasks of these scopes are in each state; states without tasks may be missing."""
        ...

    async def context_state(self, scope: Scope, context_id: str) -> bytes | None:
        """The saved `ctx.state` of a conversation as JSON, or None."""
        ...

    async def duplicate_of(self, key: bytes, now_ms: int) -> str | None:
        """The id of the task that accepted a message with this dedupe key; None when none did, or the key expired."""
        ...

    async def reply(self, key: bytes, now_ms: int) -> bytes | None:
        """The bare message that answered a message with this dedupe key; None when there is none, or it expired."""
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
        """The webhooks that are not DONE, dead ones included, with their tasks, oldest first; or only those `WOKEN`.

        A store that several processes share returns those open ones only that this process delivers to. With `woken`,
        it first claims the ones that no live process delivers to: they are `WOKEN` from then on.
        """
        ...

    async def wake_pushes(self, task_id: str, push_id: str) -> int:
        """Make a webhook `WOKEN` if it is dead or its last delivery has failed. Returns how many were woken.

        Raises:
            ServerError: the store cannot write now.
        """
        ...

    async def read_row(self, table: TaskTable, key: int) -> ExtraRow | None:
        """Read a row of a plug-in table."""
        ...

    async def replace_row(self, row: ExtraRow, version: Value) -> bool:
        """Replace a row of a plug-in table if it still has `version`. False when it has another, or does not exist.

        Raises:
            ServerError: the store cannot write now.
        """
        ...

    async def last_key(self, table: TaskTable) -> int:
        """The largest key in a plug-in table; 0 when it is empty."""
        ...

    async def sweep(self, rules: Sweep) -> int:
        """Delete and compact some of the tasks that match the rules, in one short step that does not starve writers.

        Returns the number of tasks touched, at least 1 while there is more to do: 0 means the sweep is complete.
        """
        ...

    async def check(self) -> None:
        """Raise an exception when the store cannot take a write now."""
        ...


class WriteThrough(Store, Protocol):
    """A store that passes changes on to somewhere else, before they are written to the store below it."""

    async def flush(self) -> None:
        """Wait until the queued changes are passed on. The store below stays open."""
        ...
