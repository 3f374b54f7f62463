"""Tasks that are also rows of a table, which other programs read.

Which tasks those are is said by the tag of their origin. The journal stays the truth: a row is written in the commit
that changes its task's state. Only an ended task may be marked as canceled in its row alone, for those who expect
that; everybody else goes on seeing how it ended.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from dragoman.clock import timestamp
from dragoman.model.error import TaskGenerationMismatch, TaskNotCancelable
from dragoman.model.state import State
from dragoman.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.clock import Clock
    from dragoman.engine.ports import Store, TaskRow

CANCELED = "canceled"
# A task that was refused has failed, and one that is submitted has no row yet.
_WORDS = {
    State.WORKING: "working",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.REJECTED: "failed",
    State.CANCELED: CANCELED,
}
# So often a cancel is tried while others change the row.
_TRIES = 5
# What fits into SQLite's integers in any case.
_LONGEST = 18
# Numbers further ahead of the clock are their callers' choice, and no reason to go on from there.
_DAY_MS = 86_400_000


class Projection(Struct, frozen=True):
    """The row of a task. `updated_at` grows with every change; `history` and `artifacts` are JSON arrays."""

    id: int
    updated_at: int
    user_id: int
    state: str
    history: bytes
    artifacts: bytes


class Projector(Protocol):
    """Spells what the row of a task holds."""

    def history(self, task: Task) -> bytes:
        """The messages as a JSON array."""
        ...

    def artifacts(self, task: Task) -> bytes:
        """The artifacts as a JSON array."""
        ...


class Projectors:
    """Who projects the tasks of an origin, and the ids such tasks get: times in milliseconds, no two alike.

    Agents that share a store share this, or they would give one id twice.
    """

    def __init__(self, by_origin: Mapping[str, Projector]) -> None:
        self._by_origin = dict(by_origin)
        self._last = 0

    def of(self, origin: str) -> Projector | None:
        """Who projects tasks of that origin, if anybody does."""
        return self._by_origin.get(origin)

    async def load(self, store: Store, now: int) -> None:
        """Go on after the ids that were given before, also when the clock has been put back since."""
        last = await store.last_projection()
        if last <= now + _DAY_MS:
            self._last = max(self._last, last)

    def next_id(self, now: int) -> str:
        """An id this has not given before."""
        self._last = max(now, self._last + 1)
        return str(self._last)


def number_of(task_id: str) -> int | None:
    """The id as a number, if it is the plain spelling of one."""
    is_number = task_id.isascii() and task_id.isdigit() and len(task_id) <= _LONGEST
    return int(task_id) if is_number and (task_id == "0" or not task_id.startswith("0")) else None


def user_number(owner: str) -> int:
    """An owner as a number: one that is a number is itself, a stranger is 0, all others have one of 52 bits."""
    if not owner:
        return 0
    if owner.isascii() and owner.isdigit() and len(owner) <= _LONGEST:
        return int(owner)
    digest = sha256(owner.encode(errors="replace")).digest()
    return int.from_bytes(digest[:8], "big") >> 12 or 1


def projected(projector: Projector, row: TaskRow, task: Task) -> Projection | None:
    """The row of a task as it is now; None when it has none."""
    number, word = number_of(row.id), _WORDS.get(row.state)
    if number is None or word is None:
        return None
    user = user_number(row.scope.owner)
    return Projection(number, row.status_ms, user, word, projector.history(task), projector.artifacts(task))


async def as_projected(store: Store, task: Task) -> Task:
    """The task with the state and the time of its row, where it has one. Raises ServerError when it cannot be read."""
    number = number_of(task.id)
    found = None if number is None else await store.projection(number)
    if found is None:
        return task
    status = task.status
    if found.state == CANCELED and status.state.final:
        status = TaskStatus(State.CANCELED)
    elif found.state != _WORDS.get(status.state):
        return task  # it has come further since it was read: what it holds belongs to the earlier state
    return structs.replace(task, status=structs.replace(status, timestamp=timestamp(found.updated_at)))


async def cancel_projection(store: Store, clock: Clock, task_id: str) -> None:
    """Mark the row of a task that has ended as canceled.

    Raises:
        TaskNotCancelable: it has no row.
        TaskGenerationMismatch: others changed it each time.
        ServerError: the store does not take it.
    """
    number = number_of(task_id)
    for _ in range(_TRIES):
        found = None if number is None else await store.projection(number)
        if found is None:
            raise TaskNotCancelable(taskId=task_id)
        changed = structs.replace(found, state=CANCELED, updated_at=max(clock.now(), found.updated_at + 1))
        if await store.project(changed, found.updated_at):
            return
    raise TaskGenerationMismatch("the task is being changed by somebody else: try again", taskId=task_id)
