"""The store contract, webhooks and drafts: what is owed is told, and a draft is shown to nobody.

A draft is a task that a bare message may answer instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.engine.ports import WOKEN, Note, Push, PushState, Repeat, StoredTask, TaskQuery
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.testing.store_writes import ALL, NOW, SCOPE, Contract, append, create, found, row_of, write

if TYPE_CHECKING:
    from dragoman.engine.ports import Store, TaskRow
    from dragoman.testing.store_writes import OpenStore

contract, durable = Contract(), Contract()
KEY = Repeat(b"key", NOW + 1000)


# -- webhooks --------------------------------------------------------------------------------------------------------


def push_of(row: TaskRow, push_id: str, *, created_ms: int = NOW, cursor: int = 1) -> Push:
    """A webhook of a task."""
    return Push(row.number, push_id, "0.3", f"https://hooks/{push_id}", b"\x00sealed\xff", cursor, created_ms)


@contract.check
async def a_webhook_is_kept_with_its_task_in_one_write(store: Store) -> None:
    """One that comes with a new task is there when the task is."""
    row = row_of(store, "t1")
    push = push_of(row, "p1")
    await create(store, row, pushes=(push,))
    assert await store.pushes(row.number) == [push]
    assert await store.owed() == [(push, row)]
    assert await store.pushes(row.number + 1) == []


@contract.check
async def a_webhook_is_replaced_and_removed_by_its_id(store: Store) -> None:
    """Others of the same task, and those of other tasks with the same id, stay."""
    row, other = await create(store, row_of(store, "t1")), await create(store, row_of(store, "t2"))
    await write(store, row, pushes=(push_of(row, "p1"), push_of(row, "p2")))
    await write(store, other, pushes=(push_of(other, "p1"),))
    newer = push_of(row, "p1", created_ms=NOW + 5, cursor=7)
    await write(store, row, pushes=(newer,))
    assert sorted(await store.pushes(row.number), key=lambda push: push.id) == [newer, push_of(row, "p2")]
    await write(store, row, unpushed=("p1", "never there"))
    assert await store.pushes(row.number) == [push_of(row, "p2")]
    assert await store.pushes(other.number) == [push_of(other, "p1")]


@contract.check
async def progress_reaches_only_the_webhook_it_is_about(store: Store) -> None:
    """One that was removed does not come back, one that took its place is not moved."""
    row = await create(store, row_of(store, "t1"))
    push = push_of(row, "p1")
    await write(store, row, pushes=(push,))
    # The task moves on meanwhile: the writer of progress need not know.
    moved = structs.replace(row, generation=2, state=State.WORKING)
    await write(store, moved, record=Record(2, b"{}"), before=State.SUBMITTED)
    further = structs.replace(push, cursor=2, tries=3, failing_ms=NOW, due_ms=NOW + 9, error="HTTP 500")
    await write(store, row, progress=(further,))
    assert await store.pushes(row.number) == [further]
    found = await store.task("t1")
    assert found is not None
    assert found.row == moved
    await write(store, row, pushes=(push_of(row, "p1", created_ms=NOW + 1),))
    await write(store, row, progress=(structs.replace(further, cursor=9),))
    assert await store.pushes(row.number) == [push_of(row, "p1", created_ms=NOW + 1)]
    await write(store, row, unpushed=("p1",))
    await write(store, row, progress=(further,))
    assert await store.pushes(row.number) == []


@contract.check
async def what_is_owed_are_open_and_dead_webhooks(store: Store) -> None:
    """Oldest first; those that have got everything are not among them."""
    rows = [await create(store, row_of(store, f"t{number}")) for number in range(3)]
    states = (PushState.OPEN, PushState.DONE, PushState.DEAD)
    for row, state in zip(rows, states, strict=True):
        await write(store, row, pushes=(structs.replace(push_of(row, "p"), state=state),))
    owed = await store.owed()
    assert [(push.state, row.id) for push, row in owed] == [(PushState.OPEN, "t0"), (PushState.DEAD, "t2")]
    assert await store.owed(woken=True) == []
    await write(store, rows[2], progress=(structs.replace(owed[1][0], state=PushState.OPEN, due_ms=WOKEN),))
    assert [row.id for _, row in await store.owed(woken=True)] == ["t2"]


@contract.check
async def a_deleted_task_owes_nothing(store: Store) -> None:
    """Its webhooks go with it."""
    row = await create(store, row_of(store, "t1"), pushes=())
    await write(store, row, pushes=(push_of(row, "p1"),))
    await write(store, row, delete=True)
    assert await store.owed() == []
    assert await store.pushes(row.number) == []


# -- drafts ----------------------------------------------------------------------------------------------------------


async def _plan(store: Store, row: TaskRow) -> None:
    request = (Note(1, "request", b"r"),)
    await write(store, row, draft=True, snapshot=b"task " + row.id.encode(), notes=request, repeat=KEY)


@contract.check
async def a_draft_is_found_by_its_agent_only(store: Store) -> None:
    """It is no task: it is neither found nor listed nor counted, and its mark leads to its id."""
    row = row_of(store, "a")
    await _plan(store, row)
    assert await store.drafts("agent") == [StoredTask(row, b"task a", 1)], "the draft is not as it was written"
    assert await store.drafts("another") == [], "another agent has it"
    assert await store.task("a") is None, "the draft is found as a task"
    assert await store.unfinished("agent") == [], "the draft counts as a task at work"
    page = await store.page(TaskQuery(SCOPE))
    assert (list(page.tasks), page.total) == ([], 0), "the draft is listed or counted"
    assert await store.repeated(KEY.key, NOW) == "a", "its mark is not found"
    assert await store.reply(KEY.key, NOW) is None, "it is answered before it was"


@contract.check
async def a_draft_that_is_opened_is_a_task_with_its_notes(store: Store) -> None:
    """The task is created as any other, with what was noted before."""
    row = row_of(store, "a")
    await _plan(store, row)
    await write(store, row, notes=(Note(1, "begun", b"pay"),))
    row = await create(store, row, opens=True, repeat=KEY)
    row = await append(store, row)
    assert await store.drafts("agent") == [], "it is still a draft"
    assert (await found(store, "a")).row == row, "the task is not as it was written"
    kinds = [note.kind for note in await store.notes(row.number)]
    assert kinds == ["request", "begun"], f"its notes are {kinds}"
    assert (await store.page(TaskQuery(SCOPE))).total == 1, "it is not counted"
    assert await store.repeated(KEY.key, NOW) == "a", "its mark is gone"


@contract.check
async def a_draft_that_is_answered_leaves_its_reply_for_repeats(store: Store) -> None:
    """The reply is kept for as long as the mark is; the draft is gone with its notes, and its number is used up."""
    row = row_of(store, "a")
    await _plan(store, row)
    await write(store, row, draft=True, delete=True, repeat=KEY, reply=b"hello")
    assert await store.drafts("agent") == [], "it is still a draft"
    assert await store.task("a") is None, "it became a task"
    assert await store.notes(row.number) == [], "its notes are still there"
    assert await store.records(row.number, 0, ALL) == [], "it has a journal"
    assert await store.reply(KEY.key, NOW) == b"hello", "the reply is not kept"
    assert await store.reply(KEY.key, NOW + 1000) is None, "the reply outlived its mark"
    assert store.next_number() > row.number, "its number is given again"


@contract.check
async def a_draft_without_a_mark_is_answered_too(store: Store) -> None:
    """Nobody can ask for it again."""
    row = row_of(store, "a")
    await write(store, row, draft=True, snapshot=b"task")
    await write(store, row, draft=True, delete=True)
    assert await store.drafts("agent") == [], "it is still a draft"


@contract.check
async def a_webhook_waits_with_its_draft(store: Store) -> None:
    """It is owed nothing before there is a task; it is there with the task, and gone with the draft."""
    opened, answered = row_of(store, "a"), row_of(store, "b")
    for row in (opened, answered):
        hook = Push(row.number, "hook", "1.0", "https://example.com/", b"sealed", 1, NOW)
        await write(store, row, draft=True, snapshot=b"task", pushes=(hook,))
    assert await store.owed() == [], "a draft owes something"
    await write(store, answered, draft=True, delete=True)
    row = await create(store, opened, opens=True)
    owed = [(push.id, owner.id) for push, owner in await store.owed()]
    assert owed == [("hook", "a")], f"owed are {owed}"
    assert [push.id for push in await store.pushes(row.number)] == ["hook"], "the task has lost its webhook"
    assert await store.pushes(answered.number) == [], "the webhook of an answered draft is still there"


@durable.opening
async def a_draft_survives(open_store: OpenStore) -> None:
    """What becomes of it is decided after the restart; a reply that was kept is still there."""
    async with open_store() as store:
        open_row, answered = row_of(store, "a"), row_of(store, "b")
        await _plan(store, open_row)
        await write(store, answered, draft=True, snapshot=b"task")
        await write(store, answered, draft=True, delete=True, repeat=Repeat(b"b", NOW + 1000), reply=b"hello")
    async with open_store() as store:
        assert [stored.row for stored in await store.drafts("agent")] == [open_row], "the draft is lost"
        assert await store.reply(b"b", NOW) == b"hello", "the reply is lost"
        assert store.next_number() > answered.number, "a number is given again"
