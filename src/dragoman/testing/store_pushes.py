"""The store contract for webhooks: undelivered ones are found, deleted ones are not."""

from __future__ import annotations

from msgspec import structs

from dragoman.dialects.table import V0_3
from dragoman.engine.ports.store import WOKEN, Push, PushState, Store, TaskRow
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.testing.store_writes import NOW, Contract, create, row_of, write

contract = Contract()


def push_of(row: TaskRow, push_id: str, *, created_ms: int = NOW, cursor: int = 1) -> Push:
    """A webhook of a task."""
    return Push(row.number, push_id, V0_3, f"https://hooks/{push_id}", b"\x00sealed\xff", cursor, created_ms)


@contract.check
async def a_webhook_is_kept_with_its_task_in_one_write(store: Store) -> None:
    """A webhook in the write that creates a task is stored when the task is."""
    row = row_of(store, "t1")
    push = push_of(row, "p1")
    await create(store, row, pushes=(push,))
    assert await store.pushes(row.number) == [push]
    assert await store.undelivered_pushes() == [(push, row)]
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
    await write(store, row, deleted_pushes=("p1", "never there"))
    assert await store.pushes(row.number) == [push_of(row, "p2")]
    assert await store.pushes(other.number) == [push_of(other, "p1")]


@contract.check
async def progress_reaches_only_the_webhook_it_is_about(store: Store) -> None:
    """Progress of a removed webhook does not restore it, and does not change one that replaced it."""
    row = await create(store, row_of(store, "t1"))
    push = push_of(row, "p1")
    await write(store, row, pushes=(push,))
    # The task moves on meanwhile: the writer of progress need not know.
    moved = structs.replace(row, generation=2, state=State.WORKING)
    await write(store, moved, records=(Record(2, b"{}"),), previous_state=State.SUBMITTED)
    further = structs.replace(push, cursor=2, tries=3, failing_ms=NOW, due_ms=NOW + 9, error="HTTP 500")
    await write(store, row, push_progress=(further,))
    assert await store.pushes(row.number) == [further]
    stored = await store.task("t1")
    assert stored is not None
    assert stored.row == moved
    await write(store, row, pushes=(push_of(row, "p1", created_ms=NOW + 1),))
    await write(store, row, push_progress=(structs.replace(further, cursor=9),))
    assert await store.pushes(row.number) == [push_of(row, "p1", created_ms=NOW + 1)]
    await write(store, row, deleted_pushes=("p1",))
    await write(store, row, push_progress=(further,))
    assert await store.pushes(row.number) == []


@contract.check
async def undelivered_are_open_and_dead_webhooks(store: Store) -> None:
    """They are returned oldest first, without those that have got everything."""
    rows = [await create(store, row_of(store, f"t{number}")) for number in range(3)]
    states = (PushState.OPEN, PushState.DONE, PushState.DEAD)
    for row, state in zip(rows, states, strict=True):
        await write(store, row, pushes=(structs.replace(push_of(row, "p"), state=state),))
    undelivered = await store.undelivered_pushes()
    assert [(push.state, row.id) for push, row in undelivered] == [(PushState.OPEN, "t0"), (PushState.DEAD, "t2")]
    assert await store.undelivered_pushes(woken=True) == []
    await write(store, rows[2], push_progress=(structs.replace(undelivered[1][0], state=PushState.OPEN, due_ms=WOKEN),))
    assert [row.id for _, row in await store.undelivered_pushes(woken=True)] == ["t2"]


@contract.check
async def a_deleted_task_owes_nothing(store: Store) -> None:
    """Its webhooks go with it."""
    row = await create(store, row_of(store, "t1"), pushes=())
    await write(store, row, pushes=(push_of(row, "p1"),))
    await write(store, row, delete=True)
    assert await store.undelivered_pushes() == []
    assert await store.pushes(row.number) == []


@contract.check
async def a_webhook_that_is_dead_or_fails_can_be_woken(store: Store) -> None:
    """One that is done, or that does not fail, is left alone, and so are all others of the task."""
    row = await create(store, row_of(store, "t1"))
    dead = structs.replace(push_of(row, "dead"), state=PushState.DEAD, tries=9, failing_ms=NOW, error="HTTP 410")
    failing = structs.replace(push_of(row, "failing"), tries=2, failing_ms=NOW, due_ms=NOW + 9000, error="HTTP 500")
    done, fine = structs.replace(push_of(row, "done"), state=PushState.DONE), push_of(row, "fine")
    await write(store, row, pushes=(dead, failing, done, fine))
    for push_id, woken in (("dead", 1), ("failing", 1), ("done", 0), ("fine", 0), ("never there", 0)):
        assert await store.wake_pushes("t1", push_id) == woken, push_id
    assert await store.wake_pushes("never there", "dead") == 0
    stored = {push.id: (push.state, push.tries, push.due_ms) for push in await store.pushes(row.number)}
    open_ = PushState.OPEN
    assert stored["dead"] == stored["failing"] == (open_, 0, WOKEN)
    assert (stored["done"], stored["fine"]) == ((PushState.DONE, 0, 0), (open_, 0, 0))
    assert sorted(push.id for push, _ in await store.undelivered_pushes(woken=True)) == ["dead", "failing"]
