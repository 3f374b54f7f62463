"""State is fold(events): a task folded at once, resumed from any snapshot or read from its journal is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.json import decode_task, encode
from dragoman.model.message import PROGRESS_KEY, Message
from dragoman.model.part import Part
from dragoman.model.record import MAX_PROGRESS, Folding, Record, fold
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

FIRST = Task("t", "c", TaskStatus(State.SUBMITTED), history=(Message("m", Role.USER, (Part(text="hi"),), "c", "t"),))
FINAL = [state for state in State if state.final]


def status(state: State, text: str | None = None) -> StatusUpdate:
    message = None if text is None else Message(f"m-{text}", Role.AGENT, (Part(text=text),), "c", "t")
    return StatusUpdate("t", "c", TaskStatus(state, message))


def progress(text: str, mark: Any = True) -> StatusUpdate:
    message = Message(f"p-{text}", Role.AGENT, (Part(text=text),), "c", "t", {PROGRESS_KEY: mark})
    return StatusUpdate("t", "c", TaskStatus(State.WORKING, message))


def texts_of(task: Task) -> list[str]:
    return [message.text for message in task.history]


def chunk(
    text: str, *, artifact_id: str = "a", append: bool = False, last: bool = False, **facts: Any
) -> ArtifactUpdate:
    return ArtifactUpdate("t", "c", Artifact(artifact_id, (Part(text=text),), **facts), append, last)


# Artifacts


def test_a_new_artifact_is_added_in_the_order_of_arrival() -> None:
    task = fold(FIRST, [chunk("1", artifact_id="b"), chunk("2", artifact_id="a")])
    assert [artifact.artifact_id for artifact in task.artifacts] == ["b", "a"]


def test_appending_joins_texts_and_keeps_the_name() -> None:
    task = fold(FIRST, [chunk("one ", name="n", metadata={"k": 1}), chunk("two", append=True, last=True, name="other")])
    assert task.artifacts == (Artifact("a", (Part(text="one two"),), "n", metadata={"k": 1}),)


def test_appending_joins_nothing_but_adjacent_plain_texts() -> None:
    parts = [Part(raw=b"x"), Part(text="1"), Part(text="2"), Part(text="3", media_type="text/html"), Part(text="4")]
    events = [ArtifactUpdate("t", "c", Artifact("a", (part,)), append=True) for part in parts]
    assert fold(FIRST, events).parts == (parts[0], Part(text="12"), parts[3], Part(text="4"))


def test_an_empty_chunk_that_closes_an_artifact_adds_no_part() -> None:
    for first in (Part(raw=b"x"), Part(text="x")):
        opened = ArtifactUpdate("t", "c", Artifact("a", (first,)))
        assert fold(FIRST, [opened, chunk("", append=True, last=True)]).parts == (first,)


def test_without_append_an_artifact_is_replaced_in_its_place() -> None:
    task = fold(FIRST, [chunk("x"), chunk("y", artifact_id="b"), chunk("whole", last=True, name="n")])
    assert [(artifact.artifact_id, artifact.text, artifact.name) for artifact in task.artifacts] == [
        ("a", "whole", "n"),
        ("b", "y", None),
    ]


def test_appending_to_a_missing_artifact_creates_it() -> None:
    assert fold(FIRST, [chunk("x", append=True)]).text == "x"


def test_the_whole_text_after_its_chunks_is_kept_once() -> None:
    events = [chunk("one "), chunk("two", append=True), chunk("one two", last=True)]
    assert fold(FIRST, events).artifacts == (Artifact("a", (Part(text="one two"),)),)


def test_the_text_of_an_artifact_can_be_asked_for_while_it_grows() -> None:
    folding = Folding(FIRST)
    assert folding.artifact_text("a") is None
    assert folding.artifact_count() == 0
    for event in (chunk("one "), chunk("two", append=True)):
        folding.apply(event)
    assert folding.artifact_text("a") == "one two"
    assert folding.artifact_count() == 1


# Status and history


@pytest.mark.parametrize("state", FINAL)
def test_nothing_changes_after_a_terminal_state(state: State) -> None:
    folding = Folding(FIRST)
    folding.apply(status(state))
    ended = folding.task()
    for event in (status(State.WORKING), status(State.COMPLETED), chunk("late")):
        with pytest.raises(ValueError, match="nothing changes after that"):
            folding.apply(event)
    assert folding.task() == ended


def test_a_status_message_becomes_history_when_another_status_follows() -> None:
    folding = Folding(FIRST)
    folding.apply(progress("half way", {"done": 1, "total": 2}))
    assert texts_of(folding.task()) == ["hi"]
    folding.apply(status(State.INPUT_REQUIRED, "how many?"))
    assert texts_of(folding.task()) == ["hi", "half way"]
    assert folding.task().question == "how many?"
    folding.apply(status(State.WORKING))
    answer = Message("m2", Role.USER, (Part(text="3"),), "c", "t")
    folding.add_message(answer)
    folding.apply(status(State.WORKING, "an answer that is not marked"))
    folding.apply(status(State.AUTH_REQUIRED, "log in"))
    folding.apply(status(State.COMPLETED, "done"))
    task = folding.task()
    assert texts_of(task) == ["hi", "half way", "how many?", "3", "an answer that is not marked", "log in"]
    assert [message.is_progress for message in task.history] == [False, True, False, False, False, False]


def test_only_the_last_progress_messages_stay_in_the_history() -> None:
    folding = Folding(FIRST)
    for number in range(MAX_PROGRESS + 30):
        folding.apply(progress(str(number)))
        if number % 10 == 0:
            folding.apply(status(State.WORKING, f"word {number}"))
    folding.apply(status(State.COMPLETED))
    marked = [message.text for message in folding.task().history if message.is_progress]
    assert marked == [str(number) for number in range(30, MAX_PROGRESS + 30)]
    rest = [message.text for message in folding.task().history if not message.is_progress]
    assert rest == ["hi", *(f"word {number}" for number in range(0, MAX_PROGRESS + 30, 10))]


def test_a_caller_cannot_mark_a_message_as_progress() -> None:
    asked = Message("m", Role.USER, (Part(text="hi"),), "c", "t", {PROGRESS_KEY: True})
    folding = Folding(structs.replace(FIRST, history=(asked,)))
    for number in range(MAX_PROGRESS + 2):
        folding.apply(progress(str(number)))
    assert folding.task().history[0] == asked
    assert len(folding.task().history) == MAX_PROGRESS + 1


def test_a_status_that_is_repeated_is_one_message_of_the_history() -> None:
    folding = Folding(FIRST)
    for _ in range(3):
        folding.apply(status(State.WORKING, "busy"))
    # Some servers have the message of the status in the history, too.
    folding.add_message(status(State.WORKING, "busy").status.message or FIRST.history[0])
    folding.apply(status(State.COMPLETED))
    assert texts_of(folding.task()) == ["hi", "busy"]


def test_what_the_agent_wrote_before_a_message_of_the_caller_stands_before_it() -> None:
    folding = Folding(FIRST)
    folding.apply(status(State.WORKING, "first remark"))
    for number in range(2):
        folding.add_message(Message(f"u{number}", Role.USER, (Part(text=f"stop {number}"),), "c", "t"))
        assert folding.task().status.message == status(State.WORKING, "first remark").status.message
    folding.apply(status(State.WORKING, "second remark"))
    assert texts_of(folding.task()) == ["hi", "first remark", "stop 0", "stop 1"]
    folding.apply(status(State.COMPLETED))
    task = folding.task()
    assert texts_of(task) == ["hi", "first remark", "stop 0", "stop 1", "second remark"]
    assert task.text == "second remark"


def test_the_generation_counts_events_and_not_messages() -> None:
    folding = Folding(FIRST)
    assert folding.task().generation == 1
    folding.apply(status(State.WORKING))
    folding.add_message(FIRST.history[0])
    folding.apply(chunk("x"))
    assert folding.task().generation == 3


def test_a_task_handed_out_does_not_change_any_more() -> None:
    folding = Folding(FIRST)
    folding.apply(chunk("one "))
    before = folding.task()
    folding.apply(chunk("two", append=True))
    folding.add_message(FIRST.history[0])
    assert before.text == "one "
    assert len(before.history) == 1


# Any sequence

names = st.sampled_from(["a", "b"])
words = st.text(max_size=3)
parts = st.lists(
    st.one_of(
        words.map(lambda text: Part(text=text)),
        st.binary(max_size=3).map(lambda data: Part(raw=data)),
        st.dictionaries(words, st.integers() | st.none(), max_size=2).map(lambda data: Part(data=data)),
    ),
    min_size=1,
    max_size=2,
).map(tuple)
artifact_events = st.builds(
    lambda name, content, append, last: ArtifactUpdate("t", "c", Artifact(name, content, name), append, last),
    names,
    parts,
    st.booleans(),
    st.booleans(),
)
open_states = st.sampled_from([State.WORKING, State.INPUT_REQUIRED, State.AUTH_REQUIRED])
status_events = st.builds(status, open_states, st.none() | words)
progress_events = st.builds(progress, words, st.just(True) | st.just({"done": 1}))
user_messages = words.map(lambda text: Message("m", Role.USER, (Part(text=text),), "c", "t"))
bursts = st.integers(1, MAX_PROGRESS).map(lambda number: [progress(str(each)) for each in range(number)])
single = st.one_of(artifact_events, status_events, progress_events, user_messages).map(lambda step: [step])
steps = st.lists(single | bursts, max_size=25).map(lambda groups: [step for group in groups for step in group])
ends = st.none() | st.builds(status, st.sampled_from(FINAL), st.none() | words)


def take(folding: Folding, step: Any) -> None:
    if isinstance(step, Message):
        folding.add_message(step)
    else:
        folding.apply(step)


@given(steps=steps, end=ends, cuts=st.lists(st.integers(0, 100), max_size=3))
def test_a_task_resumed_from_any_snapshot_folds_to_the_same(steps: list[Any], end: Any, cuts: list[int]) -> None:
    steps = [*steps, *([] if end is None else [end])]
    whole, resumed = Folding(FIRST), Folding(FIRST)
    for place, step in enumerate(steps):
        if place in cuts:
            # As a store does it: the snapshot carries no generation, the row does.
            snapshot = encode(structs.replace(resumed.task(), generation=None))
            resumed = Folding(decode_task(snapshot), resumed.generation)
        take(whole, step)
        take(resumed, step)
    assert resumed.task() == whole.task()
    assert whole.task().generation == 1 + sum(not isinstance(step, Message) for step in steps)


@given(steps=steps, end=ends)
def test_events_that_went_through_the_journal_fold_to_the_same(steps: list[Any], end: Any) -> None:
    events = [step for step in (*steps, end) if isinstance(step, (StatusUpdate, ArtifactUpdate))]
    bodies = [Record.of(number, event).body for number, event in enumerate([FIRST, *events], 1)]
    first, *rest = [Record(number, body).event for number, body in enumerate(bodies, 1)]
    assert isinstance(first, Task)
    assert fold(first, rest) == fold(FIRST, events)
