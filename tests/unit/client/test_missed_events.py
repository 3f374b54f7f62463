"""What a task has that its reader has not seen: text_length as events, nothing of it twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.client.event import TaskAssembler, missed_events
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

DATA, FILE = Part(data={"n": 1}), Part(raw=b"x", filename="f")


def task(*artifacts: tuple[str | Part, ...], state: State = State.WORKING, message: str | None = None) -> Task:
    made = tuple(
        Artifact(str(place), tuple(Part(text=part) if isinstance(part, str) else part for part in parts))
        for place, parts in enumerate(artifacts)
    )
    status_message = None if message is None else Message("m", Role.AGENT, (Part(text=message),))
    return Task("t", "c", TaskStatus(state, status_message), made)


def missed(seen: Task, now: Task) -> list[tuple[str, str, bool]]:
    found: list[tuple[str, str, bool]] = []
    for each in missed_events(seen, now):
        event = each.event
        assert isinstance(event, (ArtifactUpdate, StatusUpdate))
        if isinstance(event, ArtifactUpdate):
            found.append((event.artifact.artifact_id, event.artifact.text, event.append))
        else:
            found.append(("status", event.status.state.value, False))
    return found


def test_an_unchanged_task_has_no_events() -> None:
    assert missed(task(("a",), ("b", DATA)), task(("a",), ("b", DATA))) == []


def test_further_parts_are_appended() -> None:
    assert missed(task(("a ",)), task(("a ", "b ", "c"))) == [("0", "b c", True)]


def test_a_longer_text_is_appended_in_whatever_pieces_the_server_keeps_it() -> None:
    assert missed(task(("a ", "b ")), task(("a b c",))) == [("0", "c", True)]
    assert missed(task(("a b ",)), task(("a ", "b ", "c"))) == [("0", "c", True)]
    assert missed(task(("a ", "b")), task(("a b",))) == []


def test_what_follows_data_and_files_is_appended() -> None:
    (only,) = missed_events(task(("a ", "b ", DATA)), task(("a b ", DATA, FILE, "c")))
    assert isinstance(only.event, ArtifactUpdate)
    assert only.event.append
    assert only.event.artifact.parts == (FILE, Part(text="c"))


def test_texts_of_different_kinds_are_not_joined() -> None:
    number = Part(text="1", media_type="application/json")
    assert missed(task(("a", number)), task(("a", number, "b"))) == [("0", "b", True)]
    assert missed(task((number,)), task(("1",))) == [("0", "1", False)]


def test_a_new_artifact_is_one_whole_event() -> None:
    assert missed(task(("a",)), task(("a",), ("b",))) == [("1", "b", False)]


def test_a_text_that_is_another_replaces() -> None:
    assert missed(task(("draft",)), task(("final",))) == [("0", "final", False)]


def test_parts_that_go_on_from_an_empty_artifact_are_appended() -> None:
    assert missed(task(()), task(("a",))) == [("0", "a", True)]


def test_a_reading_older_than_what_was_seen_takes_nothing_back_while_the_task_goes_on() -> None:
    assert missed(task(("a ", "b ")), task(("a ",))) == []
    assert missed(task(("a ", DATA)), task(("a ",))) == []
    assert missed(task(("a ", "b ")), task(("a ",), state=State.COMPLETED))[0] == ("0", "a ", False)


def test_an_artifact_that_is_not_shown_is_not_taken_back() -> None:
    assert missed(task(("a",)), task()) == []


def test_a_status_is_an_event_when_its_state_or_message_changes() -> None:
    assert missed(task(), task(state=State.COMPLETED)) == [("status", "TASK_STATE_COMPLETED", False)]
    assert missed(task(message="10 %"), task(message="20 %")) == [("status", "TASK_STATE_WORKING", False)]
    again = Task("t", "c", TaskStatus(State.WORKING, Message("other", Role.AGENT, (Part(text="10 %"),)), "2026-01-01"))
    assert missed(task(message="10 %"), again) == []


def test_the_end_comes_after_what_was_written() -> None:
    assert [each[0] for each in missed(task(), task(("a",), state=State.COMPLETED))] == ["0", "status"]


def test_events_carry_the_number_of_the_reading() -> None:
    assert [each.generation for each in missed_events(task(), task(("a",), state=State.COMPLETED), 9)] == [9, 9]


PARTS = st.lists(st.sampled_from(["", "a", "b ", "éß", DATA, FILE]), max_size=6)


@given(st.lists(PARTS, max_size=3), st.data())
@settings(max_examples=200, deadline=None)
def test_a_reader_that_catches_up_has_the_same_answer_and_no_text_twice(
    artifacts: list[list[str | Part]], data: st.DataObject
) -> None:
    """The reader has seen the beginning of each artifact, the server has joined its texts or not."""
    seen = task(*(tuple(parts[: data.draw(st.integers(0, len(parts)))]) for parts in artifacts))
    kept = [_joined(parts) if data.draw(st.booleans()) else parts for parts in artifacts]
    now = task(*(tuple(parts) for parts in kept), state=State.COMPLETED)
    assembly = TaskAssembler()
    assembly.add(Record.of(1, seen))
    events = [assembly.add(each) for each in missed_events(seen, now)]
    result = assembly.result
    assert isinstance(result, Task)
    assert result.text == now.text
    assert [part for part in result.parts if part.text is None] == [part for part in now.parts if part.text is None]
    text_length = sum(len(event.text) for event in events if not event.replaces)
    assert text_length == len(now.text) - len(seen.text)


def _joined(parts: list[str | Part]) -> list[str | Part]:
    found: list[str | Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return found
