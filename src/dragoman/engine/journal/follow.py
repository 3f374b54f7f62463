"""Streams of a task: every record once, in order, from memory or from the store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from dragoman.engine.journal.phase import Phase
from dragoman.engine.journal.replay import PAGE
from dragoman.model.error import ServerError
from dragoman.model.record import Record
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence
    from types import TracebackType

    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports.bus import Bus, Watch
    from dragoman.engine.ports.store import Store, TaskRow
    from dragoman.model.task import Task


# Is called once when a stream that was begun is not open any more: with the exception that has closed it, or None, and
# with whether its last batch was reached before. Whoever leaves after that has everything.
OnEnd = Callable[[BaseException | None, bool], None]
REWOUND = "the store has lost the last events of the task: subscribe again"


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


class _OpenStream:
    """A context manager around a stream while it is open. `release` is called in any case.

    `has_ended` says whether the last batch was reached. It is asked at the end only: whoever wants to know how a stream
    ends need not look at each of its batches.
    """

    __slots__ = ("_has_ended", "_on_end", "_release")

    def __init__(
        self, on_end: OnEnd | None, has_ended: Callable[[], bool], release: Callable[[], None] | None = None
    ) -> None:
        self._on_end = on_end
        self._has_ended = has_ended
        self._release = release

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._release is not None:
            self._release()
        if self._on_end is not None:
            self._on_end(error, self._has_ended())


class _StoreReader:
    """Reads a stream's records from the store, when the run in this process does not have them.

    It reads only when something has happened since the last read: a stream that waits costs no query.
    `announced` is the generation that the bus had announced before the last read, and `has_more` is True when there may
    be more than that read. `refused` is a live task that writes nothing more.
    """

    __slots__ = ("_has_started", "_must_read", "_row", "_store", "_watch", "announced", "has_more", "refused")

    def __init__(self, store: Store, row: TaskRow, watch: Watch) -> None:
        self._store = store
        self._row = row
        self._watch = watch
        self._has_started = False  # what was in the store when the stream began has been read
        self.announced = 0
        self.has_more = False
        self._must_read = True
        self.refused: LiveTask | None = None

    def wake(self) -> None:
        """Read again, unless nothing has happened while the stream waited."""
        self._must_read = not self._watch.timed_out

    async def read(self, after: int, ends_on_input_required: bool, *, is_due: bool, is_first: bool) -> Batch:
        """The records after a position. A batch without any has ended when the task is over, or was deleted.

        It has none, and nothing is read, unless the read `is_due` or something has happened since the last one. The
        first thing that a stream does `is_first`: its row was read just now.
        """
        if not (is_due or self._must_read or self.has_more):
            return Batch(())
        self._must_read, self.announced = False, self._watch.generation
        records = await self._store.records(self._row.number, after, PAGE)
        # A task that had not ended just now is not over without a record that says so.
        is_alive = is_first and not self._row.state.final
        self._has_started = self._has_started or is_alive
        if not records:
            self.has_more, self._has_started = False, True
            return Batch((), ended=not is_alive and await self._is_over(after))
        # Whether the task is over is asked by the first read that finds nothing; later ones are announced.
        self.has_more = not self._has_started or len(records) == PAGE
        return _truncate(records, ends_on_input_required)

    async def _is_over(self, after: int) -> bool:
        """True when the stored task was deleted, or has ended and has no more records: they were compacted.

        Raises:
            ServerError: the store has lost records that were sent.
        """
        stored = await self._store.task(self._row.id)
        if stored is None:
            return True
        if stored.row.generation < after:
            raise ServerError(REWOUND, retryAfter="1")
        # The task may have ended since the last read: then its last records are there now.
        return stored.row.state.final and not await self._store.records(self._row.number, after, 1)

    async def drop(self, live: LiveTask) -> None:
        """Read from the store what follows a live task whose writes were refused.

        Raises:
            ServerError: no other process has the task, and it is not waiting: its run has failed.
        """
        if live.phase is not Phase.LOST:
            stored = await self._store.task(self._row.id)
            if stored is None or not stored.row.state.waiting:
                raise live.refusal
        self.refused, self._must_read = live, True


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

    def _open(self, on_end: OnEnd | None, has_ended: Callable[[], bool]) -> _OpenStream:
        self.open_count += 1
        return _OpenStream(on_end, has_ended, self._release)

    def _release(self) -> None:
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
        on_end: OnEnd | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Yield every durable record after `after` until the task ends.

        With `ends_on_input_required` the stream also ends in that state; auth-required never ends it.

        `first_record`, such as a snapshot of the task, is sent before the others. A stream that has nothing to send
        starts with a heartbeat at once. It also ends when the server stops, and when retention has deleted the records
        that follow. `slot` is held while the stream is open; `on_end` is called when it is not any more.

        Raises:
            ServerError: the store refused a write of the task's run, or has lost records that were sent.
            Overloaded: `slot` is not available any more.
        """
        has_sent, ended = first_record is not None, False
        with self._open(on_end, lambda: ended), slot or nullcontext(), self._bus.watch(row.id) as watch:
            if first_record is not None:
                first = _truncate([first_record], ends_on_input_required)
                first_record, ended = None, first.ended
                yield first
                del first  # it can be large, and must not be held while the stream waits
            reader = _StoreReader(self._store, row, watch)
            live: LiveTask | None = None
            while not ended:
                current = self._find_live(row.id)
                # A released LiveTask still has its last records, but not those of a later run.
                if current is not None and current is not reader.refused:
                    live = current
                batch = None if live is None else self._from_memory(live, after, ends_on_input_required)
                # When more than the run has written was announced, another process has the task, or has posted to it.
                is_elsewhere = current is not live or live is None or watch.generation > live.durability.committed
                if batch is None or (is_elsewhere and not batch.records):
                    # What is not in the memory of a live task any more is in the store.
                    is_due = batch is None and live is not None
                    batch = await reader.read(after, ends_on_input_required, is_due=is_due, is_first=not has_sent)
                ended = batch.ended
                if batch.records:
                    after = batch.records[-1].generation
                    yield batch
                    has_sent = True
                    if ended or reader.has_more or (live is not None and live.durability.committed > after):
                        continue
                del batch
                # No record is missed: the watch was subscribed before the first read.
                if ended or self._closing:
                    return
                if live is not None and live.phase.is_broken:
                    await reader.drop(live)
                    live = None
                    continue
                if has_sent:
                    # What was announced and could not be read, such as deleted records, is not waited for again.
                    position = after if after > reader.announced else reader.announced
                    is_past = await watch.wait_past(position, self._heartbeat)
                    reader.wake()
                    if is_past:
                        continue
                    if self._closing:  # whoever was woken to end has everything that was announced
                        return
                has_sent = True
                yield Batch(())

    def follow_from_snapshot(
        self,
        row: TaskRow,
        task: Task,
        *,
        ends_on_input_required: bool,
        slot: AbstractContextManager[None] | None = None,
        on_end: OnEnd | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Yield the task as it is, then every durable record after that, as `follow` does. Raises as `follow`."""
        generation = task.generation or 0
        first_record = Record.of(generation, task)
        return self.follow(
            row,
            generation,
            ends_on_input_required=ends_on_input_required,
            first_record=first_record,
            slot=slot,
            on_end=on_end,
        )

    def _from_memory(self, live: LiveTask, after: int, ends_on_input_required: bool) -> Batch | None:
        """The durable records after generation `after`, or None when they must be read from the store."""
        key = (live.row.number, after, live.durability.committed, ends_on_input_required)
        if key != self._cache_key:
            records = live.durability.records_after(after)
            if records is None:
                return None
            self._cache_key, self._cached_batch = key, _truncate(records, ends_on_input_required)
        return self._cached_batch


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


async def single(record: Record, on_end: OnEnd | None = None) -> AsyncGenerator[Batch, None]:
    """Yield a stream of one record. `on_end` is called when it is not open any more."""
    with _OpenStream(on_end, lambda: True):
        yield Batch((record,), ended=True)
