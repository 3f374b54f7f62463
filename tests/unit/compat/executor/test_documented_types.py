"""The structs of the document's list of types, written with the fields that they have there."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.compat.executor import (
    AgentCapabilities,
    AgentCard,
    Artifact,
    FileBytes,
    FilePart,
    Message,
    MessageSendConfig,
    MessageSendParams,
    PushAuthInfo,
    PushConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

TEXT: Any = {"kind": "text", "text": "hi"}
NONE: Any = None
USER: Any = "user"


def as_list(*items: Any) -> Any:
    """A list, where Python's types want a tuple."""
    return list(items)


def message() -> Message:
    return Message(
        id="m1",
        role=USER,
        parts=as_list(TextPart(text="hi", metadata=None)),
        context_id=None,
        task_id=None,
        reference_task_ids=NONE,
        extensions=NONE,
        metadata=None,
    )


def artifact() -> Artifact:
    return Artifact(
        id="a1",
        name=None,
        description=None,
        parts=as_list(TextPart(text="hi")),
        extensions=NONE,
        metadata=None,
    )


def status(state: Any) -> TaskStatus:
    return TaskStatus(state=state, message=message(), timestamp=None)


MESSAGE: Any = {"kind": "message", "messageId": "m1", "role": "user", "parts": [TEXT]}
ARTIFACT: Any = {"artifactId": "a1", "parts": [TEXT]}


@pytest.mark.requirement("S2-62", "S2-97")
def test_a_message_has_an_id_which_is_message_id_in_json() -> None:
    assert (message().id, message().to_map()) == ("m1", MESSAGE)
    assert Message.from_map(MESSAGE) == ("ok", Message(id="m1", role=Role.USER, parts=(TextPart("hi"),)))


@pytest.mark.requirement("S2-67", "S2-97")
def test_an_artifact_has_an_id_which_is_artifact_id_in_json() -> None:
    assert (artifact().id, artifact().to_map()) == ("a1", ARTIFACT)


@pytest.mark.requirement("S2-65", "S2-66")
@pytest.mark.parametrize(
    ("atom", "word"),
    [
        *((word, word) for word in ("submitted", "working", "completed", "failed", "canceled", "rejected", "unknown")),
        ("input_required", "input-required"),
        ("auth_required", "auth-required"),
    ],
)
def test_a_status_takes_a_state_as_the_document_spells_it_and_writes_it_as_the_wire_does(atom: str, word: str) -> None:
    assert status(atom).state is TaskState(word)
    assert status(atom).to_map() == {"state": word, "message": MESSAGE}


@pytest.mark.requirement("S2-64", "S2-68", "S2-69", "S2-97")
def test_what_is_none_inside_of_something_is_not_in_the_json_either() -> None:
    one = status("working")
    whole = Task(id="t", context_id="c", status=one, artifacts=as_list(artifact()), history=NONE, metadata=None)
    task = {"kind": "task", "id": "t", "contextId": "c", "status": one.to_map(), "artifacts": [ARTIFACT]}
    assert whole.to_map() == task
    assert TaskStatusUpdateEvent(task_id="t", context_id="c", status=one, final=False, metadata=None).to_map() == {
        "kind": "status-update",
        "taskId": "t",
        "contextId": "c",
        "status": one.to_map(),
        "final": False,
    }
    update = TaskArtifactUpdateEvent(
        task_id="t", context_id="c", artifact=artifact(), append=True, last_chunk=True, metadata=None
    )
    assert update.to_map()["artifact"] == ARTIFACT


@pytest.mark.requirement("S2-74", "S2-75")
def test_the_parameters_of_a_message_have_a_config_which_is_configuration_in_json() -> None:
    config = MessageSendConfig(
        accepted_output_modes=NONE,
        blocking=True,
        history_length=5,
        push_notification_config=PushConfig(
            url="https://hooks.example.com", id="1", token="t", authentication=PushAuthInfo(schemes=("Bearer",))
        ),
    )
    params = MessageSendParams(message=message(), config=config, metadata=None)
    webhook = {"url": "https://hooks.example.com", "id": "1", "token": "t", "authentication": {"schemes": ["Bearer"]}}
    written = {"blocking": True, "historyLength": 5, "pushNotificationConfig": webhook}
    assert params.to_map() == {"message": MESSAGE, "configuration": written}
    assert TaskPushConfig(task_id="t", push_notification_config=PushConfig(url="https://x", id=None)).to_map() == {
        "taskId": "t",
        "pushNotificationConfig": {"url": "https://x"},
    }


@pytest.mark.requirement("S2-70", "S2-71")
def test_a_card_is_written_with_the_fields_of_the_document() -> None:
    card = AgentCard(
        name="echo",
        description="Says it again",
        url="http://localhost:4000",
        version="1.0.0",
        protocol_version="0.3.0",
        capabilities=AgentCapabilities(streaming=True),
        skills=(),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        provider=None,
        documentation_url=None,
        icon_url=None,
        supports_authenticated_extended_card=False,
    )
    assert card.to_map()["supportsAuthenticatedExtendedCard"] is False
    assert card.to_map()["protocolVersion"] == "0.3.0"


@pytest.mark.requirement("S2-58", "S2-60")
def test_a_file_is_written_with_the_fields_of_the_document() -> None:
    file = FilePart(file=FileBytes(bytes="aGk=", name=None, mime_type="text/plain"), metadata=None)
    assert file.to_map() == {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain"}}
