"""The store contract, what is kept for sure and what is forgotten: reports, conflicts, reopening, sweeps."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.ports import Cursor, Note, Repeat, StoredTask, Sweep, TaskQuery, Write
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.testing.store_writes import ALL, NOW, SCOPE, Contract, append, body, create, found, outcome, row_of, write

if TYPE_CHECKING:
    from dragoman.engine.ports import Store, TaskRow
    from dragoman.testing.store_writes import OpenStore

contract, durable = Contract(), Contract()
FINAL = [state for state in State if state.final]
ACTIVE = [state for state in State if not state.final]


# -- reports ---------------------------------------------------------------------------------------------------------


@contract.check
async def a_write_is_reported_once_in_order_and_never_from_within(store: Store) -> None:
    """Callers write in the middle of something and must not be called back there."""
    reported: list[tuple[str, BaseException | None]] = []
    rows = [row_of(store, f"t{name}") for name in range(30)]
    for row in rows:
        store.write(Write(row, partial(_report, reported, row.id), create=True, record=Record(1, b"{}")))
        assert not reported, "a write was reported from within the call"
    await create(store, row_of(store, "last"))
    names = [(row.id, None) for row in rows]
    assert reported == names, f"reported were {reported}"
    await append(store, rows[0])
    assert reported == names, "a write was reported again"


def _report(reported: list[tuple[str, BaseException | None]], task_id: str, error: BaseException | None) -> None:
    reported.append((task_id, error))


@contract.check
async def a_write_is_reported_only_when_reads_see_it(store: Store) -> None:
    """Persist, then publish."""
    row = await create(store, row_of(store, "a"))
    for _ in range(10):
        row = structs.replace(row, generation=row.generation + 1)
        reading: asyncio.Future[asyncio.Task[list[Record]]] = asyncio.get_running_loop().create_future()
        store.write(Write(row, partial(_read, store, row, reading), record=Record(row.generation, b"{}")))
        records = await (await reading)
        assert len(records) == row.generation, "a record was reported before it could be read"
        assert (await found(store, "a")).row == row, "the row is older than what was reported"


def _read(
    store: Store, row: TaskRow, reading: asyncio.Future[asyncio.Task[list[Record]]], _: BaseException | None
) -> None:
    reading.set_result(asyncio.ensure_future(store.records(row.number, 0, ALL)))


@contract.opening
async def closing_finishes_what_was_queued(open_store: OpenStore) -> None:
    """Nobody is left waiting."""
    reported: list[tuple[str, BaseException | None]] = []
    async with open_store() as store:
        _queue_ten(store, reported)
    assert reported == [(f"t{name}", None) for name in range(10)], f"the writes before closing ended so: {reported}"


def _queue_ten(store: Store, reported: list[tuple[str, BaseException | None]]) -> None:
    for name in range(10):
        row = row_of(store, f"t{name}")
        store.write(Write(row, partial(_report, reported, row.id), create=True, record=Record(1, body(row.id))))


@contract.check
async def a_healthy_store_passes_its_check(store: Store) -> None:
    """Before the first write and after it."""
    await store.check()
    await create(store, row_of(store, "a"))
    await store.check()


# -- conflicts -------------------------------------------------------------------------------------------------------


@contract.check
async def a_record_that_is_there_already_changes_nothing(store: Store) -> None:
    """The generation is an optimistic lock: all of the losing write is refused."""
    row = await create(store, row_of(store, "a"))
    row = await append(store, row, body("mine"), snapshot=b"mine", notes=(Note(2, "message", b"mine"),))
    error = await outcome(
        store,
        structs.replace(row, state=State.FAILED, status_ms=NOW + 99),
        record=Record(2, body("theirs")),
        snapshot=b"theirs",
        notes=(Note(2, "message", b"theirs"),),
        context_state=b"theirs",
        repeat=Repeat(b"theirs", NOW + 1000),
    )
    assert error is not None, "two records with the same number were accepted"
    assert await found(store, "a") == StoredTask(row, b"mine", 2), "the refused write changed the task"
    bodies = [record.body for record in await store.records(row.number, 0, ALL)]
    assert bodies == [b"{}", body("mine")], "the refused write changed the journal"
    assert await store.notes(row.number) == [Note(2, "message", b"mine")], "the refused write left a note"
    assert await store.context_state(SCOPE, "context") is None, "the refused write left a state"
    assert await store.repeated(b"theirs", NOW) is None, "the refused write left a mark"
    await append(store, row)


@contract.check
async def a_record_that_skips_a_number_is_refused(store: Store) -> None:
    """Alone, and in the company of others that are committed with it."""
    a, b = await create(store, row_of(store, "a")), row_of(store, "b")
    error = await outcome(store, structs.replace(a, generation=3), record=Record(3, b"{}"))
    assert error is not None, "a journal with a gap was accepted"
    assert (await found(store, "a")).row == a, "the refused write changed the task"
    outcomes = await asyncio.gather(
        outcome(store, b, create=True, record=Record(1, b"{}")),
        outcome(store, structs.replace(b, generation=3), record=Record(3, b"{}")),
        outcome(store, structs.replace(a, generation=2), record=Record(2, b"{}")),
        outcome(store, structs.replace(a, generation=4), record=Record(4, b"{}")),
    )
    refused = [error is not None for error in outcomes]
    assert refused == [False, True, False, True], f"of writes with gaps, queued together, these were told: {outcomes}"


@contract.check
async def a_refused_write_harms_no_other(store: Store) -> None:
    """Not those that were queued with it, nor later ones of the same task."""
    a, b = await create(store, row_of(store, "a")), row_of(store, "b")
    outcomes = await asyncio.gather(
        outcome(store, structs.replace(a, generation=2), record=Record(2, b"{}")),
        outcome(store, structs.replace(a, generation=2), record=Record(2, b"[]")),
        outcome(store, b, create=True, record=Record(1, b"{}")),
        outcome(store, structs.replace(a, generation=3), record=Record(3, b"{}")),
    )
    refused = [error is not None for error in outcomes]
    assert refused == [False, True, False, False], f"these outcomes are wrong: {outcomes}"
    bodies = [record.body for record in await store.records(a.number, 0, ALL)]
    assert bodies == [b"{}"] * 3, f"the journal is {bodies}"
    assert (await found(store, "b")).row == b, "the other task is not there"


@contract.check
async def a_refused_write_is_no_ill_health(store: Store) -> None:
    """The store can take the next write, and says so."""
    row = await create(store, row_of(store, "a"))
    assert await outcome(store, row, record=Record(1, b"{}")) is not None, "a record was accepted twice"
    await store.check()


# -- many at once ----------------------------------------------------------------------------------------------------


@contract.opening
async def many_writers_and_readers_at_once_lose_nothing(open_store: OpenStore) -> None:
    """Every reader sees every record of its task once, in order, while all of them grow."""
    tasks, length = 50, 20
    async with open_store() as store:
        rows = [row_of(store, f"t{name}") for name in range(tasks)]
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for place, row in enumerate(rows):
                group.create_task(_write_one_by_one(store, row, length) if place % 2 else _queue(store, row, length))
                group.create_task(_follow(store, row, length))
        for row in rows:
            stored = await found(store, row.id)
            assert stored.row.generation == length, f"{row.id} is at {stored.row.generation}"
        page = await store.page(TaskQuery(SCOPE))
        assert page.total == tasks, f"{page.total} tasks are listed"


async def _write_one_by_one(store: Store, row: TaskRow, length: int) -> None:
    await create(store, row)
    for generation in range(2, length + 1):
        row = await append(store, row, body(f"{row.id}/{generation}"))


async def _queue(store: Store, row: TaskRow, length: int) -> None:
    creation = asyncio.ensure_future(create(store, row))
    rows = [structs.replace(row, generation=generation) for generation in range(1, length)]
    await asyncio.gather(creation, *(append(store, row, body(f"{row.id}/{row.generation + 1}")) for row in rows))


async def _follow(store: Store, row: TaskRow, length: int) -> None:
    seen = 0
    while seen < length:
        for record in await store.records(row.number, seen, 7):
            assert record.generation == seen + 1, f"after {seen} of {row.id} came {record.generation}"
            wanted = body(f"{row.id}/{record.generation}") if seen else b"{}"
            assert record.body == wanted, f"record {record.generation} of {row.id} is {record.body!r}"
            seen = record.generation
        # A store without a disk answers at once, and would let nobody else run.
        await asyncio.sleep(0)


# -- reopening -------------------------------------------------------------------------------------------------------


@durable.opening
async def everything_is_there_after_reopening(open_store: OpenStore) -> None:
    """Tasks, journals, notes, snapshots, states, marks and lists."""
    async with open_store() as store:
        parts = {"notes": (Note(1, "request", b"r"),), "context_state": b"s", "repeat": Repeat(b"k", NOW + 1000)}
        row = await create(store, row_of(store, "a", origin="0.3"), **parts)
        row = await append(store, row, body("two"), snapshot=body("snapshot"), notes=(Note(2, "ask", b"q"),))
        other = await create(store, row_of(store, "b", state=State.COMPLETED, status_ms=NOW + 1))
    async with open_store() as store:
        stored = await found(store, "a")
        assert stored == StoredTask(row, body("snapshot"), 2), f"the task is now {stored}"
        bodies = [record.body for record in await store.records(row.number, 0, ALL)]
        assert bodies == [b"{}", body("two")], f"the journal is now {bodies}"
        assert await store.notes(row.number) == [Note(1, "request", b"r"), Note(2, "ask", b"q")], "a note is lost"
        assert await store.context_state(SCOPE, "context") == b"s", "the state of the conversation is lost"
        assert await store.repeated(b"k", NOW) == "a", "the mark is lost"
        assert await store.unfinished("agent") == [stored], "the unfinished task is lost"
        page = await store.page(TaskQuery(SCOPE, after=Cursor(other.status_ms, other.number)))
        assert (page.tasks, page.total) == ([stored], 2), f"the list is now {page}"


@durable.opening
async def numbers_go_on_growing_after_reopening(open_store: OpenStore) -> None:
    """A number is never given twice."""
    async with open_store() as store:
        rows = [await create(store, row_of(store, name)) for name in "abc"]
    async with open_store() as store:
        number = store.next_number()
        assert number > max(row.number for row in rows), f"the number {number} is taken"


@durable.opening
async def the_number_of_a_deleted_task_is_not_given_again(open_store: OpenStore) -> None:
    """Not even after reopening: what was late for the old task must not reach a new one."""
    async with open_store() as store:
        row = await create(store, row_of(store, "a"))
        await write(store, row, delete=True)
    async with open_store() as store:
        number = store.next_number()
        assert number > row.number, f"the number {row.number} was followed by {number}"


@durable.opening
async def a_task_goes_on_after_reopening(open_store: OpenStore) -> None:
    """Conflicts are still found."""
    async with open_store() as store:
        row = await create(store, row_of(store, "a"))
    async with open_store() as store:
        assert await outcome(store, row, record=Record(1, b"[]")) is not None, "record 1 was accepted again"
        again = row_of(store, "a")
        assert await outcome(store, again, create=True, record=Record(1, b"[]")) is not None, "the id was taken again"
        await append(store, row, body("two"))
    async with open_store() as store:
        bodies = [record.body for record in await store.records(row.number, 0, ALL)]
        assert bodies == [b"{}", body("two")], f"the journal is now {bodies}"


@durable.opening
async def what_was_queued_before_closing_is_there_after_reopening(open_store: OpenStore) -> None:
    """Closing waits for the disk."""
    async with open_store() as store:
        _queue_ten(store, [])
    async with open_store() as store:
        page = await store.page(TaskQuery(SCOPE))
        names = [stored.row.id for stored in page.tasks]
        assert names == [f"t{name}" for name in reversed(range(10))], f"only these are there: {names}"


# -- forgetting ------------------------------------------------------------------------------------------------------


async def _ended(store: Store, task_id: str, at_ms: int, state: State = State.COMPLETED) -> TaskRow:
    """A task that ran and ended, with a note and a snapshot."""
    row = await create(store, row_of(store, task_id, context_id=f"talk-{task_id}"), notes=(Note(1, "request", b"{}"),))
    row = structs.replace(row, state=state, status_ms=at_ms, generation=2)
    return await write(
        store, row, record=Record(2, b"{}"), before=State.SUBMITTED, snapshot=b"snapshot", context_state=b"{}"
    )


async def _left(store: Store) -> list[str]:
    page = await store.page(TaskQuery(SCOPE, limit=ALL))
    assert page.total == len(page.tasks), f"{len(page.tasks)} tasks are listed and {page.total} counted"
    return sorted(stored.row.id for stored in page.tasks)


@contract.check
async def old_tasks_go_by_the_time_they_ended(store: Store) -> None:
    """Age is counted from the end, and the moment named is kept."""
    for place, state in enumerate(FINAL):
        await _ended(store, f"old-{place}", NOW - 1, state)
    await _ended(store, "young", NOW)
    assert await store.sweep(Sweep(ended_before_ms=NOW)) == len(FINAL), "a sweep does not tell what it did"
    assert await _left(store) == ["young"], "the wrong tasks went"
    assert await store.sweep(Sweep(ended_before_ms=NOW)) == 0, "there is no end to it"


@contract.check
async def the_oldest_go_when_there_are_too_many(store: Store) -> None:
    """Those that ended first go first, whatever their number."""
    for task_id, at_ms in (("b", NOW + 1), ("c", NOW + 2), ("d", NOW + 3)):
        await _ended(store, task_id, at_ms)
    await _ended(store, "e", NOW + 4)
    assert await store.sweep(Sweep(keep_tasks=2)) == 2, "a sweep does not tell what it did"
    assert await _left(store) == ["d", "e"], "not the oldest went"


@contract.check
async def an_active_task_is_never_touched(store: Store) -> None:
    """However old it is, and however many there are."""
    for state in ACTIVE:
        await create(store, row_of(store, state.name, state=state, status_ms=1), notes=(Note(1, "message", b"m"),))
    swept = await store.sweep(Sweep(ended_before_ms=NOW, keep_tasks=1, compact_before_ms=NOW))
    assert swept == 0, "a sweep touched a task that has not ended"
    for state in ACTIVE:
        stored = await found(store, state.name)
        assert len(await store.records(stored.row.number, 0, ALL)) == 1, f"a record of {state.name} is gone"
        assert len(await store.notes(stored.row.number)) == 1, f"a note of {state.name} is gone"


@contract.check
async def a_compacted_task_keeps_its_last_state(store: Store) -> None:
    """Its events and notes go; the task, its snapshot and its place in lists stay."""
    old = await _ended(store, "old", NOW - 1)
    young = await _ended(store, "young", NOW)
    assert await store.sweep(Sweep(compact_before_ms=NOW)) == 1, "a sweep does not tell what it did"
    assert await store.records(old.number, 0, ALL) == [], "there are events of a compacted task"
    assert await store.notes(old.number) == [], "there are notes of a compacted task"
    assert await found(store, "old") == (old, b"snapshot", 2), "a compacted task has changed"
    assert len(await store.records(young.number, 0, ALL)) == 2, "a task was compacted too early"
    assert await _left(store) == ["old", "young"], "a compacted task is not listed"
    assert await store.sweep(Sweep(compact_before_ms=NOW)) == 0, "a task is compacted twice"
    assert await store.sweep(Sweep(compact_before_ms=NOW + 1)) == 1, "the next one is not compacted in its time"


@contract.check
async def a_sweep_is_bounded(store: Store) -> None:
    """It stops at its limit, so that others can write in between."""
    for place in range(5):
        await _ended(store, f"task-{place}", NOW - 5 + place)
    rules = Sweep(ended_before_ms=NOW, compact_before_ms=NOW, limit=2)
    assert [await store.sweep(rules) for _ in range(4)] == [2, 2, 1, 0], "a sweep does not keep to its limit"


@contract.check
async def nothing_of_a_forgotten_task_is_left(store: Store) -> None:
    """Neither its conversation's state nor the mark by which its message was known."""
    await _ended(store, "old", NOW - 1)
    kept = await _ended(store, "kept", NOW)
    old = await found(store, "old")
    await write(store, old.row, notes=(Note(2, "message", b"m"),), repeat=Repeat(b"key", NOW + 1000))
    await store.sweep(Sweep(ended_before_ms=NOW))
    assert await store.task("old") is None, "a forgotten task is found"
    assert await store.context_state(SCOPE, "talk-old") is None, "a forgotten conversation has a state"
    assert await store.context_state(SCOPE, kept.context_id) == b"{}", "a conversation that goes on lost its state"
    assert await store.repeated(b"key", NOW) is None, "a message leads to a forgotten task"
