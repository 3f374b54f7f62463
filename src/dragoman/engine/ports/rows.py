"""Plug-in tables: extra rows that a store writes in the same commit as the task they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from dragoman.engine.call import CallContext
    from dragoman.engine.ports.store import TaskRow
    from dragoman.model.task import Task

Value: TypeAlias = int | str | None


class Column(NamedTuple):
    """One column of a plug-in table."""

    name: str
    type: Literal["INTEGER", "TEXT"]
    required: bool = False


class TaskTable(Struct, frozen=True):
    """A table that stores maintain for a plug-in. A row belongs to one task and is deleted with it.

    The first column is the key, an integer; `key_of` returns the key for a task id, or None when no row can have it.
    `version` names the column whose value differs after each change. `owner` names the column with the number of the
    task's owner: a store that has the owner among its users writes that user's key, every other store the value in the
    row; later writes never change it. `indexes` pairs index names with the columns they cover.
    """

    name: str
    columns: tuple[Column, ...]
    version: str
    owner: str
    key_of: Callable[[str], int | None]
    indexes: tuple[tuple[str, str], ...] = ()

    def position(self, column: str) -> int:
        """The index of a column's value in a row."""
        return [name for name, _, _ in self.columns].index(column)


class ExtraRow(NamedTuple):
    """A row of a plug-in table, with its values in the order of the columns."""

    table: TaskTable
    values: tuple[Value, ...]

    @property
    def key(self) -> int:
        """The value of the key column."""
        return int(self.values[0] or 0)


class RowMaker(Protocol):
    """Builds the plug-in rows of tasks.

    For such tasks the engine starts the agent only after the first row is durable, gives every status a later
    timestamp than the one before, and uses the task id as context id unless the caller chose one.
    """

    def assigns_id(self, call: CallContext) -> bool:
        """True when a task created by this call gets its id from `next_id`."""
        ...

    def next_id(self, now_ms: int) -> str:
        """Return an id that this method has not returned before."""
        ...

    def rows(self, row: TaskRow, task: Task) -> tuple[ExtraRow, ...]:
        """Build the rows for a task whose state has changed; they are written in the commit of that change."""
        ...


class TaskRows(Protocol):
    """Registry of row makers by the origin of tasks."""

    async def load(self) -> None:
        """Read from the open store what the next ids depend on. Called once at startup."""
        ...

    def of(self, origin: str) -> RowMaker | None:
        """The row maker for tasks with this origin; None when they have no rows."""
        ...
