"""A task with a run in this process."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from dragoman.clock import timestamp
from dragoman.engine.journal.durability import MAX_AHEAD_BYTES, MAX_AHEAD_EVENTS, STOPPING, Durability
from dragoman.engine.journal.phase import TRANSITIONS, Phase
from dragoman.engine.ports.ownership import OwnershipLost
from dragoman.engine.ports.store import ACCEPTED, DedupeKey, Note, NoteKind, TaskRow, Write
from dragoman.model.error import ServerError
from dragoman.model.event import ArtifactUpdate, StatusUpdate, with_text_only
from dragoman.model.json import encode
from dragoman.model.message import text_only
from dragoman.model.record import Folding, Record
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.engine.call import Closing
    from dragoman.engine.journal.journal import Journal
    from dragoman.engine.journal.new_task import NewTask
    from dragoman.engine.ports.ownership import Claim
    from dragoman.engine.ports.rows import ExtraRow, RowMaker
    from dragoman.engine.ports.store import Verdict
    from dragoman.model.error import A2AError
    from dragoman.model.message import Message
    from dragoman.model.task import Artifact

# Queued tasks up to this size stay in memory: reading them again would cost more.
SMALL_BYTES = 64_000
LOST = "this server has lost the task, which goes on elsewhere: try again with the same messageId"


class Form(NamedTuple):
    """How streamed texts end, whoever reads them, and whether data parts are written as JSON text."""

    closing: Closing
    text_only: bool


class RunOutcome(NamedTuple):
    """What came of a run for callers who have no task yet.

    `reply` is the bare message in place of the task. `error` is the protocol error that the run raised and that failed
    the task; `draft_error` is the same if the task was a draft until then.
    """

    reply: Message | None = None
    error: A2AError | None = None
    draft_error: A2AError | None = None


class FollowUps:
    """The messages that came for a run while it works, and that it has not read."""

    __slots__ = ("_arrived", "_messages")

    def __init__(self) -> None:
        self._messages: deque[Message] | None = None
        self._arrived: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._messages or ())

    def add(self, *messages: Message) -> None:
        """Add messages after the others."""
        self._messages = self._messages or deque()
        self._messages.extend(messages)
        self.wake()

    def add_before(self, messages: tuple[Message, ...]) -> None:
        """Add messages before the others."""
        self._messages = deque((*messages, *(self._messages or ())))

    def pop(self) -> Message:
        """Take the first message. Raises IndexError when there is none."""
        if not self._messages:
            raise IndexError
        return self._messages.popleft()

    def wake(self) -> None:
        """Wake the run that waits for messages: there is one, or no more will come."""
        if self._arrived is not None:
            self._arrived.set()

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        if self._arrived is None:
            self._arrived = asyncio.Event()
        self._arrived.clear()
        await self._arrived.wait()


_DEFAULT_FORM = Form("last", text_only=False)
_NO_OUTCOME = RunOutcome()


class LiveTask:
    """A task with a run in this process: numbers, folds and encodes its events, and queues them for the store.

    Writing never waits for the disk; whatever leaves the process awaits `wait_durable` first.

    A draft is stored, but no query returns it: `open` or its first event makes it a task, unless the run answers with a
    bare reply. `base_artifacts` are those a run continues: the existing ones, or, when it restarts after a crash, those
    of the last pause. `mail` is the number of the last message from the store that the task contains. `on_failed` is
    called when the task was failed after the store had refused a write of its run.
    """

    __slots__ = (
        "_artifact_ids",
        "_flush_pending",
        "_follow_ups",
        "_new",
        "_row_maker",
        "_settled_task",
        "_unwritten",
        "base_artifacts",
        "bytes_written",
        "claim",
        "durability",
        "folding",
        "form",
        "journal",
        "mail",
        "on_failed",
        "outcome",
        "phase",
        "row",
        "worker",
    )

    def __init__(
        self,
        journal: Journal,
        claim: Claim,
        row: TaskRow,
        folding: Folding,
        phase: Phase,
        *,
        committed: int,
        new: NewTask | None = None,
        base_artifacts: tuple[Artifact, ...] = (),
        row_maker: RowMaker | None = None,
        on_committed: Callable[[], None] | None = None,
        mail: int = 0,
    ) -> None:
        self.journal = journal
        self.claim = claim
        self.row = row
        self.folding = folding
        self.phase = phase
        self.durability = Durability(journal.bus, row.id, committed, on_committed, self._refuse)
        self.mail = mail
        self._follow_ups: FollowUps | None = None
        self.form = _DEFAULT_FORM
        self.outcome = _NO_OUTCOME
        self.worker: asyncio.Task[None] | None = None
        self.on_failed: Callable[[], Awaitable[None]] | None = None
        self.base_artifacts = base_artifacts
        self.bytes_written = 0  # of the events of this run
        self._new = new
        self._row_maker = row_maker
        self._artifact_ids = {artifact.artifact_id for artifact in base_artifacts} if base_artifacts else set[str]()
        self._flush_pending: Callable[[], None] | None = None
        self._unwritten: tuple[Record, ...] = ()  # they go with the next one
        self._settled_task: Task | None = None

    @property
    def has_rows(self) -> bool:
        """True when the task has rows in plug-in tables."""
        return self._row_maker is not None

    @property
    def follow_ups(self) -> FollowUps:
        """The messages that came for the run."""
        if self._follow_ups is None:
            self._follow_ups = FollowUps()
        return self._follow_ups

    @property
    def refusal(self) -> ServerError:
        """The error for callers that wait for a write that the store refused."""
        assert self.durability.build_error is not None
        return self.durability.build_error()

    def _enter(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], f"task {self.row.id} cannot go from {self.phase} to {phase}"
        self.phase = phase

    def _stop_follow_ups(self) -> None:
        if self._follow_ups is not None:
            self._follow_ups.wake()

    # -- the run -----------------------------------------------------------------------------------------------------

    def attach(self, worker: asyncio.Task[None]) -> None:
        """Set the asyncio task of the run, which `stop_work` cancels."""
        self.worker = worker

    def set_form(self, form: Form) -> None:
        """Set how the streamed texts that follow end, and how data parts are written."""
        self.form = form

    def set_on_failed(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Set what is called when the task was failed after the store had refused a write of its run."""
        self.on_failed = callback

    def stop_work(self) -> None:
        """Cancel the run."""
        if self.worker is not None:
            self.worker.cancel()

    def defer_output(self, flush: Callable[[], None] | None) -> None:
        """Register output that is not emitted yet; `flush` emits it before the next event. None clears it."""
        self._flush_pending = flush

    def _refuse(self, cause: BaseException) -> None:
        """Stop the run: the store has refused a write."""
        if self.phase.is_broken:  # the run has been stopped already
            return
        self._enter(Phase.LOST if isinstance(cause, OwnershipLost) else Phase.REFUSED)
        self._stop_follow_ups()
        self.stop_work()
        self.durability.refuse(cause)
        if self.journal.on_refused is not None:
            self.journal.on_refused(self)

    def lose(self) -> None:
        """Stop: another process owns the task now. Those who wait for it get OwnershipLost."""
        self._refuse(OwnershipLost(LOST))

    def abandon(self) -> None:
        """Note that the run has stopped before the task ended or paused; those who wait for it get ServerError.

        The error names the task, so that they can ask for it when the server is back.
        """
        self._enter(Phase.INTERRUPTED)
        self._stop_follow_ups()
        self.durability.stop(lambda: ServerError(STOPPING, taskId=self.row.id, interrupted="true"))

    def add_mail(self, number: int, message: Message) -> None:
        """Add a message that was posted to the task to its history, and pass it to the run."""
        if number == self.mail + 1 and not self.phase.is_over:
            self.mail = number
            self.folding.add_message(message)
            self._settled_task = None
            self.follow_ups.add(message)

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def wait_durable(self, generation: int | None = None, *, seconds: float | None = None) -> None:
        """Wait until `generation` is durable, by default everything so far, notes included.

        Of a draft, the first generation is durable when it is a task, or was answered with a bare reply.

        Raises:
            ServerError: the store refused a write, or the server is stopping.
            TimeoutError: it has taken more than `seconds`.
        """
        durability = self.durability
        if durability.build_error is not None:
            durability.check()
        notes = durability.notes_queued if generation is None else 0
        target = generation if generation is not None else 0 if self.phase.is_draft else self.folding.generation
        if durability.committed >= target and durability.notes_committed >= notes:
            return
        future = durability.wait(target, notes)
        if seconds is None:
            await future
            return
        timer = self.journal.clock.call_later(
            seconds, lambda: None if future.done() else future.set_exception(TimeoutError())
        )
        try:
            await future
        finally:
            timer.cancel()

    async def wait_accepted(self) -> None:
        """Wait until the task or its draft is durable: no other process has accepted the same message.

        Raises:
            MessageRepeated: another process has accepted it.
            ContextBusy: a draft cannot be answered now, because another task of its context is at work.
            ServerError: the store refused the task, or the server is stopping.
        """
        await (self.wait_durable() if self.phase.is_draft else self.wait_durable(1))

    async def drain(self) -> None:
        """Wait until the task is no longer too far ahead of the store. Raises as `wait_durable` does.

        When this process cannot renew its lease, its runs wait here, at their next output.
        """
        while self.needs_drain:
            if self.journal.ownership.expired:
                await self.journal.wait_lease()
            else:
                committed = self.durability.committed
                await self.wait_durable(max(committed + 1, self.folding.generation - MAX_AHEAD_EVENTS // 2))

    @property
    def needs_drain(self) -> bool:
        """True when the task is too far ahead of the store, or this process must not work now."""
        durability = self.durability
        if self.journal.ownership.expired:
            return True
        ahead = self.folding.generation - durability.committed + (self._flush_pending is not None)
        return ahead >= MAX_AHEAD_EVENTS or durability.ahead_bytes >= MAX_AHEAD_BYTES

    # -- notes ---------------------------------------------------------------------------------------------------------

    def queue_note(self, kind: NoteKind, body: bytes, dedupe_key: DedupeKey | None = None) -> None:
        """Queue a note to be stored with the last record. `wait_durable` waits for it too."""
        self.journal.store.write(
            Write(
                self.row,
                self.durability.add_note(),
                notes=(Note(self.folding.generation, kind, body),),
                dedupe_key=dedupe_key,
                size=len(body),
                epoch=self.claim.epoch,
            )
        )

    def note(self, kind: NoteKind, body: bytes) -> asyncio.Future[None]:
        """Store a note with the last record, without a number of its own. The future is done when it is durable.

        Raises:
            ServerError: the store has refused a write, or the task was abandoned. The future may raise it too.
        """
        self.durability.check()
        self.queue_note(kind, body)
        return self.durability.wait(0, self.durability.notes_queued)

    def add_follow_up(self, message: Message, dedupe_key: DedupeKey | None) -> asyncio.Future[None]:
        """Add a message to the history and pass it to the run. The future is done when it is durable.

        Raises:
            ServerError: the store has refused a write, or the task was abandoned. The future may raise it too.
        """
        self.durability.check()
        self.folding.add_message(message)
        self._settled_task = None
        self.queue_note("message", encode(message), dedupe_key)
        self.follow_ups.add(message)
        return self.durability.wait(0, self.durability.notes_queued)

    # -- events --------------------------------------------------------------------------------------------------------

    def write_draft(self) -> Verdict | None:
        """Write the task as a draft. Returns what the store says: see `Store.write`."""
        new = self._new
        assert new is not None
        snapshot = encode(new.task)
        self._enter(Phase.DRAFT)
        verdict = self.journal.store.write(
            Write(
                self.row,
                self.durability.add_note(),
                notes=() if new.request is None else (Note(1, "request", new.request),),
                pushes=() if new.webhook is None else (new.webhook,),
                snapshot=snapshot,
                dedupe_key=new.dedupe_key,
                draft=True,
                size=len(snapshot),
                epoch=self.claim.epoch,
                joins_context=new.joins_context,
                begins=True,
                serial=self.journal.serial,
                pins=self.journal.pins,
            )
        )
        if verdict is None:
            self.durability.note_undecided()
        return verdict

    def create(self, *, starts: bool = False, queued: bool = False) -> Verdict | None:
        """Write record 1, the task itself; with `starts`, also its WORKING status in the same write.

        A task that is `queued` is left to whichever process takes it first. Returns what the store says: see
        `Store.write`.
        """
        new, journal, phase = self._new, self.journal, self.phase
        assert new is not None
        first = Record.of(1, new.task)
        records, size = (first,), len(first.body)
        with_status = starts and self._row_maker is None
        self._enter(Phase.RUNNING if with_status or phase.is_draft else Phase.QUEUED)
        if with_status:
            # A new task begins in the moment of its creation; a draft may have been one for a while.
            now = journal.clock.now() if phase.is_draft else self.row.status_ms
            event = StatusUpdate(
                self.row.id,
                self.row.context_id,
                TaskStatus(State.WORKING, None, timestamp(now)),
                journal.status_metadata,
            )
            second = Record.of(2, event)
            self.folding.apply(event)
            self.row = structs.replace(self.row, state=State.WORKING, status_ms=now, generation=2)
            records, size = (first, second), size + len(second.body)
        begun = self.phase.is_begun
        self.durability.add(records, size)
        verdict = journal.store.write(
            Write(
                self.row,
                partial(self.durability.on_records, len(records), size),
                create=True,
                joins_context=new.joins_context,
                records=records,
                notes=() if phase.is_draft or new.request is None else (Note(1, "request", new.request),),
                dedupe_key=new.dedupe_key,
                pushes=() if new.webhook is None else (new.webhook,),
                opens_draft=phase.is_draft,
                size=size if new.request is None else size + len(new.request),
                epoch=self.claim.epoch,
                queued=queued,
                begins=begun,
                serial=journal.serial,
                pins=journal.pins and begun,
            )
        )
        if verdict is None:
            self.durability.note_undecided()
        if starts and not with_status and not (verdict and verdict.duplicate_of):
            self.begin()
        return verdict

    def begin(self) -> None:
        """Write the WORKING status before the agent's code is called; a draft stays a draft."""
        phase = self.phase
        if phase.is_draft:
            if phase is Phase.DRAFT:
                self._enter(Phase.REPLYING)
            return
        if phase is not Phase.RUNNING:
            self._enter(Phase.RUNNING)
        begins = not phase.is_begun
        if self.row.state is not State.WORKING:
            if self.status(State.WORKING, begins=begins) is None:
                self.durability.note_undecided()
        elif begins:
            # An answered task that was queued, or will be if its context is busy.
            verdict = self.journal.store.write(
                Write(
                    self.row,
                    self.durability.add_note(),
                    epoch=self.claim.epoch,
                    begins=True,
                    serial=self.journal.serial,
                    pins=self.journal.pins,
                )
            )
            if verdict is None:
                self.durability.note_undecided()

    def open(self) -> None:
        """Turn a draft into a task. Does nothing when it is a task already, or its run is over."""
        if self.phase.is_draft:
            self.create(starts=self.phase is Phase.REPLYING)

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
    ) -> Verdict | None:
        """Number an event, fold it into the task and queue it for the store. Returns what that says: see `Store.write`.

        `history_message` is appended to the history with this event. With `more`, another event follows at once, and
        both are one write.

        Raises:
            ServerError: the store has refused a write, or the task was abandoned.
            ValueError: the task has ended.
        """
        durability = self.durability
        if durability.build_error is not None:
            durability.check()
        if self._flush_pending is not None or self.form.text_only or self.phase.is_draft:
            event = self._prepare(event)
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
                self.row, state=state, status_ms=at_ms or self.journal.clock.now(), generation=generation
            )
            if state.final or state.waiting:
                snapshot = self._settle(state)
            elif self.phase is Phase.PAUSED:
                self._enter(Phase.QUEUED)
                durability.unsettle()
            if self._row_maker is not None and state is not before:
                rows = self._row_maker.rows(self.row, self.task())
        else:
            self.row = structs.replace(self.row, generation=generation)
            self._artifact_ids.add(event.artifact.artifact_id)
        if more:
            self._unwritten = (*self._unwritten, record)
            return ACCEPTED
        records = (record,)
        if self._unwritten:
            for one in self._unwritten:
                size += len(one.body)
            records, self._unwritten = (*self._unwritten, record), ()
        durability.add(records, size, settles=self.phase.is_over)
        added = 0 if snapshot is None else len(snapshot)
        if notes:
            added += sum([len(body) for _, body in notes])
        return self.journal.store.write(
            Write(
                self.row,
                partial(durability.on_records, generation, size),
                previous_state=before,
                records=records,
                notes=tuple([Note(generation, kind, body) for kind, body in notes]) if notes else (),
                snapshot=snapshot,
                context_state=context_state,
                dedupe_key=dedupe_key,
                rows=rows,
                size=size + added,
                epoch=self.claim.epoch,
                begins=begins,
                serial=self.journal.serial,
                # Whoever writes an answer down need not be the node that goes on with it.
                pins=self.journal.pins and begins,
                mail=self.mail,
            )
        )

    def _prepare(self, event: StatusUpdate | ArtifactUpdate) -> StatusUpdate | ArtifactUpdate:
        """Write what comes before an event, and return it in the form of this task."""
        if self._flush_pending is not None:
            flush, self._flush_pending = self._flush_pending, None
            flush()
        if self.form.text_only:
            event = with_text_only(event)
        if self.phase.is_draft:
            self.create(starts=isinstance(event, ArtifactUpdate))
        return event

    def _settle(self, state: State) -> bytes:
        """Enter the phase of a task that has ended or paused. Returns its snapshot."""
        self._enter(Phase.ENDED if state.final else Phase.PAUSED)
        self._settled_task = settled = self.folding.task()
        if self._follow_ups is not None:
            self._follow_ups.wake()
        return encode(structs.replace(settled, generation=None))

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
    ) -> Verdict | None:
        """Emit a new status with the current time. Returns and raises as `emit` does."""
        now = self.journal.clock.now()
        if self.journal.status_metadata:
            metadata = {**self.journal.status_metadata, **(metadata or {})}
        if self._row_maker is not None:  # row versions are times: each change needs another
            now = max(now, self.row.status_ms + 1)
        return self.emit(
            StatusUpdate(self.row.id, self.row.context_id, TaskStatus(state, message, timestamp(now)), metadata),
            at_ms=now,
            notes=notes,
            history_message=history_message,
            context_state=context_state,
            dedupe_key=dedupe_key,
            begins=begins,
        )

    def fail(self, error: A2AError, message: Message, *, context_state: bytes | None = None) -> None:
        """Fail the task with a protocol error; a caller who has no task yet gets that itself. Raises as `emit` does."""
        draft_error = error if self.phase.is_draft else None
        if draft_error is not None:
            self.outcome = RunOutcome(draft_error=draft_error)
            self.open()
        self.status(State.FAILED, message, context_state=context_state)
        self.outcome = RunOutcome(error=error, draft_error=draft_error)

    def finish_with_reply(self, reply: Message) -> None:
        """Answer with a bare reply and delete the draft. Waiters are woken once that is durable.

        The reply is stored for repeats if the message has a dedupe key. Raises ServerError as `emit` does.
        """
        self.durability.check()
        parts = text_only(reply.parts) if self.form.text_only else None
        if parts is not None:
            reply = structs.replace(reply, parts=parts)
        self.outcome = RunOutcome(reply)
        self._enter(Phase.REPLIED)
        dedupe_key = None if self._new is None else self._new.dedupe_key
        self.journal.store.write(
            Write(
                self.row,
                self.durability.on_reply,
                delete=True,
                draft=True,
                dedupe_key=dedupe_key,
                reply=encode(reply) if dedupe_key is not None else None,
                epoch=self.claim.epoch,
                serial=self.journal.serial,
            )
        )

    # -- while queued ----------------------------------------------------------------------------------------------

    def unload(self, on_unloaded: Callable[[], None]) -> None:
        """Free the memory of a large queued task once it is durable, then call `on_unloaded`.

        Small tasks and drafts stay in memory. `reload` must be called before anything is added to an unloaded task.
        """
        # The window of a task loaded from the store is empty.
        size = self.durability.window_bytes or len(encode(self.folding.task()))
        if size <= SMALL_BYTES or self.phase is not Phase.QUEUED:
            return
        generation, notes = self.folding.generation, self.durability.notes_queued
        if self.durability.committed >= generation and self.durability.notes_committed >= notes:
            self._unload_now(on_unloaded)
            return
        self.durability.wait(generation, notes).add_done_callback(
            lambda future: None if future.cancelled() or future.exception() else self._unload_now(on_unloaded)
        )

    def _unload_now(self, on_unloaded: Callable[[], None]) -> None:
        if self.phase is not Phase.QUEUED or self._follow_ups or self.row.state is not State.SUBMITTED:
            return
        bare = structs.replace(self.folding.task(), history=(), artifacts=())
        self.folding = Folding(bare, self.folding.generation)
        self._enter(Phase.UNLOADED)
        self.durability.clear_window()
        on_unloaded()

    def reload(self, folding: Folding) -> None:
        """Restore the content of an unloaded task."""
        if self.phase is Phase.UNLOADED:
            self._enter(Phase.QUEUED)
            self.folding = folding

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
