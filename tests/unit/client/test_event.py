"""Putting the events of a stream together, in whatever form a server closes its texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.client.event import Event, TaskAssembler
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import PROGRESS_KEY, Message, Progress
from dragoman.model.part import Part
from dragoman.model.record import Folding, Record
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

TASK = Task("t", "c", TaskStatus(State.SUBMITTED))


def text(value: str) -> Part:
    return Part(text=value)


def says(value: str) -> Message:
    return Message("m", Role.AGENT, (text(value),))


def chunk(*parts: str | Part, append: bool = True, last: bool = False, artifact_id: str = "a") -> ArtifactUpdate:
    made = tuple(text(part) if isinstance(part, str) else part for part in parts)
    return ArtifactUpdate("t", "c", Artifact(artifact_id, made), append, last)


def whole(*parts: str | Part, artifact_id: str = "a", last: bool = False) -> ArtifactUpdate:
    return chunk(*parts, append=False, artifact_id=artifact_id, last=last)


def status(state: State, message: str | None = None) -> StatusUpdate:
    return StatusUpdate("t", "c", TaskStatus(state, None if message is None else says(message)))


def snapshot(*artifacts: tuple[str, str], state: State = State.WORKING, message: str | None = None) -> Task:
    made = tuple(Artifact(key, (text(value),)) for key, value in artifacts)
    return Task("t", "c", TaskStatus(state, None if message is None else says(message)), made)


WORKING, DONE = status(State.WORKING), status(State.COMPLETED)


def read(assembly: TaskAssembler, events: Sequence[Any]) -> list[Event]:
    return [assembly.add(Record.of(number, event)) for number, event in enumerate(events, 1)]


def joined(events: Sequence[Event]) -> str:
    """What a reader has who puts the texts together."""
    answer = ""
    for event in events:
        answer = event.text if event.replaces else answer + event.text
    return answer


# The forms in the field: the events, and the new text of each. A star: it replaces the text so far.
FORMS: dict[str, tuple[list[Any], list[str]]] = {
    "chunks, then a copy of all of them": (
        [TASK, WORKING, whole("one "), chunk("two"), whole("one two", last=True), DONE],
        ["", "", "one ", "two", "", ""],
    ),
    "chunks, the last of them marked": (
        [TASK, WORKING, whole("one "), chunk("two", last=True), DONE],
        ["", "", "one ", "two", ""],
    ),
    "chunks that are all appended, to nothing at first": (
        [TASK, chunk("one "), chunk("two"), DONE],
        ["", "one ", "two", ""],
    ),
    "chunks appended to nothing, then a copy": (
        [TASK, chunk("one "), chunk("two"), whole("one two"), DONE],
        ["", "one ", "two", "", ""],
    ),
    "all that is said so far, each time": (
        [TASK, whole("one "), whole("one two "), whole("one two three"), DONE],
        ["", "one ", "two ", "three", ""],
    ),
    "a copy that says more than the chunks": ([TASK, whole("one "), whole("one two"), DONE], ["", "one ", "two", ""]),
    "a text that begins anew": ([TASK, whole("draft"), whole("final"), DONE], ["", "draft", "*final", ""]),
    "a text that is taken back": ([TASK, whole("draft"), whole(), DONE], ["", "draft", "*", ""]),
    "a text that begins anew beside another": (
        [TASK, whole("a"), whole("b", artifact_id="b"), whole("A"), DONE],
        ["", "a", "b", "*Ab", ""],
    ),
    "artifacts one after the other": (
        [TASK, whole("a"), chunk("b"), whole("c", artifact_id="b"), chunk("d", artifact_id="b"), DONE],
        ["", "a", "b", "c", "d", ""],
    ),
    # Texts that arrived in the order of writing arrive once more in the order of the task, when it is complete.
    "artifacts written in turns": (
        [TASK, whole("a1 "), whole("b1 ", artifact_id="b"), chunk("a2 "), chunk("b2 ", artifact_id="b"), DONE],
        ["", "a1 ", "b1 ", "a2 ", "b2 ", "*a1 a2 b1 b2 "],
    ),
    "artifacts in turns, with copies": (
        [TASK, whole("a"), whole("b", artifact_id="b"), whole("ac"), whole("b", artifact_id="b"), DONE],
        ["", "a", "b", "c", "", "*acb"],
    ),
    "artifacts in turns that say nothing twice": (
        [TASK, whole("a"), whole("b", artifact_id="b"), whole("a"), DONE],
        ["", "a", "b", "", ""],
    ),
    "a first artifact that speaks after the second": (
        [TASK, whole(), whole("b", artifact_id="b"), chunk("a"), DONE],
        ["", "", "b", "a", "*ab"],
    ),
    "artifacts in turns, then a question": (
        [TASK, whole("a"), whole("b", artifact_id="b"), chunk("c"), status(State.INPUT_REQUIRED, "more?")],
        ["", "a", "b", "c", "*acb"],
    ),
    "updates, then the whole task": (
        [TASK, whole("one "), chunk("two"), snapshot(("a", "one two"), state=State.COMPLETED)],
        ["", "one ", "two", ""],
    ),
    "updates, then a whole task that says more": (
        [TASK, whole("one "), snapshot(("a", "one two"), state=State.COMPLETED)],
        ["", "one ", "two"],
    ),
    "updates, then a whole task that says something else": (
        [TASK, whole("one "), snapshot(("a", "two"), state=State.COMPLETED)],
        ["", "one ", "*two"],
    ),
    "artifacts in turns, then the whole task": (
        [
            TASK,
            whole("a"),
            whole("b", artifact_id="b"),
            chunk("c"),
            snapshot(("a", "ac"), ("b", "b"), state=State.COMPLETED),
        ],
        ["", "a", "b", "c", "*acb"],
    ),
    "a task that has begun, then chunks": ([snapshot(("a", "one ")), chunk("two"), DONE], ["*one ", "two", ""]),
    "progress in the status, the answer in an artifact": (
        [
            TASK,
            status(State.WORKING, "10 %"),
            status(State.WORKING, "20 %"),
            whole("answer"),
            status(State.COMPLETED, "bye"),
        ],
        ["", "", "", "answer", ""],
    ),
    "the answer in the last status": (
        [TASK, status(State.WORKING, "10 %"), status(State.COMPLETED, "answer")],
        ["", "", "answer"],
    ),
    "the answer in the status of the whole task": (
        [TASK, snapshot(state=State.COMPLETED, message="answer")],
        ["", "answer"],
    ),
    "a task that is over at once": ([snapshot(("a", "answer"), state=State.COMPLETED)], ["*answer"]),
    "a bare message": ([says("hi")], ["hi"]),
    "a remark within a task": ([TASK, says("wait"), whole("answer"), DONE], ["", "", "answer", ""]),
    "a status first, as in 0.1": ([WORKING, whole("one "), chunk("two"), DONE], ["", "one ", "two", ""]),
    "an artifact first": ([whole("one "), chunk("two"), DONE], ["one ", "two", ""]),
    "an end that comes first": ([status(State.COMPLETED, "answer")], ["answer"]),
    "an empty artifact": ([TASK, whole(), status(State.COMPLETED, "bye")], ["", "", ""]),
    "empty chunks": ([TASK, whole(""), chunk("a"), chunk(""), DONE], ["", "", "a", "", ""]),
    "data and files beside the text": (
        [TASK, whole("a", Part(data={"n": 1})), chunk(Part(raw=b"x", filename="f")), chunk("b"), whole("ab"), DONE],
        ["", "a", "", "b", "", ""],
    ),
    "data that is replaced": ([TASK, whole(Part(data=1)), whole(Part(data=2)), DONE], ["", "", "", ""]),
    "words after the end": (
        [TASK, whole("a"), DONE, chunk("b"), status(State.FAILED, "no"), says("bye"), snapshot(("a", "z")), DONE],
        ["", "a", "", "", "", "", "", ""],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_the_field_says_everything_once(form: str) -> None:
    events, expected = FORMS[form]
    assembly = TaskAssembler()
    found = read(assembly, events)
    assert ["*" * event.replaces + event.text for event in found] == expected
    assert assembly.result is not None
    assert joined(found) == assembly.result.text or not assembly.result.state.final


@pytest.mark.parametrize("form", [form for form in FORMS if not isinstance(FORMS[form][0][0], Message)])
def test_every_form_makes_the_task_that_the_events_make(form: str) -> None:
    events = FORMS[form][0]
    assembly = TaskAssembler()
    read(assembly, events)
    expected = Folding(events[0] if isinstance(events[0], Task) else snapshot(state=State.WORKING))
    for event in events if not isinstance(events[0], Task) else events[1:]:
        if isinstance(event, Task) and not expected.status.state.final:
            expected = Folding(event)
        elif isinstance(event, (StatusUpdate, ArtifactUpdate)) and not expected.status.state.final:
            expected.apply(event)
    result = assembly.result
    assert isinstance(result, Task)
    assert (result.artifacts, result.status) == (expected.task().artifacts, expected.status)


IDS, WORDS = st.sampled_from("abc"), st.sampled_from(["", "x", "xy", "y ", "éß"])
PARTS = st.lists(WORDS.map(text) | st.just(Part(data=1)), max_size=3).map(tuple)
UPDATES = st.builds(
    lambda key, parts, append: ArtifactUpdate("t", "c", Artifact(key, parts), append), IDS, PARTS, st.booleans()
)
PROGRESS = st.sampled_from([WORKING, status(State.WORKING, "so far"), status(State.AUTH_REQUIRED), says("remark")])
SNAPSHOTS = st.lists(st.tuples(IDS, WORDS), max_size=3, unique_by=lambda pair: pair[0]).map(
    lambda each: snapshot(*each)
)
ENDS = st.sampled_from([DONE, status(State.COMPLETED, "bye")])


@given(
    st.lists(SNAPSHOTS, max_size=1),
    st.lists(UPDATES | PROGRESS | SNAPSHOTS, max_size=12).filter(
        lambda events: not events or not isinstance(events[0], Message)
    ),
    ENDS,
    st.lists(UPDATES | ENDS, max_size=2),
)
@settings(max_examples=300, deadline=None)
def test_the_texts_joined_are_the_text_of_the_task(
    first: list[Any], events: list[Any], end: Any, later: list[Any]
) -> None:
    assembly = TaskAssembler()
    found = read(assembly, [*first, *events, end, *later])
    result = assembly.result
    assert isinstance(result, Task)
    assert joined(found) == result.text
    assert result.state is State.COMPLETED


def test_events_before_the_end_are_in_the_order_of_writing() -> None:
    """Every piece arrives once, whichever artifact it belongs to: nothing is repeated while the task goes on."""
    events = read(TaskAssembler(), [TASK, *(chunk(f"{key}{n} ", artifact_id=key) for n in range(3) for key in "ab")])
    assert [event.text for event in events] == ["", "a0 ", "b0 ", "a1 ", "b1 ", "a2 ", "b2 "]
    assert not any(event.replaces for event in events)


def test_a_failed_task_says_why_in_its_error_and_not_as_an_answer() -> None:
    assembly = TaskAssembler()
    events = read(assembly, [TASK, status(State.FAILED, "it broke")])
    assert [event.text for event in events] == ["", ""]
    assert isinstance(assembly.result, Task)
    assert assembly.result.error == "it broke"


def test_a_reader_that_starts_in_the_middle_gets_no_earlier_text_again() -> None:
    assembly = TaskAssembler(mid_stream=True)
    events = read(assembly, [chunk("three "), chunk("four"), whole("one two three four", last=True), DONE])
    assert [(event.text, event.replaces) for event in events] == [
        ("three ", False),
        ("four", False),
        ("", False),
        ("", False),
    ]
    assert events[-1].task is not None
    assert events[-1].task.text == "one two three four"


def test_a_text_that_begins_anew_in_the_middle_says_so() -> None:
    events = read(TaskAssembler(mid_stream=True), [chunk("three "), whole("something else")])
    assert [(event.text, event.replaces) for event in events] == [("three ", False), ("something else", True)]


def test_events_have_their_number_their_state_and_the_task_so_far() -> None:
    assembly = TaskAssembler()
    first = assembly.add(Record.of(7, snapshot(("a", "so far "))))
    assert (first.kind, first.id, first.state) == ("task", 7, State.WORKING)
    second = assembly.add(Record.of(8, chunk("more")))
    assert second.task is not None
    assert (second.kind, second.id, second.task.text, second.task.generation) == ("artifact", 8, "so far more", 8)
    third = assembly.add(Record.of(9, DONE))
    assert (third.kind, third.state) == ("status", State.COMPLETED)
    assert third.task is assembly.result
    assert "8 artifact TASK_STATE_WORKING 'more'" in repr(second)


def test_a_bare_message_has_no_task() -> None:
    event = TaskAssembler().add(Record.of(0, says("hi")))
    assert (event.kind, event.text, event.task, event.state) == ("message", "hi", None, State.COMPLETED)


def test_a_question_that_comes_first_is_not_yet_history() -> None:
    assembly = TaskAssembler()
    (event,) = read(assembly, [status(State.INPUT_REQUIRED, "how many?")])
    assert event.task is not None
    assert (event.task.question, event.task.history) == ("how many?", ())


def test_a_remark_within_a_task_is_part_of_its_history() -> None:
    (*_, last) = read(TaskAssembler(), [TASK, says("one moment"), DONE])
    assert last.task is not None
    assert [message.text for message in last.task.history] == ["one moment"]


def test_events_that_do_not_name_their_context_are_in_that_of_the_message() -> None:
    assembly = TaskAssembler(context_id="mine")
    event = assembly.add(Record.of(1, StatusUpdate("t", "", TaskStatus(State.WORKING))))
    assert event.task is not None
    assert event.task.context_id == "mine"


@pytest.mark.parametrize("artifacts", [1, 2, 20_000], ids=["one text", "two in turns", "each its own"])
def test_an_event_costs_the_same_however_long_the_task_is(artifacts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nobody reads the task, no event reads or copies the text before it."""
    looks: list[str] = []
    for name in ("task", "artifact_text", "artifact_ids"):
        monkeypatch.setattr(Folding, name, lambda self, *_, name=name: looks.append(name))
    assembly = TaskAssembler()
    assembly.add(Record.of(1, WORKING))
    for number in range(20_000):
        event = assembly.add(Record.of(2 + number, chunk("word ", artifact_id=str(number % artifacts))))
        assert event.text == "word "
    assert looks == []


# -- progress ----------------------------------------------------------------------------------------------------------


def marked(mark: Any, words: str = "half way", role: Role = Role.AGENT) -> StatusUpdate:
    message = Message("m", role, (text(words),) if words else (), metadata={PROGRESS_KEY: mark})
    return StatusUpdate("t", "c", TaskStatus(State.WORKING, message))


@pytest.mark.parametrize(
    ("event", "progress"),
    [
        (marked({"done": 1, "total": 2}), Progress("half way", 1, 2)),
        (marked({"done": 0.5}), Progress("half way", 0.5, None)),
        (marked({"done": 0, "total": 3}, ""), Progress("", 0, 3)),
        (marked(True), Progress("half way")),
        (marked({"done": "1", "total": True}), Progress("half way")),
        (marked({"done": float("inf"), "total": 10**400}), Progress("half way")),
        (marked([1, 2]), Progress("half way")),
        (status(State.WORKING, "somebody else's"), Progress("somebody else's")),
        (status(State.SUBMITTED, "in a queue"), Progress("in a queue")),
        (says("a remark"), Progress("a remark")),
        (snapshot(message="so far"), Progress("so far")),
        (marked(True, role=Role.USER), None),
        (WORKING, None),
        (DONE, None),
        (status(State.COMPLETED, "the answer"), None),
        (status(State.INPUT_REQUIRED, "Which?"), None),
        (chunk("text"), None),
    ],
)
def test_an_event_tells_how_far_the_agent_is(event: Any, progress: Progress | None) -> None:
    *_, last = read(TaskAssembler(), [TASK, event])
    assert last.progress == progress


def test_an_answer_without_a_task_is_no_progress() -> None:
    assert read(TaskAssembler(), [says("hello")])[0].progress is None
