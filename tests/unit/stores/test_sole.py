"""What a store with a single writer says at once about dedupe keys."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from dragoman.engine.ports.ownership import MessageRepeated
from dragoman.engine.ports.sole import SoleOwner
from dragoman.engine.ports.store import ACCEPTED, DedupeKey, Note, Scope, TaskRow, Verdict, Write
from dragoman.model.error import ServerError
from dragoman.model.record import Record
from dragoman.model.state import State
from dragoman.stores import sole as module
from dragoman.stores.memory import MemoryStore

SCOPE = Scope("agent", "tenant", "owner")
NOW, WINDOW = 1_700_000_000_000, 600_000


class CountingStore(MemoryStore):
    """A memory store that counts how often a dedupe key is read, and refuses changes while it is full."""

    reads = 0
    full = False

    async def read_duplicate(self, key: bytes, now_ms: int) -> str | None:
        self.reads += 1
        return await super().read_duplicate(key, now_ms)

    def queue(self, write: Write) -> None:
        if self.full:
            asyncio.get_running_loop().call_soon(self.report, write, OSError("no space left on device"))
        else:
            super().queue(write)

    def load(self, digest: bytes) -> None:
        """Know a key as a process does that has started."""
        self._keys.load(digest)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def new_key(at_ms: int = NOW) -> DedupeKey:
    return DedupeKey(uuid4().bytes * 2, at_ms + WINDOW, at_ms)


def begin(store: CountingStore, task_id: str, key: DedupeKey) -> tuple[Verdict | None, list[BaseException | None]]:
    """Write a new task. Gives what the store says at once, and a list that gets the outcome."""
    outcome: list[BaseException | None] = []
    row = TaskRow(store.next_number(), task_id, SCOPE, "context", "1.0", State.SUBMITTED, NOW, 1, NOW)
    return store.write(Write(row, outcome.append, create=True, records=(Record(1, b"{}"),), dedupe_key=key)), outcome


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_second_of_two_tasks_with_one_key_is_a_duplicate_at_once(store: CountingStore) -> None:
    key = new_key()
    assert begin(store, "first", key)[0] is ACCEPTED
    verdict, outcome = begin(store, "second", key)
    assert verdict == Verdict("first")
    await turns()
    assert outcome == []
    assert await store.task("second") is None
    assert await store.duplicate_of(key.digest, NOW) == "first"
    assert store.reads == 0


async def test_a_refused_task_leaves_its_key_to_others(store: CountingStore) -> None:
    key, store.full = new_key(), True
    assert begin(store, "first", key)[0] is ACCEPTED
    assert begin(store, "second", key)[0] == Verdict("first")
    await turns()
    store.full = False
    assert await store.duplicate_of(key.digest, NOW) is None
    assert begin(store, "third", key)[0] is ACCEPTED


async def test_a_key_that_has_expired_is_new(store: CountingStore) -> None:
    key = new_key()
    begin(store, "old", key)
    again = DedupeKey(key.digest, NOW + 2 * WINDOW, NOW + WINDOW)
    assert await store.duplicate_of(key.digest, NOW + WINDOW) is None
    assert begin(store, "new", again)[0] is ACCEPTED
    assert await store.duplicate_of(key.digest, NOW + 2 * WINDOW - 1) == "new"


async def test_a_new_key_costs_no_read(store: CountingStore) -> None:
    begin(store, "task", new_key())
    assert await store.duplicate_of(new_key().digest, NOW) is None
    assert store.reads == 0


async def test_the_commit_decides_about_a_key_of_an_earlier_process(store: CountingStore) -> None:
    key = new_key()
    begin(store, "first", key)
    await turns()
    store._keys = module.DedupeKeys()  # as after a start
    store.load(key.digest)
    verdict, outcome = begin(store, "second", key)
    assert verdict is None
    await turns()
    assert [type(error) for error in outcome] == [MessageRepeated]
    assert await store.duplicate_of(key.digest, NOW) == "first"


async def test_the_key_of_a_task_that_was_deleted_is_new(store: CountingStore) -> None:
    key = new_key()
    begin(store, "task", key)
    stored = await store.task("task")
    assert stored is not None
    await turns()
    store.write(Write(stored.row, lambda _: None, delete=True))
    assert await store.duplicate_of(key.digest, NOW) is None


# More keys than memory holds.


@pytest.fixture
async def crowd(monkeypatch: pytest.MonkeyPatch, store: CountingStore) -> list[DedupeKey]:
    """Five keys a second apart, two more than are remembered."""
    monkeypatch.setattr(module, "MAX_RECENT_KEYS", 3)
    keys = [new_key(NOW + 1000 * place) for place in range(5)]
    for place, key in enumerate(keys):
        begin(store, f"task{place}", key)
        await turns()
    return keys


async def test_a_key_that_memory_has_no_room_for_is_found_in_the_store(
    store: CountingStore, crowd: list[DedupeKey]
) -> None:
    for place, key in enumerate(crowd):
        assert await store.duplicate_of(key.digest, NOW + 5000) == f"task{place}"
    assert store.reads == 2


async def test_expired_keys_cost_other_messages_no_read(store: CountingStore, crowd: list[DedupeKey]) -> None:
    assert await store.duplicate_of(new_key().digest, NOW + 5000) is None
    for window in range(1, 4):
        begin(store, f"later{window}", new_key(NOW + 5000 + window * WINDOW))
    assert await store.duplicate_of(crowd[0].digest, NOW + 6000 + 3 * WINDOW) is None
    assert await store.duplicate_of(crowd[-1].digest, NOW + 6000 + 3 * WINDOW) is None
    assert store.reads == 0


async def test_a_message_that_could_not_be_posted_leaves_its_key_to_others(store: CountingStore) -> None:
    key = new_key()
    begin(store, "task", new_key())
    stored = await store.task("task")
    assert stored is not None
    store.full = True
    with pytest.raises(ServerError, match="cannot take writes"):
        await store.post(stored.row, b"m", key)
    store.full = False
    assert await store.duplicate_of(key.digest, NOW) is None
    assert await store.post(stored.row, b"m", key) == 1


async def test_the_key_of_a_posted_message_is_found_without_a_read(store: CountingStore) -> None:
    key = new_key()
    begin(store, "task", new_key())
    stored = await store.task("task")
    assert stored is not None
    await store.post(stored.row, b"m", key)
    with pytest.raises(MessageRepeated):
        await store.post(stored.row, b"m", key)
    assert begin(store, "other", key)[0] == Verdict("task")
    assert store.reads == 0


async def test_whoever_waits_no_longer_for_a_posted_message_disturbs_nothing(store: CountingStore) -> None:
    begin(store, "task", new_key())
    stored = await store.task("task")
    assert stored is not None
    posting = asyncio.create_task(store.post(stored.row, b"m", new_key()))
    await asyncio.sleep(0)
    posting.cancel()
    await turns()
    assert await store.mail(stored.row.number, 0) == [(1, b"m")]
    assert await store.post(stored.row, b"n", new_key()) == 2


async def test_the_owner_of_all_tasks_posts_through_its_store(store: CountingStore) -> None:
    begin(store, "task", new_key())
    stored = await store.task("task")
    assert stored is not None
    owner = SoleOwner(store)
    assert await owner.post(stored.row, b"m") is True
    assert await owner.post(stored.row, b"n", generation=7) is False
    assert await owner.mail(stored.row.number, 0) == [(1, b"m")]


async def test_a_key_whose_first_change_was_refused_belongs_to_the_task_that_was_stored(
    store: CountingStore,
) -> None:
    """The draft is refused, and what answers it is not."""
    key = new_key()
    row = TaskRow(store.next_number(), "task", SCOPE, "context", "1.0", State.SUBMITTED, NOW, 1, NOW)
    store.full = True
    store.write(Write(row, lambda _: None, draft=True, snapshot=b"{}", dedupe_key=key))
    store.full = False
    store.write(Write(row, lambda _: None, draft=True, delete=True, dedupe_key=key, reply=b"hello"))
    await turns()
    assert begin(store, "other", key)[0] == Verdict("task")
    assert await store.reply(key.digest, NOW) == b"hello"


async def test_a_key_that_only_the_store_has_is_refused_once_and_then_a_repeat(store: CountingStore) -> None:
    key = new_key()
    begin(store, "first", key)
    await turns()
    store._keys = module.DedupeKeys()
    verdict, outcome = begin(store, "second", key)
    await turns()
    assert (verdict, [type(error) for error in outcome]) == (ACCEPTED, [MessageRepeated])
    assert begin(store, "third", key)[0] is None
    await turns()
    assert await store.duplicate_of(key.digest, NOW) == "first"


async def test_a_change_of_a_task_that_is_there_gets_its_outcome_though_its_key_is_taken(store: CountingStore) -> None:
    key = new_key()
    begin(store, "first", key)
    begin(store, "second", new_key())
    await turns()
    stored = await store.task("second")
    assert stored is not None
    outcome: list[BaseException | None] = []
    note = Note(1, "message", b"m")
    assert store.write(Write(stored.row, outcome.append, notes=(note,), dedupe_key=key)) is ACCEPTED
    await turns()
    assert [type(error) for error in outcome] == [MessageRepeated]


async def test_deleting_an_old_task_leaves_the_key_to_the_newer_one(store: CountingStore) -> None:
    key = new_key()
    begin(store, "old", key)
    begin(store, "new", DedupeKey(key.digest, NOW + 2 * WINDOW, NOW + WINDOW))
    await turns()
    stored = await store.task("old")
    assert stored is not None
    store.write(Write(stored.row, lambda _: None, delete=True))
    await turns()
    assert await store.duplicate_of(key.digest, NOW + WINDOW) == "new"


async def test_a_draft_that_is_refused_with_all_that_follows_leaves_its_key_to_the_other_task(
    store: CountingStore,
) -> None:
    key = new_key()
    begin(store, "first", key)
    await turns()
    store._keys = module.DedupeKeys()
    store.load(key.digest)
    row = TaskRow(store.next_number(), "second", SCOPE, "context", "1.0", State.SUBMITTED, NOW, 1, NOW)
    errors: list[BaseException | None] = []
    store.write(Write(row, errors.append, draft=True, snapshot=b"{}", dedupe_key=key))
    store.write(Write(row, errors.append, create=True, opens_draft=True, records=(Record(1, b"{}"),), dedupe_key=key))
    await turns()
    assert [type(error) for error in errors] == [MessageRepeated] * 2
    assert await store.duplicate_of(key.digest, NOW) == "first"
