"""Streams of a task: every record once, in order, from memory or from the store."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from dragoman.engine.journal.replay import PAGE
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports.bus import Bus, Watch
    from dragoman.engine.ports.store import Store, TaskRow
    from dragoman.model.record import Record


class Batch(NamedTuple):
    """Consecutive records of a stream. `ended` marks the last batch; a batch without records is a heartbeat."""

    records: Sequence[Record]
    ended: bool = False


class Stream(NamedTuple):
    """An open stream. `origin` is that of its task; `repeat` is True when the message was a repeat.

    `artifacts` reads the ids of the task's artifacts in order, for a stream that resumes in the middle of a task.
    """

    batches: AsyncGenerator[Batch, None]
    origin: str
    repeat: bool = False
    artifacts: Callable[[], Awaitable[tuple[str, ...]]] | None = None


class _Reader:
    """The position of a stream, and where it reads: from the run in this process, or from the store.

    The store is read only when something has happened since the last read: a stream that waits costs no query.
    """

    __slots__ = (
        "_announced",
        "_has_started",
        "_must_read",
        "_refused",
        "_watch",
        "after",
        "ends_on_input_required",
        "has_read",
        "live",
        "row",
    )

    def __init__(self, row: TaskRow, after: int, watch: Watch, ends_on_input_required: bool) -> None:
        self.row = row
        self.after = after
        self.ends_on_input_required = ends_on_input_required
        # The run in this process, or the last one: it still has its last records, but not those of a later run.
        self.live: LiveTask | None = None
        self.has_read = False  # the last batch was to be read from the store
        self._watch = watch
        self._must_read = True  # something has happened that may have left records in the store
        self._announced = 0  # the generation that was announced before the last read
        self._has_started = False  # what was in the store when the stream began has been read
        self._refused: LiveTask | None = None

    def from_run(self, current: LiveTask | None, read: Callable[[LiveTask, int, bool], Batch | None]) -> Batch | None:
        """The next durable records from the memory of a run: `current`, or else the last. None: read the store.

        There are no records when nothing has happened since the last read.
        """
        is_live = current is not None and current is not self._refused
        if is_live:
            self.live = current
        batch = None
        if self.live is None:
            self.has_read = self._must_read
        else:
            batch = read(self.live, self.after, self.ends_on_input_required)
            # More than the run has written was announced: another process has the task now, or has posted to it.
            is_behind = is_live and self._watch.generation > self.live.committed
            self.has_read = batch is None or (self._must_read and not batch.records and (is_behind or not is_live))
        if not self.has_read:
            return batch or Batch(())
        self._must_read, self._announced = False, self._watch.generation
        return None

    @property
    def is_refused(self) -> bool:
        """True when the store has refused the writes of the run that is read from."""
        return self.live is not None and self.live.broken

    def drop_live(self) -> None:
        """Read from the store from now on: the live task writes nothing more."""
        self._refused, self.live = self.live, None
        self._must_read = True

    def advance(self, batch: Batch) -> bool:
        """Move past a batch. True when there is nothing more to read before something happens."""
        self.after = batch.records[-1].generation
        if not self.has_read:
            return self.live is None or self.live.committed <= self.after
        # Whether a task is over is asked once, by the first read that finds nothing.
        self._must_read = not self._has_started or len(batch.records) == PAGE
        return not self._must_read

    def rest(self) -> int:
        """The generation beyond which there may be something to read. All before it has been read."""
        self._has_started = self._has_started or self.has_read
        # What was announced and could not be read then, such as records that were deleted, is not waited for again.
        return self.after if self.after > self._announced else self._announced

    def wake(self) -> None:
        """Look at the store again, unless nothing was announced while the stream waited."""
        self._must_read = not self._watch.timed_out


class Follower:
    """Creates streams of tasks. A stream's position is the generation of the last record it sent.

    `find_live` returns the live task with an id, or None.
    """

    def __init__(self, store: Store, bus: Bus, find_live: Callable[[str], LiveTask | None], heartbeat: float) -> None:
        self._store = store
        self._bus = bus
        self._find_live = find_live
        self._heartbeat = heartbeat
        self._closing = False
        self.open_count = 0
        # A cache of one batch: subscribers that keep up read the same records one after the other.
        self._cache_key: tuple[int, int, int, bool] | None = None
        self._cached_batch = Batch(())

    def close(self) -> None:
        """End every stream once it has sent all durable records. Subscribers must be woken after this call."""
        self._closing = True

    @contextmanager
    def _count_open(self) -> Generator[None]:
        self.open_count += 1
        try:
            yield
        finally:
            self.open_count -= 1
            if not self.open_count:
                self._cache_key, self._cached_batch = None, Batch(())

    async def follow(
        self,
        row: TaskRow,
        after: int,
        *,
        ends_on_input_required: bool,
        first_record: Record | None = None,
        slot: AbstractContextManager[None] | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Yield every durable record after `after` until the task ends.

        With `ends_on_input_required` the stream also ends in that state; auth-required never ends it.

        `first_record`, such as a snapshot of the task, is sent before the others. A stream that has nothing to send
        starts with a heartbeat at once. It also ends when the server stops, and when retention has deleted the records
        that follow. `slot` is held while the stream is open.

        Raises:
            ServerError: the store refused a write of the task's run.
            Overloaded: `slot` is not available any more.
        """
        with slot or nullcontext(), self._count_open(), self._bus.watch(row.id) as watch:
            has_sent = first_record is not None
            if first_record is not None:
                first = _truncate([first_record], ends_on_input_required)
                first_record, ended = None, first.ended
                yield first
                del first  # it can be large, and must not be held while the stream waits
                if ended:
                    return
            reader = _Reader(row, after, watch, ends_on_input_required)
            while True:
                batch = reader.from_run(self._find_live(row.id), self._from_memory) or await self._from_store(reader)
                if batch.records:
                    ended, is_caught_up = batch.ended, reader.advance(batch)
                    yield batch
                    if ended:
                        return
                    has_sent = True
                    if not is_caught_up:
                        continue
                elif reader.has_read and await self._is_over(row, reader.after):
                    return
                del batch
                if reader.is_refused:
                    await self._leave_run(reader)
                    continue
                if self._closing:
                    return
                # No record is missed: the watch was subscribed before the first read.
                is_past = False
                if has_sent:
                    is_past = await watch.wait_past(reader.rest(), self._heartbeat)
                    reader.wake()
                if not is_past:
                    yield Batch(())
                has_sent = True

    async def _from_store(self, reader: _Reader) -> Batch:
        """The next records from the store."""
        records = await self._store.records(reader.row.number, reader.after, PAGE)
        return _truncate(records, reader.ends_on_input_required)

    async def _leave_run(self, reader: _Reader) -> None:
        """Go on from the store, which has refused the writes of the run.

        Raises:
            ServerError: no other process has the task, and it is not waiting: its run has failed.
        """
        live = reader.live
        if live is not None and not live.ownership_lost and not await self._is_waiting(reader.row):
            raise live.refusal
        reader.drop_live()

    def _from_memory(self, live: LiveTask, after: int, ends_on_input_required: bool) -> Batch | None:
        """The durable records after generation `after`, or None when they must be read from the store."""
        key = (live.row.number, after, live.committed, ends_on_input_required)
        if key != self._cache_key:
            records = live.records_after(after)
            if records is None:
                return None
            self._cache_key, self._cached_batch = key, _truncate(records, ends_on_input_required)
        return self._cached_batch

    async def _is_waiting(self, row: TaskRow) -> bool:
        """True when the stored task is still waiting, although the store refused the writes of a later run."""
        stored = await self._store.task(row.id)
        return stored is not None and stored.row.state.waiting

    async def _is_over(self, row: TaskRow, after: int) -> bool:
        """True when the stored task was deleted, or has ended and has no more records: they were compacted."""
        stored = await self._store.task(row.id)
        if stored is None:
            return True
        # The task may have ended since the last read: then its last records are there now.
        return stored.row.state.final and not await self._store.records(row.number, after, 1)


def _truncate(records: list[Record], ends_on_input_required: bool) -> Batch:
    """Drop the records after the end of the stream."""
    for index, record in enumerate(records):
        state = record.state
        if state is not None and ends_stream(state, ends_on_input_required=ends_on_input_required):
            return Batch(records[: index + 1], ended=True)
    return Batch(records)


def ends_stream(state: State, *, ends_on_input_required: bool) -> bool:
    """True when a stream ends with this state. Auth-required ends none: the task resumes without its caller."""
    return state.final or (ends_on_input_required and state is State.INPUT_REQUIRED)


async def single(record: Record) -> AsyncGenerator[Batch, None]:
    """Yield a stream of one record."""
    yield Batch((record,), ended=True)
