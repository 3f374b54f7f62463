"""The store contract for drafts: messages that may be answered without a task, and are not visible as tasks yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.dialects.table import V1_0
from dragoman.engine.ports.store import DedupeKey, Note, Push, TaskQuery
from dragoman.model.record import Record
from dragoman.testing.store_writes import ALL, NOW, SCOPE, Contract, append, create, outcome, read_task, row_of, write

if TYPE_CHECKING:
    from dragoman.engine.ports.store import Store, TaskRow
    from dragoman.testing.store_writes import OpenStore

contract, durable = Contract(), Contract()
KEY = DedupeKey(b"key", NOW + 1000)


async def _write_draft(store: Store, row: TaskRow) -> None:
    request = (Note(1, "request", b"r"),)
    await write(store, row, draft=True, snapshot=b"task " + row.id.encode(), notes=request, dedupe_key=KEY)


@contract.check
async def a_draft_is_found_by_its_agent_only(store: Store) -> None:
    """It is not a task: it is neither found by id nor listed nor counted. Its dedupe key leads to its id."""
    row = row_of(store, "a")
    await _write_draft(store, row)
    assert [stored[:3] for stored in await store.drafts("agent")] == [(row, b"task a", 1)], (
        "the draft is not as it was written"
    )
    assert await store.drafts("another") == [], "another agent has it"
    assert await store.task("a") is None, "the draft is found as a task"
    assert await store.unfinished("agent") == [], "the draft counts as a task at work"
    page = await store.page(TaskQuery(SCOPE))
    assert (list(page.tasks), page.total) == ([], 0), "the draft is listed or counted"
    assert await store.duplicate_of(KEY.digest, NOW) == "a", "its dedupe key is not found"
    assert await store.reply(KEY.digest, NOW) is None, "it is answered before it was"


@contract.check
async def a_draft_that_is_opened_is_a_task_with_its_notes(store: Store) -> None:
    """The task is created as any other, with what was noted before."""
    row = row_of(store, "a")
    await _write_draft(store, row)
    await write(store, row, notes=(Note(1, "begun", b"pay"),))
    row = await create(store, row, opens_draft=True, dedupe_key=KEY)
    row = await append(store, row)
    assert await store.drafts("agent") == [], "it is still a draft"
    assert (await read_task(store, "a")).row == row, "the task is not as it was written"
    kinds = [note.kind for note in await store.notes(row.number)]
    assert kinds == ["request", "begun"], f"its notes are {kinds}"
    assert (await store.page(TaskQuery(SCOPE))).total == 1, "it is not counted"
    assert await store.duplicate_of(KEY.digest, NOW) == "a", "its dedupe key is gone"


@contract.check
async def a_draft_has_no_records_before_it_is_opened(store: Store) -> None:
    """A record for a draft is refused like one that does not follow: the change that opens it was refused before."""
    row = row_of(store, "a")
    await _write_draft(store, row)
    late = structs.replace(row, generation=2)
    error = await outcome(store, late, records=(Record(2, b"{}"),))
    assert error is not None, "a record of a draft was accepted"
    assert [stored.row for stored in await store.drafts("agent")] == [row], "the draft has changed"


@contract.check
async def a_draft_that_is_answered_leaves_its_reply_for_repeats(store: Store) -> None:
    """The reply is kept for as long as the dedupe key; the draft is gone with its notes, and its number is used up."""
    row = row_of(store, "a")
    await _write_draft(store, row)
    await write(store, row, draft=True, delete=True, dedupe_key=KEY, reply=b"hello")
    assert await store.drafts("agent") == [], "it is still a draft"
    assert await store.task("a") is None, "it became a task"
    assert await store.notes(row.number) == [], "its notes are still there"
    assert await store.records(row.number, 0, ALL) == [], "it has a journal"
    assert await store.reply(KEY.digest, NOW) == b"hello", "the reply is not kept"
    assert await store.reply(KEY.digest, NOW + 1000) is None, "the reply outlived its dedupe key"
    assert store.next_number() > row.number, "its number is given again"


@contract.check
async def a_draft_without_a_dedupe_key_is_answered_too(store: Store) -> None:
    """No repeat can be recognized, so no reply is stored."""
    row = row_of(store, "a")
    await write(store, row, draft=True, snapshot=b"task")
    await write(store, row, draft=True, delete=True)
    assert await store.drafts("agent") == [], "it is still a draft"


@contract.check
async def a_webhook_waits_with_its_draft(store: Store) -> None:
    """It is not undelivered before there is a task. It is stored with the task, and deleted with the draft."""
    opened_row, answered_row = row_of(store, "a"), row_of(store, "b")
    for row in (opened_row, answered_row):
        hook = Push(row.number, "hook", V1_0, "https://example.com/", b"sealed", 1, NOW)
        await write(store, row, draft=True, snapshot=b"task", pushes=(hook,))
    assert await store.undelivered_pushes() == [], "a draft owes something"
    await write(store, answered_row, draft=True, delete=True)
    row = await create(store, opened_row, opens_draft=True)
    undelivered = [(push.id, owner.id) for push, owner in await store.undelivered_pushes()]
    assert undelivered == [("hook", "a")], f"owed are {undelivered}"
    assert [push.id for push in await store.pushes(row.number)] == ["hook"], "the task has lost its webhook"
    assert await store.pushes(answered_row.number) == [], "the webhook of an answered draft is still there"


@durable.check_opening
async def a_draft_survives(open_store: OpenStore) -> None:
    """Drafts and stored replies are there after a restart: only then it is decided what becomes of a draft."""
    async with open_store() as store:
        open_row, answered_row = row_of(store, "a"), row_of(store, "b")
        await _write_draft(store, open_row)
        await write(store, answered_row, draft=True, snapshot=b"task")
        await write(
            store, answered_row, draft=True, delete=True, dedupe_key=DedupeKey(b"b", NOW + 1000), reply=b"hello"
        )
    async with open_store() as store:
        assert [stored.row for stored in await store.drafts("agent")] == [open_row], "the draft is lost"
        assert await store.reply(b"b", NOW) == b"hello", "the reply is lost"
        assert store.next_number() > answered_row.number, "a number is given again"
