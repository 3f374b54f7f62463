"""Histories cut to the length a caller asks for."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.stream import Batch
from dragoman.model.record import Record
from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def shortened(task: Task, length: int | None) -> Task:
    """The task with at most that many of its last messages; None is all of them, 0 is none."""
    if length is None or len(task.history) <= length:
        return task
    return structs.replace(task, history=task.history[-length:] if length else ())


async def shorten_first(batches: AsyncGenerator[Batch, None], length: int) -> AsyncGenerator[Batch, None]:
    """A stream whose first record, when it is a whole task, has a history of that length at most."""
    async with aclosing(batches):
        async for records, ended in batches:
            if records and records[0].generation == 1 and isinstance(records[0].event, Task):
                first = Record.of(1, shortened(records[0].event, length))
                yield Batch([first, *records[1:]], ended)
            else:
                yield Batch(records, ended)
