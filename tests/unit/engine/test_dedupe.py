"""Deduplication of messages."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec import structs

from dragoman.engine.accept import dedupe as module
from dragoman.engine.accept.dedupe import Deduplicator
from dragoman.engine.ports.store import DedupeKey, Scope, TaskRow, Write
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.stores.memory import MemoryStore
from dragoman.testing import Clock

SCOPE = Scope("agent", "tenant", "owner")
WINDOW = 600


class CountingStore(MemoryStore):
    """A memory store that counts how often it was asked for a dedupe key."""

    asked = 0

    async def duplicate_of(self, key: bytes, now_ms: int) -> str | None:
        self.asked += 1
        return await super().duplicate_of(key, now_ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def deduplicator(store: CountingStore, clock: Clock) -> Deduplicator:
    return Deduplicator(store, clock, WINDOW)


def new_message(text: str = "hello", *, message_id: str | None = None, task_id: str | None = None) -> Message:
    return Message(message_id or str(uuid4()), Role.USER, (Part(text=text),), task_id=task_id)


def key_of(deduplicator: Deduplicator, message: Message | None = None, scope: Scope = SCOPE) -> DedupeKey:
    repeat = deduplicator.key_of(scope, message or new_message())
    assert repeat is not None
    return repeat


def keep(store: MemoryStore, clock: Clock, repeat: DedupeKey, task_id: str) -> None:
    """Write a task with its dedupe key, as the engine does when it accepts a message."""
    now = clock.now()
    row = TaskRow(store.next_number(), task_id, SCOPE, "context", "1.0", State.SUBMITTED, now, 1, now)
    store.write(Write(row, lambda error: None, create=True, records=(Record(1, b"{}"),), dedupe_key=repeat))


# What has a dedupe key.


@pytest.mark.parametrize(
    "message_id",
    ["m1", "", "1", "x" * 36, "6f1c9ad04a1b4ff39d1be5d3c1b0a7e2", "{6f1c9ad0-4a1b-4ff3-9d1b-e5d3c1b0a7e2}"],
)
def test_an_id_typed_by_hand_leaves_no_mark(deduplicator: Deduplicator, message_id: str) -> None:
    assert deduplicator.key_of(SCOPE, structs.replace(new_message(), message_id=message_id)) is None


def test_the_same_message_leaves_the_same_mark_whatever_the_case_of_its_id(
    deduplicator: Deduplicator, clock: Clock
) -> None:
    message = new_message()
    first = key_of(deduplicator, message)
    clock.move(1)
    again = key_of(deduplicator, structs.replace(message, message_id=message.message_id.upper()))
    assert again.digest == first.digest
    assert again.expires_ms > first.expires_ms


def test_any_difference_that_counts_leaves_another_mark(deduplicator: Deduplicator) -> None:
    message = new_message()
    keys = {
        key_of(deduplicator, message).digest,
        key_of(deduplicator, structs.replace(message, parts=(Part(text="other"),))).digest,
        key_of(deduplicator, structs.replace(message, message_id=str(uuid4()))).digest,
        key_of(deduplicator, structs.replace(message, task_id="task")).digest,
        key_of(deduplicator, message, Scope("other", "tenant", "owner")).digest,
        key_of(deduplicator, message, Scope("agent", "other", "owner")).digest,
        key_of(deduplicator, message, Scope("agent", "tenant", "other")).digest,
    }
    assert len(keys) == 7


def test_metadata_and_context_make_no_difference(deduplicator: Deduplicator) -> None:
    message = new_message()
    other = structs.replace(message, context_id="context", metadata={"try": 2})
    assert key_of(deduplicator, other).digest == key_of(deduplicator, message).digest


# Finding it again.


async def test_a_message_that_comes_again_after_the_window_is_known_by_its_new_task(
    deduplicator: Deduplicator, clock: Clock
) -> None:
    message = new_message()
    deduplicator.add(key_of(deduplicator, message), "old")
    clock.move(WINDOW)
    deduplicator.add(key_of(deduplicator, message), "new")
    clock.move(WINDOW - 1)
    assert await deduplicator.find(key_of(deduplicator, message)) == "new"


async def test_what_is_at_hand_is_found_without_the_store(deduplicator: Deduplicator, store: CountingStore) -> None:
    repeat = key_of(deduplicator)
    deduplicator.add(repeat, "task")
    assert await deduplicator.find(repeat) == "task"
    assert store.asked == 0


async def test_a_new_message_costs_no_read(deduplicator: Deduplicator, store: CountingStore, clock: Clock) -> None:
    keep(store, clock, key_of(deduplicator), "task")
    await deduplicator.load()
    assert await deduplicator.find(key_of(deduplicator)) is None
    assert store.asked == 0


# More keys than memory holds.


@pytest.fixture
async def crowd(
    monkeypatch: pytest.MonkeyPatch, deduplicator: Deduplicator, store: CountingStore, clock: Clock
) -> list[tuple[Message, str]]:
    """Five messages a second apart, two more than are remembered, long after the start."""
    monkeypatch.setattr(module, "MAX_RECENT_KEYS", 3)
    clock.move(WINDOW * 2)
    messages: list[tuple[Message, str]] = []
    for place in range(5):
        clock.move(1)
        message = new_message(str(place))
        repeat = key_of(deduplicator, message)
        keep(store, clock, repeat, f"task{place}")
        deduplicator.add(repeat, f"task{place}")
        messages.append((message, f"task{place}"))
    return messages


async def test_what_memory_had_to_forget_is_found_in_the_store(
    deduplicator: Deduplicator, store: CountingStore, crowd: list[tuple[Message, str]]
) -> None:
    for message, task_id in crowd:
        assert await deduplicator.find(key_of(deduplicator, message)) == task_id
    assert store.asked == 2


async def test_what_was_forgotten_sends_nobody_else_to_the_store(
    deduplicator: Deduplicator, store: CountingStore, clock: Clock, crowd: list[tuple[Message, str]]
) -> None:
    assert await deduplicator.find(key_of(deduplicator)) is None
    assert store.asked == 0
    for _ in range(3):
        clock.move(WINDOW)
        deduplicator.add(key_of(deduplicator), "later")
    assert await deduplicator.find(key_of(deduplicator, crowd[0][0])) is None
    assert store.asked == 0


async def test_expired_marks_make_room_without_sending_anybody_to_the_store(
    deduplicator: Deduplicator, store: CountingStore, clock: Clock, crowd: list[tuple[Message, str]]
) -> None:
    clock.move(WINDOW)
    deduplicator.add(key_of(deduplicator), "fresh")
    assert await deduplicator.find(key_of(deduplicator)) is None
    assert await deduplicator.find(key_of(deduplicator, crowd[-1][0])) is None
    assert store.asked == 0
