"""0.3 REST on the wire, literally: ProtoJSON of package a2a.v1."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.dialects.v03_proto.dialect import V03_PROTO, V03Proto
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface
from dragoman.model.error import BadResponse, MethodNotFound
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
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

PARTS = (
    Part(text="hi", media_type="text/markdown"),
    Part(url="https://x.example/f", media_type="m/t", filename="n"),
    Part(raw=b"hi"),
    Part(data={"a": 1}),
    Part(data=[1]),
)
PARTS_JSON: list[dict[str, Any]] = [
    {"text": "hi", "metadata": {"mediaType": "text/markdown"}},
    {"file": {"fileWithUri": "https://x.example/f", "mimeType": "m/t", "name": "n"}},
    {"file": {"fileWithBytes": "aGk="}},
    {"data": {"data": {"a": 1}}},
    {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True}},
]
MESSAGE = Message("m", Role.AGENT, PARTS, "c", "t", {"k": 1}, ("urn:x",))
MESSAGE_JSON = {
    "messageId": "m",
    "contextId": "c",
    "taskId": "t",
    "role": "ROLE_AGENT",
    "content": PARTS_JSON,
    "metadata": {"k": 1},
    "extensions": ["urn:x"],
}
STATUS = TaskStatus(State.CANCELED, MESSAGE, "2026-11-15T10:00:00.000Z")
STATUS_JSON = {"state": "TASK_STATE_CANCELLED", "message": MESSAGE_JSON, "timestamp": "2026-11-15T10:00:00.000Z"}
ARTIFACT = Artifact("a", (Part(text="yo"),), "n")
ARTIFACT_JSON = {"artifactId": "a", "name": "n", "parts": [{"text": "yo"}]}
TASK = Task("t", "c", STATUS, (ARTIFACT,), (MESSAGE,))
TASK_JSON = {
    "id": "t",
    "contextId": "c",
    "status": STATUS_JSON,
    "artifacts": [ARTIFACT_JSON],
    "history": [MESSAGE_JSON],
}
WEBHOOK = TaskPushNotificationConfig("https://x.example", "p", "t", "tok", AuthenticationInfo("Bearer", "c"))
WEBHOOK_JSON = {
    "name": "tasks/t/pushNotificationConfigs/p",
    "pushNotificationConfig": {
        "url": "https://x.example",
        "id": "p",
        "token": "tok",
        "authentication": {"schemes": ["Bearer"], "credentials": "c"},
    },
}


def sent(**params: Any) -> SendMessageRequest:
    request = V03_PROTO.read_request(Operation.SEND, json.dumps(params).encode())
    assert isinstance(request, SendMessageRequest)
    assert request == V03_PROTO.read_values(Operation.SEND, params)
    return request


@pytest.mark.parametrize(
    ("operation", "result", "expected"),
    [
        (Operation.SEND, TASK, {"task": TASK_JSON}),
        (Operation.SEND, MESSAGE, {"message": MESSAGE_JSON}),
        (Operation.GET, TASK, TASK_JSON),
        (Operation.CANCEL, TASK, TASK_JSON),
        (Operation.CREATE_PUSH, WEBHOOK, WEBHOOK_JSON),
        (Operation.GET_PUSH, WEBHOOK, WEBHOOK_JSON),
        (Operation.LIST_PUSH, (WEBHOOK,), {"configs": [WEBHOOK_JSON]}),
        (Operation.DELETE_PUSH, None, {}),
    ],
)
def test_results_are_protojson_and_are_read_back(operation: Operation, result: Any, expected: Any) -> None:
    body = V03_PROTO.write_result(operation, result)

    assert json.loads(body) == expected
    assert V03_PROTO.read_result(operation, body) == result


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (TASK, {"task": TASK_JSON}),
        (MESSAGE, {"message": MESSAGE_JSON}),
        (
            StatusUpdate("t", "c", STATUS),
            {"statusUpdate": {"taskId": "t", "contextId": "c", "status": STATUS_JSON, "final": True}},
        ),
        (
            ArtifactUpdate("t", "c", ARTIFACT, append=True),
            {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": ARTIFACT_JSON, "append": True}},
        ),
    ],
)
def test_the_last_status_of_a_stream_is_final(event: Any, expected: Any) -> None:
    stream = V03_PROTO.event_writer()
    last = stream.write_event(Record.of(1, event), last=True)
    other = stream.write_event(Record.of(1, event), last=False)

    assert json.loads(last) == expected
    assert b"final" not in other
    assert V03_PROTO.read_event(last).payload == V03_PROTO.read_event(other).payload == event


def test_a_body_in_json_names_and_one_in_proto_names_are_the_same() -> None:
    camel = sent(
        message={**MESSAGE_JSON, "role": "ROLE_USER"},
        configuration={"acceptedOutputModes": ["text"], "pushNotification": {"url": "u"}, "historyLength": 2},
        metadata={"k": 1},
    )
    # a2a-sdk's 0.3 REST client writes proto field names.
    snake = sent(
        request={
            "message_id": "m",
            "context_id": "c",
            "task_id": "t",
            "role": "ROLE_USER",
            "content": [
                PARTS_JSON[0],
                {"file": {"file_with_uri": "https://x.example/f", "mime_type": "m/t", "name": "n"}},
                {"file": {"file_with_bytes": "aGk="}},
                *PARTS_JSON[3:],
            ],
            "metadata": {"k": 1},
            "extensions": ["urn:x"],
        },
        configuration={"accepted_output_modes": ["text"], "push_notification": {"url": "u"}, "history_length": 2},
        metadata={"k": 1},
    )

    assert camel == snake
    assert camel == SendMessageRequest(
        Message("m", Role.USER, PARTS, "c", "t", {"k": 1}, ("urn:x",)),
        SendMessageConfiguration(("text",), TaskPushNotificationConfig("u"), 2, return_immediately=True),
        {"k": 1},
    )


def test_a_body_in_the_words_of_json_rpc_is_understood() -> None:
    request = sent(
        message={
            "kind": "message",
            "messageId": "m",
            "role": "user",
            "parts": [
                {"kind": "text", "text": "hi"},
                {"kind": "file", "file": {"uri": "u", "mimeType": "m/t"}},
                {"kind": "file", "file": {"bytes": "aGk="}},
                {"kind": "data", "data": {"data": 1}},
            ],
        },
        configuration={"pushNotificationConfig": {"url": "u"}},
    )

    assert request.message.parts == (
        Part(text="hi"),
        Part(url="u", media_type="m/t"),
        Part(raw=b"hi"),
        Part(data={"data": 1}),
    )
    assert request.configuration.task_push_notification_config == TaskPushNotificationConfig("u")


@pytest.mark.parametrize(
    ("data", "expected"),
    [({"data": {"a": 1}}, {"a": 1}), ({"data": {}}, {}), ({}, {}), ({"a": 1}, {"a": 1}), ([1], [1])],
)
def test_data_is_taken_out_of_its_wrapper(data: Any, expected: Any) -> None:
    assert sent(message={"messageId": "m", "role": 1, "content": [{"data": data}]}).message.parts == (
        Part(data=expected),
    )


@pytest.mark.parametrize("role", ["ROLE_USER", "user", 1, "stranger"])
def test_any_other_role_is_the_user(role: Any) -> None:
    message = sent(message={"messageId": "m", "role": role, "content": [{"text": "a"}]}).message

    assert message.role is Role.USER


@pytest.mark.parametrize("word", ["TASK_STATE_CANCELLED", "TASK_STATE_CANCELED", "canceled", "cancelled", 5])
def test_a_state_is_read_in_every_spelling(word: Any) -> None:
    assert V03_PROTO.read_task({"id": "t", "contextId": "c", "status": {"state": word}}).state is State.CANCELED


def test_an_answer_in_proto_names_is_read() -> None:
    message = {"message_id": "m", "role": 2, "content": [{"text": "a"}]}
    read = Message("m", Role.AGENT, (Part(text="a"),))

    assert V03_PROTO.read_message(message) == read
    assert V03_PROTO.read_event(json.dumps({"msg": message}).encode()).payload == read
    assert V03_PROTO.read_event(
        b'{"status_update":{"task_id":"t","context_id":"c","status":{"state":2,"update":%b}}}'
        % json.dumps(message).encode()
    ).payload == StatusUpdate("t", "c", TaskStatus(State.WORKING, read))


def test_a_history_length_of_0_is_all_of_it() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "a"}]}

    assert sent(message=message, configuration={"historyLength": 0}).configuration.history_length is None
    assert V03_PROTO.read_values(Operation.GET, {"id": "t", "historyLength": "0"}) == GetTaskRequest("t")
    assert V03_PROTO.read_values(Operation.GET, {"id": "t", "historyLength": "4"}) == GetTaskRequest("t", 4)
    assert V03_PROTO.write_params(Operation.GET, GetTaskRequest("t", 0)) == b'{"id":"t"}'


@pytest.mark.parametrize(
    ("default", "members", "immediately"),
    [
        (True, {}, False),
        (False, {}, True),
        (True, {"configuration": {"blocking": False}}, True),
        (False, {"configuration": {"blocking": True}}, False),
        (True, {"configuration": {}}, True),
        (True, {"configuration": {"acceptedOutputModes": ["text/plain"]}}, True),
    ],
)
def test_a_server_chooses_without_a_configuration_and_one_without_blocking_is_protos_false(
    default: bool, members: dict[str, Any], immediately: bool
) -> None:
    request = V03Proto(blocking_by_default=default).read_values(
        Operation.SEND,
        {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "a"}]}, **members},
    )

    assert isinstance(request, SendMessageRequest)
    assert request.configuration.return_immediately is immediately


@pytest.mark.parametrize(
    ("operation", "params", "expected"),
    [
        (Operation.GET, {"id": "t"}, GetTaskRequest("t")),
        (Operation.GET, {"name": "tasks/t"}, GetTaskRequest("t")),
        (Operation.CANCEL, {"id": "t"}, CancelTaskRequest("t")),
        (Operation.CANCEL, {"name": "tasks/t"}, CancelTaskRequest("t")),
        (Operation.SUBSCRIBE, {"id": "t"}, SubscribeToTaskRequest("t")),
        (Operation.GET_PUSH, {"taskId": "t", "id": "p"}, GetPushConfigRequest("t", "p")),
        (Operation.GET_PUSH, {"name": "tasks/t/pushNotificationConfigs/p"}, GetPushConfigRequest("t", "p")),
        (Operation.DELETE_PUSH, {"task_id": "t", "id": "p"}, GetPushConfigRequest("t", "p")),
        (Operation.LIST_PUSH, {"taskId": "t", "pageSize": "3"}, ListPushConfigsRequest("t", 3)),
        (Operation.LIST_PUSH, {"parent": "tasks/t", "pageToken": "x"}, ListPushConfigsRequest("t", None, "x")),
        (Operation.LIST_PUSH, {"parent": "task/t"}, ListPushConfigsRequest("t")),
        (Operation.EXTENDED_CARD, {}, GetExtendedAgentCardRequest()),
    ],
)
def test_ids_come_from_the_path_or_from_resource_names(operation: Operation, params: Any, expected: Any) -> None:
    assert V03_PROTO.read_values(operation, params) == expected
    assert V03_PROTO.read_request(operation, json.dumps(params).encode()) == expected
    assert V03_PROTO.read_request(operation, V03_PROTO.write_params(operation, expected)) == expected


@pytest.mark.parametrize(
    "params",
    [
        {"taskId": "t", "configId": "p", "config": {"name": "x", "pushNotificationConfig": {"url": "u"}}},
        {"parent": "tasks/t", "config_id": "p", "config": {"push_notification_config": {"url": "u"}}},
        {"config": {"name": "tasks/t/pushNotificationConfigs/p", "pushNotificationConfig": {"url": "u"}}},
        {"taskId": "t", "config": {"pushNotificationConfig": {"url": "u", "id": "p"}}},
        {"taskId": "t", "pushNotificationConfig": {"url": "u", "id": "p"}},
    ],
)
def test_a_webhook_is_created_from_every_form_of_the_body(params: dict[str, Any]) -> None:
    expected = TaskPushNotificationConfig("u", "p", "t")

    assert V03_PROTO.read_values(Operation.CREATE_PUSH, params) == expected
    assert (
        V03_PROTO.read_request(Operation.CREATE_PUSH, V03_PROTO.write_params(Operation.CREATE_PUSH, expected))
        == expected
    )


def test_the_extended_card_is_a_0_3_card() -> None:
    card = AgentCard(
        "n", "d", (AgentInterface("https://a.example", "JSONRPC", "0.3"),), "1", AgentCapabilities(), (), (), ()
    )

    assert V03_PROTO.read_result(Operation.EXTENDED_CARD, V03_PROTO.write_result(Operation.EXTENDED_CARD, card)) == card


def test_listing_tasks_is_not_of_0_3() -> None:
    for attempt in (
        lambda: V03_PROTO.read_request(Operation.LIST, b"{}"),
        lambda: V03_PROTO.write_params(Operation.LIST, ListTasksRequest()),
        lambda: V03_PROTO.write_result(Operation.LIST, ListTasksResponse((), "", 1, 0)),
    ):
        with pytest.raises(MethodNotFound, match=r"A2A 0\.3 has no ListTasks"):
            attempt()


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (Operation.SEND, b"{}"),
        (Operation.SEND, b'{"statusUpdate":{"taskId":"t"}}'),
        (Operation.GET, b'{"id":5}'),
        (Operation.GET_PUSH, b'{"name":"tasks/t"}'),
        (Operation.GET, b'{"id":"t","artifacts":[{"artifactId":"a","parts":[{}]}]}'),
    ],
)
def test_an_answer_of_another_shape_is_a_bad_response(operation: Operation, body: bytes) -> None:
    with pytest.raises(BadResponse, match=r"not A2A 0\.3"):
        V03_PROTO.read_result(operation, body)
