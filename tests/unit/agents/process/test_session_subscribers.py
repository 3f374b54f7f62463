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


def test_a_listener_hears_its_own_session_and_no_other() -> None:
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
def test_the_end_is_told_and_then_everybody_is_dropped(end: events.Event) -> None:
    announcer, listener = SessionSubscribers(), Listener()
    announcer.subscribe("one", listener)
    announcer.emit("one", events.started())
    announcer.emit("one", end)
    announcer.emit("one", events.text("a ghost"))
    assert listener.received == [("one", "session_started"), ("one", end["type"])]
    assert len(announcer) == 0


def test_who_comes_late_to_a_session_at_work_learns_at_once_that_it_is() -> None:
    announcer, early, late, later = SessionSubscribers(), Listener(), Listener(), Listener()
    announcer.subscribe("one", early)
    announcer.emit("one", events.started())
    announcer.subscribe("one", late)
    assert late.received == [("one", "thinking")]
    announcer.emit("one", events.exited())
    announcer.subscribe("one", later)
    assert later.received == []
    assert early.received == [("one", "session_started"), ("one", "session_exited")]


def test_a_listener_that_fails_keeps_nobody_else_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_listener_may_leave_while_it_is_told() -> None:
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


def test_a_listener_may_bring_another_while_it_is_told() -> None:
    announcer, other = SessionSubscribers(), Listener()
    announcer.subscribe("one", lambda *_: announcer.subscribe("one", other))
    announcer.emit("one", events.text("a"))
    assert other.received == []
    announcer.emit("one", events.text("b"))
    assert other.received == [("one", "text")]


def test_the_last_who_leaves_takes_the_session_along() -> None:
    announcer, listener = SessionSubscribers(), Listener()
    leaves = [announcer.subscribe("one", listener), announcer.subscribe("one", listener)]
    leaves[0]()
    assert len(announcer) == 1
    leaves[1]()
    assert len(announcer) == 0


def test_leaving_twice_takes_nobody_else_along() -> None:
    announcer, listener = SessionSubscribers(), Listener()
    leave = announcer.subscribe("one", listener)
    announcer.subscribe("one", listener)
    leave()
    leave()
    announcer.emit("one", events.text("a"))
    assert listener.received == [("one", "text")]


def test_leaving_a_session_that_has_ended_does_not_leave_the_next_one() -> None:
    announcer, listener = SessionSubscribers(), Listener()
    leave = announcer.subscribe("one", listener)
    announcer.emit("one", events.exited())
    announcer.subscribe("one", listener)
    leave()
    announcer.emit("one", events.text("again"))
    assert listener.received == [("one", "session_exited"), ("one", "text")]


async def test_who_tells_learns_whom_to_wait_for() -> None:
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
