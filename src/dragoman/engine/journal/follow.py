"""Streams of a task: every record once, in order, from memory or from the store."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from dragoman.engine.journal.replay import PAGE
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    from dragoman.engine.journal.live import LiveTask
    from dragoman.engine.ports.bus import Bus
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
            live: LiveTask | None = None
            while True:
                current = self._find_live(row.id)
                # A released LiveTask still has its last records, but not those of a later run.
                live = current or live
                batch = self._from_memory(live, after, ends_on_input_required) if live is not None else None
                if batch is None or (not batch.records and current is None):
                    batch = _truncate(await self._store.records(row.number, after, PAGE), ends_on_input_required)
                if batch.records:
                    after, ended = batch.records[-1].generation, batch.ended
                    yield batch
                    if ended:
                        return
                    has_sent = True
                    if live is None or live.committed > after:
                        continue
                del batch
                # No record is missed: the watch was subscribed before the first read.
                if self._closing:
                    return
                if live is not None and live.broken and not await self._is_waiting(row):
                    raise live.refusal
                if current is None and await self._is_over(row, after):
                    return
                if not has_sent or not await watch.wait_past(after, self._heartbeat):
                    yield Batch(())
                has_sent = True

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
