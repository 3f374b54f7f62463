"""Streams: where they begin, what they carry, when they end, how they are taken up again, and what leaving does."""

from __future__ import annotations

from uuid import uuid4

import pytest
from contract.bindings.caller import Caller, NumberedEvent, Refused, task_id
from contract.bindings.deviations import state_in

from dragoman import Message, State, Task
from dragoman.model.event import ArtifactUpdate, StatusUpdate


def kinds(caller: Caller, events: list[NumberedEvent]) -> list[str]:
    """What the events are. A stream of 0.1 begins with a status in place of the task."""
    names = {Task: "task", StatusUpdate: "status", ArtifactUpdate: "artifact", Message: "message"}
    found = [names[type(event.value)] for event in events]
    return ["task", *found[1:]] if caller.version == "0.1" and found[0] == "status" else found


def states(events: list[NumberedEvent]) -> list[State]:
    return [event.state for event in events if event.state is not None]


def numbers(events: list[NumberedEvent]) -> list[int | None]:
    return [event.number for event in events]


def chunk(event: NumberedEvent) -> tuple[str, bool, bool]:
    """The text of an artifact event, and its flags."""
    assert isinstance(event.value, ArtifactUpdate)
    return event.value.artifact.text, event.value.append, event.value.last_chunk


def status_text(event: NumberedEvent) -> str:
    assert isinstance(event.value, (Task, StatusUpdate))
    assert event.value.status.message is not None
    return event.value.status.message.text


# -- where they begin and end ------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-6", "S2-11", "S2-37", "S2-39", "S2-82", "S2-83")
def test_a_stream_shows_every_change_once_from_the_task_to_its_end(caller: Caller) -> None:
    with caller.stream(tool="count", arguments={"n": 3}) as reading:
        events = list(reading)
    assert kinds(caller, events) == ["task", "status", *["artifact"] * 3, "status"]
    assert states(events) == [State.SUBMITTED, State.WORKING, State.COMPLETED]
    assert [chunk(event) for event in events[2:5]] == [
        ("1 ", False, False),
        ("2 ", True, False),
        ("3 ", True, True),
    ]
    assert numbers(events) == [1, 2, 3, 4, 5, 6]
    assert len({task_id(event) for event in events}) == 1


@pytest.mark.requirement("S2-9")
def test_events_arrive_while_the_task_is_at_work(caller: Caller) -> None:
    with caller.stream(tool="until_message") as reading:
        events = [reading.next(), reading.next(), reading.next()]
        assert (events[-1].state, status_text(events[-1])) == (State.WORKING, "begun")
        caller.send("enough", task=task_id(events[0]))
        events += reading
    assert states(events)[-1] is State.COMPLETED


@pytest.mark.requirement("S2-6")
@pytest.mark.parametrize(
    ("tool", "state"), [("deny", State.REJECTED), ("boom", State.FAILED), ("ask_name", State.INPUT_REQUIRED)]
)
def test_a_stream_ends_when_the_task_does_or_asks(caller: Caller, tool: str, state: State) -> None:
    with caller.stream(tool=tool) as reading:
        events = list(reading)
    assert states(events)[-1] is state_in(caller.version, state)


@pytest.mark.requirement("S2-102", "S2-103")
def test_the_stream_of_an_agent_that_breaks_ends_without_the_secret(caller: Caller) -> None:
    with caller.stream(tool="boom") as reading:
        events = list(reading)
    assert states(events)[-1] is State.FAILED
    assert status_text(events[-1]).startswith("execution failed: ")
    assert "secret" not in repr(events)
    assert caller.send("still there").text == "still there"


def test_a_stream_stays_open_while_the_task_waits_for_credentials(caller: Caller) -> None:
    with caller.stream(tool="sign_in") as reading:
        events = [reading.next(), reading.next(), reading.next()]
        waiting = state_in(caller.version, State.AUTH_REQUIRED)
        assert states(events)[-1] is waiting
        assert "https://login.example.com/" in repr(events[-1])
        # What the caller says is no login. The stream ends with the task.
        caller.send("here they are", task=task_id(events[0]))
        caller.cancel(task_id(events[0]))
        events += reading
    assert states(events)[-2:] == [waiting, State.CANCELED]


def test_a_message_alone_is_a_stream_of_one_event_without_a_number(caller: Caller) -> None:
    with caller.stream(tool="reply") as reading:
        (event,) = reading
    assert event.number is None
    if isinstance(event.value, Message):
        assert event.value.text == "at once"
    else:
        # 0.1 has no results but tasks.
        assert (caller.version, event.state, status_text(event)) == ("0.1", State.COMPLETED, "at once")


def test_an_answer_is_streamed_from_the_task_on_to_its_end(caller: Caller) -> None:
    task = caller.send(tool="ask_name")
    with caller.stream("Ada", task=task, message_id=str(uuid4())) as reading:
        events = list(reading)
    assert kinds(caller, events) == ["task", "artifact", "artifact", "status"]
    assert (states(events), numbers(events)) == ([State.WORKING, State.COMPLETED], [4, 5, 6, 7])


def test_a_message_for_a_task_at_work_is_answered_with_the_rest_of_its_stream(caller: Caller) -> None:
    with caller.stream("enough", task=caller.begin(tool="until_message")) as reading:
        events = list(reading)
    assert kinds(caller, events)[0] == "task"
    assert (chunk(events[-2]), states(events)[-1]) == (("enough", False, True), State.COMPLETED)


@pytest.mark.needs("empty history", "tasks in streams")
@pytest.mark.parametrize("length", [0, 1])
def test_the_first_event_has_as_much_history_as_was_asked_for(caller: Caller, length: int) -> None:
    with caller.stream("hi", history_length=length) as reading:
        task = reading.next().value
    assert isinstance(task, Task)
    assert len(task.history) == length


def test_an_error_before_the_first_event_is_an_ordinary_one(caller: Caller) -> None:
    ended = caller.send("hi")
    with pytest.raises(Refused) as refused, caller.stream("more", task=ended):
        pass
    assert refused.value.reason == "UNSUPPORTED_OPERATION"


def test_an_error_that_a_skill_raises_is_the_status_of_its_stream(caller: Caller) -> None:
    with caller.stream(tool="book", arguments={"city": "Atlantis"}) as reading:
        events = list(reading)
    assert (states(events)[-1], status_text(events[-1])) == (State.FAILED, "no such city: Atlantis")


# -- subscribing -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-27", "S2-14")
def test_a_subscription_shows_the_task_as_it_is_and_then_what_follows(caller: Caller, reader: Caller) -> None:
    task = caller.begin(tool="until_message")
    reader.get(task, currentGeneration=2)
    with caller.subscribe(task) as reading:
        events = [reading.next()]
        assert (kinds(caller, events), numbers(events)) == (["task"], [3])
        caller.send("enough", task=task)
        events += reading
    assert (states(events), numbers(events)) == ([State.WORKING, State.COMPLETED], [3, 4, 5])


def test_a_subscription_stays_open_while_the_task_waits_for_input(caller: Caller) -> None:
    task = caller.send(tool="ask_name")
    with caller.subscribe(task) as reading:
        events = [reading.next()]
        assert states(events) == [State.INPUT_REQUIRED]
        caller.send("Ada", task=task)
        events += reading
    assert states(events) == [State.INPUT_REQUIRED, State.WORKING, State.COMPLETED]
    assert numbers(events) == [3, 4, 5, 6, 7]


def test_a_stream_is_resumed_after_the_last_event_a_reader_saw_also_when_the_task_has_ended(caller: Caller) -> None:
    with caller.stream(tool="count", arguments={"n": 3}) as reading:
        seen = list(reading)
    for after in (0, 1, 4, 5):
        with caller.subscribe(task_id(seen[0]), after=after) as reading:
            assert list(reading) == seen[after:]


def test_a_running_task_is_resumed_without_its_snapshot(caller: Caller) -> None:
    task = caller.begin(tool="until_message")
    with caller.subscribe(task, after=1) as reading:
        events = [reading.next(), reading.next()]
        assert numbers(events) == [2, 3]
        caller.send("enough", task=task)
        events += reading
    assert numbers(events) == [2, 3, 4, 5]
    assert not any(isinstance(event.value, Task) for event in events)


# An ended task is there, so it is not "not found": the specification has -32004 for what cannot be subscribed to.
@pytest.mark.requirement("S2-14")
def test_nothing_is_left_of_an_ended_task(caller: Caller) -> None:
    task = caller.send("hi")
    for after in (None, 4, 99, 10**20, -1, "x", "4.0"):
        with pytest.raises(Refused) as refused, caller.subscribe(task, after=after):
            pass
        assert refused.value.reason == "UNSUPPORTED_OPERATION", after


def test_an_unknown_number_counts_as_none(caller: Caller) -> None:
    task = caller.send(tool="ask_name")
    for after in (99, 10**20, -1, "x"):
        with caller.subscribe(task, after=after) as reading:
            first = reading.next()
        assert (kinds(caller, [first]), first.number) == (["task"], 3), after


@pytest.mark.requirement("S2-14")
def test_an_unknown_task_cannot_be_subscribed_to(caller: Caller) -> None:
    for after in (None, 1):
        with pytest.raises(Refused) as refused, caller.subscribe("nobody", after=after):
            pass
        assert refused.value.reason == "TASK_NOT_FOUND"


def test_all_readers_of_a_task_see_the_same_events(caller: Caller) -> None:
    task = caller.send(tool="ask_name")
    with caller.subscribe(task) as one, caller.subscribe(task) as other:
        firsts = one.next(), other.next()
        caller.send("Ada", task=task)
        assert [firsts[0], *one] == [firsts[1], *other]


@pytest.mark.requirement("S2-93")
def test_a_reader_who_leaves_ends_nothing(caller: Caller) -> None:
    with caller.stream(tool="until_message") as reading:
        task = task_id(reading.next())
    caller.send("enough", task=task)
    assert caller.get(task).state is State.COMPLETED
