"""The store contract for posted messages: a store with one writer adds them to tasks that somebody else works on.

Where several processes share a store, posting is part of its `Ownership`: these checks pass such a store by.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from dragoman.engine.ports.ownership import MessageRepeated
from dragoman.engine.ports.store import DedupeKey, Note, Scope, ScopeFilter, Sweep, TaskQuery, TaskSearch
from dragoman.model.state import State
from dragoman.testing.store_writes import NOW, SCOPE, Contract, append, create, outcome, read_task, row_of, write

if TYPE_CHECKING:
    from dragoman.engine.ports.sole import MailStore
    from dragoman.engine.ports.store import Store, StoredTask, TaskRow
    from dragoman.testing.store_writes import OpenStore

contract, durable = Contract(), Contract()
KEY = DedupeKey(b"posted", NOW + 1000, NOW)
ENDED = (State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED)


def _is_shared(store: Store) -> bool:
    return hasattr(store, "ownership")


async def _post(store: Store, row: TaskRow, body: bytes, **parts: Any) -> int:
    return await cast("MailStore", store).post(row, body, **parts)


async def _mail(store: Store, row: TaskRow, after: int = 0) -> list[tuple[int, bytes]]:
    return await cast("MailStore", store).mail(row.number, after)


async def _is_repeated(store: Store, row: TaskRow, body: bytes, key: DedupeKey) -> bool:
    try:
        await _post(store, row, body, dedupe_key=key)
    except MessageRepeated:
        return True
    return False


async def _views(store: Store, task_id: str) -> list[StoredTask]:
    """The task `task_id` as each query of the store reads it."""
    page = await store.page(TaskQuery(SCOPE))
    found = await store.search(TaskSearch(ScopeFilter()))
    lists = (page.tasks, found.tasks, await store.unfinished("agent"))
    return [await read_task(store, task_id), *(each for tasks in lists for each in tasks if each.row.id == task_id)]


@contract.check
async def a_posted_message_gets_the_next_number_of_its_task(store: Store) -> None:
    """From 1 for each task, in a submitted, a working and an auth-required one."""
    if _is_shared(store):
        return
    for state in (State.SUBMITTED, State.WORKING, State.AUTH_REQUIRED):
        row = await create(store, row_of(store, state.name, state=state))
        numbers = [await _post(store, row, b"m") for _ in range(3)]
        assert numbers == [1, 2, 3], f"messages for a task that is {state.name} have the numbers {numbers}"
        stored = await read_task(store, state.name)
        assert stored.row == row, "a posted message changed the row of its task"


@contract.check
async def messages_that_are_posted_at_once_get_one_number_each(store: Store) -> None:
    """No number is given twice, and none is left out."""
    if _is_shared(store):
        return
    rows = [await create(store, row_of(store, name)) for name in "ab"]
    numbers = await asyncio.gather(*(_post(store, row, b"%d" % place) for place in range(20) for row in rows))
    for row in rows:
        mail = await _mail(store, row)
        assert [number for number, _ in mail] == list(range(1, 21)), f"the messages of {row.id} are {mail}"
    assert sorted(numbers) == sorted([*range(1, 21)] * 2), f"callers got the numbers {numbers}"


@contract.check
async def a_message_for_a_task_that_takes_none_is_refused(store: Store) -> None:
    """One that has ended, one that waits for an answer, a draft, and one that is not there or is deleted."""
    if _is_shared(store):
        return
    for state in (*ENDED, State.INPUT_REQUIRED):
        row = await create(store, row_of(store, state.name, state=state))
        number = await _post(store, row, b"m", dedupe_key=KEY)
        assert number == 0, f"a task that is {state.name} took a message"
        assert await store.notes(row.number) == [], "a refused message left a note"
        assert (await read_task(store, state.name)).mail == 0, "a refused message took a number"
    draft = await write(store, row_of(store, "draft"), draft=True, snapshot=b"{}")
    deleted = await create(store, row_of(store, "deleted"))
    await write(store, deleted, delete=True)
    for row in (draft, deleted, row_of(store, "missing")):
        assert await _post(store, row, b"m", dedupe_key=KEY) == 0, f"a message for the {row.id} task was taken"
        assert await store.notes(row.number) == [], f"a refused message left a note of the {row.id} task"
    assert await store.duplicate_of(KEY.digest, NOW) is None, "a refused message left its dedupe key"
    row = await create(store, row_of(store, "a"))
    assert await _post(store, row, b"m", dedupe_key=KEY) == 1, "the dedupe key of a refused message is not free"


@contract.check
async def a_message_for_another_generation_is_refused(store: Store) -> None:
    """The generation that counts is the stored one, not that of the caller's row."""
    if _is_shared(store):
        return
    first = await create(store, row_of(store, "a"))
    row = await append(store, first)
    assert await _post(store, row, b"early", generation=1) == 0, "a message for an earlier generation was taken"
    assert await _post(store, row, b"late", generation=3) == 0, "a message for a later generation was taken"
    assert await _post(store, first, b"right", generation=2) == 1, "a message for the stored generation was refused"
    assert await _post(store, first, b"any") == 2, "a message for any generation was refused"
    generations = [note.generation for note in await store.notes(row.number)]
    assert generations == [2, 2], f"the messages belong to the generations {generations}"


@contract.check
async def a_message_is_posted_after_the_changes_that_were_queued_before(store: Store) -> None:
    """And before the later ones, also when all of them are committed together."""
    if _is_shared(store):
        return
    row = row_of(store, "a")
    second, ended = structs.replace(row, generation=2), structs.replace(row, generation=3, state=State.COMPLETED)
    created, early, appended, middle, end, late = await asyncio.gather(
        create(store, row),
        _post(store, row, b"early", generation=1),
        append(store, row),
        _post(store, row, b"middle", generation=2),
        append(store, structs.replace(second, state=State.COMPLETED), previous_state=State.SUBMITTED),
        _post(store, row, b"late"),
    )
    assert (created, appended, end) == (row, second, ended), "the other changes are not as they were queued"
    assert (early, middle, late) == (1, 2, 0), f"the messages have the numbers {early}, {middle} and {late}"
    notes = await store.notes(row.number)
    assert notes == [Note(1, "message", b"early", 1), Note(2, "message", b"middle", 2)], f"the notes are {notes}"
    other = await create(store, row_of(store, "b"))
    _, late = await asyncio.gather(write(store, other, delete=True), _post(store, other, b"late"))
    assert late == 0, "a message was posted to a task that was being deleted"


@contract.check
async def a_posted_message_takes_its_dedupe_key_once(store: Store) -> None:
    """It is taken for all tasks, this one too, until it expires; and so is the key of another kind of message."""
    if _is_shared(store):
        return
    a = await create(store, row_of(store, "a"), dedupe_key=DedupeKey(b"created", NOW + 1000))
    b = await create(store, row_of(store, "b"))
    assert await _post(store, a, b"one", dedupe_key=KEY) == 1, "a message with a new dedupe key was refused"
    assert await store.duplicate_of(KEY.digest, NOW) == "a", "its dedupe key does not lead to the task"
    for row in (a, b):
        assert await _is_repeated(store, row, b"again", KEY), "the same message was taken again"
        key = DedupeKey(b"created", NOW + 1000)
        assert await _is_repeated(store, row, b"again", key), "the message that created the task was taken again"
    assert await _mail(store, b) == [], "the repeated message is there"
    assert await _mail(store, a) == [(1, b"one")], "the repeated message is there"
    later = DedupeKey(KEY.digest, NOW + 3000, NOW + 1000)
    assert await _post(store, b, b"later", dedupe_key=later) == 1, "an expired dedupe key is still taken"
    assert await store.duplicate_of(KEY.digest, NOW + 2000) == "b", "a key posted again does not lead to the newer task"


@contract.check
async def of_equal_messages_at_once_one_is_posted(store: Store) -> None:
    """The others are repeated, and the changes that are committed with them are not harmed."""
    if _is_shared(store):
        return
    row = await create(store, row_of(store, "a"))
    repeated = await asyncio.gather(
        *(_is_repeated(store, row, b"m", KEY) for _ in range(5)),
        _is_repeated(store, row, b"another", DedupeKey(b"another", NOW + 1000, NOW)),
    )
    assert sorted(repeated) == [False, False, True, True, True, True], f"of these, some were repeated: {repeated}"
    mail = sorted(body for _, body in await _mail(store, row))
    assert mail == [b"another", b"m"], f"posted are {mail}"


@contract.check
async def a_key_that_a_refused_message_had_for_a_moment_is_free(store: Store) -> None:
    """Whoever sends the same message meanwhile to a task that takes it is not a repeat."""
    if _is_shared(store):
        return
    ended = await create(store, row_of(store, "ended", state=State.COMPLETED))
    row = await create(store, row_of(store, "a"))
    numbers = await asyncio.gather(*(_post(store, each, b"m", dedupe_key=KEY) for each in (ended, row)))
    assert numbers == [0, 1], f"the messages have the numbers {numbers}"


@contract.check
async def mail_is_what_was_posted_after_a_number(store: Store) -> None:
    """Other notes are not among it, nor is what was posted to other tasks."""
    if _is_shared(store):
        return
    row = await create(store, row_of(store, "a"), notes=(Note(1, "request", b"r"),))
    other = await create(store, row_of(store, "b"))
    for body in (b"one", b"two", b"three"):
        await _post(store, row, body)
        await _post(store, other, b"other")
        await write(store, row, notes=(Note(1, "message", b"not posted"),))
    assert await _mail(store, row) == [(1, b"one"), (2, b"two"), (3, b"three")], "the mail is not as it was posted"
    assert await _mail(store, row, 1) == [(2, b"two"), (3, b"three")], "the mail after 1 begins elsewhere"
    assert await _mail(store, row, 3) == [], "there is mail after the last message"
    assert await _mail(store, row_of(store, "missing")) == [], "a task that is not there has mail"


@contract.check
async def notes_have_the_numbers_of_what_was_posted(store: Store) -> None:
    """In the order in which they were written; all other notes have the number 0."""
    if _is_shared(store):
        return
    row = await create(store, row_of(store, "a"), notes=(Note(1, "request", b"r"),))
    await _post(store, row, b"one")
    await write(store, row, notes=(Note(1, "message", b"m"),))
    row = await append(store, row, notes=(Note(2, "once", b"o"),))
    await _post(store, row, b"two")
    expected = [
        Note(1, "request", b"r"),
        Note(1, "message", b"one", 1),
        Note(1, "message", b"m"),
        Note(2, "once", b"o"),
        Note(2, "message", b"two", 2),
    ]
    notes = await store.notes(row.number)
    assert notes == expected, f"the notes are {notes}"


@contract.check
async def every_read_of_a_task_has_its_mail_numbers(store: Store) -> None:
    """How many messages were posted to it, and how many of them its snapshot contains."""
    if _is_shared(store):
        return
    row = await create(store, row_of(store, "a"))
    await create(store, row_of(store, "b", scope=Scope("agent", "tenant", "somebody else")))
    for _ in range(3):
        await _post(store, row, b"m")
    row = await append(store, row, snapshot=b"two", mail=2)
    await _post(store, row, b"m")
    views = await _views(store, "a")
    assert len(views) == 4, f"the task is found {len(views)} times"
    for stored in views:
        numbers = (stored.mail, stored.snapshot_mail, stored.snapshot_generation)
        assert numbers == (4, 2, 2), f"mail, snapshot mail and snapshot generation are {numbers}"
    row = await append(store, row)
    stored = await read_task(store, "a")
    assert (stored.mail, stored.snapshot_mail) == (4, 2), "a record without a snapshot changed the mail numbers"
    await append(store, row, snapshot=b"four", mail=4)
    stored = await read_task(store, "a")
    assert (stored.mail, stored.snapshot_mail) == (4, 4), "the newer snapshot has the number of the older one"
    (other,) = [each for each in await store.unfinished("agent") if each.row.id == "b"]
    assert (other.mail, other.snapshot_mail) == (0, 0), "a task without mail has some"


@contract.check
async def compaction_leaves_what_the_snapshot_does_not_contain(store: Store) -> None:
    """A message that was posted while the last snapshot was made is nowhere else."""
    if _is_shared(store):
        return
    row = await create(store, row_of(store, "a"), notes=(Note(1, "request", b"r"),))
    await _post(store, row, b"contained")
    await _post(store, row, b"too late")
    ended = structs.replace(row, state=State.COMPLETED, status_ms=NOW - 10)
    row = await append(store, ended, snapshot=b"s", mail=1, previous_state=State.SUBMITTED)
    for _ in range(20):
        if not await store.sweep(Sweep(compact_before_ms=NOW)):
            break
    assert await store.records(row.number, 0, 10) == [], "the task was not compacted"
    notes = await store.notes(row.number)
    assert notes == [Note(1, "message", b"too late", 2)], f"the notes after compaction are {notes}"


@durable.check_opening
async def posted_messages_are_there_after_reopening(open_store: OpenStore) -> None:
    """With their numbers, which go on growing, and their dedupe keys."""
    async with open_store() as store:
        if _is_shared(store):
            return
        row = await create(store, row_of(store, "a"))
        await _post(store, row, b"one", dedupe_key=KEY)
        row = await append(store, row, snapshot=b"s", mail=1)
        await _post(store, row, b"two")
    async with open_store() as store:
        stored = await read_task(store, "a")
        assert (stored.mail, stored.snapshot_mail) == (2, 1), f"the task is now {stored}"
        assert await _mail(store, row) == [(1, b"one"), (2, b"two")], "a message is lost"
        notes = await store.notes(row.number)
        assert notes == [Note(1, "message", b"one", 1), Note(2, "message", b"two", 2)], f"the notes are now {notes}"
        assert await store.duplicate_of(KEY.digest, NOW) == "a", "the dedupe key is lost"
        assert await _is_repeated(store, row, b"one", KEY), "a message was taken again after reopening"
        assert await _post(store, row, b"three") == 3, "the numbers begin anew"
        assert await outcome(store, row, notes=(Note(2, "once", b"o"),)) is None, "a note was refused"
