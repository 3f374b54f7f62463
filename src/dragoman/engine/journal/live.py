"""A task with a run in this process."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.clock import timestamp
from dragoman.engine.journal.writer import MAX_AHEAD_BYTES, MAX_WINDOW_EVENTS, TaskWriter
from dragoman.engine.ports.store import DedupeKey, Note, NoteKind, TaskRow, Write
from dragoman.model.event import ArtifactUpdate, StatusUpdate, with_text_only
from dragoman.model.json import encode
from dragoman.model.message import text_only
from dragoman.model.record import Folding, Record
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dragoman.clock import Clock
    from dragoman.engine.call import Closing
    from dragoman.engine.journal.new_task import NewTask
    from dragoman.engine.journal.sharing import Sharing
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.ownership import Claim
    from dragoman.engine.ports.rows import ExtraRow, RowMaker
    from dragoman.engine.ports.store import Store
    from dragoman.model.error import A2AError
    from dragoman.model.message import Message
    from dragoman.model.task import Artifact

# Queued tasks up to this size stay in memory: reading them again would cost more.
SMALL_BYTES = 64_000


def _size_of(notes: Iterable[tuple[NoteKind, bytes]]) -> int:
    return sum(len(body) for _, body in notes)


class LiveTask(TaskWriter):
    """A task with a run in this process: numbers, folds and encodes its events, and queues them for the store.

    A draft is stored, but no query returns it: `open` or its first event makes it a task, unless the run answers with a
    bare reply. `base_artifacts` are those a run continues: the existing ones, or, when it restarts after a crash, those
    of the last pause. `status_metadata` is added to every status. `claim` is that of a task loaded from the store; a
    new task needs none. `closing` is how streamed texts end, whoever reads them. `sharing` is None unless other
    processes use the same store; `begun` is True when the store has noted that the run has begun, and `mail` is the
    number of the last message from there that the task contains.

    `ended` is True when the task takes no more events: it has ended, its draft was answered with a bare reply, or the
    store has refused a write. `over` is True when further output of the run is ignored: `ended`, or the task is paused
    or was abandoned. `error` is the protocol error that the run raised and that failed the task; `draft_error` is the
    same if the task was a draft until then.
    """

    # fmt: off
    __slots__ = (
        "_artifact_ids", "_flush_pending", "_is_stored_draft", "_new", "_pins", "_row_maker", "_serial",
        "_started", "_status_metadata", "_text_only", "_unwritten", "_unwritten_bytes", "base_artifacts",
        "begun", "bytes_written", "claim", "closing", "draft_error", "ended", "error", "followups", "is_queued",
        "mail", "over", "reply", "state", "unloaded", "wakeup", "worker",
    )
    # fmt: on

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        row: TaskRow,
        folding: Folding,
        *,
        committed: int,
        new: NewTask | None = None,
        is_stored_draft: bool = False,
        base_artifacts: tuple[Artifact, ...] = (),
        status_metadata: dict[str, Any] | None = None,
        row_maker: RowMaker | None = None,
        claim: Claim | None = None,
        on_durable: Callable[[], None] | None = None,
        sharing: Sharing | None = None,
        begun: bool = False,
        mail: int = 0,
    ) -> None:
        epoch = 0 if claim is None else claim.epoch
        super().__init__(store, bus, clock, row, folding, committed, on_durable, epoch, sharing)
        self.claim = claim
        self.begun = begun
        self.is_queued = False
        self.mail = mail
        self._serial = sharing is not None and sharing.serial
        self._pins = sharing is not None and sharing.pins
        self.base_artifacts = base_artifacts
        self.state = state = folding.status.state
        self.ended: bool = state.final
        self.over: bool = state.final or state.waiting
        self.unloaded = False
        self.closing: Closing = "last"
        self._text_only = False
        self.reply: Message | None = None
        self.error: A2AError | None = None
        self.draft_error: A2AError | None = None
        self.followups: deque[Message] = deque()
        self.wakeup = asyncio.Event()  # set when there is a follow-up to read, or the run is over
        self.worker: asyncio.Task[None] | None = None
        self._new = new
        self._is_stored_draft = is_stored_draft
        self._status_metadata = status_metadata
        self._row_maker = row_maker
        self._artifact_ids = {artifact.artifact_id for artifact in base_artifacts} if base_artifacts else set[str]()
        self._started = False
        self._flush_pending: Callable[[], None] | None = None
        self._unwritten: tuple[Record, ...] = ()
        self._unwritten_bytes = 0
        self.bytes_written = 0  # of the events of this run

    @property
    def has_rows(self) -> bool:
        """True when the task has rows in plug-in tables."""
        return self._row_maker is not None

    # -- the run -----------------------------------------------------------------------------------------------------

    def attach(self, worker: asyncio.Task[None]) -> None:
        """Set the asyncio task of the run, which `stop_work` cancels."""
        self.worker = worker

    def stop_work(self) -> None:
        """Cancel the run."""
        if self.worker is not None:
            self.worker.cancel()

    def set_form(self, closing: Closing, *, text_only: bool) -> None:
        """Set how the streamed texts that follow end; with `text_only`, data parts are written as JSON text."""
        self.closing, self._text_only = closing, text_only

    def defer_output(self, flush: Callable[[], None] | None) -> None:
        """Register output that is not emitted yet; `flush` emits it before the next event. None clears it."""
        self._flush_pending, self._has_pending = flush, flush is not None

    def _on_refused(self) -> None:
        self.ended = self.over = True
        self.wakeup.set()
        self.stop_work()

    def _on_abandoned(self) -> None:
        self.over = True
        self.wakeup.set()

    def add_mail(self, number: int, message: Message) -> None:
        """Add a message that was posted to the task to its history, and pass it to the run."""
        if number == self.mail + 1 and not self.over:
            self.mail = number
            self.folding.add_message(message)
            self._settled_task = None
            self.deliver(message)

    def deliver(self, message: Message) -> None:
        """Pass a follow-up message to the run."""
        self.followups.append(message)
        self.wakeup.set()

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_draft(self) -> None:
        """Write the task as a draft."""
        assert self._new is not None
        self.draft = self._is_stored_draft = True
        snapshot = encode(self._new.task)
        webhook = self._new.webhook
        self._store.write(
            Write(
                self.row,
                self._note_done,
                notes=self._request_notes(self._new),
                pushes=() if webhook is None else (webhook,),
                snapshot=snapshot,
                dedupe_key=self._new.dedupe_key,
                draft=True,
                size=len(snapshot),
                epoch=self.epoch,
                joins_context=self._new.joins_context,
                begins=True,
                serial=self._serial,
                pins=self._pins,
            )
        )
        self._notes_queued += 1
        self.begun = True

    def _request_notes(self, new: NewTask) -> tuple[Note, ...]:
        return () if new.request is None else (Note(1, "request", new.request),)

    def create(self, *, starts: bool = False, queued: bool = False) -> None:
        """Write record 1, the task itself; with `starts`, also its WORKING status in the same write.

        A task that is `queued` is left to whichever process takes it first.
        """
        new = self._new
        assert new is not None
        self.draft, self.is_queued = False, queued
        first = Record.of(1, new.task)
        has_note = new.request is not None and not self._is_stored_draft
        records, size = (first,), len(first.body)
        if starts and self._row_maker is None:
            self._started = self.begun = True
            now = self._clock.now()
            event = StatusUpdate(
                self.id, self.context_id, TaskStatus(State.WORKING, None, timestamp(now)), self._status_metadata
            )
            second = Record.of(2, event)
            self.folding.apply(event)
            self.state = State.WORKING
            self.row = structs.replace(self.row, state=State.WORKING, status_ms=now, generation=2)
            records, size = (first, second), size + len(second.body)
        self._window.extend(records)
        self._window_bytes += size
        self._ahead_bytes += size
        self._store.write(
            Write(
                self.row,
                partial(self._done, len(records), size),
                create=True,
                joins_context=new.joins_context,
                records=records,
                notes=self._request_notes(new) if has_note else (),
                dedupe_key=new.dedupe_key,
                pushes=() if new.webhook is None else (new.webhook,),
                opens_draft=self._is_stored_draft,
                size=size if new.request is None else size + len(new.request),
                epoch=self.epoch,
                queued=queued,
                begins=self.begun,
                serial=self._serial,
                pins=self._pins and self.begun,
            )
        )
        if starts and self._row_maker is not None:
            self.begin()

    def begin(self) -> None:
        """Write the WORKING status before the agent's code is called; a draft stays a draft."""
        self._started = True
        if self.draft:
            return
        begins, self.begun = not self.begun, True
        if self.state is not State.WORKING:
            self.status(State.WORKING, begins=begins)
        elif begins and self.sharing is not None:  # an answered task that was queued, or will be if its context is busy
            self._notes_queued += 1
            self._store.write(
                Write(self.row, self._note_done, epoch=self.epoch, begins=True, serial=self._serial, pins=self._pins)
            )

    async def wait_accepted(self) -> None:
        """Wait until the task or its draft is durable: no other process has accepted the same message.

        Raises:
            MessageRepeated: another process has accepted it.
            ContextBusy: a draft cannot be answered now, because another task of its context is at work.
            ServerError: the store refused the task, or the server is stopping.
        """
        await (self.wait_durable() if self.draft else self.wait_durable(1))

    def open(self) -> None:
        """Turn a draft into a task. Does nothing when it is a task already, or its run is over."""
        if self.draft and not self.over:
            self.create(starts=self._started)

    def emit(
        self,
        event: StatusUpdate | ArtifactUpdate,
        *,
        notes: tuple[tuple[NoteKind, bytes], ...] = (),
        history_message: Message | None = None,
        context_state: bytes | None = None,
        dedupe_key: DedupeKey | None = None,
        at_ms: int | None = None,
        more: bool = False,
        begins: bool = False,
    ) -> None:
        """Number an event, fold it into the task and queue it for the store.

        `history_message` is appended to the history with this event. With `more`, another event follows at once, and
        both are one write.

        Raises:
            ServerError: the store has refused a write, or the task was abandoned.
            ValueError: the task has ended.
        """
        if self.broken or self._abandoned:
            self._check()
        if self._flush_pending is not None:
            flush, self._flush_pending, self._has_pending = self._flush_pending, None, False
            flush()
        if self._text_only:
            event = with_text_only(event)
        if self.draft:
            self.create(starts=isinstance(event, ArtifactUpdate))
        generation = self.folding.generation + 1
        # Encode first: an event that cannot be encoded must not take a number.
        record = Record.of(generation, event)
        self.folding.apply(event)
        if history_message is not None:
            self.folding.add_message(history_message)
        size = len(record.body)
        self.bytes_written += size
        snapshot = None
        before: State | None = None
        rows: tuple[ExtraRow, ...] = ()
        if isinstance(event, StatusUpdate):
            before, state = self.row.state, event.status.state
            self.row = structs.replace(
                self.row, state=state, status_ms=at_ms or self._clock.now(), generation=generation
            )
            self.state = state
            self.ended = state.final
            self.over = state.final or state.waiting
            if self.over:
                self._settled_at = generation
                self._settled_task = settled = self.folding.task()
                snapshot = encode(structs.replace(settled, generation=None))
                self.wakeup.set()
            else:
                self._settled_at = None
            if self._row_maker is not None and state is not before:
                rows = self._row_maker.rows(self.row, self.task())
        else:
            self.row = structs.replace(self.row, generation=generation)
            self._artifact_ids.add(event.artifact.artifact_id)
        self._window.append(record)
        self._window_bytes += size
        self._ahead_bytes += size
        if more:
            self._unwritten = (*self._unwritten, record)
            self._unwritten_bytes += size
            return
        records = (record,)
        if self._unwritten:
            records, self._unwritten = (*self._unwritten, record), ()
            size += self._unwritten_bytes
            self._unwritten_bytes = 0
        if self._window_bytes > MAX_AHEAD_BYTES or len(self._window) > MAX_WINDOW_EVENTS:
            self._trim()
        self._store.write(
            Write(
                self.row,
                partial(self._done, generation, size),
                previous_state=before,
                records=records,
                notes=tuple([Note(generation, kind, body) for kind, body in notes]) if notes else (),
                snapshot=snapshot,
                context_state=context_state,
                dedupe_key=dedupe_key,
                rows=rows,
                size=size + (0 if snapshot is None else len(snapshot)) + (_size_of(notes) if notes else 0),
                epoch=self.epoch,
                begins=begins,
                serial=self._serial,
                # Whoever writes an answer down need not be the node that goes on with it.
                pins=self._pins and begins,
                mail=self.mail,
            )
        )

    def status(
        self,
        state: State,
        message: Message | None = None,
        *,
        notes: tuple[tuple[NoteKind, bytes], ...] = (),
        history_message: Message | None = None,
        metadata: dict[str, Any] | None = None,
        context_state: bytes | None = None,
        dedupe_key: DedupeKey | None = None,
        begins: bool = False,
    ) -> None:
        """Emit a new status with the current time. Raises as `emit` does."""
        now = self._clock.now()
        if self._status_metadata:
            metadata = {**self._status_metadata, **(metadata or {})}
        if self._row_maker is not None:  # row versions are times: each change needs another
            now = max(now, self.row.status_ms + 1)
        self.emit(
            StatusUpdate(self.id, self.context_id, TaskStatus(state, message, timestamp(now)), metadata),
            at_ms=now,
            notes=notes,
            history_message=history_message,
            context_state=context_state,
            dedupe_key=dedupe_key,
            begins=begins,
        )

    def fail(self, error: A2AError, message: Message, *, context_state: bytes | None = None) -> None:
        """Fail the task with a protocol error; a caller who has no task yet gets that itself. Raises as `emit` does."""
        if self.draft:
            self.draft_error = error
            self.open()
        self.status(State.FAILED, message, context_state=context_state)
        self.error = error

    async def wait_opened(self) -> None:
        """Wait until the task is durable, or its draft was answered with a bare reply. Raises as `wait_durable`."""
        while self.draft and not self._reply_durable:
            self._check()
            await self._wait(1, 0)
        if self.reply is None:
            await self.wait_durable(1)

    def finish_with_reply(self, reply: Message) -> None:
        """Answer with a bare reply and delete the draft. Waiters are woken once that is durable.

        The reply is stored for repeats if the message has a dedupe key. Raises ServerError as `emit` does.
        """
        self._check()
        parts = text_only(reply.parts) if self._text_only else None
        if parts is not None:
            reply = structs.replace(reply, parts=parts)
        self.reply = reply
        self.ended = self.over = True
        dedupe_key = None if self._new is None else self._new.dedupe_key
        body = encode(reply) if dedupe_key is not None else None
        self._store.write(
            Write(
                self.row,
                self._reply_done,
                delete=True,
                draft=True,
                dedupe_key=dedupe_key,
                reply=body,
                epoch=self.epoch,
                serial=self._serial,
            )
        )

    def _reply_done(self, error: BaseException | None) -> None:
        if error is not None:
            self._break(error)
            return
        self._reply_durable = True
        self.committed = max(self.committed, 1)
        self._wake_waiters()
        self._wake_settle_waiters()
        self._bus.notify(self.id, self.committed)

    # -- while queued ----------------------------------------------------------------------------------------------

    def unload(self, on_unloaded: Callable[[], None]) -> None:
        """Free the memory of a large queued task once it is durable, then call `on_unloaded`.

        Small tasks and drafts stay in memory. `reload` must be called before anything is added to an unloaded task.
        """
        # The window of a task loaded from the store is empty.
        size = self._window_bytes or len(encode(self.folding.task()))
        if size <= SMALL_BYTES or self.draft:
            return
        if self.committed >= self.folding.generation and self._notes_durable >= self._notes_queued:
            self._unload_now(on_unloaded)
            return
        durable = self._wait(self.folding.generation, self._notes_queued)
        durable.add_done_callback(
            lambda future: None if future.cancelled() or future.exception() else self._unload_now(on_unloaded)
        )

    def _unload_now(self, on_unloaded: Callable[[], None]) -> None:
        if self._started or self.over or self.followups or self.state is not State.SUBMITTED:
            return
        bare = structs.replace(self.folding.task(), history=(), artifacts=())
        self.folding, self.unloaded = Folding(bare, self.folding.generation), True
        self._window.clear()
        self._window_bytes = 0
        on_unloaded()

    def reload(self, folding: Folding) -> None:
        """Restore the content of an unloaded task."""
        if self.unloaded:
            self.folding, self.unloaded = folding, False

    # -- reading ---------------------------------------------------------------------------------------------------

    def artifact_number(self) -> int:
        """The number of the next artifact, from 1. A restarted run counts from its `base_artifacts`."""
        return len(self._artifact_ids) + 1

    def has_artifact(self, artifact_id: str) -> bool:
        """True when an artifact with this id is among `base_artifacts` or was written by this run."""
        return artifact_id in self._artifact_ids

    def task(self) -> Task:
        """The task with all events so far. Await `wait_durable` before it leaves the process."""
        settled = self._settled_task
        if settled is not None and settled.generation == self.folding.generation:
            return settled
        return self.folding.task()
