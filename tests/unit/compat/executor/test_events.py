"""Events as maps and back."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.compat.executor import (
    Artifact,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    event_from_map,
)
from dragoman.model.event import StatusUpdate
from dragoman.model.state import State
from dragoman.model.task import TaskStatus as ModelStatus

STATUS = TaskStatusUpdateEvent("t", "c", TaskStatus(TaskState.WORKING), metadata={"k": 1})
ARTIFACT = TaskArtifactUpdateEvent("t", "c", Artifact("a", (TextPart("x"),)), append=True, last_chunk=True)
ARTIFACT_MAP: dict[str, Any] = {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}


@pytest.mark.requirement("S2-68", "S2-98")
def test_a_status_event_always_says_whether_it_is_final() -> None:
    assert STATUS.to_map() == {
        "kind": "status-update",
        "taskId": "t",
        "contextId": "c",
        "status": {"state": "working"},
        "final": False,
        "metadata": {"k": 1},
    }
    assert TaskStatusUpdateEvent.from_map(STATUS.to_map()) == ("ok", STATUS)


@pytest.mark.requirement("S2-68")
def test_a_status_event_without_metadata_does_not_say_so() -> None:
    event = TaskStatusUpdateEvent("t", "c", TaskStatus(TaskState.COMPLETED), final=True)
    assert "metadata" not in event.to_map()
    assert event.to_map()["final"] is True


@pytest.mark.requirement("S2-69", "S2-98")
def test_an_artifact_event_says_that_it_appends_and_is_the_last() -> None:
    assert ARTIFACT.to_map() == {
        "kind": "artifact-update",
        "taskId": "t",
        "contextId": "c",
        "artifact": ARTIFACT_MAP,
        "append": True,
        "lastChunk": True,
    }
    assert TaskArtifactUpdateEvent.from_map(ARTIFACT.to_map()) == ("ok", ARTIFACT)


@pytest.mark.requirement("S2-69")
def test_flags_that_are_false_are_not_said() -> None:
    event = TaskArtifactUpdateEvent("t", "c", Artifact("a", (TextPart("x"),)), metadata={"k": 1})
    expected = {"kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": ARTIFACT_MAP}
    assert event.to_map() == expected | {"metadata": {"k": 1}}
    assert TaskArtifactUpdateEvent.from_map(event.to_map()) == ("ok", event)


@pytest.mark.requirement("S2-85")
@pytest.mark.parametrize(
    "event",
    [
        Message(Role.AGENT, (TextPart("hi"),)),
        Task("t", "c", TaskStatus(TaskState.SUBMITTED)),
        STATUS,
        ARTIFACT,
    ],
)
def test_the_kind_of_a_map_says_which_event_it_is(event: Any) -> None:
    assert event_from_map(event.to_map()) == ("ok", event)


@pytest.mark.requirement("S2-85")
def test_an_unknown_kind_is_an_error_that_names_it() -> None:
    assert event_from_map({"kind": "rumour"}) == ("error", "unknown event kind: rumour")


@pytest.mark.requirement("S2-85")
def test_a_missing_kind_is_an_error() -> None:
    assert event_from_map({"taskId": "t"}) == ("error", "missing event kind")


def test_an_event_that_is_wrong_names_the_field() -> None:
    status, reason = event_from_map({"kind": "status-update", "taskId": "t", "contextId": "c", "status": {}})
    assert status == "error"
    assert "status.state" in str(reason)


@pytest.mark.parametrize("event", [STATUS, ARTIFACT])
def test_an_event_becomes_the_models_and_comes_back(event: Any) -> None:
    assert type(event).from_model(event.to_model()) == event


@pytest.mark.parametrize(("state", "final"), [(State.WORKING, False), (State.COMPLETED, True)])
def test_a_terminal_state_of_the_model_is_final_unless_said_otherwise(state: State, final: bool) -> None:
    event = StatusUpdate("t", "c", ModelStatus(state))
    assert TaskStatusUpdateEvent.from_model(event).final is final
    assert TaskStatusUpdateEvent.from_model(event, final=not final).final is not final
