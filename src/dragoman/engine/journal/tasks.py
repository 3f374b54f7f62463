"""The tasks of one agent: live in this process, or stored."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dragoman.engine.journal.durability import STOPPING
from dragoman.engine.journal.journal import Journal
from dragoman.engine.journal.live import LiveTask
from dragoman.engine.journal.new_task import NewTask
from dragoman.engine.journal.phase import Phase
from dragoman.engine.journal.replay import JournalCompacted, Replay, RunHistory, read_run_history
from dragoman.engine.ports.ownership import Claim, OwnershipLost
from dragoman.engine.ports.sole import SoleOwner
from dragoman.model.error import InternalError, ServerError, TaskNotFound
from dragoman.model.json import decode_message, decode_task
from dragoman.model.record import Folding
from dragoman.model.task import Task
from dragoman.telemetry.audit import Audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.clock import Clock
    from dragoman.engine.ports.bus import Bus
    from dragoman.engine.ports.ownership import ClaimedTask, Ownership
    from dragoman.engine.ports.rows import RowMaker, TaskRows
    from dragoman.engine.ports.store import Scope, Store, StoredTask, TaskRow

ELSEWHERE = "the task is being worked on elsewhere: try again"
# How long a caller waits for the commit of a task's last events.
COMMIT_TIMEOUT = 5.0


class Tasks:
    """Finds, loads and releases the tasks of one agent. `live` are those with a run in this process, by id.

    What is live here counts only as long as the store has the same claim. The flags `serial` and `pins` are those of
    `Write`.
    """

    def __init__(
        self,
        store: Store,
        bus: Bus,
        clock: Clock,
        task_rows: TaskRows | None = None,
        status_metadata: dict[str, Any] | None = None,
        ownership: Ownership | None = None,
        *,
        serial: bool = True,
        pins: bool = False,
        on_refused: Callable[[LiveTask], None] | None = None,
    ) -> None:
        self.store = store
        self.bus = bus
        self.clock = clock
        self.live: dict[str, LiveTask] = {}
        self._task_rows = task_rows
        self.ownership: Ownership = ownership or SoleOwner(store)
        self.journal = Journal(
            store,
            bus,
            clock,
            self.ownership,
            serial=serial,
            pins=pins,
            status_metadata=status_metadata or None,
            on_refused=on_refused,
        )

    def row_maker(self, origin: str) -> RowMaker | None:
        """The row maker for tasks with that origin, if there is one."""
        return None if self._task_rows is None else self._task_rows.of(origin)

    async def unused_id(self, row_maker: RowMaker) -> str:
        """Return an id from the row maker that no task has. It must be used before the next await."""
        while True:
            task_id = row_maker.next_id(self.clock.now())
            # A 0.1 caller may have chosen this id for its task.
            if await self.store.task(task_id) is None and task_id not in self.live:
                return task_id

    def add(self, live: LiveTask) -> None:
        """Register a task whose run starts or is queued."""
        self.live[live.row.id] = live

    def release(self, live: LiveTask) -> None:
        """Unregister a task whose run is over; from now on it is read from the store.

        The claim of one whose write was refused is kept: it is still to be failed. That of one that has ended or paused
        ended with that.
        """
        task_id, durability = live.row.id, live.durability
        if self.live.get(task_id) is live:
            del self.live[task_id]
        if not live.phase.is_over:
            live.abandon()
        phase = live.phase
        # One whose worker was canceled may still have writes under way, which may be refused.
        if phase.is_broken or (
            durability.committed >= live.folding.generation and durability.notes_committed >= durability.notes_queued
        ):
            durability.detach()
        if phase is Phase.LOST or phase is Phase.INTERRUPTED:
            self.ownership.release(live.claim)

    async def find(self, scope: Scope, task_id: str) -> tuple[TaskRow, LiveTask | None, StoredTask | None]:
        """Find a task in its scope. Returns its row, and the live task if there is one, else the stored task.

        Raises:
            TaskNotFound: there is none, or it is in another scope; the two cannot be told apart.
        """
        current = self._current(task_id)
        if current is not None:
            if current.row.scope != scope:
                raise _hidden(scope, current.row)
            return current.row, current, None
        stored = await self.store.task(task_id)
        current = self._current(task_id)
        if current is not None and stored is not None and stored.row.scope == scope:
            return current.row, current, None
        live = None if stored is None else self.live_of(stored)
        is_behind = stored is not None and live is not None and stored.row.generation < live.row.generation
        if is_behind and live is not None and live.phase.is_over:
            # It has ended or paused, as far as this process knows. Only the store can say so.
            with suppress(OwnershipLost):
                await live.wait_durable()
            stored = await self.store.task(task_id)
        if stored is None:
            raise TaskNotFound(taskId=task_id)
        if stored.row.scope != scope:
            raise _hidden(scope, stored.row)
        live = self.live_of(stored)
        if live is not None and live.phase.has_ended and not stored.row.state.final:
            # It has ended and that is not durable yet: nobody may learn of it before other processes can.
            with suppress(OwnershipLost):
                await live.wait_durable()
            return await self.find(scope, task_id)
        return stored.row, live, stored

    def _current(self, task_id: str) -> LiveTask | None:
        """The live task with an id, if nobody can have revoked its claim: then the store knows no more of it."""
        live = self.live.get(task_id)
        if live is None or live.phase.is_draft or live.phase.is_broken or not self.ownership.is_current(live.claim):
            return None
        return live

    def live_of(self, stored: StoredTask) -> LiveTask | None:
        """The live task of a stored one, unless another process has claimed it."""
        live = self.live.get(stored.row.id)
        if live is None or live.phase.is_draft or live.phase.is_broken or live.claim.epoch != stored.epoch:
            return None
        return live

    async def durable_task(self, live: LiveTask | None, stored: StoredTask | None) -> Task:
        """Return a live or stored task with all its events so far, once they are durable.

        A store that takes no writes for some seconds is not waited for: the task is returned as it is stored.

        Raises:
            ServerError: the store refused a write of the live task, or the server is stopping.
            InternalError: records of the stored task are missing.
        """
        if live is not None and live.phase is not Phase.UNLOADED:
            task = live.task()
            try:
                await live.wait_durable(seconds=COMMIT_TIMEOUT)
            except (OwnershipLost, TimeoutError):  # it goes on elsewhere, or the store takes no writes now
                pass
            else:
                return task
        if live is not None:
            stored = await self.store.task(live.row.id)
        if stored is None:
            raise InternalError("the task is neither live nor stored")
        return await self.read(stored)

    async def wait_settled(self, row: TaskRow, seconds: float, is_stopping: Callable[[], bool]) -> StoredTask:
        """Wait until a task that another process may run has ended or paused; look every `seconds` at the latest.

        Raises:
            ServerError: this server is stopping, the store does not answer, or the task is gone: it was a draft.
        """
        with self.bus.watch(row.id) as watch:
            while True:
                stored = await self.store.task(row.id)
                if stored is None:
                    raise ServerError(ELSEWHERE, retryAfter="1")
                if stored.row.state.final or stored.row.state.waiting:
                    return stored
                if is_stopping():
                    raise ServerError(STOPPING, taskId=row.id, interrupted="true")
                await watch.wait_past(stored.row.generation, seconds)

    async def read(self, stored: StoredTask) -> Task:
        """Read a stored task: its snapshot and the records after it. Raises InternalError when records are missing."""
        try:
            return await Replay(self.store, stored).task()
        except JournalCompacted as error:
            raise InternalError(str(error)) from None

    async def reload(self, live: LiveTask) -> None:
        """Reload a queued task if it was unloaded. Raises TaskNotFound when it was deleted."""
        if live.phase is Phase.UNLOADED:
            stored = await self.store.task(live.row.id)
            if stored is None:
                raise TaskNotFound(taskId=live.row.id)
            live.reload(Folding(await self.read(stored), stored.row.generation))

    async def refresh(self, live: LiveTask) -> None:
        """Compare a live task with the store: stop its run if its claim was revoked, and pass it new mail.

        Raises:
            ServerError: the store does not answer.
        """
        if live.phase.is_draft or live.durability.committed == 0:
            return
        stored = await self.store.task(live.row.id)
        if live.phase.is_over:
            return
        if stored is None or stored.epoch != live.claim.epoch:
            live.lose()
        elif stored.mail > live.mail:
            await self.read_mail(live)

    async def read_mail(self, live: LiveTask) -> None:
        """Pass a live task the messages that were posted to it. Raises as `refresh` does."""
        for number, body in await self.ownership.mail(live.row.number, live.mail):
            await self.reload(live)
            live.add_mail(number, decode_message(body))

    async def load(self, claimed: ClaimedTask, *, restart: bool = False) -> LiveTask:
        """Load a claimed task, to append to its journal or, with `restart`, to redo all since its last pause.

        A draft becomes a task.

        Raises:
            InternalError: records are missing.
        """
        stored, draft = claimed.stored, claimed.draft
        row = stored.row
        task = await self.read(stored)
        base_artifacts = task.artifacts
        if restart:  # the snapshot is that of the last pause: this task has not ended
            base_artifacts = decode_task(stored.snapshot).artifacts if stored.snapshot is not None else ()
        live = LiveTask(
            self.journal,
            claimed.claim,
            row,
            Folding(task, row.generation),
            _phase_of(claimed),
            committed=0 if draft else row.generation,
            new=NewTask(row, task) if draft else None,
            base_artifacts=base_artifacts,
            row_maker=self.row_maker(row.origin),
            mail=stored.mail,
        )
        if draft:  # begun: a task that is only submitted would begin again after the next crash
            live.create(starts=claimed.begun)
        return live

    def new(self, new: NewTask, on_committed: Callable[[], None] | None = None) -> LiveTask:
        """Create a live task from a new task, without writing it."""
        return LiveTask(
            self.journal,
            Claim(new.row.number, self.ownership.first_epoch),
            new.row,
            Folding(new.task),
            Phase.NEW,
            committed=0,
            new=new,
            row_maker=None if self._task_rows is None else self._task_rows.of(new.row.origin),
            on_committed=on_committed,
        )

    async def run_history(self, row: TaskRow, mail: int = 0) -> RunHistory:
        """Read what is stored about a task's earlier runs: its call, questions and answers, results of `ctx.once`.

        Messages that were posted after number `mail` are left out: the run gets them as its mail.
        """
        return read_run_history(note for note in await self.store.notes(row.number) if note.mail <= mail)


def _phase_of(claimed: ClaimedTask) -> Phase:
    state = claimed.stored.row.state
    if state.final or state.waiting:
        return Phase.ENDED if state.final else Phase.PAUSED
    return Phase.DRAFT if claimed.draft else Phase.RUNNING if claimed.begun else Phase.QUEUED


def _hidden(scope: Scope, row: TaskRow) -> TaskNotFound:
    """Build the error for a task in another scope, as if there were none; the audit log tells if it is another's."""
    if row.scope.owner != scope.owner:
        Audit().record_denial(scheme="owner", reason="not-yours", user=scope.owner, agent=row.scope.agent, task=row.id)
    return TaskNotFound(taskId=row.id)
