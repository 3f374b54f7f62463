"""The table `a2a_tasks`: tasks of tool servers in a form that other programs can read.

The journal stays the truth: a row is written in the commit that changes its task's state. The one exception is a cancel
of an ended task, which A2A 0.1 allows: it changes the row alone, and callers of other versions still see how the task
ended.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Self

from msgspec import Struct, structs

from dragoman.compat.tool_server.dialect import TOOL_TASKS
from dragoman.engine.ports.rows import Column, ExtraRow, TaskTable
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.clock import Clock
    from dragoman.engine.call import CallContext
    from dragoman.engine.ports.store import Store, TaskRow
    from dragoman.model.task import Task

CANCELED = "canceled"
# A rejected task counts as failed; a submitted one has no row yet.
WORDS = {
    State.WORKING: "working",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.REJECTED: "failed",
    State.CANCELED: CANCELED,
}
# Numbers of 18 digits always fit into a 64-bit integer.
_MAX_DIGITS = 18
# How far ahead of the clock the last assigned id can be.
_DAY_MS = 86_400_000


def number_of(task_id: str) -> int | None:
    """Return the id as a number if it is written as a plain decimal; None otherwise."""
    is_number = task_id.isascii() and task_id.isdigit() and len(task_id) <= _MAX_DIGITS
    return int(task_id) if is_number and (task_id == "0" or not task_id.startswith("0")) else None


def user_number(owner: str) -> int:
    """Return the number of a task's owner: a decimal id as it is, 0 for anonymous, else a digest of 52 bits."""
    if not owner:
        return 0
    if owner.isascii() and owner.isdigit() and len(owner) <= _MAX_DIGITS:
        return int(owner)
    digest = sha256(owner.encode(errors="replace")).digest()
    return int.from_bytes(digest[:8], "big") >> 12 or 1


A2A_TASKS = TaskTable(
    "a2a_tasks",
    (
        Column("id", "INTEGER"),
        Column("updated_at", "INTEGER"),
        Column("user_id", "INTEGER", required=True),
        Column("state", "TEXT"),
        Column("history", "TEXT"),
        Column("artifacts", "TEXT"),
    ),
    version="updated_at",
    owner="user_id",
    key_of=number_of,
    indexes=(("a2a_tasks_of_user", "user_id"),),
)


class A2ATask(Struct, frozen=True):
    """A row of the table. `updated_at` grows with every change; `history` and `artifacts` are JSON arrays."""

    id: int
    updated_at: int
    user_id: int
    state: str
    history: str
    artifacts: str

    @property
    def row(self) -> ExtraRow:
        """The row in the form that stores write."""
        return ExtraRow(A2A_TASKS, structs.astuple(self))

    @classmethod
    async def read(cls, store: Store, task_id: str) -> Self | None:
        """Read the row of a task, if it has one. Raises ServerError when the store cannot be read."""
        number = number_of(task_id)
        row = None if number is None else await store.read_row(A2A_TASKS, number)
        return None if row is None else cls(*row.values)  # pyright: ignore[reportArgumentType] - as it was written


class NumberedTasks:
    """Builds the rows of tasks, and assigns their ids: the time in milliseconds, increased if need be to be unique.

    Agents that share a store must share this object, or two tasks could get the same id.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._last = 0
        store.add_table(A2A_TASKS)

    def of(self, origin: str) -> Self | None:
        """Return this row maker for tasks that were created in the dialect of tool servers; None for others."""
        return self if origin == TOOL_TASKS.origin else None

    async def load(self) -> None:
        """Continue after the highest stored id, even if the clock has been set back since.

        An id more than a day ahead of the clock is ignored: a caller chose it.
        """
        last = await self._store.last_key(A2A_TASKS)
        if last <= self._clock.now() + _DAY_MS:
            self._last = max(self._last, last)

    def assigns_id(self, call: CallContext) -> bool:
        """True for authenticated callers. Anonymous ones share their tasks, so their ids must not be guessable."""
        return call.user is not None

    def next_id(self, now_ms: int) -> str:
        """Return a new id: the time, or the last id plus one if that is later."""
        self._last = max(now_ms, self._last + 1)
        return str(self._last)

    def rows(self, row: TaskRow, task: Task) -> tuple[ExtraRow, ...]:
        """Build the row of a task; none when its id is not a number, or its state is not stored in the table."""
        number, word = number_of(row.id), WORDS.get(row.state)
        if number is None or word is None:
            return ()
        history, artifacts = TOOL_TASKS.history(task).decode(), TOOL_TASKS.artifacts(task).decode()
        return (A2ATask(number, row.status_ms, user_number(row.scope.owner), word, history, artifacts).row,)
