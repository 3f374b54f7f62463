"""Every type of the document: its names, its fields, how it is spelled in JSON, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import dragoman.compat.executor as executor
from dragoman.compat.executor import (
    AgentCapabilities,
    AgentCard,
    AgentProvider,
    AgentSkill,
    Artifact,
    DataPart,
    Event,
    FileBytes,
    FilePart,
    FileURI,
    Message,
    MessageSendConfig,
    MessageSendParams,
    PushAuthInfo,
    PushConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIDParams,
    TaskPushConfig,
    TaskQueryParams,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    event_from_map,
    part_from_map,
    part_from_model,
)
from dragoman.model.card import AgentExtension
from dragoman.model.error import BadCard, BadResponse, InvalidParams
from dragoman.model.event import StatusUpdate
from dragoman.model.message import Message as ModelMessage
from dragoman.model.operation import AuthenticationInfo, CancelTaskRequest, GetTaskRequest, TaskPushNotificationConfig
from dragoman.model.part import Part
from dragoman.model.state import Role as ModelRole
from dragoman.model.state import State
from dragoman.model.task import TaskStatus as ModelStatus
from dragoman.testing import Clock

Json = dict[str, Any]

# Sections 4 to 6 of the document, without the prefix `A2AEx`. Params, Push, ID and JSONRPC are modules there.
NAMES = (
    *("AgentExecutor", "TaskStore", "EventQueue", "RequestHandler", "ADKExecutor", "Converter", "AgentCard"),
    *("PushSender", "PushConfigStore", "TextPart", "FilePart", "DataPart", "FileBytes", "FileURI", "Message", "Task"),
    *("TaskStatus", "TaskState", "Artifact", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent", "Event"),
    *("AgentCapabilities", "AgentSkill", "AgentProvider", "TaskIDParams", "TaskQueryParams", "MessageSendParams"),
    *("MessageSendConfig", "PushConfig", "PushAuthInfo", "TaskPushConfig", "Error", "RequestContext"),
    *("decode_request", "encode_response", "encode_error", "error_code"),
)


@pytest.mark.requirement("S2-84")
@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_document_is_there(name: str) -> None:
    assert name in executor.__all__
    assert getattr(executor, name) is not None


# -- how each is spelled ---------------------------------------------------------------------------------------------

TIME = "2026-11-15T10:00:00.000Z"
TEXT: Json = {"kind": "text", "text": "hi"}
MESSAGE = Message(
    id="m",
    role=Role.AGENT,
    parts=(TextPart("hi"), FilePart(FileBytes("aGk=")), DataPart({"a": 1})),
    context_id="c",
    task_id="t",
    reference_task_ids=("r",),
    extensions=("urn:x",),
    metadata={"k": 1},
)
MESSAGE_MAP: Json = {
    "kind": "message",
    "role": "agent",
    "messageId": "m",
    "contextId": "c",
    "taskId": "t",
    "referenceTaskIds": ["r"],
    "extensions": ["urn:x"],
    "metadata": {"k": 1},
    "parts": [TEXT, {"kind": "file", "file": {"bytes": "aGk="}}, {"kind": "data", "data": {"a": 1}}],
}
ARTIFACT = Artifact("a", (TextPart("hi"),), "n", "d", ("urn:x",), {"k": 1})
ARTIFACT_MAP: Json = {
    "artifactId": "a",
    "parts": [TEXT],
    "name": "n",
    "description": "d",
    "extensions": ["urn:x"],
    "metadata": {"k": 1},
}
STATUS = TaskStatus(TaskState.INPUT_REQUIRED, MESSAGE, TIME)
STATUS_MAP: Json = {"state": "input-required", "message": MESSAGE_MAP, "timestamp": TIME}
TASK = Task("t", "c", STATUS, (ARTIFACT,), (MESSAGE,), {"k": 1})
TASK_MAP: Json = {
    "kind": "task",
    "id": "t",
    "contextId": "c",
    "status": STATUS_MAP,
    "artifacts": [ARTIFACT_MAP],
    "history": [MESSAGE_MAP],
    "metadata": {"k": 1},
}
IDS: Json = {"taskId": "t", "contextId": "c"}
STATUS_EVENT = TaskStatusUpdateEvent("t", "c", TaskStatus(TaskState.WORKING), metadata={"k": 1})
STATUS_EVENT_MAP: Json = {
    **{"kind": "status-update", **IDS, "status": {"state": "working"}},
    **{"final": False, "metadata": {"k": 1}},
}
ARTIFACT_EVENT = TaskArtifactUpdateEvent("t", "c", ARTIFACT, append=True, last_chunk=True, metadata={"k": 1})
ARTIFACT_EVENT_MAP: Json = {
    **{"kind": "artifact-update", **IDS, "artifact": ARTIFACT_MAP},
    **{"append": True, "lastChunk": True, "metadata": {"k": 1}},
}
AUTH = PushAuthInfo(("Bearer",), "secret")
AUTH_MAP: Json = {"schemes": ["Bearer"], "credentials": "secret"}
PUSH = PushConfig("https://x.example/hook", "p", "token", AUTH)
PUSH_MAP: Json = {"url": "https://x.example/hook", "id": "p", "token": "token", "authentication": AUTH_MAP}
CONFIG = MessageSendConfig(("text/plain",), False, 3, PUSH)
CONFIG_MAP: Json = {
    "acceptedOutputModes": ["text/plain"],
    "blocking": False,
    "historyLength": 3,
    "pushNotificationConfig": PUSH_MAP,
}
SKILL = AgentSkill("s", "Skill", "does it", ("a",), ("do it",), ("text/plain",), ("application/json",))
SKILL_MAP: Json = {
    **{"id": "s", "name": "Skill", "description": "does it", "tags": ["a"], "examples": ["do it"]},
    **{"inputModes": ["text/plain"], "outputModes": ["application/json"]},
}
CARD = AgentCard(
    name="n",
    description="d",
    url="https://x.example/a2a",
    version="1.2.3",
    capabilities=AgentCapabilities(streaming=True, push_notifications=True, extensions=(AgentExtension("urn:x"),)),
    skills=(SKILL,),
    default_input_modes=("text/plain", "image/png"),
    default_output_modes=("application/json",),
    provider=AgentProvider("https://p.example", "P"),
    documentation_url="https://x.example/docs",
    icon_url="https://x.example/icon.png",
    supports_authenticated_extended_card=True,
    preferred_transport="JSONRPC",
)
CARD_MAP: Json = {
    "name": "n",
    "description": "d",
    "url": "https://x.example/a2a",
    "version": "1.2.3",
    "protocolVersion": "0.3.0",
    "capabilities": {"streaming": True, "pushNotifications": True, "extensions": [{"uri": "urn:x"}]},
    "skills": [SKILL_MAP],
    "defaultInputModes": ["text/plain", "image/png"],
    "defaultOutputModes": ["application/json"],
    "provider": {"url": "https://p.example", "organization": "P"},
    "documentationUrl": "https://x.example/docs",
    "iconUrl": "https://x.example/icon.png",
    "supportsAuthenticatedExtendedCard": True,
    "preferredTransport": "JSONRPC",
}
WHOLE: list[tuple[Any, Json]] = [
    (TextPart("hi", {"k": 1}), {**TEXT, "metadata": {"k": 1}}),
    (
        FilePart(FileBytes("aGk=", "a.txt", "text/plain"), {"k": 1}),
        {
            "kind": "file",
            "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"},
            "metadata": {"k": 1},
        },
    ),
    (
        FilePart(FileURI("https://x.example/a", "a.txt", "text/plain")),
        {"kind": "file", "file": {"uri": "https://x.example/a", "name": "a.txt", "mimeType": "text/plain"}},
    ),
    (
        DataPart({"a": [1, 1.5, None]}, {"k": 1}),
        {"kind": "data", "data": {"a": [1, 1.5, None]}, "metadata": {"k": 1}},
    ),
    (MESSAGE, MESSAGE_MAP),
    (ARTIFACT, ARTIFACT_MAP),
    (STATUS, STATUS_MAP),
    (TASK, TASK_MAP),
    (STATUS_EVENT, STATUS_EVENT_MAP),
    (ARTIFACT_EVENT, ARTIFACT_EVENT_MAP),
    (SKILL, SKILL_MAP),
    (AgentCapabilities(state_transition_history=True), {"stateTransitionHistory": True}),
    (AgentProvider(organization="P", url="https://p.example"), {"url": "https://p.example", "organization": "P"}),
    (CARD, CARD_MAP),
    (TaskIDParams("t", {"k": 1}), {"id": "t", "metadata": {"k": 1}}),
    (TaskQueryParams("t", 0, {"k": 1}), {"id": "t", "historyLength": 0, "metadata": {"k": 1}}),
    (
        MessageSendParams(MESSAGE, CONFIG, {"k": 1}),
        {"message": MESSAGE_MAP, "configuration": CONFIG_MAP, "metadata": {"k": 1}},
    ),
    (CONFIG, CONFIG_MAP),
    (PUSH, PUSH_MAP),
    (AUTH, AUTH_MAP),
    (TaskPushConfig("t", PUSH), {"taskId": "t", "pushNotificationConfig": PUSH_MAP}),
]
MINIMAL: list[tuple[Any, Json]] = [
    (TextPart("hi"), TEXT),
    (FileBytes("aGk="), {"bytes": "aGk="}),
    (FileURI("https://x.example/a"), {"uri": "https://x.example/a"}),
    (
        Message(Role.USER, (TextPart("hi"),), "m"),
        {"kind": "message", "role": "user", "messageId": "m", "parts": [TEXT]},
    ),
    (Artifact("a", (TextPart("hi"),)), {"artifactId": "a", "parts": [TEXT]}),
    (
        Task("t", "c", TaskStatus(TaskState.WORKING)),
        {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}},
    ),
    (
        TaskStatusUpdateEvent("t", "c", TaskStatus(TaskState.COMPLETED), final=True),
        {"kind": "status-update", **IDS, "status": {"state": "completed"}, "final": True},
    ),
    (
        TaskArtifactUpdateEvent("t", "c", Artifact("a", (TextPart("hi"),))),
        {"kind": "artifact-update", **IDS, "artifact": {"artifactId": "a", "parts": [TEXT]}},
    ),
    (AgentSkill("s", "n", "d", ()), {"id": "s", "name": "n", "description": "d", "tags": []}),
    (AgentCapabilities(), {}),
    (AgentCapabilities(streaming=True), {"streaming": True}),
    (AgentCapabilities(push_notifications=True), {"pushNotifications": True}),
    (
        AgentCard("n", "d", "https://x.example", "1"),
        {
            "name": "n",
            "description": "d",
            "url": "https://x.example",
            "version": "1",
            "protocolVersion": "0.3.0",
            "capabilities": {},
            "skills": [],
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
        },
    ),
    (TaskIDParams("t"), {"id": "t"}),
    (TaskQueryParams("t"), {"id": "t"}),
    (MessageSendParams(MESSAGE), {"message": MESSAGE_MAP}),
    (MessageSendConfig(), {}),
    (PushConfig("https://x"), {"url": "https://x"}),
    (PushAuthInfo(("Basic",)), {"schemes": ["Basic"]}),
]


def type_name(value: Any) -> str | None:
    return None if isinstance(value, dict) else type(value).__name__


@pytest.mark.requirement("S2-53", "S2-57", "S2-58", "S2-59", "S2-60", "S2-61", "S2-62", "S2-64", "S2-66", "S2-67")
@pytest.mark.requirement("S2-68", "S2-69", "S2-70", "S2-72", "S2-73", "S2-74", "S2-75", "S2-76", "S2-77", "S2-78")
@pytest.mark.requirement("S2-86", "S2-97", "S2-98", "S2-119")
@pytest.mark.parametrize(("value", "map"), WHOLE, ids=type_name)
def test_a_value_with_every_field_is_written_in_camel_case_and_read_back(value: Any, map: Json) -> None:
    assert value.to_map() == map
    assert type(value).from_map(json.loads(json.dumps(map))) == ("ok", value)


@pytest.mark.requirement("S2-57", "S2-60", "S2-61", "S2-62", "S2-64", "S2-67", "S2-68", "S2-69", "S2-70", "S2-71")
@pytest.mark.requirement("S2-72", "S2-73", "S2-74", "S2-75", "S2-76", "S2-77", "S2-86")
@pytest.mark.parametrize(("value", "map"), MINIMAL, ids=type_name)
def test_a_field_without_a_value_is_left_out_unless_it_has_a_default(value: Any, map: Json) -> None:
    assert value.to_map() == map
    assert type(value).from_map(map) == ("ok", value)


@pytest.mark.requirement("S2-64", "S2-65", "S2-66", "S2-97")
@pytest.mark.parametrize("word", ["working", "input_required", "auth_required"])
def test_values_may_be_built_of_lists_words_and_none_as_the_document_does_it(word: Any) -> None:
    none: Any = None
    parts: Any = [TextPart(text="hi", metadata=None)]
    user: Any = "user"
    message = Message(
        id="m", role=user, parts=parts, context_id=None, reference_task_ids=none, extensions=none, metadata=None
    )
    status = TaskStatus(state=word, message=message, timestamp=None)
    task = Task(id="t", context_id="c", status=status, artifacts=none, history=none, metadata=None)
    message_map = {"kind": "message", "messageId": "m", "role": "user", "parts": [TEXT]}
    assert status.state is TaskState(word.replace("_", "-"))
    assert task.to_map() == {
        "kind": "task",
        "id": "t",
        "contextId": "c",
        "status": {"state": word.replace("_", "-"), "message": message_map},
    }


@pytest.mark.requirement("S2-62")
def test_null_counts_as_absent() -> None:
    message: Json = {"role": "user", "messageId": "m", "parts": [TEXT]}
    nulls = {"contextId": None, "taskId": None, "metadata": None, "extensions": None}
    assert Message.from_map(message | nulls) == ("ok", Message(Role.USER, (TextPart("hi"),), "m"))


@pytest.mark.requirement("S2-71")
def test_a_card_that_does_not_say_its_version_speaks_0_3_0() -> None:
    silent = {key: value for key, value in CARD_MAP.items() if key != "protocolVersion"}
    assert AgentCard.from_map(silent) == ("ok", CARD)


@pytest.mark.parametrize("missing", [{}, {"messageId": None}])
def test_a_message_without_an_id_is_given_one(missing: Json) -> None:
    status, message = Message.from_map({"role": "user", "parts": [TEXT]} | missing)
    assert status == "ok"
    assert isinstance(message, Message)
    assert re.fullmatch(r"[0-9a-f-]{36}", message.id)


# -- kinds, roles and states -----------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-85")
@pytest.mark.parametrize("event", [MESSAGE, TASK, STATUS_EVENT, ARTIFACT_EVENT], ids=type_name)
def test_the_kind_of_a_map_selects_the_event(event: Any) -> None:
    assert event_from_map(event.to_map()) == Event.from_map(event.to_map()) == ("ok", event)
    assert isinstance(event, Event)
    assert not isinstance(TextPart("hi"), Event)


@pytest.mark.requirement("S2-57", "S2-58", "S2-59")
@pytest.mark.parametrize("part", [each for each, _ in WHOLE[:4]], ids=type_name)
def test_the_kind_of_a_map_selects_the_part(part: Any) -> None:
    assert part_from_map(part.to_map()) == ("ok", part)
    assert part_from_model(part.to_model()) == part


@pytest.mark.requirement("S2-85")
@pytest.mark.parametrize("read", [event_from_map, Event.from_map])
def test_a_kind_that_is_missing_or_unknown_is_an_error_that_says_so(read: Any) -> None:
    assert read({"taskId": "t"}) == ("error", "missing event kind")
    assert read({"kind": "rumor"}) == ("error", "unknown event kind: rumor")
    assert part_from_map({"text": "hi"}) == ("error", "missing part kind")
    assert part_from_map({"kind": "video"}) == ("error", "unknown part kind: video")


@pytest.mark.requirement("S2-63")
@pytest.mark.parametrize(("word", "role"), [("user", Role.USER), ("agent", Role.AGENT), ("ROLE_AGENT", Role.AGENT)])
def test_a_role_is_user_or_agent(word: str, role: Role) -> None:
    status, message = Message.from_map(MESSAGE_MAP | {"role": word})
    assert status == "ok"
    assert isinstance(message, Message)
    assert message.role is role


@pytest.mark.requirement("S2-63")
@pytest.mark.parametrize("role", ["moderator", "", 7])
def test_a_role_that_does_not_exist_is_refused(role: Any) -> None:
    status, reason = Message.from_map(MESSAGE_MAP | {"role": role})
    assert (status, "role" in str(reason)) == ("error", True)
    with pytest.raises(ValueError, match=f"{role!r} is not a valid Role"):
        Message(role, (TextPart("hi"),))


@pytest.mark.requirement("S2-63")
async def test_a_handler_refuses_a_message_with_a_role_that_does_not_exist(calling: Any, echo: Any) -> None:
    message = {"role": "moderator", "messageId": "m", "parts": [TEXT]}
    error = (await calling(echo).ask("message/send", message=message))["error"]
    assert (error["code"], error["message"]) == (-32602, "message.role must be user")
    assert echo.executed == []


@pytest.mark.requirement("S2-65")
def test_there_are_ten_states_with_hyphens_on_the_wire() -> None:
    assert [state.value for state in TaskState if state.terminal] == ["completed", "failed", "canceled", "rejected"]
    assert {state.value for state in TaskState if not state.terminal} == {
        *("submitted", "working", "input-required", "auth-required", "unknown", "unspecified"),
    }
    for state in TaskState:
        assert TaskStatus.from_map({"state": state.value}) == ("ok", TaskStatus(state))
    for state in State:
        assert TaskState.from_model(state).to_model() is state


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


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-66")
@pytest.mark.parametrize(
    ("read", "map", "reason"),
    [
        (part_from_map, {"kind": "text"}, "text"),
        (part_from_map, {"kind": "text", "text": 1}, "text"),
        (part_from_map, {"kind": "data", "data": [1]}, "data"),
        (part_from_map, {"kind": "file", "file": {"name": "a"}}, "either bytes or uri"),
        (part_from_map, {"kind": "file", "file": {"bytes": "aGk=", "uri": "https://x"}}, "either bytes or uri"),
        (part_from_map, {"kind": "file", "file": {"bytes": "!"}}, "base64"),
        (part_from_map, {"kind": "file", "file": {"uri": 1}}, "uri"),
        (part_from_map, {"kind": "file", "file": "a.txt"}, "object"),
        (part_from_map, {"kind": "file"}, "file"),
        (TextPart.from_map, [1], ""),
        (Message.from_map, {"parts": [TEXT]}, "role"),
        (Message.from_map, {"role": "user"}, "parts"),
        (Message.from_map, {"role": "user", "parts": [TEXT, {"kind": "video"}]}, "parts[1]"),
        (Message.from_map, {"role": "user", "parts": [TEXT, {"text": "hi"}]}, "parts[1]"),
        (Message.from_map, {"role": "user", "parts": [TEXT, {"kind": "file", "file": {}}]}, "parts[1]"),
        (TaskStatus.from_map, {}, "state"),
        (event_from_map, {"kind": "status-update", **IDS, "status": {}}, "status.state"),
        (TaskIDParams.from_map, {}, "id"),
        (TaskQueryParams.from_map, {"id": "t", "historyLength": -1}, "historyLength"),
        (MessageSendParams.from_map, {}, "message"),
        (PushConfig.from_map, {}, "url"),
        (TaskPushConfig.from_map, {"taskId": "t"}, "pushNotificationConfig"),
        *((AgentCard.from_map, CARD_MAP | {name: None}, name) for name in ("name", "description", "url", "version")),
    ],
)
def test_a_wrong_map_is_an_error_that_names_the_field(read: Any, map: Any, reason: str) -> None:
    status, text = read(map)
    assert status == "error"
    assert reason in str(text)


def test_what_the_model_does_not_allow_is_not_converted() -> None:
    with pytest.raises(InvalidParams):
        FilePart(FileBytes("!")).to_model()
    with pytest.raises(BadResponse, match="base64"):
        Message(Role.USER, (FilePart(FileBytes("!")),)).to_model()
    with pytest.raises(InvalidParams, match="parts"):
        MessageSendParams(Message(Role.USER, ())).to_model()
    with pytest.raises(BadCard):
        AgentCard("n", "d", "", "1").to_model()


# -- the model's types -----------------------------------------------------------------------------------------------

SENT = MessageSendParams(Message(Role.USER, (TextPart("hi"),), "m"), CONFIG, {"k": 1})


@pytest.mark.requirement("S2-53")
@pytest.mark.parametrize(
    "value", [MESSAGE, TASK, STATUS_EVENT, ARTIFACT_EVENT, CARD, SENT, TaskPushConfig("t", PUSH)], ids=type_name
)
def test_a_value_is_converted_to_the_model_and_back(value: Any) -> None:
    assert type(value).from_model(value.to_model()) == value


def test_values_are_converted_to_those_of_the_model() -> None:
    parts = (Part(text="hi"), Part(raw=b"hi"), Part(data={"a": 1}))
    message = ModelMessage("m", ModelRole.AGENT, parts, "c", "t", {"k": 1}, ("urn:x",), ("r",))
    assert MESSAGE.to_model() == message
    webhook = TaskPushNotificationConfig(PUSH.url, "p", "t", "token", AuthenticationInfo("Bearer", "secret"))
    assert TaskPushConfig("t", PUSH).to_model() == webhook
    assert TaskQueryParams("t", 2).to_model() == GetTaskRequest("t", 2)
    assert TaskQueryParams.from_model(GetTaskRequest("t", 2)) == TaskQueryParams("t", 2)
    assert TaskIDParams("t", {"k": 1}).to_model() == CancelTaskRequest("t", {"k": 1})
    assert TaskIDParams.from_model(CancelTaskRequest("t", {"k": 1})) == TaskIDParams("t", {"k": 1})
    assert [(each.url, each.protocol_version) for each in CARD.to_model().supported_interfaces] == [(CARD.url, "0.3")]
    assert part_from_model(Part(raw=b"\x00\xff", filename="f")) == FilePart(FileBytes("AP8=", "f"))


@pytest.mark.parametrize(("state", "final"), [(State.WORKING, False), (State.COMPLETED, True)])
def test_a_terminal_state_of_the_model_is_final_by_default(state: State, final: bool) -> None:
    event = StatusUpdate("t", "c", ModelStatus(state))
    assert TaskStatusUpdateEvent.from_model(event).final is final
    assert TaskStatusUpdateEvent.from_model(event, final=not final).final is not final


# -- new values ------------------------------------------------------------------------------------------------------


def test_the_text_of_a_message_is_that_of_its_text_parts() -> None:
    assert Message(Role.USER, (TextPart("a"), DataPart({}), TextPart("b"))).text == "ab"


@pytest.mark.requirement("S2-64")
def test_a_new_task_is_submitted_now_and_its_history_is_the_message() -> None:
    asked = Message(Role.USER, (TextPart("hi"),), "m")
    task = Task.new_submitted(asked, clock=Clock(0))
    assert task.status == TaskStatus(TaskState.SUBMITTED, timestamp="1970-01-01T00:00:00.000Z")
    [message] = task.history
    assert (message.text, message.id) == ("hi", "m")
    assert (message.task_id, message.context_id) == (task.id, task.context_id)
    other = Task.new_submitted(asked)
    assert len({task.id, other.id, task.context_id, other.context_id}) == 4
    assert Task.new_submitted(Message(Role.USER, (TextPart("hi"),), context_id="c")).context_id == "c"
