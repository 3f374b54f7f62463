"""Who is told what happens in sessions, and who is not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dragoman.agents.process import events
from dragoman.agents.process.events import SessionSubscribers


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str]] = []

    def __call__(self, session_id: str, event: events.Event) -> None:
        self.received.append((session_id, event["type"]))


def test_a_listener_receives_events_of_its_own_session_only() -> None:
    announcer, listener = SessionSubscribers(), Listener()
    announcer.subscribe("one", listener)
    announcer.emit("two", events.text("not for it"))
    announcer.emit("one", events.text("hello"))
    assert listener.received == [("one", "text")]


def test_a_session_without_listeners_can_say_what_it_wants() -> None:
    announcer = SessionSubscribers()
    assert announcer.emit("one", events.text("anybody?")) == []
    assert len(announcer) == 0


@pytest.mark.parametrize(
    "end", [events.exited(), events.stopped(), events.error("no")], ids=lambda event: event["type"]
)
def test_the_end_of_a_session_is_sent_and_then_all_listeners_are_dropped(end: events.Event) -> None:
    announcer, listener = SessionSubscribers(), Listener()
    announcer.subscribe("one", listener)
    announcer.emit("one", events.started())
    announcer.emit("one", end)
    announcer.emit("one", events.text("a ghost"))
    assert listener.received == [("one", "session_started"), ("one", end["type"])]
    assert len(announcer) == 0


def test_a_late_subscriber_of_a_working_session_receives_thinking_at_once() -> None:
    announcer, early, late, later = SessionSubscribers(), Listener(), Listener(), Listener()
    announcer.subscribe("one", early)
    announcer.emit("one", events.started())
    announcer.subscribe("one", late)
    assert late.received == [("one", "thinking")]
    announcer.emit("one", events.exited())
    announcer.subscribe("one", later)
    assert later.received == []
    assert early.received == [("one", "session_started"), ("one", "session_exited")]


def test_a_failing_listener_does_not_keep_events_from_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken(session_id: str, event: events.Event) -> None:
        raise RuntimeError("out of paper")

    announcer, listener, other = SessionSubscribers(), Listener(), Listener()
    announcer.subscribe("one", broken)
    announcer.subscribe("one", listener)
    announcer.subscribe("one", broken)
    announcer.subscribe("one", other)
    with caplog.at_level(logging.ERROR, "dragoman.process"):
        announcer.emit("one", events.started())
        announcer.subscribe("one", broken)  # it comes late, and fails at once
    assert listener.received == other.received == [("one", "session_started")]
    assert [record.message for record in caplog.records] == ["a listener of session one failed"] * 3


def test_a_listener_may_unsubscribe_during_an_event() -> None:
    announcer, other, received = SessionSubscribers(), Listener(), list[str]()

    def once(session_id: str, event: events.Event) -> None:
        received.append(event["type"])
        leave()

    leave = announcer.subscribe("one", once)
    announcer.subscribe("one", other)
    announcer.emit("one", events.text("a"))
    announcer.emit("one", events.text("b"))
    assert received == ["text"]
    assert len(other.received) == 2


def test_a_listener_may_subscribe_another_during_an_event() -> None:
    announcer, other = SessionSubscribers(), Listener()
    announcer.subscribe("one", lambda *_: announcer.subscribe("one", other))
    announcer.emit("one", events.text("a"))
    assert other.received == []
    announcer.emit("one", events.text("b"))
    assert other.received == [("one", "text")]


def test_unsubscribing_the_last_listener_removes_the_session() -> None:
    announcer, listener = SessionSubscribers(), Listener()
    leaves = [announcer.subscribe("one", listener), announcer.subscribe("one", listener)]
    leaves[0]()
    assert len(announcer) == 1
    leaves[1]()
    assert len(announcer) == 0


def test_unsubscribing_twice_removes_no_other_listener() -> None:
    announcer, listener = SessionSubscribers(), Listener()
    leave = announcer.subscribe("one", listener)
    announcer.subscribe("one", listener)
    leave()
    leave()
    announcer.emit("one", events.text("a"))
    assert listener.received == [("one", "text")]


def test_unsubscribing_from_an_ended_session_keeps_listeners_of_the_next() -> None:
    announcer, listener = SessionSubscribers(), Listener()
    leave = announcer.subscribe("one", listener)
    announcer.emit("one", events.exited())
    announcer.subscribe("one", listener)
    leave()
    announcer.emit("one", events.text("again"))
    assert listener.received == [("one", "session_exited"), ("one", "text")]


async def test_emitting_returns_what_to_wait_for() -> None:
    announcer, room = SessionSubscribers(), asyncio.get_running_loop().create_future()
    announcer.subscribe("one", lambda *_: room)
    announcer.subscribe("one", lambda *_: "no need")
    [waiting] = announcer.emit("one", events.text("a"))
    assert not asyncio.ensure_future(waiting).done()
    room.set_result(None)
    await waiting


async def test_a_listener_that_is_a_coroutine_runs_even_when_nobody_waits_for_it() -> None:
    announcer, received, both = SessionSubscribers(), list[str](), asyncio.Event()

    async def listener(session_id: str, event: events.Event) -> None:
        received.append(event["type"])
        if len(received) == 3:
            both.set()

    announcer.emit("one", events.started())
    announcer.subscribe("one", listener)  # late
    announcer.emit("one", events.text("a"))
    announcer.emit("one", events.exited())
    async with asyncio.timeout(5):
        await both.wait()
    assert received == ["thinking", "text", "session_exited"]


async def test_a_coroutine_that_fails_is_logged_and_not_raised_where_it_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(session_id: str, event: events.Event) -> Any:
        raise RuntimeError("out of paper")

    announcer = SessionSubscribers()
    announcer.subscribe("one", broken)
    with caplog.at_level(logging.ERROR, "dragoman.process"):
        [waiting] = announcer.emit("one", events.text("a"))
        await waiting
    assert [record.message for record in caplog.records] == ["a listener of session one failed"]
