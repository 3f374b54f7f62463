"""0.3 JSON-RPC on the wire, literally."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.dialects.table import ADK_EXTENSION
from dragoman.dialects.v03.dialect import V03, V03_RPC
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface
from dragoman.model.error import BadResponse, InvalidParams, MethodNotFound
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.operation import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    ListTasksResponse,
    Operation,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

MESSAGE = Message(
    "m",
    Role.AGENT,
    (
        Part(text="hi", metadata={"a": 1}),
        Part(raw=b"hi", filename="f.txt", media_type="text/plain"),
        Part(url="https://x.example/f"),
        Part(data={"b": 2}),
    ),
    context_id="c",
    task_id="t",
    reference_task_ids=("r",),
    extensions=("urn:x",),
    metadata={"k": 1},
)
MESSAGE_TEXT = (
    '{"kind":"message","messageId":"m","role":"agent","parts":['
    '{"kind":"text","text":"hi","metadata":{"a":1}},'
    '{"kind":"file","file":{"name":"f.txt","mimeType":"text/plain","bytes":"aGk="}},'
    '{"kind":"file","file":{"uri":"https://x.example/f"}},'
    '{"kind":"data","data":{"b":2}}],'
    '"contextId":"c","taskId":"t","referenceTaskIds":["r"],"extensions":["urn:x"],"metadata":{"k":1}}'
)
ARTIFACT = Artifact("a", (Part(text="yo"),), "n", "d")
ARTIFACT_TEXT = '{"artifactId":"a","parts":[{"kind":"text","text":"yo"}],"name":"n","description":"d"}'
STATUS = TaskStatus(State.INPUT_REQUIRED, timestamp="2026-11-15T10:00:00.000Z")
STATUS_TEXT = '{"state":"input-required","timestamp":"2026-11-15T10:00:00.000Z"}'
WEBHOOK = TaskPushNotificationConfig("https://x.example", "p", "t", "tok", AuthenticationInfo("Bearer", "c"))
WEBHOOK_TEXT = (
    '{"taskId":"t","pushNotificationConfig":{"url":"https://x.example","id":"p","token":"tok",'
    '"authentication":{"schemes":["Bearer"],"credentials":"c"}}}'
)


def sent(message: dict[str, Any], **params: Any) -> SendMessageRequest:
    request = V03_RPC.read_request(Operation.SEND, json.dumps({"message": message, **params}).encode())
    assert isinstance(request, SendMessageRequest)
    return request


def plain(*parts: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "user", "parts": parts or ({"kind": "text", "text": "hi"},), **changes}


@pytest.mark.requirement("S2-97")
def test_results_have_camel_case_keys_and_kinds_and_no_nulls() -> None:
    task = Task("t", "c", STATUS, (ARTIFACT,), (MESSAGE,), {"z": None})
    bare = Task("t", "c", TaskStatus(State.WORKING))

    assert V03_RPC.write_result(Operation.SEND, MESSAGE).decode() == MESSAGE_TEXT
    assert V03_RPC.write_result(Operation.GET, task).decode() == (
        f'{{"kind":"task","id":"t","contextId":"c","status":{STATUS_TEXT},'
        f'"artifacts":[{ARTIFACT_TEXT}],"history":[{MESSAGE_TEXT}],"metadata":{{"z":null}}}}'
    )
    assert V03_RPC.write_result(Operation.SEND, bare).decode() == (
        '{"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}'
    )


@pytest.mark.requirement("S2-98")
def test_objects_are_read_from_maps_with_camel_case_keys() -> None:
    assert V03_RPC.read_message(json.loads(MESSAGE_TEXT)) == MESSAGE
    assert V03_RPC.read_task(
        {"id": "t", "contextId": "c", "status": json.loads(STATUS_TEXT), "artifacts": [json.loads(ARTIFACT_TEXT)]}
    ) == Task("t", "c", STATUS, (ARTIFACT,))
    assert V03_RPC.read_values(
        Operation.SEND, {"message": plain(), "configuration": {"acceptedOutputModes": ["text"], "historyLength": 2}}
    ) == sent(plain(), configuration={"acceptedOutputModes": ["text"], "historyLength": 2})


@pytest.mark.parametrize(
    ("event", "last", "text"),
    [
        (
            StatusUpdate("t", "c", STATUS, {"k": 1}),
            True,
            f'{{"kind":"status-update","taskId":"t","contextId":"c","status":{STATUS_TEXT},'
            '"final":true,"metadata":{"k":1}}',
        ),
        (
            StatusUpdate("t", "c", STATUS),
            False,
            f'{{"kind":"status-update","taskId":"t","contextId":"c","status":{STATUS_TEXT},"final":false}}',
        ),
        (
            ArtifactUpdate("t", "c", ARTIFACT, append=True, last_chunk=True),
            True,
            f'{{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{ARTIFACT_TEXT},'
            '"append":true,"lastChunk":true}',
        ),
        (
            ArtifactUpdate("t", "c", ARTIFACT),
            False,
            f'{{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{ARTIFACT_TEXT}}}',
        ),
        (Task("t", "c", STATUS), True, f'{{"kind":"task","id":"t","contextId":"c","status":{STATUS_TEXT}}}'),
        (MESSAGE, True, MESSAGE_TEXT),
    ],
)
def test_events_are_bare_and_only_a_status_is_final(event: Any, last: bool, text: str) -> None:
    assert V03_RPC.event_writer().write_event(Record.of(1, event), last=last).decode() == text


@pytest.mark.requirement("S2-85")
def test_the_event_reader_goes_by_kind() -> None:
    for event in (Task("t", "c", STATUS), MESSAGE, StatusUpdate("t", "c", STATUS), ArtifactUpdate("t", "c", ARTIFACT)):
        body = V03_RPC.write_event(Record.of(1, event), last=False)
        assert V03_RPC.read_event(body).payload == event
        assert V03_RPC.read_event(json.loads(body)).payload == event
        for kind in ('"kind":"surprise"', '"kind":[]', '"kind":null', '"other":1'):
            wrong = b"{" + kind.encode() + body[body.index(b",") :]
            with pytest.raises(BadResponse, match="kind"):
                V03_RPC.read_event(wrong)


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (State.SUBMITTED, "submitted"),
        (State.WORKING, "working"),
        (State.INPUT_REQUIRED, "input-required"),
        (State.COMPLETED, "completed"),
        (State.FAILED, "failed"),
        (State.CANCELED, "canceled"),
        (State.REJECTED, "rejected"),
        (State.AUTH_REQUIRED, "auth-required"),
        (State.UNSPECIFIED, "unknown"),
    ],
)
def test_states_are_words_with_hyphens(state: State, word: str) -> None:
    task = Task("t", "c", TaskStatus(state))

    assert json.loads(V03_RPC.write_result(Operation.GET, task))["status"] == {"state": word}
    assert V03_RPC.read_task({"kind": "task", "id": "t", "contextId": "c", "status": {"state": word}}) == task


@pytest.mark.parametrize("word", ["cancelled", "TASK_STATE_CANCELED", "TASK_STATE_CANCELLED", 5])
def test_other_spellings_of_a_state_are_read_too(word: Any) -> None:
    task = V03_RPC.read_task({"id": "t", "contextId": "c", "status": {"state": word}})

    assert task.state is State.CANCELED


@pytest.mark.parametrize("role", ["user", "ROLE_USER", "User", "", 1])
def test_the_users_role_is_read_in_any_spelling(role: Any) -> None:
    assert sent(plain(role=role)).message.role is Role.USER


@pytest.mark.parametrize("role", ["nobody we know", 7])
def test_a_role_that_does_not_exist_is_refused(role: Any) -> None:
    with pytest.raises(InvalidParams, match=r"message\.role must be user"):
        sent(plain(role=role))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"kind": "text", "text": "a"}, Part(text="a")),
        ({"type": "text", "text": "a"}, Part(text="a")),
        ({"text": "a"}, Part(text="a")),
        ({"kind": "text", "type": "file", "text": "a", "file": None, "data": None}, Part(text="a")),
        ({"kind": "text", "text": "a", "metadata": {}}, Part(text="a", metadata={})),
        (
            {"kind": "text", "text": "1", "metadata": {"mediaType": "application/json", "filename": "n", "x": 1}},
            Part(text="1", media_type="application/json", filename="n", metadata={"x": 1}),
        ),
        ({"kind": "data", "data": {"a": 1}}, Part(data={"a": 1})),
        ({"data": {"a": 1}}, Part(data={"a": 1})),
        ({"kind": "data", "data": [1]}, Part(data=[1])),
        ({"kind": "data", "data": None}, Part(data=None)),
        ({"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}}, Part(data=[1])),
        (
            {"kind": "data", "data": {"value": 1, "more": 2}, "metadata": {"data_part_compat": True}},
            Part(data={"value": 1, "more": 2}, metadata={"data_part_compat": True}),
        ),
        ({"kind": "file", "file": {"bytes": "aGk="}}, Part(raw=b"hi")),
        ({"kind": "file", "file": {"bytes": "aGk", "uri": ""}}, Part(raw=b"hi")),
        ({"kind": "file", "file": {"bytes": "-_-_"}}, Part(raw=b"\xfb\xff\xbf")),
        ({"kind": "file", "file": {"bytes": ""}}, Part(raw=b"")),
        (
            {"kind": "file", "file": {"uri": "u", "name": "n", "mimeType": "m/t"}, "metadata": {"x": 1}},
            Part(url="u", filename="n", media_type="m/t", metadata={"x": 1}),
        ),
        ({"file": {"uri": "u", "mime_type": "m/t", "bytes": None}}, Part(url="u", media_type="m/t")),
    ],
)
def test_parts_are_read_by_kind_by_type_or_by_what_they_hold(part: dict[str, Any], expected: Part) -> None:
    # snake_case inside a part counts once the message itself is in snake_case.
    snake = {"message_id": "m", "role": "user", "parts": [part]}

    assert sent(snake).message.parts == (expected,)
    if "mime_type" not in json.dumps(part):
        assert sent(plain(part)).message.parts == (expected,)


@pytest.mark.parametrize("value", [[1, None], 5, "x", None, True])
def test_data_that_is_no_object_is_wrapped_as_a2a_sdk_does(value: Any) -> None:
    message = Message("m", Role.AGENT, (Part(data=value, metadata={"x": 1}),))

    (part,) = json.loads(V03_RPC.write_result(Operation.SEND, message))["parts"]

    assert part == {"kind": "data", "data": {"value": value}, "metadata": {"x": 1, "data_part_compat": True}}


@pytest.mark.parametrize(
    ("default", "configuration", "immediately"),
    [
        (True, {}, False),
        (True, {"blocking": None}, False),
        (True, {"blocking": True}, False),
        (True, {"blocking": False}, True),
        (True, None, False),
        (False, {}, True),
        (False, {"blocking": True}, False),
        (False, None, True),
    ],
)
def test_blocking_is_the_default_a_server_chooses(default: bool, configuration: Any, immediately: bool) -> None:
    dialect = V03(blocking_by_default=default)
    request = dialect.read_values(Operation.SEND, {"message": plain(), "configuration": configuration})

    assert isinstance(request, SendMessageRequest)
    assert request.configuration.return_immediately is immediately


def test_a_history_length_of_0_is_kept() -> None:
    assert sent(plain(), configuration={"historyLength": 0}).configuration.history_length == 0
    assert V03_RPC.read_request(Operation.GET, b'{"id":"t","historyLength":0}') == GetTaskRequest("t", 0)


@pytest.mark.requirement("S2-74", "S2-75")
def test_send_parameters_survive_the_round_trip() -> None:
    text = (
        '{"message":' + MESSAGE_TEXT.replace('"agent"', '"user"') + ',"configuration":{"acceptedOutputModes":["text"],'
        '"blocking":false,"historyLength":2,"pushNotificationConfig":{"url":"u","id":"p","token":"t",'
        '"authentication":{"schemes":["Bearer"],"credentials":"c"}}},"metadata":{"k":1}}'
    )

    request = V03_RPC.read_request(Operation.SEND, text.encode())

    assert V03_RPC.write_params(Operation.SEND, request).decode() == text


@pytest.mark.requirement("S2-72")
def test_task_id_parameters_survive_the_round_trip() -> None:
    request = V03_RPC.read_request(Operation.CANCEL, b'{"id":"t","metadata":{"k":1}}')

    assert request == CancelTaskRequest("t", {"k": 1})
    assert V03_RPC.write_params(Operation.CANCEL, request) == b'{"id":"t","metadata":{"k":1}}'


@pytest.mark.parametrize(
    ("operation", "params", "request_"),
    [
        (Operation.GET, {"id": "t", "historyLength": 3}, GetTaskRequest("t", 3)),
        (Operation.CANCEL, {"id": "t"}, CancelTaskRequest("t")),
        (Operation.SUBSCRIBE, {"id": "t"}, SubscribeToTaskRequest("t")),
        (Operation.CREATE_PUSH, json.loads(WEBHOOK_TEXT), WEBHOOK),
        (Operation.GET_PUSH, {"id": "t", "pushNotificationConfigId": "p"}, GetPushConfigRequest("t", "p")),
        (Operation.GET_PUSH, {"id": "t"}, GetPushConfigRequest("t", "")),
        (Operation.DELETE_PUSH, {"id": "t", "pushNotificationConfigId": "p"}, GetPushConfigRequest("t", "p")),
        (Operation.LIST_PUSH, {"id": "t"}, ListPushConfigsRequest("t")),
        (Operation.EXTENDED_CARD, {}, GetExtendedAgentCardRequest()),
    ],
)
def test_parameters_are_read_and_written_alike(operation: Operation, params: dict[str, Any], request_: Any) -> None:
    assert V03_RPC.read_values(operation, params) == request_
    assert json.loads(V03_RPC.write_params(operation, request_)) == params


def test_a_task_id_may_be_a_number_and_extended_card_parameters_may_be_missing() -> None:
    assert V03_RPC.read_request(Operation.GET, b'{"id":1763200000000}') == GetTaskRequest("1763200000000")
    assert V03_RPC.read_request(Operation.EXTENDED_CARD, b"") == GetExtendedAgentCardRequest()


@pytest.mark.requirement("S2-76", "S2-77", "S2-78")
def test_webhooks_survive_the_round_trip() -> None:
    for text in (WEBHOOK_TEXT, '{"taskId":"t","pushNotificationConfig":{"url":"u"}}'):
        for operation in (Operation.CREATE_PUSH, Operation.GET_PUSH):
            config = V03_RPC.read_result(operation, text.encode())
            assert V03_RPC.write_result(operation, config).decode() == text


def test_webhooks_are_listed_in_a_bare_array_and_deleted_with_null() -> None:
    assert V03_RPC.write_result(Operation.LIST_PUSH, (WEBHOOK,)).decode() == f"[{WEBHOOK_TEXT}]"
    assert V03_RPC.read_result(Operation.LIST_PUSH, f"[{WEBHOOK_TEXT}]".encode()) == (WEBHOOK,)
    assert V03_RPC.read_result(Operation.LIST_PUSH, [json.loads(WEBHOOK_TEXT)]) == (WEBHOOK,)
    assert V03_RPC.write_result(Operation.DELETE_PUSH, None) == b"null"
    assert V03_RPC.read_result(Operation.DELETE_PUSH, b"null") is None


@pytest.mark.parametrize(
    ("authentication", "expected"),
    [
        ({"schemes": ["Bearer"]}, AuthenticationInfo("Bearer")),
        ({"schemes": ["HMAC", "basic", "Bearer"], "credentials": "c"}, AuthenticationInfo("basic", "c")),
        ({"schemes": ["HMAC"], "credentials": "c"}, AuthenticationInfo("HMAC", "c")),
        ({"schemes": [], "credentials": "c"}, AuthenticationInfo("Bearer", "c")),
        ({"schemes": []}, None),
        (None, None),
    ],
)
def test_one_of_a_webhooks_schemes_is_taken(authentication: Any, expected: AuthenticationInfo | None) -> None:
    request = V03_RPC.read_values(
        Operation.CREATE_PUSH, {"taskId": "t", "pushNotificationConfig": {"url": "u", "authentication": authentication}}
    )

    assert isinstance(request, TaskPushNotificationConfig)
    assert request.authentication == expected


def test_the_extended_card_is_a_0_3_card() -> None:
    card = AgentCard(
        "n", "d", (AgentInterface("https://a.example", "JSONRPC", "0.3"),), "1", AgentCapabilities(), (), (), ()
    )
    body = V03_RPC.write_result(Operation.EXTENDED_CARD, card)

    assert json.loads(body)["protocolVersion"] == "0.3.0"
    assert V03_RPC.read_result(Operation.EXTENDED_CARD, body) == card


def test_listing_tasks_is_not_of_0_3() -> None:
    for attempt in (
        lambda: V03_RPC.read_request(Operation.LIST, b"{}"),
        lambda: V03_RPC.read_values(Operation.LIST, {}),
        lambda: V03_RPC.write_params(Operation.LIST, ListTasksRequest()),
        lambda: V03_RPC.write_result(Operation.LIST, ListTasksResponse((), "", 1, 0)),
    ):
        with pytest.raises(MethodNotFound, match=r"A2A 0\.3 has no ListTasks"):
            attempt()


@pytest.mark.parametrize("body", [b"5", b'{"kind":"status-update","taskId":"t"}', b'{"kind":"task","id":5}'])
def test_an_answer_to_a_send_is_a_task_or_a_message(body: bytes) -> None:
    with pytest.raises(BadResponse, match=r"not A2A 0\.3"):
        V03_RPC.read_result(Operation.SEND, body)


def test_a_part_that_cannot_be_read_in_an_answer_is_named() -> None:
    with pytest.raises(BadResponse, match=r"artifacts\[0\]\.parts\[1\]\.kind"):
        V03_RPC.read_result(
            Operation.GET,
            {"id": "t", "status": {"state": "x"}, "artifacts": [{"artifactId": "a", "parts": [{"text": "a"}, {}]}]},
        )


@pytest.mark.parametrize(
    ("state", "artifacts", "is_kept"),
    [(State.FAILED, (), False), (State.FAILED, (ARTIFACT,), True), (State.COMPLETED, (), True)],
)
def test_the_reason_of_a_failed_adk_agent_is_where_google_adk_1_looks_for_it(
    state: State, artifacts: tuple[Artifact, ...], is_kept: bool
) -> None:
    metadata = {ADK_EXTENSION: {"adk_agent_executor_v2": True}, "other": 1}
    task = Task("t", "c", TaskStatus(state, MESSAGE), artifacts, metadata=metadata)
    written = json.loads(V03_RPC.write_result(Operation.GET, task))
    assert written["metadata"] == (metadata if is_kept else {"other": 1})
    assert task.metadata == metadata
