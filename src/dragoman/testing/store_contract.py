"""The store contract: the checks that every store must pass. Each is a test of its own.

    @asynccontextmanager
    async def open_store():
        store = MyStore(...)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @pytest.mark.parametrize("check", store_contract)
    async def test_my_store(check):
        await check(open_store)

Each check needs an empty store. Those of `durable_store_contract` open it several times: within one check, `open_store`
must then open the same data again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dragoman.dialects.table import V0_1
from dragoman.engine.ports.store import Cursor, DedupeKey, Note, Scope, TaskQuery
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.testing import store_drafts, store_durability, store_mail, store_pushes, store_retention, store_search
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

contract = Contract()


# -- tasks ---------------------------------------------------------------------------------------------------------


@contract.check
async def a_created_task_is_found_with_its_row_and_origin(store: Store) -> None:
    """The row is read as it was written, origin included."""
    row = row_of(store, "a", origin=V0_1, status_ms=NOW + 5)
    await create(store, row)
    stored = await read_task(store, "a")
    assert stored.row == row, f"the row has changed: {stored.row}"
    assert stored.snapshot is None, "there is a snapshot that nobody wrote"
    assert stored.snapshot_generation == 0, "there is no snapshot, so it shows generation 0"


@contract.check
async def what_is_unknown_is_none_or_empty(store: Store) -> None:
    """Reading what does not exist is no error. Ids are compared exactly."""
    await create(store, row_of(store, "a"))
    number = store.next_number()
    assert await store.task("b") is None, "a task was found that is not there"
    assert await store.task("A") is None, "ids differ by case"
    assert await store.records(number, 0, ALL) == [], "there are records of a task that is not there"
    assert await store.notes(number) == [], "there are notes of a task that is not there"
    assert await store.context_state(SCOPE, "context") is None, "there is a state that nobody wrote"
    assert await store.duplicate_of(b"key", NOW) is None, "there is a dedupe key that nobody wrote"


@contract.check
async def two_tasks_never_share_a_number(store: Store) -> None:
    """Numbers grow with every call, whether a task follows or not."""
    numbers: list[int] = []
    for name in range(20):
        row = row_of(store, f"t{name}")
        numbers += [row.number, store.next_number()]
        await create(store, row)
    assert all(one < next_one for one, next_one in pairwise(numbers)), f"numbers do not grow: {numbers}"


@contract.check
async def an_id_is_taken_once(store: Store) -> None:
    """A second task with the same id is refused, in any scope."""
    first = row_of(store, "a")
    await create(store, first)
    second = row_of(store, "a", context_id="other", scope=Scope("agent", "", "somebody else"))
    error = await outcome(store, second, create=True, records=(Record(1, b"{}"),))
    assert error is not None, "a second task with the same id was accepted"
    assert (await read_task(store, "a")).row == first, "the first task has changed"
    assert await store.records(second.number, 0, ALL) == [], "the refused task left a record"


@contract.check
async def a_deleted_task_is_gone_with_all_that_belongs_to_it(store: Store) -> None:
    """Its id can be used again, and other tasks stay as they are."""
    request = (Note(1, "request", b"r"),)
    a = await create(store, row_of(store, "a"), notes=request, dedupe_key=DedupeKey(b"a", NOW + 1000))
    a = await append(store, a, snapshot=b"a")
    b = await create(store, row_of(store, "b"), notes=request, dedupe_key=DedupeKey(b"b", NOW + 1000))
    await write(store, a, delete=True)
    assert await store.task("a") is None, "the task is still found"
    assert await store.records(a.number, 0, ALL) == [], "its journal is still there"
    assert await store.notes(a.number) == [], "its notes are still there"
    assert await store.duplicate_of(b"a", NOW) is None, "its dedupe key is still there"
    page = await store.page(TaskQuery(SCOPE))
    unfinished = await store.unfinished("agent")
    assert [stored.row for stored in page.tasks] == [stored.row for stored in unfinished] == [b], "it is still listed"
    assert page.total == 1, "it is still counted"
    assert await store.duplicate_of(b"b", NOW) == "b", "the dedupe key of another task is gone"
    assert await store.notes(b.number) == list(request), "the notes of another task are gone"
    late = structs.replace(a, generation=3)
    assert await outcome(store, late, records=(Record(3, b"{}"),)) is not None, "a late record was accepted"
    again = await create(store, row_of(store, "a"))
    assert (await read_task(store, "a"))[:3] == (again, None, 0), "the new task has something of the old one"


# -- the journal -----------------------------------------------------------------------------------------------------


@contract.check
async def records_come_back_byte_for_byte_and_in_order(store: Store) -> None:
    """Streams send the stored bytes unchanged."""
    rows = {name: await create(store, row_of(store, name)) for name in ("a", "b")}
    for generation in range(2, 6):
        for name in rows:
            rows[name] = await append(store, rows[name], body(f"{name}{generation}"))
    for name, row in rows.items():
        records = await store.records(row.number, 0, ALL)
        expected = [(1, b"{}"), *((number, body(f"{name}{number}")) for number in range(2, 6))]
        assert [(record.generation, record.body) for record in records] == expected, "the records are not as written"


@contract.check
async def reading_records_keeps_to_after_and_limit(store: Store) -> None:
    """A slow reader reads the journal a page at a time."""
    row = await create(store, row_of(store, "a"))
    for _ in range(9):
        row = await append(store, row)

    async def read(after: int, limit: int) -> list[int]:
        return [record.generation for record in await store.records(row.number, after, limit)]

    assert await read(0, 3) == [1, 2, 3], "not the first three"
    assert await read(3, 3) == [4, 5, 6], "not the next three"
    assert await read(8, 3) == [9, 10], "not the last two"
    assert await read(10, 3) == [], "there is something after the last record"


@contract.check
async def notes_come_back_in_the_order_they_were_written(store: Store) -> None:
    """Also several of one generation, and those that came without a record."""
    request = Note(1, "request", body("request"))
    row = await create(store, row_of(store, "a"), notes=(request,))
    written = [Note(1, "message", b"z"), Note(1, "message", b"a"), Note(1, "once", b"m")]
    for note in written:
        await write(store, row, notes=(note,))
    last_notes = (Note(2, "answer", b"b"), Note(2, "message", b"a"))
    await append(store, row, notes=last_notes)
    assert await store.notes(row.number) == [request, *written, *last_notes], "the notes are not as written"
    assert len(await store.records(row.number, 0, ALL)) == 2, "a note took a number"


@contract.check
async def notes_alone_need_their_task(store: Store) -> None:
    """A note for a task that was never written, or is deleted, is refused like a record; one for a draft is not."""
    note = Note(1, "message", b"m")
    missing = row_of(store, "missing")
    assert await outcome(store, missing, notes=(note,)) is not None, "a note of no task was accepted"
    assert await store.notes(missing.number) == [], "the refused note is there"
    row = await create(store, row_of(store, "a"))
    await write(store, row, delete=True)
    assert await outcome(store, row, notes=(note,)) is not None, "a note of a deleted task was accepted"
    draft = await write(store, row_of(store, "draft"), draft=True, snapshot=b"{}")
    await write(store, draft, notes=(note,))
    await create(store, draft, opens_draft=True)
    assert await store.notes(draft.number) == [note], "the note of a draft is not there"


@contract.check
async def a_snapshot_is_kept_with_the_generation_it_shows(store: Store) -> None:
    """Records and notes after it leave it alone; a newer one replaces it."""
    row = await create(store, row_of(store, "a"))
    row = await append(store, row, snapshot=body("two"))
    row = await append(store, row)
    await write(store, row, notes=(Note(3, "message", b"m"),))
    stored = await read_task(store, "a")
    assert (stored.snapshot, stored.snapshot_generation) == (body("two"), 2), "the snapshot is not as written"
    assert stored.row.generation == 3, "the row is not that of the last record"
    await append(store, row, snapshot=body("four"))
    stored = await read_task(store, "a")
    assert (stored.snapshot, stored.snapshot_generation) == (body("four"), 4), "the newer snapshot is not there"


# -- lists -----------------------------------------------------------------------------------------------------------


@contract.check
async def pages_show_every_task_once_newest_status_first(store: Store) -> None:
    """Also among equal times, whatever the size of the page."""
    # Many equal times, and an order that is neither that of the numbers nor that of the ids.
    rows = [row_of(store, f"t{name}", status_ms=NOW + name * 7 % 4) for name in range(17)]
    for row in rows:
        await create(store, row)
    expected = sorted(rows, key=lambda row: (row.status_ms, row.number), reverse=True)
    for limit in (1, 4, 16, 17, 100):
        listed: list[TaskRow] = []
        cursor: Cursor | None = None
        more = True
        while more:
            tasks, more, total = await store.page(TaskQuery(SCOPE, limit=limit, after=cursor))
            assert total == 17, f"the total is {total} on a page of {limit}"
            remaining = 17 - len(listed)
            assert len(tasks) == min(limit, remaining), (
                f"a page of {limit} has {len(tasks)} tasks with {remaining} left"
            )
            assert more is (remaining > limit), f"more is {more} with {remaining} left and a page of {limit}"
            listed += [stored.row for stored in tasks]
            cursor = Cursor(listed[-1].status_ms, listed[-1].number)
        assert listed == expected, f"pages of {limit} are not in order"


@contract.check
async def a_page_ends_at_its_bytes(store: Store) -> None:
    """It has at least one task, whole, and the next page continues after its last one."""
    sizes = {"a": 10, "b": 500, "c": 40, "d": 50, "e": 20, "f": 0}
    for place, (name, size) in enumerate(sizes.items()):
        row = await create(store, row_of(store, name, status_ms=NOW - place))
        if size:
            ended = structs.replace(row, state=State.COMPLETED)
            await append(store, ended, snapshot=b"x" * size)
    for budget, expected in ((100, "a b cd ef"), (500, "a b cdef"), (620, "abcdef"), (1, "a b c d e f")):
        listed: list[str] = []
        cursor: Cursor | None = None
        more = True
        while more:
            tasks, more, total = await store.page(TaskQuery(SCOPE, after=cursor, budget=budget))
            assert total == len(sizes), f"the total is {total} on a page of {budget} bytes"
            assert all(len(one.snapshot or b"") == sizes[one.row.id] for one in tasks), "a task is not whole"
            listed.append("".join(stored.row.id for stored in tasks))
            cursor = Cursor(tasks[-1].row.status_ms, tasks[-1].row.number)
        assert " ".join(listed) == expected, f"pages of {budget} bytes are {listed}"
    short = await store.page(TaskQuery(SCOPE, limit=1, budget=620))
    assert ([one.row.id for one in short.tasks], short.more) == (["a"], True), "the number counts no more"


@contract.check
async def a_list_follows_the_status_of_its_tasks(store: Store) -> None:
    """A new status moves a task up, other records do not, and new tasks shift no page."""
    rows = [await create(store, row_of(store, name, status_ms=NOW + at)) for at, name in enumerate("abc")]
    await append(store, structs.replace(rows[0], status_ms=NOW + 9, state=State.COMPLETED), snapshot=b"a")
    await append(store, rows[1])
    first = await store.page(TaskQuery(SCOPE, limit=2))
    assert [stored.row.id for stored in first.tasks] == ["a", "c"], "the newest status does not come first"
    assert first.tasks[0] == await read_task(store, "a"), "a listed task differs from the one that is found"
    await create(store, row_of(store, "d", status_ms=NOW + 10))
    after = Cursor(first.tasks[-1].row.status_ms, first.tasks[-1].row.number)
    rest = await store.page(TaskQuery(SCOPE, limit=2, after=after))
    assert [stored.row.id for stored in rest.tasks] == ["b"], "a newer task shifted the pages"
    assert (rest.more, rest.total) == (False, 4), "the last page is not told as such"


@contract.check
async def each_filter_selects_and_counts(store: Store) -> None:
    """Scope, context, state and time, with the total of what they match."""
    scopes = [SCOPE, Scope("agent2", "tenant", "owner"), Scope("agent", "", "owner"), Scope("agent", "tenant", "")]
    for place, scope in enumerate(scopes):
        await create(store, row_of(store, f"s{place}", scope=scope, context_id="one", status_ms=NOW))
    await create(store, row_of(store, "x", context_id="two", status_ms=NOW + 1))
    await create(store, row_of(store, "y", context_id="two", status_ms=NOW + 2, state=State.WORKING))

    async def ids(scope: Scope = SCOPE, **filters: Any) -> list[str]:
        page = await store.page(TaskQuery(scope, **filters))
        short = await store.page(TaskQuery(scope, limit=1, **filters))
        task_ids = [stored.row.id for stored in page.tasks]
        assert (page.total, short.total) == (len(task_ids), len(task_ids)), f"the total is wrong for {filters}"
        assert short.more is (len(task_ids) > 1), f"more is wrong for {filters}"
        return task_ids

    assert await ids() == ["y", "x", "s0"], "without filters, all tasks of the scope"
    for place, scope in enumerate(scopes[1:], 1):
        assert await ids(scope) == [f"s{place}"], f"tasks of other scopes are listed for {scope}"
    assert await ids(Scope("agent", "tenant", "stranger")) == [], "a stranger sees tasks"
    assert await ids(context_id="two") == ["y", "x"], "wrong tasks of a context"
    assert await ids(state=State.SUBMITTED) == ["x", "s0"], "wrong tasks in a state"
    assert await ids(context_id="two", state=State.SUBMITTED) == ["x"], "two filters are not both applied"
    assert await ids(since_ms=NOW + 1) == ["y", "x"], "since means: then or later"
    assert await ids(since_ms=NOW + 3) == [], "since means: then or later"


# -- indexes ---------------------------------------------------------------------------------------------------------


@contract.check
async def the_state_of_a_conversation_is_kept_per_scope(store: Store) -> None:
    """The last state that was written is read."""
    other = Scope("agent", "tenant", "somebody else")
    a = await create(store, row_of(store, "a", context_id="c"), context_state=body("first"))
    await create(store, row_of(store, "b", context_id="c", scope=other), context_state=body("other"))
    await create(store, row_of(store, "d", context_id="c"))
    assert await store.context_state(SCOPE, "c") == body("first"), "the state is not as written"
    await append(store, a, context_state=body("second"))
    assert await store.context_state(SCOPE, "c") == body("second"), "the newer state is not there"
    assert await store.context_state(other, "c") == body("other"), "a state went into another scope"
    assert await store.context_state(SCOPE, "d") is None, "a state went into another context"


@contract.check
async def a_dedupe_key_is_found_until_it_expires(store: Store) -> None:
    """A key that is written again leads to the newer task."""
    key = bytes(range(32))
    a = await create(store, row_of(store, "a"), dedupe_key=DedupeKey(key, NOW + 1000))
    assert await store.duplicate_of(key, NOW) == "a", "a fresh dedupe key is not found"
    assert await store.duplicate_of(key, NOW + 999) == "a", "a dedupe key is gone before its time"
    assert await store.duplicate_of(key, NOW + 1000) is None, "a dedupe key outlived its time"
    assert await store.duplicate_of(key[:-1], NOW) is None, "a part of a key was taken for the key"
    await write(store, a, notes=(Note(1, "message", b"m"),), dedupe_key=DedupeKey(b"told", NOW + 1000))
    assert await store.duplicate_of(b"told", NOW) == "a", "the dedupe key of a note is not found"
    await create(store, row_of(store, "b"), dedupe_key=DedupeKey(key, NOW + 3000, NOW + 1000))
    assert await store.duplicate_of(key, NOW + 2000) == "b", "a key written again does not lead to the newer task"


@contract.check
async def unfinished_are_the_submitted_and_working_of_one_agent(store: Store) -> None:
    """After a restart the engine recovers them, oldest first."""
    for place, state in enumerate(State):
        # The newest status is the oldest task's, so that only the age can give the order.
        at = NOW - place
        await create(store, row_of(store, f"mine-{state.name}", state=state, status_ms=at))
        theirs = Scope("other agent", "tenant", "owner")
        await create(store, row_of(store, f"theirs-{state.name}", state=state, status_ms=at, scope=theirs))
    late = await create(store, row_of(store, "late", scope=Scope("agent", "", "somebody")))
    snapped = await append(store, late, snapshot=b"late")
    unfinished = await store.unfinished("agent")
    names = [stored.row.id for stored in unfinished]
    assert names == ["mine-SUBMITTED", "mine-WORKING", "late"], f"unfinished are {names}"
    assert unfinished[-1][:3] == (snapped, b"late", 2), "an unfinished task differs from what was written"
    assert await store.unfinished("nobody") == [], "an agent without tasks has unfinished ones"


store_contract = (
    *store_retention.contract.checks,
    *contract.checks,
    *store_search.contract.checks,
    *store_pushes.contract.checks,
    *store_drafts.contract.checks,
    *store_mail.contract.checks,
    *store_durability.contract.checks,
)
durable_store_contract = (*store_durability.durable.checks, *store_drafts.durable.checks, *store_mail.durable.checks)
