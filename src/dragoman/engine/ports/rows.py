"""Extra rows in a commit: tables that a plug-in keeps beside the journal, with a row for some tasks."""

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
    """One column of a table."""

    name: str
    type: Literal["INTEGER", "TEXT"]
    required: bool = False


class TaskTable(Struct, frozen=True):
    """A table that stores keep for a plug-in. A row belongs to one task and is deleted with it.

    The first column is the key, an integer; `key_of` gives the key of a task id, or None when no row can have it.
    `version` names the column whose value is another after each change. `owner` names the column with the number of
    the task's owner: a store that knows the owner as one of its users writes that user's key, every other store the
    value it is given; the first value stays. `indexes` maps names of indexes to the columns they are on.
    """

    name: str
    columns: tuple[Column, ...]
    version: str
    owner: str
    key_of: Callable[[str], int | None]
    indexes: tuple[tuple[str, str], ...] = ()

    def position(self, column: str) -> int:
        """Where the value of a column stands in a row."""
        return [name for name, _, _ in self.columns].index(column)


class ExtraRow(NamedTuple):
    """A row of a plug-in's table, its values in the order of the columns."""

    table: TaskTable
    values: tuple[Value, ...]

    @property
    def key(self) -> int:
        """The value of the key column."""
        return int(self.values[0] or 0)


class RowMaker(Protocol):
    """Makes the rows of tasks.

    The code of such a task runs once its first row is durable, the time of each of its statuses is later than the
    one before, and its conversation has the task's id unless its caller chose another.
    """

    def assigns_id(self, call: CallContext) -> bool:
        """True when a task that this call creates gets its id from here."""
        ...

    def next_id(self, now_ms: int) -> str:
        """An id this has not given before."""
        ...

    def rows(self, row: TaskRow, task: Task) -> tuple[ExtraRow, ...]:
        """The rows of a task whose state has changed, written in the commit of that change."""
        ...


class TaskRows(Protocol):
    """Says which tasks have extra rows."""

    async def load(self) -> None:
        """Read from the open store what ids depend on."""
        ...

    def of(self, origin: str) -> RowMaker | None:
        """What makes the rows of tasks with this origin; None when they have none."""
        ...
