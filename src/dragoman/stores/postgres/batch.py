"""The changes that wait for a commit, in batches that are one statement each."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.engine.ports.store import Write

BATCH_WRITES = 2000
BATCH_BYTES = 8_000_000
# A change above this size is large: it takes much longer than others, which must not wait behind several of them.
LARGE_BYTES = 256_000


class WriteBatch:
    """Changes of one statement: in the order they were queued, and as one sequence per task."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.size = 0
        self._sequences: dict[int, list[Write]] = {}

    @property
    def sequences(self) -> list[list[Write]]:
        """The changes of each task, in order."""
        return list(self._sequences.values())

    def add(self, write: Write) -> bool:
        """Add a change, unless it cannot be in one sequence with the earlier ones of its task."""
        sequence = self._sequences.get(write.row.number)
        if sequence is None:
            self._sequences[write.row.number] = [write]
        elif _follows(sequence[-1], write):
            sequence.append(write)
        else:
            return False
        self.writes.append(write)
        self.size += write.size
        return True


class WriteQueue:
    """Waiting changes. Those of one task keep their order; large ones take turns with all others."""

    def __init__(self) -> None:
        self._waiting: deque[Write] = deque()
        # Large changes and the later ones of the same tasks, and how many there are per task.
        self._large: deque[Write] = deque()
        self._large_tasks: Counter[int] = Counter()
        self._is_large_next = False

    def __bool__(self) -> bool:
        return bool(self._waiting or self._large)

    def put(self, write: Write) -> None:
        """Add a change."""
        self._waiting.append(write)

    def next_batch(self) -> WriteBatch:
        """The next small changes or, in turn, a large one. Empty when there are none."""
        if self._large and self._is_large_next:
            return self._next_large()
        batch = WriteBatch()
        # Changes that need a statement of their own, after that of the earlier ones of their tasks.
        postponed: list[Write] = []
        postponed_tasks: set[int] = set()
        while self._waiting and len(batch.writes) + len(postponed) < BATCH_WRITES and batch.size < BATCH_BYTES:
            write = self._waiting.popleft()
            number = write.row.number
            if number in postponed_tasks:
                postponed.append(write)
            elif write.size > LARGE_BYTES or number in self._large_tasks:
                self._large.append(write)
                self._large_tasks[number] += 1
            elif not batch.add(write):
                postponed.append(write)
                postponed_tasks.add(number)
        self._waiting.extendleft(reversed(postponed))
        if not batch.writes and self._large:
            return self._next_large()
        self._is_large_next = True
        return batch

    def _next_large(self) -> WriteBatch:
        """One large change, with the small ones that wait behind it."""
        self._is_large_next = False
        batch = WriteBatch()
        while self._large and len(batch.writes) < BATCH_WRITES:
            write = self._large[0]
            if (batch.writes and write.size > LARGE_BYTES) or not batch.add(write):
                break
            self._large.popleft()
            self._large_tasks[write.row.number] -= 1
            if not self._large_tasks[write.row.number]:
                del self._large_tasks[write.row.number]
        return batch

    def find(self, is_sought: Callable[[Write], bool]) -> list[Write]:
        """Return the changes that are sought."""
        return [write for write in (*self._large, *self._waiting) if is_sought(write)]

    def remove(self, is_affected: Callable[[Write], bool]) -> list[Write]:
        """Remove changes, and return them in order."""
        removed = self.find(is_affected)
        if removed:
            self._large = deque(write for write in self._large if not is_affected(write))
            self._waiting = deque(write for write in self._waiting if not is_affected(write))
            self._large_tasks = Counter(write.row.number for write in self._large)
        return removed


def concerns_task(write: Write) -> bool:
    """True for a change that only the owner of the task may make; False for one of webhooks alone."""
    return bool(write.records or write.notes or write.draft or write.delete or write.begins)


def _follows(before: Write, write: Write) -> bool:
    """True when a change can be in one sequence with the one before it."""
    if write.create or write.draft or write.delete or write.dedupe_key is not None or (write.begins and write.serial):
        return False
    if before.delete or concerns_task(before) != concerns_task(write):
        return False
    if write.epoch != before.epoch:
        # A new task has epoch 1, whether its creator says so or not.
        return before.create and {write.epoch, before.epoch} == {0, 1}
    state = before.row.state
    if before.records and (state.final or state.waiting):  # the claim ended with it
        return False
    return not write.records or write.records[0].generation == before.row.generation + 1
