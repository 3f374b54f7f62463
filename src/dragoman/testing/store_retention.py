"""The store contract for retention: what a sweep deletes and what it must keep."""

from __future__ import annotations

from msgspec import structs

from dragoman.engine.ports.store import DedupeKey, Note, Store, Sweep, TaskQuery, TaskRow
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.testing.store_writes import ALL, NOW, SCOPE, Contract, create, read_task, row_of, write

contract = Contract()
FINAL = [state for state in State if state.final]
ACTIVE = [state for state in State if not state.final]


async def _create_ended(store: Store, task_id: str, at_ms: int, state: State = State.COMPLETED) -> TaskRow:
    """A task that ran and ended, with a note and a snapshot."""
    row = await create(store, row_of(store, task_id, context_id=f"talk-{task_id}"), notes=(Note(1, "request", b"{}"),))
    row = structs.replace(row, state=state, status_ms=at_ms, generation=2)
    return await write(
        store,
        row,
        records=(Record(2, b"{}"),),
        previous_state=State.SUBMITTED,
        snapshot=b"snapshot",
        context_state=b"{}",
    )


async def _remaining_ids(store: Store) -> list[str]:
    page = await store.page(TaskQuery(SCOPE, limit=ALL))
    assert page.total == len(page.tasks), f"{len(page.tasks)} tasks are listed and {page.total} counted"
    return sorted(stored.row.id for stored in page.tasks)


@contract.check
async def old_tasks_go_by_the_time_they_ended(store: Store) -> None:
    """Age is counted from the end of a task. One that ended exactly at the limit is kept."""
    for place, state in enumerate(FINAL):
        await _create_ended(store, f"old-{place}", NOW - 1, state)
    await _create_ended(store, "young", NOW)
    assert await store.sweep(Sweep(ended_before_ms=NOW)) == len(FINAL), "a sweep does not tell what it did"
    assert await _remaining_ids(store) == ["young"], "the wrong tasks went"
    assert await store.sweep(Sweep(ended_before_ms=NOW)) == 0, "there is no end to it"


@contract.check
async def the_oldest_go_when_there_are_too_many(store: Store) -> None:
    """Those that ended first are deleted first, whatever their number."""
    for task_id, at_ms in (("b", NOW + 1), ("c", NOW + 2), ("d", NOW + 3)):
        await _create_ended(store, task_id, at_ms)
    await _create_ended(store, "e", NOW + 4)
    assert await store.sweep(Sweep(keep_tasks=2)) == 2, "a sweep does not tell what it did"
    assert await _remaining_ids(store) == ["d", "e"], "not the oldest went"


@contract.check
async def an_active_task_is_never_touched(store: Store) -> None:
    """Neither age nor the number of tasks matters."""
    for state in ACTIVE:
        await create(store, row_of(store, state.name, state=state, status_ms=1), notes=(Note(1, "message", b"m"),))
    swept = await store.sweep(Sweep(ended_before_ms=NOW, keep_tasks=1, compact_before_ms=NOW))
    assert swept == 0, "a sweep touched a task that has not ended"
    for state in ACTIVE:
        stored = await read_task(store, state.name)
        assert len(await store.records(stored.row.number, 0, ALL)) == 1, f"a record of {state.name} is gone"
        assert len(await store.notes(stored.row.number)) == 1, f"a note of {state.name} is gone"


@contract.check
async def a_compacted_task_keeps_its_last_state(store: Store) -> None:
    """Its records and notes are deleted; the task, its snapshot and its place in lists stay."""
    old = await _create_ended(store, "old", NOW - 1)
    young = await _create_ended(store, "young", NOW)
    assert await store.sweep(Sweep(compact_before_ms=NOW)) == 1, "a sweep does not tell what it did"
    assert await store.records(old.number, 0, ALL) == [], "there are events of a compacted task"
    assert await store.notes(old.number) == [], "there are notes of a compacted task"
    assert (await read_task(store, "old"))[:3] == (old, b"snapshot", 2), "a compacted task has changed"
    assert len(await store.records(young.number, 0, ALL)) == 2, "a task was compacted too early"
    assert await _remaining_ids(store) == ["old", "young"], "a compacted task is not listed"
    assert await store.sweep(Sweep(compact_before_ms=NOW)) == 0, "a task is compacted twice"
    assert await store.sweep(Sweep(compact_before_ms=NOW + 1)) == 1, "the next one is not compacted in its time"


@contract.check
async def a_sweep_is_bounded(store: Store) -> None:
    """It stops at its limit, so that others can write in between."""
    for place in range(5):
        await _create_ended(store, f"task-{place}", NOW - 5 + place)
    rules = Sweep(ended_before_ms=NOW, compact_before_ms=NOW, limit=2)
    assert [await store.sweep(rules) for _ in range(4)] == [2, 2, 1, 0], "a sweep does not keep to its limit"


@contract.check
async def nothing_of_a_forgotten_task_is_left(store: Store) -> None:
    """The state of its conversation and the dedupe key of its message are deleted too."""
    await _create_ended(store, "old", NOW - 1)
    young = await _create_ended(store, "kept", NOW)
    old = await read_task(store, "old")
    await write(store, old.row, notes=(Note(2, "message", b"m"),), dedupe_key=DedupeKey(b"key", NOW + 1000))
    await store.sweep(Sweep(ended_before_ms=NOW))
    assert await store.task("old") is None, "a forgotten task is found"
    assert await store.context_state(SCOPE, "talk-old") is None, "a forgotten conversation has a state"
    assert await store.context_state(SCOPE, young.context_id) == b"{}", "a conversation that goes on lost its state"
    assert await store.duplicate_of(b"key", NOW) is None, "a message leads to a forgotten task"
