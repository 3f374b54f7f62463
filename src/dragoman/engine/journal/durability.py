"""What of a task is queued for the store, what is committed, and who waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from dragoman.engine.ports.ownership import MessageRepeated, OwnershipLost
from dragoman.model.error import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.engine.ports.bus import Bus
    from dragoman.model.record import Record

# How far an agent may run ahead of the disk, and how many records of a task stay in memory for subscribers (its
# window), which has the same limit of bytes.
MAX_AHEAD_EVENTS = 256
MAX_AHEAD_BYTES = 1_000_000
MAX_WINDOW_EVENTS = 512
STOPPING = "the server is stopping: ask again when it is back"
UNAVAILABLE = "the store cannot take writes now: try again later"


def unavailable(error: BaseException | None) -> ServerError:
    """Build the error that callers get when the store refuses a write; a ServerError of the store keeps its text."""
    if isinstance(error, (OwnershipLost, MessageRepeated)):
        return type(error)(str(error))
    if isinstance(error, ServerError):
        return ServerError(str(error), **error.metadata)
    return ServerError(UNAVAILABLE, retryAfter="1")


class Durability:
    """Follows the changes of one task from the queue of the store to their commits, and wakes who waits for them.

    `committed` is the last committed generation, `notes_queued` how many notes were written, and `settles_at` the
    generation with which the task ends or pauses, as far as that is known. `is_decided` is False when the store cannot
    tell before the commit whether it accepts the last change. `cause` is what the store has refused a
    write with. `on_committed` is called once, with the first commit of records; `on_refused` when a write is refused.
    """

    __slots__ = (
        "_bus",
        "_on_committed",
        "_on_refused",
        "_settle_waiters",
        "_task_id",
        "_waiters",
        "_window",
        "_window_bytes",
        "ahead_bytes",
        "build_error",
        "cause",
        "committed",
        "is_decided",
        "notes_committed",
        "notes_queued",
        "settles_at",
    )

    def __init__(
        self,
        bus: Bus,
        task_id: str,
        committed: int,
        on_committed: Callable[[], None] | None,
        on_refused: Callable[[BaseException], None] | None,
    ) -> None:
        self._bus = bus
        self._task_id = task_id
        self._on_committed = on_committed
        self._on_refused = on_refused
        self.committed = committed
        self.is_decided = True
        self.notes_queued = 0
        self.notes_committed = 0
        self.settles_at: int | None = None
        self.ahead_bytes = 0
        self._window: deque[Record] = deque()
        self._window_bytes = 0
        # The generation and the number of notes that must be committed before the future is done.
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._settle_waiters: list[asyncio.Future[None]] = []
        self.cause: BaseException | None = None
        # Builds the error of all who wait from now on, once nothing more is written.
        self.build_error: Callable[[], ServerError] | None = None

    # -- queued and committed ----------------------------------------------------------------------------------------

    def add(self, records: tuple[Record, ...], size: int, *, settles: bool = False) -> None:
        """Add records of so many bytes, which are queued now or soon, to those that are ahead of the store.

        With `settles`, the task ends or pauses with the last of them.
        """
        if settles:
            self.settles_at = records[-1].generation
        window = self._window
        window.extend(records)
        self._window_bytes += size
        self.ahead_bytes += size
        if self._window_bytes > MAX_AHEAD_BYTES or len(window) > MAX_WINDOW_EVENTS:
            self._trim()

    def on_records(self, generation: int, size: int, error: BaseException | None) -> None:
        """Note that records up to a generation were committed or refused."""
        self.ahead_bytes -= size
        if error is not None:
            (self._on_refused or self.refuse)(error)
            return
        if generation > self.committed:
            self.committed = generation
        if self._window_bytes > MAX_AHEAD_BYTES:  # committed records can be read from the store
            self._trim()
        if self._on_committed is not None:
            on_committed, self._on_committed = self._on_committed, None
            on_committed()
        if self._waiters:
            self._wake()
        if self._settle_waiters and self.settles_at is not None and self.committed >= self.settles_at:
            self._wake_settled()
        self._bus.notify(self._task_id, self.committed)

    def add_note(self) -> Callable[[BaseException | None], None]:
        """Count a change without records, which is queued now. Returns what notes that it was committed or refused."""
        self.notes_queued += 1
        return self._on_note

    def note_undecided(self) -> None:
        """Note that only the commit can tell whether the store accepts the last change."""
        self.is_decided = False

    def unsettle(self) -> None:
        """Note that a task that had paused goes on."""
        self.settles_at = None

    def _on_note(self, error: BaseException | None) -> None:
        if error is not None:
            (self._on_refused or self.refuse)(error)
            return
        self.notes_committed += 1
        self._wake()

    def on_reply(self, error: BaseException | None) -> None:
        """Note that the bare message in place of a task was committed or refused. It stands for the first record."""
        if error is not None:
            (self._on_refused or self.refuse)(error)
            return
        self.committed = self.settles_at = 1
        self._wake()
        self._wake_settled()
        self._bus.notify(self._task_id, self.committed)

    def _trim(self) -> None:
        window = self._window
        while window and (len(window) > MAX_WINDOW_EVENTS or self._window_bytes > MAX_AHEAD_BYTES):
            if window[0].generation > self.committed:
                return
            self._window_bytes -= len(window.popleft().body)

    # -- the window ----------------------------------------------------------------------------------------------------

    @property
    def window_bytes(self) -> int:
        """The size of the records in memory."""
        return self._window_bytes

    def clear_window(self) -> None:
        """Drop the records in memory. They must be committed."""
        self._window.clear()
        self._window_bytes = 0

    def records_after(self, generation: int) -> list[Record] | None:
        """The committed records after `generation` from memory; None when they must be read from the store."""
        window = self._window
        if generation >= self.committed:
            return []
        if not window or window[0].generation > generation + 1:
            return None
        start = generation + 1 - window[0].generation
        return list(islice(window, start, start + self.committed - generation))

    # -- waiting -------------------------------------------------------------------------------------------------------

    def wait(self, generation: int, notes: int = 0) -> asyncio.Future[None]:
        """Return a future that is done when the records up to a generation are committed, and so many notes.

        It raises ServerError when that never comes.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((generation, notes, future))
        return future

    async def wait_settled(self) -> None:
        """Wait until the task has ended or paused, and that is committed. Raises ServerError when that never comes."""
        if self.build_error is not None:
            self.check()
        if self.settles_at is None or self.committed < self.settles_at:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settle_waiters.append(future)
            await future

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for generation, notes, future in waiters:
            if future.done():
                continue
            if generation > self.committed or notes > self.notes_committed:
                self._waiters.append((generation, notes, future))
            else:
                future.set_result(None)

    def _wake_settled(self) -> None:
        waiters, self._settle_waiters = self._settle_waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def stop(self, build_error: Callable[[], ServerError]) -> None:
        """Fail all who wait, and all who will: nothing more is written."""
        self.build_error = build_error
        waiting = [*(future for _, _, future in self._waiters), *self._settle_waiters]
        self._waiters, self._settle_waiters = [], []
        for future in waiting:
            if not future.done():
                future.set_exception(build_error())

    def refuse(self, cause: BaseException) -> None:
        """Fail all who wait because the store has refused a write, and wake the subscribers: no record follows."""
        self.cause = cause
        self.stop(lambda: unavailable(cause))
        self._bus.notify(self._task_id, self.committed)

    def detach(self) -> None:
        """Tell nobody of refused writes any more but those who wait: the run is over, and so are its writes.

        Otherwise the task and this object would keep each other in memory until the next collection of garbage.
        """
        self._on_refused = None

    def check(self) -> None:
        """Raise ServerError when nothing more is written."""
        if self.build_error is not None:
            raise self.build_error() from self.cause
