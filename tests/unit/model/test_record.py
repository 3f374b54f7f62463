"""A record is encoded once, and its bytes are the canonical ones."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from dragoman.model.event import ArtifactUpdate, StatusUpdate, StreamResponse, response_of
from dragoman.model.json import decode_event, encode
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

MESSAGE = Message("m", Role.AGENT, (Part(text="hi"),), "c")
TASK = Task("t", "c", TaskStatus(State.WORKING, MESSAGE, "2027-01-15T08:00:00.000Z"), generation=7)
STATUS = StatusUpdate("t", "c", TaskStatus(State.COMPLETED), {"k": 1})
ARTIFACT = ArtifactUpdate("t", "c", Artifact("a", (Part(text="x"),)), append=True)
EVENTS = [TASK, MESSAGE, STATUS, ARTIFACT]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_from_its_bytes(event: Task | Message | StatusUpdate | ArtifactUpdate) -> None:
    record = Record.of(7, event)
    again = Record(record.generation, record.body)
    assert again.event == record.event
    assert again.state == record.state
    assert encode(again.response) == record.body


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_canonical_bytes_never_carry_the_generation(event: Task | Message | StatusUpdate | ArtifactUpdate) -> None:
    assert b"generation" not in Record.of(7, event).body
    assert Record.of(7, event).generation == 7


def test_a_task_is_the_same_but_for_its_generation() -> None:
    assert Record.of(7, TASK).event == structs.replace(TASK, generation=None)


def test_the_envelope_names_what_it_holds() -> None:
    names = [next(iter(msgspec.json.decode(Record.of(1, event).body))) for event in EVENTS]
    assert names == ["task", "message", "statusUpdate", "artifactUpdate"]


def test_what_was_encoded_is_not_encoded_or_decoded_again() -> None:
    record = Record.of(1, STATUS)
    assert record.event is STATUS
    assert record.body is record.body
    read = Record(1, record.body)
    assert read.response is read.response


def test_the_state_of_a_chunk_is_known_without_decoding_it() -> None:
    assert Record(1, b'{"artifactUpdate" and then no JSON at all').state is None
    assert [Record.of(1, event).state for event in EVENTS] == [State.WORKING, None, State.COMPLETED, None]


def test_an_envelope_holds_something() -> None:
    assert response_of(TASK).payload is TASK
    with pytest.raises(ValueError, match="holds one of"):
        _ = StreamResponse().payload
    with pytest.raises(ValueError, match="holds one of"):
        _ = decode_event(b"{}").payload
