"""What one send writes, made without a send: so that a commit can be measured alone, with any number of tasks in it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from uuid import uuid4

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import DedupeKey, Scope, TaskRow, Write
from dragoman.model.record import Record
from dragoman.model.state import State

SCOPE = Scope("bench", "", "")
# The bodies of the four events and of the last state: the lengths that the echo of the benchmarks has.
_FIRST, _STATUS, _ARTIFACT, _SNAPSHOT = 508, 197, 338, 704
_EVENT = 260


def begin(number: int) -> Write:
    """The change that creates a task and makes it working."""
    now = int(time.time() * 1000)
    row = TaskRow(number, str(uuid4()), SCOPE, str(uuid4()), V1_0, State.WORKING, now, 2, now)
    return Write(
        row,
        _ignore,
        create=True,
        records=(_record(1, _FIRST), _record(2, _STATUS)),
        dedupe_key=DedupeKey(secrets.token_bytes(32), now + 600_000),
        epoch=1,
        begins=True,
        serial=True,
        key=secrets.randbits(62),
    )


def end(begun: TaskRow) -> Write:
    """The change that completes it."""
    return Write(
        _after(begun, State.COMPLETED, 2),
        _ignore,
        previous_state=State.WORKING,
        records=(_record(begun.generation + 1, _ARTIFACT), _record(begun.generation + 2, _STATUS)),
        snapshot=_body(_SNAPSHOT),
        epoch=1,
        serial=True,
        key=secrets.randbits(62),
    )


def event(row: TaskRow) -> Write:
    """The change that adds one event to a task."""
    return Write(
        _after(row, State.WORKING, 1),
        _ignore,
        records=(_record(row.generation + 1, _EVENT),),
        epoch=1,
        serial=True,
        key=secrets.randbits(62),
    )


def begun(first: int, count: int) -> Iterator[Write]:
    """Begin that many tasks, with numbers in a row."""
    return (begin(number) for number in range(first, first + count))


def _after(row: TaskRow, state: State, records: int) -> TaskRow:
    generation = row.generation + records
    now = int(time.time() * 1000)
    return TaskRow(row.number, row.id, row.scope, row.context_id, row.origin, state, now, generation, row.created_ms)


def _record(generation: int, size: int) -> Record:
    return Record(generation, _body(size))


def _body(size: int) -> bytes:
    # Half of it differs, as ids and times do: PostgreSQL compresses what is long, and must not have it easy.
    return secrets.token_hex(size // 4).encode().ljust(size, b"e")


def _ignore(_: BaseException | None) -> None:
    pass
