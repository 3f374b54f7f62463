"""Whatever shape an event has, it is read as one of ours."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.agents.executor.events import parse_event
from dragoman.compat import executor as compat
from dragoman.model.error import InvalidAgentResponse
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

TEXT = Message("m", Role.AGENT, (Part(text="hi"),))
WORKING = StatusUpdate("t", "c", TaskStatus(State.WORKING, TEXT))
CHUNK = ArtifactUpdate("t", "c", Artifact("a", (Part(data={"n": 1, "none": None}),), "x"), append=True, last_chunk=True)


class Word(Enum):
    WORKING = "working"


@dataclass
class Piece:
    text: str | None = None
    raw: bytes | None = None
    data: Any = None


@dataclass
class ForeignMessage:
    message_id: str
    role: str
    parts: list[Piece] = field(default_factory=list[Piece])
    _cache: object = None


@pytest.mark.parametrize("event", [TEXT, WORKING, CHUNK, Task("t", "c", TaskStatus(State.COMPLETED))])
def test_an_event_of_ours_is_taken_as_it_is(event: object) -> None:
    assert parse_event(event) is event


@pytest.mark.parametrize(
    "value",
    [
        {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]},
        {"message_id": "m", "role": "agent", "parts": [{"text": "hi"}]},
        {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}},
        {"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "hi"}]},
        {"message_id": "m", "role": "agent", "parts": [Part(text="hi")]},
        compat.Message(compat.Role.AGENT, (compat.TextPart("hi"),), "m"),
        SimpleNamespace(message_id="m", role="agent", parts=(SimpleNamespace(text="hi"),), metadata=None),
        ForeignMessage("m", "agent", [Piece(text="hi")]),
    ],
)
def test_a_message_may_have_any_of_the_known_shapes(value: object) -> None:
    assert parse_event(value) == TEXT


@pytest.mark.parametrize(
    "value",
    [
        {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING", "message": TEXT}},
        {"status_update": {"task_id": "t", "context_id": "c", "status": {"state": Word.WORKING, "message": TEXT}}},
        SimpleNamespace(task_id="t", context_id="c", status=SimpleNamespace(state="working", message=TEXT)),
    ],
)
def test_a_status_may_have_any_of_the_known_shapes(value: object) -> None:
    assert parse_event(value) == WORKING


def test_an_artifact_keeps_its_flags_its_integers_and_what_is_null() -> None:
    artifact = {"artifactId": "a", "name": "x", "parts": [{"data": {"n": 1, "none": None}}]}
    value = {"taskId": "t", "contextId": "c", "artifact": artifact, "append": True, "lastChunk": True}
    read = parse_event(value)
    assert read == CHUNK
    assert isinstance(read, ArtifactUpdate)
    assert type(read.artifact.parts[0].data["n"]) is int
    old = compat.TaskArtifactUpdateEvent.from_model(CHUNK)
    assert parse_event(old) == CHUNK


def test_a_whole_task_is_known_by_its_id() -> None:
    value = {"id": "t", "contextId": "c", "status": {"state": "submitted"}, "history": [TEXT]}
    assert parse_event(value) == Task("t", "c", TaskStatus(State.SUBMITTED), history=(TEXT,))


def test_bytes_stay_bytes() -> None:
    read = parse_event(ForeignMessage("m", "agent", [Piece(raw=b"\x00\xff")]))
    assert isinstance(read, Message)
    assert read.parts == (Part(raw=b"\x00\xff"),)
    sent = {"messageId": "m", "role": "agent", "parts": [{"raw": base64.b64encode(b"\x00\xff").decode()}]}
    assert parse_event(sent) == read


@pytest.mark.parametrize(
    "value",
    [None, "text", 3, [], {}, {"id": "t"}, {"kind": "song"}, object(), {"parts": [{}]}, {"parts": [{"data": {1j}}]}],
)
def test_an_object_that_is_no_event_is_refused_with_its_type(value: object) -> None:
    with pytest.raises(InvalidAgentResponse, match=f"a {type(value).__name__} that cannot be read"):
        parse_event(value)
