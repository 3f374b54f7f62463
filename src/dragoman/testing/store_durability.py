"""The store contract for writes: `done` callbacks, conflicts, concurrency, and reopening the store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.dialects.table import V0_3
from dragoman.engine.ports.store import Cursor, DedupeKey, Note, TaskQuery, Write
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.testing.store_writes import (
    ALL,
    NOW,
    SCOPE,
    Contract,
    append,
    body,
    create,
    outcome,
    read_task,
    row_of,
    write,
)

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Store, TaskRow
    from dragoman.testing.store_writes import OpenStore

contract, durable = Contract(), Contract()


# -- reports ---------------------------------------------------------------------------------------------------------


@contract.check
async def a_write_is_reported_once_in_order_and_never_from_within(store: Store) -> None:
    """`done` is never called within `write`: callers are in the middle of a change."""
    reported: list[tuple[str, BaseException | None]] = []
    rows = [row_of(store, f"t{name}") for name in range(30)]
    for row in rows:
        store.write(Write(row, partial(_report, reported, row.id), create=True, records=(Record(1, b"{}"),)))
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
    """Readers that are woken by `done` must find the change."""
    row = await create(store, row_of(store, "a"))
    for _ in range(10):
        row = structs.replace(row, generation=row.generation + 1)
        reading: asyncio.Future[asyncio.Task[list[Record]]] = asyncio.get_running_loop().create_future()
        store.write(Write(row, partial(_read, store, row, reading), records=(Record(row.generation, b"{}"),)))
        records = await (await reading)
        assert len(records) == row.generation, "a record was reported before it could be read"
        assert (await read_task(store, "a")).row == row, "the row is older than what was reported"


def _read(
    store: Store, row: TaskRow, reading: asyncio.Future[asyncio.Task[list[Record]]], _: BaseException | None
) -> None:
    reading.set_result(asyncio.ensure_future(store.records(row.number, 0, ALL)))


@contract.check_opening
async def closing_finishes_what_was_queued(open_store: OpenStore) -> None:
    """Every queued write is committed and reported, so that nobody waits for ever."""
    reported: list[tuple[str, BaseException | None]] = []
    async with open_store() as store:
        _queue_ten(store, reported)
    assert reported == [(f"t{name}", None) for name in range(10)], f"the writes before closing ended so: {reported}"


def _queue_ten(store: Store, reported: list[tuple[str, BaseException | None]]) -> None:
    for name in range(10):
        row = row_of(store, f"t{name}")
        store.write(Write(row, partial(_report, reported, row.id), create=True, records=(Record(1, body(row.id)),)))


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
        records=(Record(2, body("theirs")),),
        snapshot=b"theirs",
        notes=(Note(2, "message", b"theirs"),),
        context_state=b"theirs",
        dedupe_key=DedupeKey(b"theirs", NOW + 1000),
    )
    assert error is not None, "two records with the same number were accepted"
    assert (await read_task(store, "a"))[:3] == (row, b"mine", 2), "the refused write changed the task"
    bodies = [record.body for record in await store.records(row.number, 0, ALL)]
    assert bodies == [b"{}", body("mine")], "the refused write changed the journal"
    assert await store.notes(row.number) == [Note(2, "message", b"mine")], "the refused write left a note"
    assert await store.context_state(SCOPE, "context") is None, "the refused write left a state"
    assert await store.duplicate_of(b"theirs", NOW) is None, "the refused write left a dedupe key"
    await append(store, row)


@contract.check
async def a_record_that_skips_a_number_is_refused(store: Store) -> None:
    """Both alone and in one commit with others."""
    a, b = await create(store, row_of(store, "a")), row_of(store, "b")
    error = await outcome(store, structs.replace(a, generation=3), records=(Record(3, b"{}"),))
    assert error is not None, "a journal with a gap was accepted"
    assert (await read_task(store, "a")).row == a, "the refused write changed the task"
    outcomes = await asyncio.gather(
        outcome(store, b, create=True, records=(Record(1, b"{}"),)),
        outcome(store, structs.replace(b, generation=3), records=(Record(3, b"{}"),)),
        outcome(store, structs.replace(a, generation=2), records=(Record(2, b"{}"),)),
        outcome(store, structs.replace(a, generation=4), records=(Record(4, b"{}"),)),
    )
    refused = [error is not None for error in outcomes]
    assert refused == [False, True, False, True], f"of writes with gaps, queued together, these were told: {outcomes}"


@contract.check
async def a_refused_write_harms_no_other(store: Store) -> None:
    """Writes that were queued with it are committed, and so are later ones of the same task."""
    a, b = await create(store, row_of(store, "a")), row_of(store, "b")
    outcomes = await asyncio.gather(
        outcome(store, structs.replace(a, generation=2), records=(Record(2, b"{}"),)),
        outcome(store, structs.replace(a, generation=2), records=(Record(2, b"[]"),)),
        outcome(store, b, create=True, records=(Record(1, b"{}"),)),
        outcome(store, structs.replace(a, generation=3), records=(Record(3, b"{}"),)),
    )
    refused = [error is not None for error in outcomes]
    assert refused == [False, True, False, False], f"these outcomes are wrong: {outcomes}"
    bodies = [record.body for record in await store.records(a.number, 0, ALL)]
    assert bodies == [b"{}"] * 3, f"the journal is {bodies}"
    assert (await read_task(store, "b")).row == b, "the other task is not there"


@contract.check
async def a_refused_write_is_no_ill_health(store: Store) -> None:
    """A conflict is not a fault of the store: its health check still passes."""
    row = await create(store, row_of(store, "a"))
    assert await outcome(store, row, records=(Record(1, b"{}"),)) is not None, "a record was accepted twice"
    await store.check()


# -- many at once ----------------------------------------------------------------------------------------------------


@contract.check_opening
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
            stored = await read_task(store, row.id)
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
    generation = 0
    while generation < length:
        for record in await store.records(row.number, generation, 7):
            assert record.generation == generation + 1, f"after {generation} of {row.id} came {record.generation}"
            expected = body(f"{row.id}/{record.generation}") if generation else b"{}"
            assert record.body == expected, f"record {record.generation} of {row.id} is {record.body!r}"
            generation = record.generation
        # A store without a disk answers at once, and would let nobody else run.
        await asyncio.sleep(0)


# -- reopening -------------------------------------------------------------------------------------------------------


@durable.check_opening
async def everything_is_there_after_reopening(open_store: OpenStore) -> None:
    """Tasks, journals, notes, snapshots, states, dedupe keys and lists."""
    async with open_store() as store:
        parts = {"notes": (Note(1, "request", b"r"),), "context_state": b"s", "dedupe_key": DedupeKey(b"k", NOW + 1000)}
        row = await create(store, row_of(store, "a", origin=V0_3), **parts)
        row = await append(store, row, body("two"), snapshot=body("snapshot"), notes=(Note(2, "ask", b"q"),))
        other = await create(store, row_of(store, "b", state=State.COMPLETED, status_ms=NOW + 1))
    async with open_store() as store:
        stored = await read_task(store, "a")
        assert stored[:3] == (row, body("snapshot"), 2), f"the task is now {stored}"
        bodies = [record.body for record in await store.records(row.number, 0, ALL)]
        assert bodies == [b"{}", body("two")], f"the journal is now {bodies}"
        assert await store.notes(row.number) == [Note(1, "request", b"r"), Note(2, "ask", b"q")], "a note is lost"
        assert await store.context_state(SCOPE, "context") == b"s", "the state of the conversation is lost"
        assert await store.duplicate_of(b"k", NOW) == "a", "the dedupe key is lost"
        assert await store.unfinished("agent") == [stored], "the unfinished task is lost"
        page = await store.page(TaskQuery(SCOPE, after=Cursor(other.status_ms, other.number)))
        assert (page.tasks, page.total) == ([stored], 2), f"the list is now {page}"


@durable.check_opening
async def numbers_go_on_growing_after_reopening(open_store: OpenStore) -> None:
    """No number is assigned twice."""
    async with open_store() as store:
        rows = [await create(store, row_of(store, name)) for name in "abc"]
    async with open_store() as store:
        number = store.next_number()
        assert number > max(row.number for row in rows), f"the number {number} is taken"


@durable.check_opening
async def the_number_of_a_deleted_task_is_not_given_again(open_store: OpenStore) -> None:
    """Not even after reopening: a late write for the old task must not reach a new one."""
    async with open_store() as store:
        row = await create(store, row_of(store, "a"))
        await write(store, row, delete=True)
    async with open_store() as store:
        number = store.next_number()
        assert number > row.number, f"the number {row.number} was followed by {number}"


@durable.check_opening
async def a_task_goes_on_after_reopening(open_store: OpenStore) -> None:
    """The next record is accepted, and conflicts are still detected."""
    async with open_store() as store:
        row = await create(store, row_of(store, "a"))
    async with open_store() as store:
        assert await outcome(store, row, records=(Record(1, b"[]"),)) is not None, "record 1 was accepted again"
        again = row_of(store, "a")
        assert await outcome(store, again, create=True, records=(Record(1, b"[]"),)) is not None, (
            "the id was taken again"
        )
        await append(store, row, body("two"))
    async with open_store() as store:
        bodies = [record.body for record in await store.records(row.number, 0, ALL)]
        assert bodies == [b"{}", body("two")], f"the journal is now {bodies}"


@durable.check_opening
async def what_was_queued_before_closing_is_there_after_reopening(open_store: OpenStore) -> None:
    """Closing waits until queued writes are on disk."""
    async with open_store() as store:
        _queue_ten(store, [])
    async with open_store() as store:
        page = await store.page(TaskQuery(SCOPE))
        names = [stored.row.id for stored in page.tasks]
        assert names == [f"t{name}" for name in reversed(range(10))], f"only these are there: {names}"
