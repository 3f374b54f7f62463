"""Short words for the changes that tests of the shared store write."""

from __future__ import annotations

from itertools import count
from typing import Any

from msgspec import structs

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import Scope, TaskRow, Write
from dragoman.model.record import Record
from dragoman.model.state import State

NOW = 1_800_000_000_000
SCOPE = Scope("agent", "", "")
_numbers = count(1)


class Change:
    """A change with its outcome. `reported` has every call of `done`, of which there must be one."""

    def __init__(self, row: TaskRow, **parts: Any) -> None:
        self.reported: list[BaseException | None] = []
        self.write = Write(row, self.reported.append, **parts)

    @property
    def outcome(self) -> str:
        """`waiting`, `committed` or the name of the error."""
        if not self.reported:
            return "waiting"
        (error,) = self.reported
        return "committed" if error is None else type(error).__name__


def new_row(context: str = "", number: int | None = None) -> TaskRow:
    """The row of a new task, in a context of its own unless one is given."""
    number = next(_numbers) if number is None else number
    return TaskRow(number, f"t{number}", SCOPE, context or f"c{number}", V1_0, State.SUBMITTED, NOW, 1, NOW)


def created(row: TaskRow, **parts: Any) -> Change:
    """The creation of a task."""
    return Change(row, create=True, records=(Record(1, b"{}"),), epoch=1, **parts)


def appended(row: TaskRow, generation: int, state: State | None = None, *, epoch: int = 1, **parts: Any) -> Change:
    """A record of a task."""
    row = structs.replace(row, generation=generation, state=state or row.state)
    body = f'{{"generation":{generation}}}'.encode()
    return Change(row, records=(Record(generation, body),), epoch=epoch, **parts)
