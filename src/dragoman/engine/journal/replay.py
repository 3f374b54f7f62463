"""Finding tasks: alive in this process, or at rest in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from dragoman.engine.call import Call
from dragoman.engine.execute.outputs import Answered
from dragoman.engine.execute.recovery import Mending
from dragoman.engine.journal.follow import PAGE
from dragoman.engine.journal.live import LiveTask, NewTask
from dragoman.model.error import InternalError, TaskNotFound
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import decode_message, decode_task
from dragoman.model.record import Folding
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.rows import RowMaker, TaskRows
    from dragoman.engine.ports.store import Note, Scope, Store, StoredTask, TaskRow
    from dragoman.model.message import Message


class Origin(msgspec.Struct, omit_defaults=True):
    """The circumstances a task began in, kept for runs that start again."""

    call: Call
    metadata: dict[str, Any] | None = None


class Question(msgspec.Struct):
    """What a run asked before it paused, and what it wants back with the answer."""

    question: str
    ref: Any = None


class Memory(NamedTuple):
    """What earlier runs of a task left behind. `told` are messages that came while it was at work.

    `doubtful` are effects of `once` that were begun and of which nobody knows whether they happened. `attempt` is how
    often a run for the last message has begun; None where nobody has counted.
    """

    origin: Origin | None
    asked: tuple[Question, ...]
    answers: tuple[Message, ...]
    told: tuple[Message, ...]
    once: dict[str, Any]
    doubtful: frozenset[str] = frozenset()
    attempt: int | None = None

    def call(self, row: TaskRow) -> Call:
        """Who asked, and in what way."""
        return self.origin.call if self.origin else Call(tenant=row.scope.tenant, origin=row.origin)

    def answered(self, last: Message | None = None) -> tuple[Answered, ...]:
        """The questions with their answers; `last` is one that has just arrived."""
        answers = self.answers if last is None else (*self.answers, last)
        return tuple(
            Answered(asked.question, asked.ref, answer.text, answer.data)
            for asked, answer in zip(self.asked, answers, strict=False)
        )


class Tasks:
    """The tasks of one agent."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        task_rows: TaskRows | None = None,
        marks: dict[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.bus = bus
        self.clock = clock
        self.live: dict[str, LiveTask] = {}
        self._task_rows = task_rows
        self._marks = marks or None
        self._mending = Mending(self)

    def row_maker(self, origin: str) -> RowMaker | None:
        """What makes the extra rows of tasks with that origin, if they have any."""
        return None if self._task_rows is None else self._task_rows.of(origin)

    async def unused_id(self, row_maker: RowMaker) -> str:
        """An id of a plug-in's that is no other task's. Use it before anything is awaited."""
        while True:
            task_id = row_maker.next_id(self.clock.now())
            # A caller may have chosen it for a task of its own.
            if await self.store.task(task_id) is None and task_id not in self.live:
                return task_id

    def put_away(self, live: LiveTask) -> None:
        """Forget a task that nobody works on any more; it is at rest in the store."""
        if self.live.get(live.id) is live:
            del self.live[live.id]
        if not live.over:
            live.abandon()
        if live.broken:
            self._mending.add(live.id, live.row.number)

    def close(self) -> None:
        """Do nothing more in the background."""
        self._mending.close()

    async def find(self, scope: Scope, task_id: str) -> tuple[TaskRow, LiveTask | None, StoredTask | None]:
        """Find a task in its scope.

        Raises:
            TaskNotFound: there is none, or it is somebody else's: the answer is the same.
        """
        live = self.live.get(task_id)
        if live is not None and not live.draft:
            if live.row.scope != scope:
                raise TaskNotFound(taskId=task_id)
            return live.row, live, None
        stored = await self.store.task(task_id)
        live = self.live.get(task_id)
        if stored is None or stored.row.scope != scope:
            raise TaskNotFound(taskId=task_id)
        return (live.row, live, None) if live is not None else (stored.row, None, stored)

    async def durable_task(self, live: LiveTask | None, stored: StoredTask | None) -> Task:
        """The task with all its events so far, once they are durable."""
        if live is not None and not live.dormant:
            task = live.task()
            await live.durable()
            return task
        if live is not None:
            stored = await self.store.task(live.id)
        if stored is None:
            raise InternalError("a task is alive or stored")
        return await self.folded(stored)

    async def folded(self, stored: StoredTask) -> Task:
        """Read a task at rest: its snapshot, and what the journal has after it."""
        row = stored.row
        if stored.snapshot is not None and stored.snapshot_generation == row.generation:
            return structs.replace(decode_task(stored.snapshot), generation=row.generation)
        return (await self._replay(stored)).task()

    async def _replay(self, stored: StoredTask) -> Folding:
        folding: Folding | None = None
        after = 0
        if stored.snapshot is not None:
            folding = Folding(decode_task(stored.snapshot), stored.snapshot_generation)
            after = stored.snapshot_generation
        said = _messages_by_generation(await self.store.notes(stored.row.number))
        while after < stored.row.generation:
            records = await self.store.records(stored.row.number, after, PAGE)
            if not records:
                raise InternalError(f"the journal of task {stored.row.id} ends at {after}")
            for record in records:
                event = record.event
                if isinstance(event, Task):
                    folding = Folding(event, record.generation)
                elif folding is not None and isinstance(event, (StatusUpdate, ArtifactUpdate)):
                    folding.apply(event)
                if folding is not None:
                    for message in said.get(record.generation, ()):
                        folding.say(message)
                after = record.generation
        if folding is None:
            raise InternalError(f"task {stored.row.id} has no first record")
        return folding

    async def wake(self, live: LiveTask) -> None:
        """Read a task that waits for its turn again, before something is added to it. Raises TaskNotFound."""
        if live.dormant:
            stored = await self.store.task(live.id)
            if stored is None:
                raise TaskNotFound(taskId=live.id)
            live.wake(Folding(await self.folded(stored), stored.row.generation))

    async def revive(self, stored: StoredTask, *, again: bool = False, draft: bool = False) -> LiveTask:
        """Bring a task at rest back to life, to add to its journal, or to do `again` all since its last pause.

        A `draft` is created by that.
        """
        row = stored.row
        task = await self.folded(stored)
        standing = task.artifacts
        if again:  # a snapshot is made when a task pauses or ends, and this one has not ended
            standing = decode_task(stored.snapshot).artifacts if stored.snapshot is not None else ()
        folding = Folding(task, row.generation)
        live = LiveTask(
            self.store,
            self.bus,
            self.clock,
            row,
            folding,
            committed=0 if draft else row.generation,
            new=NewTask(row, task) if draft else None,
            in_store=draft,
            standing=standing,
            marks=self._marks,
            row_maker=self.row_maker(row.origin),
        )
        if draft:
            live.create()
        return live

    def new(self, new: NewTask, on_durable: Callable[[], None] | None = None) -> LiveTask:
        """A task that begins here: nothing of it is in the store yet."""
        return LiveTask(
            self.store,
            self.bus,
            self.clock,
            new.row,
            Folding(new.task),
            committed=0,
            new=new,
            marks=self._marks,
            row_maker=None if self._task_rows is None else self._task_rows.of(new.row.origin),
            on_durable=on_durable,
        )

    async def memory(self, row: TaskRow) -> Memory:
        """What earlier runs of a task left behind: its circumstances, answered questions, results kept by `once`."""
        origin: Origin | None = None
        asked: list[Question] = []
        answers: list[Message] = []
        told: list[Message] = []
        once: dict[str, Any] = {}
        doubtful: set[str] = set()
        attempt: int | None = None
        for note in await self.store.notes(row.number):
            if note.kind == "request":
                origin = msgspec.json.decode(note.body, type=Origin)
            elif note.kind == "ask":
                asked.append(msgspec.json.decode(note.body, type=Question))
            elif note.kind == "answer":
                answers.append(decode_message(note.body))
                attempt = None
            elif note.kind == "message":
                told.append(decode_message(note.body))
            elif note.kind == "once":
                kept = msgspec.json.decode(note.body)
                doubtful.discard(kept["key"])
                if "value" in kept:  # else the function raised
                    once[kept["key"]] = kept["value"]
            elif note.kind == "begun":
                doubtful.add(note.body.decode())
            elif note.kind == "attempt":
                attempt = int(note.body)
        return Memory(origin, tuple(asked), tuple(answers), tuple(told), once, frozenset(doubtful), attempt)


def _messages_by_generation(notes: list[Note]) -> dict[int, list[Message]]:
    said: dict[int, list[Message]] = {}
    for note in notes:
        if note.kind in ("message", "answer"):
            said.setdefault(note.generation, []).append(decode_message(note.body))
    return said
