"""Filling a SQLite file with tasks, through the store itself: `python -m bench.fill FILE FROM TO`.

Each task has the four records of an echo: task, working, artifact, and its end with a snapshot.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import structs

from bench import cores, stored
from dragoman.clock import timestamp
from dragoman.engine.ports.store import Scope, TaskRow, Write
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Record, fold
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus
from dragoman.stores.sqlite.store import SqliteStore

Done = Callable[[BaseException | None], None]

SCOPE = Scope(stored.AGENT, "", "")
# As many tasks as are queued before we wait for the disk: 2,000 writes, one of the store's own batches.
AT_ONCE = 500


def writes(number: int, store_number: int, done: Done) -> Iterator[Write]:
    """The changes that make a task."""
    task_id, context_id, text = stored.task_id(number), stored.context_id(number), stored.text(number)
    end_ms = stored.status_ms(number)
    at, end = timestamp(end_ms - 2), timestamp(end_ms)
    message = Message(f"m-{number}", Role.USER, (Part(text=text),), context_id, task_id)
    task = Task(task_id, context_id, TaskStatus(State.SUBMITTED, None, at), history=(message,))
    state = State(stored.state(number))
    said = Message(f"q-{number}", Role.AGENT, (Part(text="?"),), context_id, task_id) if state.waiting else None
    events = (
        StatusUpdate(task_id, context_id, TaskStatus(State.WORKING, None, at)),
        ArtifactUpdate(task_id, context_id, Artifact("echo-result", (Part(text=text),), "echo-result")),
        StatusUpdate(task_id, context_id, TaskStatus(state, said, end)),
    )
    row = TaskRow(store_number, task_id, SCOPE, context_id, "1.0", State.SUBMITTED, end_ms - 2, 1, end_ms - 2)
    yield Write(row, done, create=True, joins_context=number % stored.PER_CONTEXT > 0, records=(Record.of(1, task),))
    for generation, event in enumerate(events, start=2):
        last = generation == len(events) + 1
        before = row.state
        row = structs.replace(
            row,
            generation=generation,
            state=state if last else State.WORKING,
            status_ms=end_ms if last else end_ms - 2,
        )
        snapshot = encode(structs.replace(fold(task, events), generation=None)) if last else None
        yield Write(row, done, previous_state=before, records=(Record.of(generation, event),), snapshot=snapshot)


async def fill(path: Path, first: int, count: int) -> None:
    """Add the tasks from `first` up to `count`."""
    store = SqliteStore(path)
    await store.open()
    before: asyncio.Future[None] | None = None
    problems: list[BaseException] = []

    def done(error: BaseException | None) -> None:
        if error is not None:
            problems.append(error)

    try:
        for start in range(first, count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, count))
            batch = [write for number in numbers for write in writes(number, store.next_number(), done)]
            # Writes are done in order: with the last, all are.
            kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch[-1].done = partial(_tell, kept)
            for write in batch:
                store.write(write)
            # One batch is made while the one before it is written.
            if before is not None:
                await before
            before = kept
        if before is not None:
            await before
    finally:
        await store.close()
    if problems:
        raise problems[0]


def _tell(kept: asyncio.Future[None], error: BaseException | None) -> None:
    if error is None:
        kept.set_result(None)
    else:
        kept.set_exception(error)


def main() -> None:
    """Fill."""
    path, first, count = sys.argv[1:]
    # The generator's core: it is idle now.
    cores.pin(cores.load_core())
    asyncio.run(fill(Path(path), int(first), int(count)))


if __name__ == "__main__":
    main()
