"""Tasks, their states and their results as maps and back."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.compat.executor import Artifact, Message, Role, Task, TaskState, TaskStatus, TextPart
from dragoman.model.state import State
from dragoman.testing import Clock

MESSAGE = Message(Role.USER, (TextPart("hi"),), "m")
ARTIFACT = Artifact("a", (TextPart("x"),), "n", "d", ("urn:x",), {"k": 1})
ARTIFACT_MAP: dict[str, Any] = {
    "artifactId": "a",
    "parts": [{"kind": "text", "text": "x"}],
    "name": "n",
    "description": "d",
    "extensions": ["urn:x"],
    "metadata": {"k": 1},
}
STATUS = TaskStatus(TaskState.INPUT_REQUIRED, MESSAGE, "2026-11-15T10:00:00.000Z")
STATUS_MAP: dict[str, Any] = {
    "state": "input-required",
    "message": MESSAGE.to_map(),
    "timestamp": "2026-11-15T10:00:00.000Z",
}
TASK = Task("t", "c", STATUS, (ARTIFACT,), (MESSAGE,), {"k": 1})
TASK_MAP: dict[str, Any] = {
    "kind": "task",
    "id": "t",
    "contextId": "c",
    "status": STATUS_MAP,
    "artifacts": [ARTIFACT_MAP],
    "history": [MESSAGE.to_map()],
    "metadata": {"k": 1},
}
WORDS = {
    "submitted",
    "working",
    "input-required",
    "completed",
    "failed",
    "canceled",
    "rejected",
    "auth-required",
    "unknown",
    "unspecified",
}


@pytest.mark.requirement("S2-64", "S2-98")
def test_a_task_with_everything_comes_back_as_it_went() -> None:
    assert TASK.to_map() == TASK_MAP
    assert Task.from_map(TASK_MAP) == ("ok", TASK)
    assert Task.from_model(TASK.to_model()) == TASK


@pytest.mark.requirement("S2-64")
def test_what_a_task_has_not_is_not_said() -> None:
    task = Task("t", "c", TaskStatus(TaskState.WORKING))
    assert task.to_map() == {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}}
    assert Task.from_map(task.to_map()) == ("ok", task)


@pytest.mark.requirement("S2-65")
def test_there_are_ten_states_with_hyphens_on_the_wire() -> None:
    assert {state.value for state in TaskState} == WORDS


@pytest.mark.requirement("S2-65")
@pytest.mark.parametrize("state", TaskState)
def test_every_state_comes_back_as_it_went(state: TaskState) -> None:
    status = TaskStatus(state)
    assert status.to_map() == {"state": state.value}
    assert TaskStatus.from_map(status.to_map()) == ("ok", status)


@pytest.mark.requirement("S2-65")
@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("input_required", TaskState.INPUT_REQUIRED),
        ("cancelled", TaskState.CANCELED),
        ("TASK_STATE_AUTH_REQUIRED", TaskState.AUTH_REQUIRED),
        ("on holiday", TaskState.UNKNOWN),
    ],
)
def test_a_state_is_read_in_every_spelling_and_a_foreign_one_is_unknown(word: str, state: TaskState) -> None:
    assert TaskStatus.from_map({"state": word}) == ("ok", TaskStatus(state))


def test_completed_failed_canceled_and_rejected_are_terminal() -> None:
    terminal = {state for state in TaskState if state.terminal}
    assert terminal == {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}


@pytest.mark.parametrize("state", State)
def test_every_state_of_the_model_has_one_here(state: State) -> None:
    assert TaskState.from_model(state).to_model() is state


@pytest.mark.requirement("S2-66", "S2-98")
def test_a_status_has_a_state_a_message_and_a_time() -> None:
    assert STATUS.to_map() == STATUS_MAP
    assert TaskStatus.from_map(STATUS_MAP) == ("ok", STATUS)


@pytest.mark.requirement("S2-66")
def test_a_status_needs_a_state() -> None:
    status, reason = TaskStatus.from_map({})
    assert status == "error"
    assert "state" in str(reason)


@pytest.mark.requirement("S2-67", "S2-98")
def test_an_artifact_comes_back_as_it_went() -> None:
    assert ARTIFACT.to_map() == ARTIFACT_MAP
    assert Artifact.from_map(ARTIFACT_MAP) == ("ok", ARTIFACT)


@pytest.mark.requirement("S2-67")
def test_what_an_artifact_has_not_is_not_said() -> None:
    assert Artifact("a", (TextPart("x"),)).to_map() == {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}


@pytest.mark.requirement("S2-64")
def test_a_new_task_is_submitted_now_and_its_history_is_the_message() -> None:
    task = Task.new_submitted(MESSAGE, clock=Clock(0))
    assert task.status == TaskStatus(TaskState.SUBMITTED, timestamp="1970-01-01T00:00:00.000Z")
    [said] = task.history
    assert (said.text, said.id) == ("hi", "m")
    assert (said.task_id, said.context_id) == (task.id, task.context_id)


def test_two_new_tasks_have_ids_and_contexts_of_their_own() -> None:
    first, second = Task.new_submitted(MESSAGE), Task.new_submitted(MESSAGE)
    assert len({first.id, second.id, first.context_id, second.context_id}) == 4


def test_a_new_task_keeps_the_messages_context() -> None:
    assert Task.new_submitted(Message(Role.USER, (TextPart("hi"),), context_id="c")).context_id == "c"
