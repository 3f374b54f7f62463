"""Following a task: every record once, in order, from memory or from the journal."""

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
    """Some records. With `ended`, the stream is over after them; without records, it is only alive."""

    records: Sequence[Record]
    ended: bool = False


class Stream(NamedTuple):
    """A stream that is ready to be read. `origin` is the tag of the task it follows; `repeat` marks a repeat.

    `artifacts` reads the ids of those the task has, in their order, when the stream goes on in the middle of it.
    """

    batches: AsyncGenerator[Batch, None]
    origin: str
    repeat: bool = False
    artifacts: Callable[[], Awaitable[tuple[str, ...]]] | None = None


class Follower:
    """Makes streams. It keeps nothing per stream but the number of the last record sent."""

    def __init__(self, store: Store, bus: Bus, live: Callable[[str], LiveTask | None], heartbeat: float) -> None:
        self._store = store
        self._bus = bus
        self._live = live
        self._heartbeat = heartbeat
        self._closing = False
        self.open = 0
        # What the last reader asked for, and what it was given.
        self._cache_key: tuple[int, int, int, bool] | None = None
        self._cached_batch = Batch(())

    def close(self) -> None:
        """Let streams end once all is told. Their readers can resume them; wake them up after this."""
        self._closing = True

    @contextmanager
    def _count_open(self) -> Generator[None]:
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            if not self.open:
                self._cache_key, self._cached_batch = None, Batch(())

    async def follow(
        self,
        row: TaskRow,
        after: int,
        *,
        ends_on_pause: bool,
        first_record: Record | None = None,
        slot: AbstractContextManager[None] | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Give every durable record after that one until the task ends, or also until it asks for input.

        A stream that `begins` with a record of its own, such as the task as it was, gives that first. A reader who
        has been told nothing yet gets a sign of life when there is no record for it. `place` is held while it is open.
        """
        with slot or nullcontext(), self._count_open(), self._bus.watch(row.id) as watch:
            opened = first_record is not None
            if first_record is not None:
                first = _truncate([first_record], ends_on_pause)
                first_record, ended = None, first.ended
                yield first
                del first  # what was given is not held: it can be large, and the next may be long in coming
                if ended:
                    return
            live: LiveTask | None = None
            while True:
                current = self._live(row.id)
                # One that was put away still has its last records, but does not know what came after it.
                live = current or live
                batch = self._from_memory(live, after, ends_on_pause) if live is not None else None
                if batch is None or (not batch.records and current is None):
                    batch = _truncate(await self._store.records(row.number, after, PAGE), ends_on_pause)
                if batch.records:
                    after, ended = batch.records[-1].generation, batch.ended
                    yield batch
                    if ended:
                        return
                    opened = True
                    if live is None or live.committed > after:
                        continue
                del batch
                # All is told: what comes now wakes the watch, which was there before the first look.
                if self._closing:
                    return
                if live is not None and live.broken and not await self._is_waiting(row):
                    raise live.refusal
                if current is None and await self._is_over(row, after):
                    return
                if not opened or not await watch.wait_past(after, self._heartbeat):
                    yield Batch(())
                opened = True

    def _from_memory(self, live: LiveTask, after: int, ends_on_pause: bool) -> Batch | None:
        """The durable records after that one; None when they must be read from the store.

        Readers who keep up ask for the same, one after the other: only the first has to look.
        """
        key = (live.row.number, after, live.committed, ends_on_pause)
        if key != self._cache_key:
            records = live.after(after)
            if records is None:
                return None
            self._cache_key, self._cached_batch = key, _truncate(records, ends_on_pause)
        return self._cached_batch

    async def _is_waiting(self, row: TaskRow) -> bool:
        """True when a task waits for its caller as before, whatever of a later run was refused by the store."""
        stored = await self._store.task(row.id)
        return stored is not None and stored.row.state.waiting

    async def _is_over(self, row: TaskRow, after: int) -> bool:
        """True when a task at rest has ended and has no more records: what was left of them was swept away."""
        stored = await self._store.task(row.id)
        if stored is None:
            return True
        # The end may have come since the reader looked: then it is there now.
        return stored.row.state.final and not await self._store.records(row.number, after, 1)


def _truncate(records: list[Record], ends_on_pause: bool) -> Batch:
    """Cut off what comes after the end of the stream."""
    for index, record in enumerate(records):
        state = record.state
        if state is not None and ends_stream(state, ends_on_pause=ends_on_pause):
            return Batch(records[: index + 1], ended=True)
    return Batch(records)


def ends_stream(state: State, *, ends_on_pause: bool) -> bool:
    """True when a stream is over once the task is in this state."""
    return state.final or (ends_on_pause and state is State.INPUT_REQUIRED)


async def single(record: Record) -> AsyncGenerator[Batch, None]:
    """A stream of one record."""
    yield Batch((record,), ended=True)
