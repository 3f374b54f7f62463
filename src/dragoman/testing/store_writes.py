"""Helpers of the store contract: rows, and writes that wait for their outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, TypeAlias

from msgspec import structs

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import Scope, Store, StoredTask, TaskRow, Write
from dragoman.model.record import Record
from dragoman.model.state import State

OpenStore: TypeAlias = Callable[[], AbstractAsyncContextManager[Store]]
Check: TypeAlias = Callable[[OpenStore], Awaitable[None]]

NOW = 1_800_000_000_000
SCOPE = Scope("agent", "tenant", "owner")
ALL = 1000


class Contract:
    """Checks of a store, in the order they are declared."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def check(self, function: Callable[[Store], Awaitable[None]]) -> Check:
        """Declare a check of one open store with nothing in it."""

        @wraps(function)
        async def check(open_store: OpenStore) -> None:
            async with open_store() as store:
                await function(store)

        return self.check_opening(check)

    def check_opening(self, check: Check) -> Check:
        """Declare a check that opens the store itself, once or several times."""
        self.checks.append(check)
        return check


def row_of(
    store: Store,
    task_id: str,
    *,
    scope: Scope = SCOPE,
    context_id: str = "context",
    origin: str = V1_0,
    state: State = State.SUBMITTED,
    status_ms: int = NOW,
) -> TaskRow:
    """Build the row of a new task, with a new number."""
    return TaskRow(store.next_number(), task_id, scope, context_id, origin, state, status_ms, 1, NOW)


def body(text: str) -> bytes:
    """Return bytes that a careless store would change: numbers, spaces, non-ASCII letters."""
    return f'{{"text":"{text} é 🐪 \\u0000","one": 1.0,"big":12345678901234567890}}'.encode()


async def outcome(store: Store, row: TaskRow, **parts: Any) -> BaseException | None:
    """Write a change, and return what `done` was called with: None, or the error."""
    reported: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    size = sum(len(record.body) for record in parts.get("records", ()))
    store.write(Write(row, reported.set_result, size=size, **parts))
    async with asyncio.timeout(30):
        return await reported


async def write(store: Store, row: TaskRow, **parts: Any) -> TaskRow:
    """Write a change that must be accepted."""
    error = await outcome(store, row, **parts)
    assert error is None, f"a write of {row.id} at generation {row.generation} was refused: {error!r}"
    return row


async def create(store: Store, row: TaskRow, **parts: Any) -> TaskRow:
    """Write a new task with its first record."""
    return await write(store, row, create=True, records=(Record(1, b"{}"),), **parts)


async def append(store: Store, row: TaskRow, content: bytes = b"{}", **parts: Any) -> TaskRow:
    """Write the next record of a task, and return its row after that."""
    row = structs.replace(row, generation=row.generation + 1)
    return await write(store, row, records=(Record(row.generation, content),), **parts)


async def read_task(store: Store, task_id: str) -> StoredTask:
    """Read a task that must exist."""
    stored = await store.task(task_id)
    assert stored is not None, f"the task {task_id} is not there"
    return stored
