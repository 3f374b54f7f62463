"""A wrong field is named in the form the caller wrote it, at every depth, in every dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.dialects.v03_proto.dialect import V03_PROTO
from dragoman.dialects.v1.dialect import V1_0, V1_1
from dragoman.model.error import InvalidParams
from dragoman.model.operation import Operation

SEND, GET, LIST = Operation.SEND, Operation.GET, Operation.LIST
V1_MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
V03_MESSAGE = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
PROTO_MESSAGE = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}
OLD_MESSAGE = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}


def refused(dialect: Any, operation: Operation, params: Any) -> InvalidParams:
    with pytest.raises(InvalidParams) as read:
        dialect.read_request(operation, json.dumps(params).encode())
    if isinstance(params, dict):
        with pytest.raises(InvalidParams) as converted:
            dialect.read_values(operation, params)
        assert (converted.value.field, converted.value.message) == (read.value.field, read.value.message)
    assert read.value.code == -32602
    return read.value


@pytest.mark.parametrize("dialect", [V1_0, V1_1])
@pytest.mark.parametrize(
    ("operation", "params", "field", "text"),
    [
        (SEND, {}, "message", "message is required"),
        (SEND, [], "", "params must be an object, not an array"),
        (SEND, {"message": "hi"}, "message", "message must be an object, not a string"),
        (SEND, {"message": {**V1_MESSAGE, "messageId": ""}}, "message.messageId", "must not be empty"),
        (SEND, {"message": {**V1_MESSAGE, "messageId": None}}, "message.messageId", "is required"),
        (SEND, {"message": {**V1_MESSAGE, "messageId": 5}}, "message.messageId", "a string, not a whole number"),
        (SEND, {"message": {**V1_MESSAGE, "role": None}}, "message.role", "is required"),
        (SEND, {"message": {**V1_MESSAGE, "role": "ROLE_AGENT"}}, "message.role", "only the agent speaks as agent"),
        (SEND, {"message": {**V1_MESSAGE, "role": "boss"}}, "message.role", "ROLE_USER or ROLE_AGENT"),
        (SEND, {"message": {**V1_MESSAGE, "parts": []}}, "message.parts", "at least one part"),
        (SEND, {"message": {**V1_MESSAGE, "parts": None}}, "message.parts", "is required"),
        (SEND, {"message": {**V1_MESSAGE, "parts": {}}}, "message.parts", "an array, not an object"),
        (SEND, {"message": {**V1_MESSAGE, "parts": ["hi"]}}, "message.parts[0]", "an object, not a string"),
        (SEND, {"message": {**V1_MESSAGE, "parts": [{"text": "a"}, {}]}}, "message.parts[1]", "exactly one of"),
        (SEND, {"message": {**V1_MESSAGE, "parts": [{"text": "a", "url": "b"}]}}, "message.parts[0]", "exactly one"),
        (SEND, {"message": {**V1_MESSAGE, "parts": [{"text": 5}]}}, "message.parts[0].text", "must be a string"),
        (SEND, {"message": {**V1_MESSAGE, "metadata": []}}, "message.metadata", "must be an object"),
        (SEND, {"message": {**V1_MESSAGE, "extensions": [1]}}, "message.extensions[0]", "must be a string"),
        (SEND, {"message": {**V1_MESSAGE, "taskId": {}}}, "message.taskId", "must be a string"),
        (SEND, {"message": V1_MESSAGE, "configuration": 1}, "configuration", "must be an object"),
        (
            SEND,
            {"message": V1_MESSAGE, "configuration": {"historyLength": -1}},
            "configuration.historyLength",
            "must be 0 or more",
        ),
        (
            SEND,
            {"message": V1_MESSAGE, "configuration": {"historyLength": "x"}},
            "configuration.historyLength",
            "a whole number, not a string",
        ),
        (
            SEND,
            {"message": V1_MESSAGE, "configuration": {"returnImmediately": "maybe"}},
            "configuration.returnImmediately",
            "true or false",
        ),
        (
            SEND,
            {"message": V1_MESSAGE, "configuration": {"taskPushNotificationConfig": {"url": ""}}},
            "configuration.taskPushNotificationConfig.url",
            "is required",
        ),
        (
            SEND,
            {
                "message": V1_MESSAGE,
                "configuration": {"taskPushNotificationConfig": {"url": "u", "authentication": {}}},
            },
            "configuration.taskPushNotificationConfig.authentication.scheme",
            "is required",
        ),
        (Operation.STREAM, {"message": {}}, "message.messageId", "is required"),
        (GET, {}, "id", "is required"),
        (GET, {"id": ""}, "id", "must not be empty"),
        (GET, {"id": 5}, "id", "must be a string"),
        (GET, {"id": "t", "historyLength": -3}, "historyLength", "must be 0 or more"),
        (Operation.CANCEL, {"id": None}, "id", "is required"),
        (Operation.SUBSCRIBE, {"id": ""}, "id", "is required"),
        (LIST, {"pageSize": 0}, "pageSize", "must be 1 or more"),
        (LIST, {"pageSize": 101}, "pageSize", "must be 100 or less"),
        (LIST, {"status": "asleep"}, "status", "a state such as TASK_STATE_WORKING"),
        (LIST, {"statusTimestampAfter": "yesterday"}, "statusTimestampAfter", "must be a time such as"),
        (Operation.CREATE_PUSH, {"taskId": "t"}, "url", "is required"),
        (Operation.CREATE_PUSH, {"taskId": "t", "url": ""}, "url", "is required"),
        (Operation.CREATE_PUSH, {"url": "u"}, "taskId", "is required"),
        (Operation.GET_PUSH, {"taskId": "t"}, "id", "is required"),
        (Operation.GET_PUSH, {"taskId": "", "id": "p"}, "taskId", "is required"),
        (Operation.DELETE_PUSH, {"taskId": "t", "id": ""}, "id", "is required"),
        (Operation.LIST_PUSH, {"taskId": ""}, "taskId", "is required"),
    ],
)
def test_1_x_names_the_field(dialect: Any, operation: Operation, params: Any, field: str, text: str) -> None:
    error = refused(dialect, operation, params)

    assert error.field == field
    assert text in error.message
    assert error.message.startswith(field)


@pytest.mark.parametrize(
    ("operation", "params", "field"),
    [
        (SEND, {}, "message"),
        (SEND, {"message": {**V03_MESSAGE, "messageId": None}}, "message.messageId"),
        (SEND, {"message": {**V03_MESSAGE, "messageId": ""}}, "message.messageId"),
        (SEND, {"message": {**V03_MESSAGE, "role": None}}, "message.role"),
        (SEND, {"message": {**V03_MESSAGE, "role": "agent"}}, "message.role"),
        (SEND, {"message": {**V03_MESSAGE, "kind": "task"}}, "message.kind"),
        (SEND, {"message": {**V03_MESSAGE, "parts": []}}, "message.parts"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{"kind": "video"}]}}, "message.parts[0].kind"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{"type": "video"}]}}, "message.parts[0].type"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{}]}}, "message.parts[0].kind"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{"text": "a", "data": {}}]}}, "message.parts[0].kind"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{"kind": "text"}]}}, "message.parts[0].text"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{"kind": "text", "text": 5}]}}, "message.parts[0].text"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{"kind": "data"}]}}, "message.parts[0].data"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{"kind": "file"}]}}, "message.parts[0].file"),
        (SEND, {"message": {**V03_MESSAGE, "parts": [{"kind": "file", "file": {}}]}}, "message.parts[0].file"),
        (
            SEND,
            {"message": {**V03_MESSAGE, "parts": [{"kind": "file", "file": {"bytes": "aGk=", "uri": "u"}}]}},
            "message.parts[0].file",
        ),
        (
            SEND,
            {"message": {**V03_MESSAGE, "parts": [{"kind": "file", "file": {"bytes": "!"}}]}},
            "message.parts[0].file.bytes",
        ),
        (SEND, {"message": V03_MESSAGE, "configuration": {"historyLength": -1}}, "configuration.historyLength"),
        (SEND, {"message": V03_MESSAGE, "configuration": {"blocking": "x"}}, "configuration.blocking"),
        (
            SEND,
            {"message": V03_MESSAGE, "configuration": {"pushNotificationConfig": {"url": ""}}},
            "configuration.pushNotificationConfig.url",
        ),
        (GET, {}, "id"),
        (GET, {"id": ""}, "id"),
        (GET, {"id": []}, "id"),
        (GET, {"id": "t", "historyLength": -1}, "historyLength"),
        (Operation.CANCEL, {"id": None}, "id"),
        (Operation.CREATE_PUSH, {"taskId": "t"}, "pushNotificationConfig"),
        (Operation.CREATE_PUSH, {"taskId": "", "pushNotificationConfig": {"url": "u"}}, "taskId"),
        (Operation.CREATE_PUSH, {"taskId": "t", "pushNotificationConfig": {"url": ""}}, "pushNotificationConfig.url"),
        (Operation.GET_PUSH, {"id": ""}, "id"),
        (Operation.DELETE_PUSH, {"id": "t"}, "pushNotificationConfigId"),
    ],
)
def test_0_3_names_the_field(operation: Operation, params: Any, field: str) -> None:
    assert refused(V03_RPC, operation, params).field == field


@pytest.mark.parametrize(
    ("operation", "params", "field"),
    [
        (SEND, {}, "message"),
        (SEND, {"message": {**PROTO_MESSAGE, "messageId": ""}}, "message.messageId"),
        (SEND, {"message": {**PROTO_MESSAGE, "role": "ROLE_AGENT"}}, "message.role"),
        (SEND, {"message": {**PROTO_MESSAGE, "role": "ROLE_UNSPECIFIED"}}, "message.role"),
        (SEND, {"message": {**PROTO_MESSAGE, "role": None}}, "message.role"),
        (SEND, {"message": {**PROTO_MESSAGE, "content": []}}, "message.content"),
        (SEND, {"message": {**PROTO_MESSAGE, "content": None}}, "message.content"),
        (SEND, {"message": {**PROTO_MESSAGE, "content": [{"text": "a"}, {}]}}, "message.content[1]"),
        (SEND, {"message": {**PROTO_MESSAGE, "content": [{"text": 5}]}}, "message.content[0].text"),
        (SEND, {"message": {**PROTO_MESSAGE, "content": [{"file": {}}]}}, "message.content[0].file"),
        (
            SEND,
            {"message": {**PROTO_MESSAGE, "content": [{"file": {"fileWithBytes": "!"}}]}},
            "message.content[0].file.fileWithBytes",
        ),
        (SEND, {"message": PROTO_MESSAGE, "configuration": {"blocking": 5}}, "configuration.blocking"),
        (
            SEND,
            {"message": PROTO_MESSAGE, "configuration": {"pushNotification": {"url": ""}}},
            "configuration.pushNotification.url",
        ),
        (GET, {}, "id"),
        (GET, {"name": "agents/x"}, "id"),
        (GET, {"id": "t", "historyLength": "x"}, "historyLength"),
        (Operation.CREATE_PUSH, {"taskId": "t"}, "config.pushNotificationConfig"),
        (Operation.CREATE_PUSH, {"config": {"pushNotificationConfig": {"url": "u"}}}, "taskId"),
        (
            Operation.CREATE_PUSH,
            {"taskId": "t", "config": {"pushNotificationConfig": {"url": ""}}},
            "config.pushNotificationConfig.url",
        ),
        (Operation.GET_PUSH, {"id": "p"}, "taskId"),
        (Operation.GET_PUSH, {"taskId": "t"}, "id"),
        (Operation.LIST_PUSH, {}, "taskId"),
    ],
)
def test_0_3_rest_names_the_field(operation: Operation, params: Any, field: str) -> None:
    assert refused(V03_PROTO, operation, params).field == field


@pytest.mark.parametrize(
    ("operation", "params", "field"),
    [
        (SEND, {}, "message"),
        (SEND, {"message": None}, "message"),
        (SEND, {"message": 5}, "message"),
        (SEND, {"message": {**OLD_MESSAGE, "parts": None}}, "message.parts"),
        (SEND, {"message": {**OLD_MESSAGE, "parts": []}}, "message.parts"),
        (SEND, {"message": {**OLD_MESSAGE, "parts": [{"type": "video"}]}}, "message.parts[0].type"),
        (SEND, {"message": {**OLD_MESSAGE, "role": "agent"}}, "message.role"),
        (SEND, {"message": OLD_MESSAGE, "historyLength": -1}, "historyLength"),
        (SEND, {"message": OLD_MESSAGE, "pushNotification": {"url": ""}}, "pushNotification.url"),
        (GET, {"id": True}, "id"),
        (Operation.CREATE_PUSH, {"id": "", "pushNotificationConfig": {"url": "u"}}, "id"),
        (Operation.GET_PUSH, {}, "id"),
        (Operation.SUBSCRIBE, {"id": None}, "id"),
    ],
)
def test_0_1_names_the_field(operation: Operation, params: Any, field: str) -> None:
    assert refused(V01_RPC, operation, params).field == field


@pytest.mark.requirement("S0-42", "S0-46")
@pytest.mark.parametrize("operation", [GET, Operation.CANCEL])
@pytest.mark.parametrize("params", [b"{}", b"null", b'{"id":""}', b'{"id":null}', b""])
@pytest.mark.parametrize("dialect", [V01_RPC, V03_RPC])
def test_tasks_get_and_cancel_without_an_id_are_invalid_params(
    dialect: Any, operation: Operation, params: bytes
) -> None:
    with pytest.raises(InvalidParams) as caught:
        dialect.read_request(operation, params)

    assert caught.value.code == -32602
    assert caught.value.field == "id"


@pytest.mark.parametrize(
    ("dialect", "operation", "params"),
    [
        (V1_0, SEND, {"message": {**V1_MESSAGE, "role": "x" * 10_000}}),
        (V1_0, LIST, {"statusTimestampAfter": "x" * 10_000}),
        (V03_RPC, SEND, {"message": {**V03_MESSAGE, "parts": [{"kind": "x" * 10_000}]}}),
    ],
)
def test_an_error_cuts_long_values_of_the_caller(dialect: Any, operation: Operation, params: Any) -> None:
    assert len(refused(dialect, operation, params).message) < 300
