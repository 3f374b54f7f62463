"""Queues the writes of one task and tracks which of them are durable."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.ports.ownership import MessageRepeated, OwnershipLost
from dragoman.engine.ports.store import DedupeKey, Note, NoteKind, Write
from dragoman.model.error import ServerError
from dragoman.model.json import encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.clock import Clock
    from dragoman.engine.journal.sharing import Sharing
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.store import Store, TaskRow
    from dragoman.model.message import Message
    from dragoman.model.record import Folding, Record
    from dragoman.model.state import State
    from dragoman.model.task import Task

# How far an agent may run ahead of the disk, and how many records of a task stay in memory for subscribers (its
# window), which has the same limit of bytes.
MAX_AHEAD_EVENTS = 256
MAX_AHEAD_BYTES = 1_000_000
MAX_WINDOW_EVENTS = 512
# How long the end of a task is waited for that another process has claimed.
END_SECONDS = 2
STOPPING = "the server is stopping: ask again when it is back"
LOST = "this server has lost the task, which goes on elsewhere: try again with the same messageId"
UNAVAILABLE = "the store cannot take writes now: try again later"


def unavailable(error: BaseException | None) -> ServerError:
    """Build the error that callers get when the store refuses a write; a ServerError of the store keeps its text."""
    if isinstance(error, (OwnershipLost, MessageRepeated)):
        return type(error)(str(error))
    if isinstance(error, ServerError):
        return ServerError(str(error), **error.metadata)
    return ServerError(UNAVAILABLE, retryAfter="1")


class TaskWriter:
    """Queues the writes of one task, keeps its last records in memory, and wakes the waiters when they are durable.

    Writing never waits for the disk; whatever leaves the process awaits `wait_durable` first. `committed` is the last
    durable generation. `on_durable` is called once, when the first records are durable. `broken` is True when the
    store has refused a write.
    """

    # fmt: off
    __slots__ = (
        "_abandoned", "_ahead_bytes", "_bus", "_clock", "_error", "_has_pending", "_notes_durable",
        "_notes_queued", "_on_durable", "_reply_durable", "_settle_waiters", "_settled_at", "_settled_task",
        "_store", "_waiters", "_window", "_window_bytes", "broken", "committed", "context_id", "draft", "epoch",
        "folding", "id", "is_stopped", "on_failed", "row", "sharing",
    )
    # fmt: on

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        row: TaskRow,
        folding: Folding,
        committed: int,
        on_durable: Callable[[], None] | None,
        epoch: int = 0,
        sharing: Sharing | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self.id = row.id
        self.context_id = row.context_id
        self.row = row
        self.folding = folding
        self.committed = committed
        self.draft = False  # True while it is no task yet and has no records
        self.broken = False
        self.sharing = sharing
        self.epoch = epoch  # of the claim under which it is written; 0 when this is the only process
        self._has_pending = False  # True while there is deferred output that is not numbered yet
        self._on_durable = on_durable
        self._window: deque[Record] = deque()
        self._window_bytes = 0
        self._ahead_bytes = 0
        # The generation and the number of notes that must be durable before the future is done.
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._notes_queued: int = 0
        self._notes_durable = 0
        self._settled_at: int | None = None
        self._settle_waiters: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None
        self._abandoned = False
        self.is_stopped = False  # True when this process stops, and its run with it
        self.on_failed: Callable[[], Awaitable[None]] | None = None
        self._reply_durable = False
        self._settled_task: Task | None = None

    @property
    def ownership_lost(self) -> bool:
        """True when another process owns this task now."""
        return isinstance(self._error, OwnershipLost)

    @property
    def cause(self) -> BaseException | None:
        """What the store refused a write with."""
        return self._error

    @property
    def refusal(self) -> ServerError:
        """The error for callers that wait for a write that the store refused."""
        return unavailable(self._error)

    def queue_note(
        self, kind: NoteKind, body: bytes, *, dedupe_key: DedupeKey | None = None, snapshot: bytes | None = None
    ) -> None:
        """Queue a note to be stored with the last record. `wait_durable` waits for it too."""
        self._notes_queued += 1
        self._store.write(
            Write(
                self.row,
                self._note_done,
                notes=(Note(self.folding.generation, kind, body),),
                snapshot=snapshot,
                dedupe_key=dedupe_key,
                size=len(body) + len(snapshot or b""),
                epoch=self.epoch,
            )
        )

    def note(
        self,
        kind: NoteKind,
        body: bytes,
        *,
        history_message: Message | None = None,
        dedupe_key: DedupeKey | None = None,
    ) -> asyncio.Future[None]:
        """Store a note with the last record, without a number of its own. The future is done when it is durable.

        Raises:
            ServerError: the store has refused a write, or the task was abandoned. The future may raise it too.
        """
        self._check()
        if history_message is not None:
            self.folding.add_message(history_message)
            self._settled_task = None
        snapshot = None
        if history_message is not None and self.row.state.waiting:  # its snapshot was made before this message
            snapshot = encode(structs.replace(self.folding.task(), generation=None))
        self.queue_note(kind, body, dedupe_key=dedupe_key, snapshot=snapshot)
        return self._wait(0, self._notes_queued)

    def _trim(self) -> None:
        window = self._window
        while window and (len(window) > MAX_WINDOW_EVENTS or self._window_bytes > MAX_AHEAD_BYTES):
            if window[0].generation > self.committed:
                return
            self._window_bytes -= len(window.popleft().body)

    def _done(self, generation: int, size: int, error: BaseException | None) -> None:
        self._ahead_bytes -= size
        if error is not None:
            self._break(error)
            return
        if generation > self.committed:
            self.committed = generation
        if self._window_bytes > MAX_AHEAD_BYTES:  # durable records can be read from the store
            self._trim()
        if self._on_durable is not None:
            on_durable, self._on_durable = self._on_durable, None
            on_durable()
        if self._waiters:
            self._wake_waiters()
        if self._settle_waiters and self._settled_at is not None and self.committed >= self._settled_at:
            self._wake_settle_waiters()
        self._bus.notify(self.id, self.committed)

    def _note_done(self, error: BaseException | None) -> None:
        if error is not None:
            self._break(error)
            return
        self._notes_durable += 1
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
            if generation > self.committed or notes > self._notes_durable:
                self._waiters.append((generation, notes, future))
            else:
                future.set_result(None)

    def _wake_settle_waiters(self) -> None:
        waiters, self._settle_waiters = self._settle_waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def _break(self, error: BaseException) -> None:
        if self.broken:  # the run has been stopped already
            return
        self.broken, self._error = True, error
        self._on_refused()
        self._fail_waiters(lambda: self.refusal)
        # Wake the subscribers, so that they notice: no record follows.
        self._bus.notify(self.id, self.committed)

    def lose(self) -> None:
        """Stop: another process owns the task now. Those who wait for it get OwnershipLost."""
        self._break(OwnershipLost(LOST))

    async def end_elsewhere(self) -> State | None:
        """Return the final state of a task that another process has claimed; None when it has not ended.

        Whoever cancels a task claims it first, so its end is waited for, a moment: a node that takes a task over has
        claimed it, too.
        """
        deadline = self._clock.now() + round(END_SECONDS * 1000)
        with suppress(ServerError), self._bus.watch(self.id) as watch:
            while (stored := await self._store.task(self.id)) is not None:
                if stored.row.number != self.row.number or stored.epoch == self.epoch:
                    return None
                if stored.row.state.final:
                    return stored.row.state
                if (left := (deadline - self._clock.now()) / 1000) <= 0:
                    return None
                await watch.wait_past(stored.row.generation, left)
        return None

    def mark_stopped(self) -> None:
        """Note that this process stops, and the run with it."""
        self.is_stopped = True

    def set_on_failed(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Set what is called when the task was failed after the store had refused a write of its run."""
        self.on_failed = callback

    def abandon(self) -> None:
        """Mark a task whose run has stopped before the task ended or paused; its waiters get ServerError.

        The error names the task, so that they can ask for it when the server is back.
        """
        self._abandoned = self.is_stopped = True
        self._on_abandoned()
        self._fail_waiters(lambda: ServerError(STOPPING, taskId=self.id, interrupted="true"))

    def _fail_waiters(self, build_error: Callable[[], ServerError]) -> None:
        waiting = [*(future for _, _, future in self._waiters), *self._settle_waiters]
        self._waiters, self._settle_waiters = [], []
        for future in waiting:
            if not future.done():
                future.set_exception(build_error())

    def _check(self) -> None:
        if self.broken:
            raise self.refusal from self._error
        if self._abandoned:
            raise ServerError(STOPPING)

    async def wait_durable(self, generation: int | None = None, *, seconds: float | None = None) -> None:
        """Wait until `generation` is durable, by default everything so far, notes included.

        Raises:
            ServerError: the store refused a write, or the server is stopping.
            TimeoutError: it has taken more than `seconds`.
        """
        if self.broken or self._abandoned:
            self._check()
        notes = self._notes_queued if generation is None else 0
        target = generation if generation is not None else 0 if self.draft else self.folding.generation
        if self.committed < target or self._notes_durable < notes:
            future = self._wait(target, notes)
            if seconds is None:
                await future
                return
            timer = self._clock.call_later(seconds, lambda: future.done() or future.set_exception(TimeoutError()))
            try:
                await future
            finally:
                timer.cancel()

    async def wait_settled(self) -> None:
        """Wait until the task has ended or paused, and that is durable. A bare reply ends it too.

        Raises:
            ServerError: the store refused a write, or the server is stopping.
        """
        if self.broken or self._abandoned:
            self._check()
        if self._reply_durable or (self._settled_at is not None and self.committed >= self._settled_at):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settle_waiters.append(future)
        await future

    async def drain(self) -> None:
        """Wait until the task is no longer too far ahead of the store. Raises as `wait_durable` does.

        When this process cannot renew its lease, its runs wait here, at their next output.
        """
        while self.needs_drain:
            if self.sharing is not None and self.sharing.ownership.expired:
                await self.sharing.wait_lease()
            else:
                await self.wait_durable(max(self.committed + 1, self.folding.generation - MAX_AHEAD_EVENTS // 2))

    @property
    def needs_drain(self) -> bool:
        """True when the task is too far ahead of the store, or this process must not work now."""
        if self.sharing is not None and self.sharing.ownership.expired:
            return True
        ahead = self.folding.generation - self.committed + self._has_pending
        return ahead >= MAX_AHEAD_EVENTS or self._ahead_bytes >= MAX_AHEAD_BYTES

    def records_after(self, generation: int) -> list[Record] | None:
        """The durable records after `generation` from memory; None when they must be read from the store."""
        window = self._window
        if generation >= self.committed:
            return []
        if not window or window[0].generation > generation + 1:
            return None
        start = generation + 1 - window[0].generation
        return list(islice(window, start, start + self.committed - generation))

    def _on_refused(self) -> None:
        """Called when the store has refused a write: stops the run."""

    def _on_abandoned(self) -> None:
        """Called when the task is abandoned."""
