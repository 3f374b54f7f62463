"""The names that readers of the source document look for."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dragoman.compat.executor as executor
from dragoman.compat.executor import (
    AgentCard,
    AgentProvider,
    Artifact,
    Error,
    Event,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    decode_request,
    encode_error,
    encode_response,
    error_code,
    error_type,
)

# Sections 4 to 6 of the document, without the prefix `A2AEx`. Params, Push, ID and JSONRPC are modules there.
NAMES = (
    "AgentExecutor",
    "TaskStore",
    "EventQueue",
    "RequestHandler",
    "ADKExecutor",
    "Converter",
    "AgentCard",
    "PushSender",
    "PushConfigStore",
    "TextPart",
    "FilePart",
    "DataPart",
    "FileBytes",
    "FileURI",
    "Message",
    "Task",
    "TaskStatus",
    "TaskState",
    "Artifact",
    "TaskStatusUpdateEvent",
    "TaskArtifactUpdateEvent",
    "Event",
    "AgentCapabilities",
    "AgentSkill",
    "AgentProvider",
    "TaskIDParams",
    "TaskQueryParams",
    "MessageSendParams",
    "MessageSendConfig",
    "PushConfig",
    "PushAuthInfo",
    "TaskPushConfig",
    "Error",
    "RequestContext",
    "decode_request",
    "encode_response",
    "encode_error",
    "error_code",
)


@pytest.mark.requirement("S2-84")
@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_document_is_there(name: str) -> None:
    assert name in executor.__all__
    assert getattr(executor, name) is not None


@pytest.mark.requirement("S2-85")
@pytest.mark.parametrize(
    "event",
    [
        Message(Role.AGENT, (TextPart("hi"),)),
        Task("t", "c", TaskStatus(TaskState.SUBMITTED)),
        TaskStatusUpdateEvent("t", "c", TaskStatus(TaskState.WORKING)),
        TaskArtifactUpdateEvent("t", "c", Artifact("a", (TextPart("x"),))),
    ],
)
def test_event_decodes_each_of_the_four(event: Event[Any]) -> None:
    assert Event.from_map(event.to_map()) == ("ok", event)
    assert isinstance(event, Event)
    assert type(event).from_map(event.to_map()) == ("ok", event)


@pytest.mark.requirement("S2-85")
def test_event_says_which_kind_is_missing_or_unknown() -> None:
    assert Event.from_map({}) == ("error", "missing event kind")
    assert Event.from_map({"kind": "text"}) == ("error", "unknown event kind: text")
    assert not isinstance(TextPart("hi"), Event)


@pytest.mark.requirement("S2-70")
@pytest.mark.requirement("S2-119")
def test_a_card_has_a_provider() -> None:
    provider = AgentProvider(organization="P", url="https://p.example")
    assert provider.to_map() == {"url": "https://p.example", "organization": "P"}
    assert AgentProvider.from_map(provider.to_map()) == ("ok", provider)
    card = AgentCard("n", "d", "https://x.example", "1", provider=provider)
    assert card.to_map()["provider"] == provider.to_map()
    assert AgentCard.from_map(card.to_map()) == ("ok", card)
    assert AgentCard.from_model(card.to_model()).provider == provider


@pytest.mark.requirement("S2-81")
def test_the_functions_for_json_rpc_are_there() -> None:
    status, request = decode_request(b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t"}}')
    assert status == "ok"
    assert not isinstance(request, Error)
    assert (request.method, request.params, request.id) == ("tasks/get", {"id": "t"}, 1)
    assert json.loads(encode_response({"a": 1}, 1)) == {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}
    error = Error(error_type(-32001), "task not found")
    expected = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "task not found"}}
    assert json.loads(encode_error(error, 1)) == expected
    assert error_code("task_not_found") == -32001
