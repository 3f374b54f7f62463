"""Putting the events of a stream together, in whatever form a server closes its texts."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.event import Assembly
from dragoman.model.artifact import Artifact
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import Task, TaskStatus

TASK = Task("t", "c", TaskStatus(State.SUBMITTED))


def chunk(text: str, *, append: bool = True, last: bool = False, artifact_id: str = "a") -> ArtifactUpdate:
    return ArtifactUpdate("t", "c", Artifact(artifact_id, (Part(text=text),)), append, last)


def read(*events: Any) -> list[tuple[str, bool]]:
    """The new text of every artifact event, and whether it replaces what was said."""
    assembly = Assembly()
    found = [assembly.take(Record.of(number, event)) for number, event in enumerate((TASK, *events), 1)]
    return [(event.text, event.replaces) for event in found[1:]]


def test_chunks_closed_by_the_whole_text_say_everything_once() -> None:
    assert read(chunk("one ", append=False), chunk("two"), chunk("one two", append=False, last=True)) == [
        ("one ", False),
        ("two", False),
        ("", False),
    ]


def test_a_whole_text_that_says_more_gives_the_rest() -> None:
    assert read(chunk("one ", append=False), chunk("one two", append=False, last=True))[-1] == ("two", False)


def test_chunks_closed_by_the_last_one_say_everything_once() -> None:
    assert read(chunk("one ", append=False), chunk("two", last=True)) == [("one ", False), ("two", False)]


def test_a_text_that_begins_anew_says_that_it_replaces() -> None:
    assert read(chunk("draft", append=False), chunk("final", append=False))[-1] == ("final", True)


def test_each_artifact_is_read_for_itself() -> None:
    assert read(chunk("a", append=False), chunk("b", append=False, artifact_id="b"), chunk("ac", append=False)) == [
        ("a", False),
        ("b", False),
        ("c", False),
    ]


def test_a_task_in_the_stream_is_all_there_is_so_far() -> None:
    assembly = Assembly()
    task = Task("t", "c", TaskStatus(State.WORKING), (Artifact("a", (Part(text="so far "),)),))
    first = assembly.take(Record.of(7, task))
    assert (first.kind, first.id, first.text, first.replaces) == ("task", 7, "so far ", True)
    second = assembly.take(Record.of(8, chunk("more")))
    assert (second.text, second.task.text, second.task.generation) == ("more", "so far more", 8)


def test_status_events_have_a_state_and_no_text() -> None:
    assembly = Assembly()
    assembly.take(Record.of(1, TASK))
    event = assembly.take(Record.of(2, StatusUpdate("t", "c", TaskStatus(State.COMPLETED))))
    assert (event.kind, event.state, event.text) == ("status", State.COMPLETED, "")
    assert assembly.result == event.task


def test_a_bare_message_is_the_result() -> None:
    assembly = Assembly()
    event = assembly.take(Record.of(0, Message("m", Role.AGENT, (Part(text="hi"),))))
    assert (event.kind, event.text, event.task, event.state) == ("message", "hi", None, State.COMPLETED)
    assert assembly.result.text == "hi"


def test_a_stream_that_begins_in_the_middle_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with a task or a message"):
        Assembly().take(Record.of(2, chunk("x")))
