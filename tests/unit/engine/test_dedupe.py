"""Which messages have a dedupe key."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec import structs

from dragoman.engine.accept.dedupe import DedupeWindow
from dragoman.engine.ports.store import DedupeKey, Scope
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.testing import Clock

SCOPE = Scope("agent", "tenant", "owner")
WINDOW = 600


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def window(clock: Clock) -> DedupeWindow:
    return DedupeWindow(clock, WINDOW)


def new_message(text: str = "hello", *, message_id: str | None = None, task_id: str | None = None) -> Message:
    return Message(message_id or str(uuid4()), Role.USER, (Part(text=text),), task_id=task_id)


def key_of(window: DedupeWindow, message: Message | None = None, scope: Scope = SCOPE) -> DedupeKey:
    key = window.key_of(scope, message or new_message())
    assert key is not None
    return key


@pytest.mark.parametrize(
    "message_id",
    ["m1", "", "1", "x" * 36, "6f1c9ad04a1b4ff39d1be5d3c1b0a7e2", "{6f1c9ad0-4a1b-4ff3-9d1b-e5d3c1b0a7e2}"],
)
def test_an_id_typed_by_hand_has_no_key(window: DedupeWindow, message_id: str) -> None:
    assert window.key_of(SCOPE, structs.replace(new_message(), message_id=message_id)) is None


def test_the_same_message_has_the_same_key_whatever_the_case_of_its_id(window: DedupeWindow, clock: Clock) -> None:
    message = new_message()
    first = key_of(window, message)
    clock.move(1)
    again = key_of(window, structs.replace(message, message_id=message.message_id.upper()))
    assert again.digest == first.digest
    assert (again.at_ms, again.expires_ms) == (first.at_ms + 1000, first.expires_ms + 1000)


def test_any_difference_that_counts_gives_another_key(window: DedupeWindow) -> None:
    message = new_message()
    keys = {
        key_of(window, message).digest,
        key_of(window, structs.replace(message, parts=(Part(text="other"),))).digest,
        key_of(window, structs.replace(message, message_id=str(uuid4()))).digest,
        key_of(window, structs.replace(message, task_id="task")).digest,
        key_of(window, message, Scope("other", "tenant", "owner")).digest,
        key_of(window, message, Scope("agent", "other", "owner")).digest,
        key_of(window, message, Scope("agent", "tenant", "other")).digest,
    }
    assert len(keys) == 7


def test_metadata_and_context_make_no_difference(window: DedupeWindow) -> None:
    message = new_message()
    other = structs.replace(message, context_id="context", metadata={"try": 2})
    assert key_of(window, other).digest == key_of(window, message).digest
