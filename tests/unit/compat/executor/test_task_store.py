"""The task store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from dragoman.compat.executor import (
    Artifact,
    FileBytes,
    FilePart,
    Message,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TaskStore,
    TextPart,
)
from dragoman.engine.ports.store import Write
from dragoman.model.error import BadResponse, ServerError
from dragoman.model.json import encode
from dragoman.model.record import Record
from dragoman.stores.memory import MemoryStore
from dragoman.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SUBMITTED = Task("t", "c", TaskStatus(TaskState.SUBMITTED), history=(Message(Role.USER, (TextPart("hi"),), "m"),))


def in_state(state: TaskState, task: Task = SUBMITTED) -> Task:
    return replace(task, status=TaskStatus(state, timestamp="2026-11-15T10:00:00.000Z"))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TaskStore]:
    kept = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "tasks.db")
    async with TaskStore(kept) as store:
        yield store


@pytest.mark.requirement("S2-22", "S2-44")
async def test_a_task_that_was_never_saved_is_not_found(store: TaskStore) -> None:
    assert await store.get("t") == ("error", "not_found")


@pytest.mark.requirement("S2-22", "S2-44")
async def test_a_saved_task_is_found_as_it_was_saved(store: TaskStore) -> None:
    task = replace(SUBMITTED, artifacts=(Artifact("a", (FilePart(FileBytes("aGk=")),)),), metadata={"k": [1, None]})
    assert await store.save(task) == ("ok", task)
    assert await store.get("t") == ("ok", task)


@pytest.mark.requirement("S2-45")
async def test_without_a_store_tasks_are_kept_in_memory() -> None:
    store = TaskStore()
    await store.save(SUBMITTED)
    assert await store.get("t") == ("ok", SUBMITTED)


@pytest.mark.requirement("S2-22", "S2-44")
async def test_saving_again_replaces_the_whole_task(store: TaskStore) -> None:
    await store.save(replace(SUBMITTED, artifacts=(Artifact("a", (TextPart("x"),)),)))
    await store.save(in_state(TaskState.WORKING))
    await store.save(in_state(TaskState.COMPLETED))
    assert await store.get("t") == ("ok", in_state(TaskState.COMPLETED))


@pytest.mark.requirement("S2-22")
async def test_a_deleted_task_is_gone_and_the_others_are_not(store: TaskStore) -> None:
    other = replace(SUBMITTED, id="u")
    await store.save(SUBMITTED)
    await store.save(other)
    assert await store.delete("t") == "ok"
    assert await store.get("t") == ("error", "not_found")
    assert await store.get("u") == ("ok", other)


@pytest.mark.requirement("S2-22")
async def test_deleting_a_missing_entry_is_no_error(store: TaskStore) -> None:
    assert await store.delete("t") == "ok"


async def test_a_deleted_task_can_be_saved_anew(store: TaskStore) -> None:
    await store.save(in_state(TaskState.COMPLETED))
    await store.delete("t")
    assert await store.save(SUBMITTED) == ("ok", SUBMITTED)
    assert await store.get("t") == ("ok", SUBMITTED)


async def test_a_task_that_has_ended_stays_as_it_is(store: TaskStore) -> None:
    ended = in_state(TaskState.COMPLETED)
    await store.save(ended)
    assert await store.save(in_state(TaskState.WORKING)) == ("error", "task is already in terminal state")
    assert await store.save(ended) == ("ok", ended)
    assert await store.get("t") == ("ok", ended)


async def test_a_task_does_not_change_its_context(store: TaskStore) -> None:
    await store.save(SUBMITTED)
    status, reason = await store.save(replace(SUBMITTED, context_id="d"))
    assert status == "error"
    assert "contextId" in str(reason)


async def test_a_task_of_another_agent_is_neither_seen_nor_touched() -> None:
    kept = MemoryStore()
    mine, theirs = TaskStore(kept, agent="mine"), TaskStore(kept, agent="theirs")
    await theirs.save(SUBMITTED)
    assert await mine.get("t") == ("error", "not_found")
    assert await mine.save(SUBMITTED) == ("error", "this id cannot be used")
    assert await mine.delete("t") == "ok"
    assert await theirs.get("t") == ("ok", SUBMITTED)


@pytest.mark.requirement("S2-30", "S2-44")
async def test_fifty_writers_and_readers_at_once_lose_no_task(store: TaskStore) -> None:
    tasks = [replace(SUBMITTED, id=f"t{number}") for number in range(50)]

    async def write_and_read(task: Task) -> None:
        for state in (TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED):
            assert (await store.save(in_state(state, task)))[0] == "ok"
            assert await store.get(task.id) == ("ok", in_state(state, task))

    await asyncio.gather(*map(write_and_read, tasks))
    assert [await store.get(task.id) for task in tasks] == [("ok", in_state(TaskState.COMPLETED, t)) for t in tasks]


@pytest.mark.requirement("S2-30")
async def test_writers_of_one_task_follow_each_other(store: TaskStore) -> None:
    versions = [replace(SUBMITTED, metadata={"version": number}) for number in range(20)]
    outcomes = await asyncio.gather(*map(store.save, versions))
    assert {status for status, _ in outcomes} == {"ok"}
    status, kept = await store.get("t")
    assert status == "ok"
    assert kept == versions[-1]


async def test_a_task_with_bytes_that_are_no_base64_is_not_saved(store: TaskStore) -> None:
    with pytest.raises(BadResponse):
        await store.save(replace(SUBMITTED, artifacts=(Artifact("a", (FilePart(FileBytes("!")),)),)))
    assert await store.get("t") == ("error", "not_found")


async def test_an_unreadable_time_is_kept_as_it_is(store: TaskStore) -> None:
    task = replace(SUBMITTED, status=TaskStatus(TaskState.WORKING, timestamp="yesterday"))
    await store.save(task)
    assert await store.get("t") == ("ok", task)


async def test_a_file_keeps_tasks_for_the_next_store(tmp_path: Path) -> None:
    async with TaskStore(SqliteStore(tmp_path / "tasks.db")) as first:
        await first.save(SUBMITTED)
    async with TaskStore(SqliteStore(tmp_path / "tasks.db")) as second:
        assert await second.get("t") == ("ok", SUBMITTED)


class Refusing(MemoryStore):
    """A custom store that lets somebody else write first, or cannot write at all."""

    before: Callable[[], Any] | None = None
    full = False

    def queue(self, write: Write) -> None:
        if self.before is not None:
            before, self.before = self.before, None
            before()
        if self.full:
            asyncio.get_running_loop().call_soon(self.report, write, OSError("no space left"))
        else:
            super().queue(write)


async def test_a_write_the_engine_made_first_is_a_conflict() -> None:
    kept = Refusing()
    store, engine = TaskStore(kept), TaskStore(kept)
    await store.save(SUBMITTED)
    stored = await kept.task("t")
    assert stored is not None
    model = in_state(TaskState.WORKING).to_model()
    row = engine._row(model, stored, stored.row.scope)  # pyright: ignore[reportPrivateUsage]
    first = Write(row, lambda _: None, records=(Record.of(row.generation, model),), snapshot=encode(model))
    kept.before = lambda: MemoryStore.write(kept, first)
    assert await store.save(in_state(TaskState.FAILED)) == ("error", "conflict")
    assert await store.get("t") == ("ok", in_state(TaskState.WORKING))


async def test_a_store_that_cannot_write_says_so() -> None:
    kept = Refusing()
    store = TaskStore(kept)
    await store.save(SUBMITTED)
    kept.full = True
    with pytest.raises(ServerError):
        await store.save(in_state(TaskState.WORKING))
    with pytest.raises(ServerError):
        await store.delete("t")
    assert await store.get("t") == ("ok", SUBMITTED)
