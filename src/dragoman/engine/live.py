"""A task that is being worked on in this process."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.engine.ports import Note, NoteKind, Repeat, TaskRow, Write
from dragoman.model.error import ServerError
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.fold import Folding
from dragoman.model.json import encode
from dragoman.model.record import Record
from dragoman.model.task import Task, TaskStatus
from dragoman.model.time import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.engine.clock import Clock
    from dragoman.engine.ports import Bus, Store
    from dragoman.model.message import Message
    from dragoman.model.state import State

# How far an agent may run ahead of the disk, and what subscribers find in memory.
AHEAD_EVENTS = 256
AHEAD_BYTES = 1_000_000
WINDOW_EVENTS = 512
STOPPING = "the server is stopping: ask again when it is back"
UNAVAILABLE = "the store cannot take writes now: try again later"


class LiveTask:
    """Numbers, folds, encodes and queues a task's events, and knows which of them are durable.

    The agent never waits for the disk here; whatever leaves the process waits with `durable` or `settled`.
    A draft has no record yet: its first event creates the task, unless the run turns out to be a bare reply.
    """

    def __init__(self, store: Store, bus: Bus, clock: Clock, row: TaskRow, folding: Folding, *, committed: int) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self.row = row
        self.folding = folding
        self.committed = committed
        self.draft = False
        self.reply: Message | None = None
        self.inbox: deque[Message] = deque()
        self.arrived: asyncio.Future[None] | None = None
        self.worker: asyncio.Task[None] | None = None
        # Output that waits one turn of the loop to learn whether it is the last; any event must let it go first.
        self.held: Callable[[], None] | None = None
        self.repeat: Repeat | None = None
        self.request: bytes | None = None
        self._window: deque[Record] = deque()
        self._window_bytes = 0
        self._ahead_bytes = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._settle_at: int | None = None
        self._settlers: list[asyncio.Future[None]] = []
        self._broken: BaseException | None = None

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
        return self.state.final or self._broken is not None

    @property
    def broken(self) -> bool:
        """True when the store refused a write of this task."""
        return self._broken is not None

    # -- writing ---------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Write record 1, the task itself."""
        self.draft = False
        record = Record.of(1, self.folding.task())
        notes = () if self.request is None else (Note(1, "request", self.request),)
        self._queue(record, create=True, notes=notes, repeat=self.repeat)

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
        if self.held is not None:
            held, self.held = self.held, None
            held()
        if self.draft:
            self.create()
        self.folding.apply(event)
        if says is not None:
            self.folding.say(says)
        generation = self.folding.generation
        snapshot = None
        if isinstance(event, StatusUpdate):
            state = event.status.state
            self.row = structs.replace(
                self.row, state=state, status_ms=at_ms or self._clock.now(), generation=generation
            )
            if state.final or state.waiting:
                self._settle_at = generation
                snapshot = encode(structs.replace(self.folding.task(), generation=None))
            else:
                self._settle_at = None
        else:
            self.row = structs.replace(self.row, generation=generation)
        self._queue(
            Record.of(generation, event),
            notes=tuple(Note(generation, kind, body) for kind, body in notes),
            snapshot=snapshot,
            context_state=context_state,
            repeat=repeat,
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
        if self.draft:
            self.create()
        if says is not None:
            self.folding.say(says)
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if error is not None:
                self._break(error)
            if kept.done():
                return
            if error is None:
                kept.set_result(None)
            else:
                kept.set_exception(ServerError(UNAVAILABLE))

        note = Note(self.folding.generation, kind, body)
        self._store.write(Write(self.row, done, notes=(note,), repeat=repeat))
        return kept

    def _queue(
        self,
        record: Record,
        *,
        create: bool = False,
        notes: tuple[Note, ...] = (),
        snapshot: bytes | None = None,
        context_state: bytes | None = None,
        repeat: Repeat | None = None,
    ) -> None:
        size = len(record.body)
        self._window.append(record)
        self._window_bytes += size
        self._ahead_bytes += size
        self._trim()
        done = partial(self._done, record.generation, size)
        self._store.write(
            Write(
                self.row,
                done,
                create=create,
                record=record,
                notes=notes,
                snapshot=snapshot,
                context_state=context_state,
                repeat=repeat,
            )
        )

    def _trim(self) -> None:
        window = self._window
        while len(window) > WINDOW_EVENTS or (self._window_bytes > AHEAD_BYTES and len(window) > 1):
            if window[0].generation > self.committed:
                return
            self._window_bytes -= len(window.popleft().body)

    # -- durability ------------------------------------------------------------------------------------------------

    def _done(self, generation: int, size: int, error: BaseException | None) -> None:
        self._ahead_bytes -= size
        if error is not None:
            self._break(error)
            return
        self.committed = max(self.committed, generation)
        if self._waiters:
            self._wake_waiters()
        if self._settle_at is not None and self.committed >= self._settle_at:
            self._wake_settlers()
        self._bus.notify(self.id, self.committed)

    def _wake_waiters(self) -> None:
        due = [future for wanted, future in self._waiters if wanted <= self.committed]
        self._waiters = [(wanted, future) for wanted, future in self._waiters if wanted > self.committed]
        for future in due:
            if not future.done():
                future.set_result(None)

    def _wake_settlers(self) -> None:
        settlers, self._settlers = self._settlers, []
        for future in settlers:
            if not future.done():
                future.set_result(None)

    def _break(self, error: BaseException) -> None:
        self._broken = error
        for future in [future for _, future in self._waiters] + self._settlers:
            if not future.done():
                future.set_exception(ServerError(UNAVAILABLE))
        self._waiters, self._settlers = [], []
        if self.worker is not None:
            self.worker.cancel()
        self._bus.notify(self.id, self.committed + 1)

    def abandon(self) -> None:
        """Nobody works on this task here any more, and it has neither ended nor paused: let nobody wait for that."""
        waiting = [*(future for _, future in self._waiters), *self._settlers]
        self._waiters, self._settlers = [], []
        for future in waiting:
            if not future.done():
                future.set_exception(ServerError(STOPPING))

    def _check(self) -> None:
        if self._broken is not None:
            raise ServerError(UNAVAILABLE) from self._broken

    async def durable(self, generation: int | None = None) -> None:
        """Wait until that record (by default: all so far) survives a crash. Raises ServerError when it cannot."""
        wanted = self.folding.generation if generation is None else generation
        self._check()
        if self.committed < wanted:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((wanted, future))
            await future

    async def room(self) -> None:
        """Wait while the task is too far ahead of the store."""
        if self.crowded:
            await self.durable(self.folding.generation - AHEAD_EVENTS // 2)

    @property
    def crowded(self) -> bool:
        """True when the task should wait for the store."""
        return self.folding.generation - self.committed > AHEAD_EVENTS or self._ahead_bytes > AHEAD_BYTES

    async def settled(self) -> None:
        """Wait until the run has ended or paused, and that is durable. Raises ServerError when it cannot be."""
        self._check()
        if self.reply is not None or (self._settle_at is not None and self.committed >= self._settle_at):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settlers.append(future)
        await future

    async def opened(self) -> None:
        """Wait until the task exists for sure, or the run has answered without one."""
        while self.draft and self.reply is None:
            self._check()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((1, future))
            await future
        if self.reply is None:
            await self.durable(1)

    def answer(self, reply: Message) -> None:
        """End a draft with a bare message: no task was made."""
        self.reply = reply
        self.committed = max(self.committed, 1)
        self._wake_waiters()
        self._wake_settlers()

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

    def task(self) -> Task:
        """The task as folded so far. Wait for `durable` before it leaves the process."""
        return self.folding.task()
