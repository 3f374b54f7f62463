"""Knowing a message again."""

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
    """A memory store that counts how often it was asked for a mark."""

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
def repeats(store: CountingStore, clock: Clock) -> Deduplicator:
    return Deduplicator(store, clock, WINDOW)


def said(text: str = "hello", *, message_id: str | None = None, task_id: str | None = None) -> Message:
    return Message(message_id or str(uuid4()), Role.USER, (Part(text=text),), task_id=task_id)


def marked(repeats: Deduplicator, message: Message | None = None, scope: Scope = SCOPE) -> DedupeKey:
    repeat = repeats.key_of(scope, message or said())
    assert repeat is not None
    return repeat


def keep(store: MemoryStore, clock: Clock, repeat: DedupeKey, task_id: str) -> None:
    """Write a task with its mark, as the engine does when it accepts a message."""
    now = clock.now()
    row = TaskRow(store.next_number(), task_id, SCOPE, "context", "1.0", State.SUBMITTED, now, 1, now)
    store.write(Write(row, lambda error: None, create=True, records=(Record(1, b"{}"),), dedupe_key=repeat))


# What leaves a mark.


@pytest.mark.parametrize(
    "message_id",
    ["m1", "", "1", "x" * 36, "6f1c9ad04a1b4ff39d1be5d3c1b0a7e2", "{6f1c9ad0-4a1b-4ff3-9d1b-e5d3c1b0a7e2}"],
)
def test_an_id_typed_by_hand_leaves_no_mark(repeats: Deduplicator, message_id: str) -> None:
    assert repeats.key_of(SCOPE, structs.replace(said(), message_id=message_id)) is None


def test_a_window_of_zero_turns_marks_off(store: CountingStore, clock: Clock) -> None:
    assert Deduplicator(store, clock, 0).key_of(SCOPE, said()) is None


def test_a_mark_is_good_for_the_window(repeats: Deduplicator, clock: Clock) -> None:
    assert marked(repeats).expires_ms == clock.now() + WINDOW * 1000


def test_the_same_message_leaves_the_same_mark_whatever_the_case_of_its_id(repeats: Deduplicator, clock: Clock) -> None:
    message = said()
    first = marked(repeats, message)
    clock.move(1)
    again = marked(repeats, structs.replace(message, message_id=message.message_id.upper()))
    assert again.digest == first.digest
    assert again.expires_ms > first.expires_ms


def test_any_difference_that_counts_leaves_another_mark(repeats: Deduplicator) -> None:
    message = said()
    keys = {
        marked(repeats, message).digest,
        marked(repeats, structs.replace(message, parts=(Part(text="other"),))).digest,
        marked(repeats, structs.replace(message, message_id=str(uuid4()))).digest,
        marked(repeats, structs.replace(message, task_id="task")).digest,
        marked(repeats, message, Scope("other", "tenant", "owner")).digest,
        marked(repeats, message, Scope("agent", "other", "owner")).digest,
        marked(repeats, message, Scope("agent", "tenant", "other")).digest,
    }
    assert len(keys) == 7


def test_metadata_and_context_make_no_difference(repeats: Deduplicator) -> None:
    message = said()
    other = structs.replace(message, context_id="context", metadata={"try": 2})
    assert marked(repeats, other).digest == marked(repeats, message).digest


# Finding it again.


async def test_a_message_is_known_again_within_the_window_and_not_after(repeats: Deduplicator, clock: Clock) -> None:
    repeat = marked(repeats)
    assert await repeats.find(repeat) is None
    repeats.add(repeat, "task")
    clock.move(WINDOW - 0.001)
    assert await repeats.find(repeat) == "task"
    clock.move(0.001)
    assert await repeats.find(repeat) is None


async def test_a_message_that_comes_again_after_the_window_is_known_by_its_new_task(
    repeats: Deduplicator, clock: Clock
) -> None:
    message = said()
    repeats.add(marked(repeats, message), "old")
    clock.move(WINDOW)
    repeats.add(marked(repeats, message), "new")
    clock.move(WINDOW - 1)
    assert await repeats.find(marked(repeats, message)) == "new"


async def test_what_is_at_hand_is_found_without_the_store(repeats: Deduplicator, store: CountingStore) -> None:
    repeat = marked(repeats)
    repeats.add(repeat, "task")
    assert await repeats.find(repeat) == "task"
    assert store.asked == 0


async def test_after_a_restart_the_store_knows_the_message(store: CountingStore, clock: Clock) -> None:
    message = said()
    keep(store, clock, marked(Deduplicator(store, clock, WINDOW), message), "task")
    clock.move(60)
    restarted = Deduplicator(store, clock, WINDOW)
    await restarted.load()
    assert await restarted.find(marked(restarted, message)) == "task"
    clock.move(WINDOW - 60)
    assert await restarted.find(marked(restarted, message)) is None


async def test_a_new_message_costs_no_read(repeats: Deduplicator, store: CountingStore, clock: Clock) -> None:
    keep(store, clock, marked(repeats), "task")
    await repeats.load()
    assert await repeats.find(marked(repeats)) is None
    assert store.asked == 0


# More marks than memory holds.


@pytest.fixture
async def crowd(
    monkeypatch: pytest.MonkeyPatch, repeats: Deduplicator, store: CountingStore, clock: Clock
) -> list[tuple[Message, str]]:
    """Five messages a second apart, two more than are remembered, long after the start."""
    monkeypatch.setattr(module, "MAX_RECENT_KEYS", 3)
    clock.move(WINDOW * 2)
    messages: list[tuple[Message, str]] = []
    for place in range(5):
        clock.move(1)
        message = said(str(place))
        repeat = marked(repeats, message)
        keep(store, clock, repeat, f"task{place}")
        repeats.add(repeat, f"task{place}")
        messages.append((message, f"task{place}"))
    return messages


async def test_what_memory_had_to_forget_is_found_in_the_store(
    repeats: Deduplicator, store: CountingStore, crowd: list[tuple[Message, str]]
) -> None:
    for message, task_id in crowd:
        assert await repeats.find(marked(repeats, message)) == task_id
    assert store.asked == 2


async def test_what_was_forgotten_sends_nobody_else_to_the_store(
    repeats: Deduplicator, store: CountingStore, clock: Clock, crowd: list[tuple[Message, str]]
) -> None:
    assert await repeats.find(marked(repeats)) is None
    assert store.asked == 0
    for _ in range(3):
        clock.move(WINDOW)
        repeats.add(marked(repeats), "later")
    assert await repeats.find(marked(repeats, crowd[0][0])) is None
    assert store.asked == 0


async def test_expired_marks_make_room_without_sending_anybody_to_the_store(
    repeats: Deduplicator, store: CountingStore, clock: Clock, crowd: list[tuple[Message, str]]
) -> None:
    clock.move(WINDOW)
    repeats.add(marked(repeats), "fresh")
    assert await repeats.find(marked(repeats)) is None
    assert await repeats.find(marked(repeats, crowd[-1][0])) is None
    assert store.asked == 0
