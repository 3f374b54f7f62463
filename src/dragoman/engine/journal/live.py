"""A task that is being worked on in this process."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.clock import timestamp
from dragoman.engine.ports import Note, NoteKind, Push, Repeat, TaskRow, Write
from dragoman.model.error import ServerError
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import encode
from dragoman.model.record import Folding, Record
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.engine.ports import Bus, Store
    from dragoman.engine.task_rows import ExtraRow, RowMaker
    from dragoman.model.message import Message
    from dragoman.model.task import Artifact

# How far an agent may run ahead of the disk, and what subscribers find in memory.
AHEAD_EVENTS = 256
AHEAD_BYTES = 1_000_000
WINDOW_EVENTS = 512
# A task that waits for its turn is kept in memory when it is no larger than this: reading it again costs more.
SMALL_BYTES = 64_000
STOPPING = "the server is stopping: ask again when it is back"
UNAVAILABLE = "the store cannot take writes now: try again later"


def unavailable(error: BaseException | None) -> ServerError:
    """What callers learn when the store refuses a write: the reason, where the store names one that is for them."""
    return ServerError(str(error) if isinstance(error, ServerError) else UNAVAILABLE)


class LiveTask:
    """Numbers, folds, encodes and queues a task's events, and knows which of them are durable.

    The agent never waits for the disk here; whatever leaves the process waits with `durable` or `settled`.
    A draft is in the store, but nobody is shown it: its first event creates the task, unless the run turns out to be a
    bare reply.
    `standing` are the artifacts a run builds on: those it found, or, when it runs again after a crash, those of the
    last pause.
    """

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        row: TaskRow,
        folding: Folding,
        *,
        committed: int,
        opens: bool = False,
        standing: tuple[Artifact, ...] = (),
        row_maker: RowMaker | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self.row = row
        self.folding = folding
        self.committed = committed
        self.standing = standing
        self.row_maker = row_maker
        self._artifact_ids = {artifact.artifact_id for artifact in standing}
        self.draft = False
        self._opens = opens  # it is a draft in the store
        self._begun = False
        self._reply_kept = False
        self.dormant = False
        self.marks: dict[str, Any] = {}  # what the agent writes on every status
        self.reply: Message | None = None
        self.inbox: deque[Message] = deque()
        self.arrived = asyncio.Event()  # set when there is something to look at: a message, or the end
        self.worker: asyncio.Task[None] | None = None
        # Output that waits one turn of the loop: is it the last? Any event must let it go first.
        self.held: Callable[[], None] | None = None
        self.repeat: Repeat | None = None
        self.request: bytes | None = None
        self.pushes: tuple[Push, ...] = ()  # webhooks that come with the task; then whom to tell once it is durable
        self.created: Callable[[], None] | None = None
        self.joins = False
        self._window: deque[Record] = deque()
        self._window_bytes = 0
        self._ahead_bytes = 0
        # How many records and notes must be durable before the future is done.
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._notes_queued = 0
        self._notes_kept = 0
        self._settle_at: int | None = None
        self._settled_task: Task | None = None
        self._settlers: list[asyncio.Future[None]] = []
        self._broken: BaseException | None = None
        self._abandoned = False

    @property
    def id(self) -> str:
        """The task's id."""
        return self.row.id

    @property
    def state(self) -> State:
        """The state, durable or not yet."""
        return self.folding.status.state

    @property
    def ended(self) -> bool:
        """True when nothing may be added any more."""
        return self.state.final or self.reply is not None or self._broken is not None

    @property
    def over(self) -> bool:
        """True when what the run says does not count any more: it has ended, paused, or was given up."""
        return self.ended or self.state.waiting or self._abandoned

    @property
    def broken(self) -> bool:
        """True when the store refused a write of this task."""
        return self._broken is not None

    @property
    def refusal(self) -> ServerError:
        """What to tell those who wait for something that the store refused."""
        return unavailable(self._broken)

    # -- writing ---------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Write a draft of the task."""
        self.draft = self._opens = True
        self._store.write(
            Write(
                self.row,
                self._note_done,
                notes=self._request_notes(),
                pushes=self.pushes,
                snapshot=encode(structs.replace(self.folding.task(), generation=None)),
                repeat=self.repeat,
                draft=True,
            )
        )
        self._notes_queued += 1

    def _request_notes(self) -> tuple[Note, ...]:
        return () if self.request is None else (Note(1, "request", self.request),)

    def create(self) -> None:
        """Write record 1, the task itself."""
        self.draft = False
        record = Record.of(1, self.folding.task())
        notes = () if self._opens else self._request_notes()
        self._queue(
            record,
            Write(
                self.row,
                partial(self._done, record.generation, len(record.body)),
                create=True,
                joins=self.joins,
                record=record,
                notes=notes,
                repeat=self.repeat,
                pushes=self.pushes,
                opens=self._opens,
            ),
        )

    def begin(self) -> None:
        """The agent's code is about to be called: the task is at work, or stays a draft."""
        self._begun = True
        if not self.draft and self.state is not State.WORKING:
            self.status(State.WORKING)

    def open(self) -> None:
        """Let a draft be a task from now on, whatever it is answered with."""
        if self.draft and not self.over:
            self.create()
            if self._begun:
                self.status(State.WORKING)

    def emit(
        self,
        event: StatusUpdate | ArtifactUpdate,
        *,
        notes: tuple[tuple[NoteKind, bytes], ...] = (),
        says: Message | None = None,
        context_state: bytes | None = None,
        repeat: Repeat | None = None,
        at_ms: int | None = None,
    ) -> None:
        """Number an event, take it in and queue it for the store. `says` is a message that belongs to it."""
        self._check()
        if self.held is not None:
            held, self.held = self.held, None
            held()
        if self.draft:
            self.create()
            if isinstance(event, ArtifactUpdate):
                self.status(State.WORKING)
        generation = self.folding.generation + 1
        # First: what has no JSON form must not take a number.
        record = Record.of(generation, event)
        self.folding.apply(event)
        if says is not None:
            self.folding.say(says)
        snapshot = None
        before: State | None = None
        rows: tuple[ExtraRow, ...] = ()
        if isinstance(event, StatusUpdate):
            before, state = self.row.state, event.status.state
            self.row = structs.replace(
                self.row, state=state, status_ms=at_ms or self._clock.now(), generation=generation
            )
            if state.final or state.waiting:
                self._settle_at = generation
                self._settled_task = self.folding.task()
                snapshot = encode(structs.replace(self._settled_task, generation=None))
                self.arrived.set()
            else:
                self._settle_at = None
            if self.row_maker is not None and state is not before:
                rows = self.row_maker.rows(self.row, self.task())
        else:
            self.row = structs.replace(self.row, generation=generation)
            self._artifact_ids.add(event.artifact.artifact_id)
        self._queue(
            record,
            Write(
                self.row,
                partial(self._done, record.generation, len(record.body)),
                before=before,
                record=record,
                notes=tuple(Note(generation, kind, body) for kind, body in notes),
                snapshot=snapshot,
                context_state=context_state,
                repeat=repeat,
                rows=rows,
            ),
        )

    def status(
        self,
        state: State,
        message: Message | None = None,
        *,
        notes: tuple[tuple[NoteKind, bytes], ...] = (),
        says: Message | None = None,
        metadata: dict[str, Any] | None = None,
        context_state: bytes | None = None,
        repeat: Repeat | None = None,
    ) -> None:
        """Write a new status, stamped now."""
        now = self._clock.now()
        metadata = {**self.marks, **(metadata or {})} if self.marks else metadata
        if self.row_maker is not None:  # the time tells the changes of a row apart
            now = max(now, self.row.status_ms + 1)
        self.emit(
            StatusUpdate(self.id, self.folding.context_id, TaskStatus(state, message, timestamp(now)), metadata),
            at_ms=now,
            notes=notes,
            says=says,
            context_state=context_state,
            repeat=repeat,
        )

    def note(
        self, kind: NoteKind, body: bytes, *, says: Message | None = None, repeat: Repeat | None = None
    ) -> asyncio.Future[None]:
        """Keep something beside the last record; it takes no number. The future is done when it is durable."""
        self._check()
        if says is not None:
            self.folding.say(says)
            self._settled_task = None
        self.keep(kind, body, repeat=repeat)
        return self._wait(0, self._notes_queued)

    def keep(self, kind: NoteKind, body: bytes, *, repeat: Repeat | None = None) -> None:
        """Keep something beside the last record, for whoever reads the task later; `durable` waits for it too."""
        self._notes_queued += 1
        note = Note(self.folding.generation, kind, body)
        self._store.write(Write(self.row, self._note_done, notes=(note,), repeat=repeat))

    def _queue(self, record: Record, write: Write) -> None:
        size = len(record.body)
        self._window.append(record)
        self._window_bytes += size
        self._ahead_bytes += size
        if self._window_bytes > AHEAD_BYTES or len(self._window) > WINDOW_EVENTS:
            self._trim()
        self._store.write(write)

    def _trim(self) -> None:
        window = self._window
        while window and (len(window) > WINDOW_EVENTS or self._window_bytes > AHEAD_BYTES):
            if window[0].generation > self.committed:
                return
            self._window_bytes -= len(window.popleft().body)

    # -- durability ------------------------------------------------------------------------------------------------

    def _done(self, generation: int, size: int, error: BaseException | None) -> None:
        self._ahead_bytes -= size
        if error is not None:
            self._break(error)
            return
        if generation > self.committed:
            self.committed = generation
        if self._window_bytes > AHEAD_BYTES:  # what is durable can be read from the store, however long the run takes
            self._trim()
        if self.created is not None:
            self.created = self.created()
        if self._waiters:
            self._wake_waiters()
        if self._settle_at is not None and self.committed >= self._settle_at:
            self._wake_settlers()
        self._bus.notify(self.id, self.committed)

    def _note_done(self, error: BaseException | None) -> None:
        if error is not None:
            self._break(error)
            return
        self._notes_kept += 1
        self._wake_waiters()

    def _wait(self, generation: int, notes: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((generation, notes, future))
        return future

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for generation, notes, future in waiters:
            if future.done():
                continue
            if generation > self.committed or notes > self._notes_kept:
                self._waiters.append((generation, notes, future))
            else:
                future.set_result(None)

    def _wake_settlers(self) -> None:
        settlers, self._settlers = self._settlers, []
        for future in settlers:
            if not future.done():
                future.set_result(None)

    def _break(self, error: BaseException) -> None:
        if self._broken is not None:  # the run is being told already
            return
        self._broken = error
        self._give_up(str(self.refusal))
        if self.worker is not None:
            self.worker.cancel()
        # Wake the readers, and promise them nothing: no record follows.
        self._bus.notify(self.id, self.committed)

    def abandon(self) -> None:
        """Nobody works on this task here any more, and it has neither ended nor paused: let nobody wait for that."""
        self._abandoned = True
        self._give_up(STOPPING)

    def _give_up(self, reason: str) -> None:
        waiting = [*(future for _, _, future in self._waiters), *self._settlers]
        self._waiters, self._settlers = [], []
        for future in waiting:
            if not future.done():
                future.set_exception(ServerError(reason))
        self.arrived.set()

    def _check(self) -> None:
        if self._broken is not None:
            raise self.refusal from self._broken
        if self._abandoned:
            raise ServerError(STOPPING)

    async def durable(self, generation: int | None = None) -> None:
        """Wait until that record (by default: all so far) survives a crash. Raises ServerError when it cannot."""
        self._check()
        notes = self._notes_queued if generation is None else 0
        wanted = generation if generation is not None else 0 if self.draft else self.folding.generation
        if self.committed < wanted or self._notes_kept < notes:
            await self._wait(wanted, notes)

    async def room(self) -> None:
        """Wait while the task is too far ahead of the store."""
        while self.crowded:
            await self.durable(max(self.committed + 1, self.folding.generation - AHEAD_EVENTS // 2))

    @property
    def crowded(self) -> bool:
        """True when the task should wait for the store."""
        ahead = self.folding.generation - self.committed + (self.held is not None)
        return ahead >= AHEAD_EVENTS or self._ahead_bytes >= AHEAD_BYTES

    async def settled(self) -> None:
        """Wait until the run has ended or paused, and that is durable. Raises ServerError when it cannot be."""
        self._check()
        if self._reply_kept or (self._settle_at is not None and self.committed >= self._settle_at):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settlers.append(future)
        await future

    async def opened(self) -> None:
        """Wait until the task exists for sure, or the run has answered without one."""
        while self.draft and not self._reply_kept:
            self._check()
            await self._wait(1, 0)
        if self.reply is None:
            await self.durable(1)

    def answer(self, reply: Message) -> None:
        """End a draft with a bare message: no task was made. Whoever waits gets it once it is kept for repeats."""
        self._check()
        self.reply = reply
        body = encode(reply) if self.repeat is not None else None
        self._store.write(Write(self.row, self._reply_done, delete=True, draft=True, repeat=self.repeat, reply=body))

    def _reply_done(self, error: BaseException | None) -> None:
        if error is not None:
            self._break(error)
            return
        self._reply_kept = True
        self.committed = max(self.committed, 1)
        self._wake_waiters()
        self._wake_settlers()

    # -- waiting for its turn --------------------------------------------------------------------------------------

    def rest(self, then: Callable[[], None]) -> None:
        """Once all is durable, forget what the store can tell, if that is much; `then` is called when it was.

        Whoever adds to a task that is dormant wakes it first.
        """
        # One that was read from the store has no window.
        size = self._window_bytes or len(encode(self.folding.task()))
        if size <= SMALL_BYTES or self.draft:
            return
        if self.committed >= self.folding.generation and self._notes_kept >= self._notes_queued:
            self._forget(then)
            return
        kept = self._wait(self.folding.generation, self._notes_queued)
        kept.add_done_callback(lambda kept: None if kept.cancelled() or kept.exception() else self._forget(then))

    def _forget(self, then: Callable[[], None]) -> None:
        if self._begun or self.over or self.inbox or self.state is not State.SUBMITTED:
            return
        bare = structs.replace(self.folding.task(), history=(), artifacts=())
        self.folding, self.dormant = Folding(bare, self.folding.generation), True
        self._window.clear()
        self._window_bytes = 0
        then()

    def wake(self, folding: Folding) -> None:
        """Go on with what was read from the store."""
        if self.dormant:
            self.folding, self.dormant = folding, False

    # -- reading ---------------------------------------------------------------------------------------------------

    def after(self, generation: int) -> list[Record] | None:
        """The durable records after that one, from memory; None when they must be read from the store."""
        window = self._window
        if generation >= self.committed:
            return []
        if not window or window[0].generation > generation + 1:
            return None
        start = generation + 1 - window[0].generation
        return list(islice(window, start, start + self.committed - generation))

    def artifact_number(self) -> int:
        """Which artifact a new one would be, the first being 1. A run that begins again counts again."""
        return len(self._artifact_ids) + 1

    def has_artifact(self, artifact_id: str) -> bool:
        """True when the run builds on, or has made, an artifact with this id."""
        return artifact_id in self._artifact_ids

    def task(self) -> Task:
        """The task as folded so far. Wait for `durable` before it leaves the process."""
        settled = self._settled_task
        if settled is not None and settled.generation == self.folding.generation:
            return settled
        return self.folding.task()
