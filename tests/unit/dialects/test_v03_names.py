"""0.3 over gRPC: requests name what they are about, and what the client writes is what the server reads."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from dragoman.dialects.cards.card import card_json, read_card
from dragoman.dialects.table import V0_3
from dragoman.dialects.v03_proto.dialect import V03_PROTO, V03_PROTO_TWICE
from dragoman.dialects.v03_proto.file_bytes import caller_format
from dragoman.dialects.v03_proto.names import card_of_proto, named_request
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from dragoman.model.json import decode_any, encode
from dragoman.model.message import Message
from dragoman.model.operation import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    Operation,
    Request,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.part import Part
from dragoman.model.state import Role
from dragoman.transports.grpc.codec import codec_of

CODEC = codec_of("a2a.v1")
WEBHOOK = TaskPushNotificationConfig(
    url="https://a.example/hook", id="p-1", task_id="t-1", token="t", authentication=AuthenticationInfo("Bearer", "s")
)


def over_the_wire(message: str, values: dict[str, Any]) -> dict[str, Any]:
    return CODEC.decode(message, CODEC.encode(message, values))


@pytest.mark.parametrize(
    ("operation", "message", "request_", "names"),
    [
        (Operation.GET, "GetTaskRequest", GetTaskRequest("t-1", 3), {"name": "tasks/t-1", "historyLength": 3}),
        (Operation.CANCEL, "CancelTaskRequest", CancelTaskRequest("t-1"), {"name": "tasks/t-1"}),
        (Operation.SUBSCRIBE, "TaskSubscriptionRequest", SubscribeToTaskRequest("t-1"), {"name": "tasks/t-1"}),
        (
            Operation.GET_PUSH,
            "GetTaskPushNotificationConfigRequest",
            GetPushConfigRequest("t-1", "p-1"),
            {"name": "tasks/t-1/pushNotificationConfigs/p-1"},
        ),
        (
            Operation.DELETE_PUSH,
            "DeleteTaskPushNotificationConfigRequest",
            GetPushConfigRequest("t-1", "p-1"),
            {"name": "tasks/t-1/pushNotificationConfigs/p-1"},
        ),
        (
            Operation.LIST_PUSH,
            "ListTaskPushNotificationConfigRequest",
            ListPushConfigsRequest("t-1", 5, "next"),
            {"parent": "tasks/t-1", "pageSize": 5, "pageToken": "next"},
        ),
        (
            Operation.CREATE_PUSH,
            "CreateTaskPushNotificationConfigRequest",
            WEBHOOK,
            {
                "parent": "tasks/t-1",
                "configId": "p-1",
                "config": {
                    "name": "tasks/t-1/pushNotificationConfigs/p-1",
                    "pushNotificationConfig": {
                        "id": "p-1",
                        "url": "https://a.example/hook",
                        "token": "t",
                        "authentication": {"schemes": ["Bearer"], "credentials": "s"},
                    },
                },
            },
        ),
    ],
)
def test_a_request_is_read_as_it_was_written(
    operation: Operation, message: str, request_: Request, names: dict[str, Any]
) -> None:
    params = decode_any(V03_PROTO.write_params(operation, request_))
    received = over_the_wire(message, named_request(operation, params))
    assert received == names
    assert V03_PROTO.read_values(operation, received) == request_


def test_webhooks_come_back_as_they_were_written() -> None:
    one = decode_any(V03_PROTO.write_result(Operation.GET_PUSH, WEBHOOK))
    assert V03_PROTO.read_result(Operation.GET_PUSH, over_the_wire("TaskPushNotificationConfig", one)) == WEBHOOK
    all_ = decode_any(V03_PROTO.write_result(Operation.LIST_PUSH, (WEBHOOK,)))
    received = over_the_wire("ListTaskPushNotificationConfigResponse", all_)
    assert V03_PROTO.read_result(Operation.LIST_PUSH, received) == (WEBHOOK,)
    nothing = decode_any(V03_PROTO.write_result(Operation.DELETE_PUSH, None))
    assert CODEC.encode("google.protobuf.Empty", nothing) == b""


def test_a_card_keeps_its_security_with_the_first_flow_of_a_scheme() -> None:
    flow = {
        "authorizationUrl": "https://a.example/auth",
        "tokenUrl": "https://a.example/token",
        "scopes": {"r": "read"},
    }
    card = AgentCard(
        name="agent",
        description="",
        supported_interfaces=(AgentInterface("https://a.example/", "JSONRPC", V0_3),),
        version="1",
        capabilities=AgentCapabilities(streaming=True, extended_agent_card=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill("s", "skill", "", ("tag",), security_requirements=({"schemes": {"key": {}}},)),),
        security_schemes={
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
            "login": {"oauth2SecurityScheme": {"flows": {"authorizationCode": flow}}},
        },
        security_requirements=({"schemes": {"login": {"list": ["r"]}}},),
    )
    older = card_json(card, {}, V0_3)
    older["securitySchemes"]["login"]["flows"]["password"] = {"tokenUrl": "https://a.example/token", "scopes": {}}
    assert read_card(over_the_wire("AgentCard", card_of_proto(older))) == card


@pytest.mark.parametrize("dialect", [V03_PROTO, V03_PROTO_TWICE])
def test_a_file_is_its_bytes_or_its_base64_as_the_peer_has_it(dialect: Any) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
    sent = SendMessageRequest(Message("m", Role.USER, (Part(raw=png, media_type="image/png"),)))
    data = CODEC.encode("SendMessageRequest", decode_any(dialect.write_params(Operation.SEND, sent)))
    is_twice = dialect is V03_PROTO_TWICE
    assert (base64.b64encode(png) in data) is is_twice
    assert (png in data) is not is_twice
    received = CODEC.decode("SendMessageRequest", data)
    assert caller_format("grpc-python-asyncio/1.85", encode(received)).twice is is_twice
    assert dialect.read_values(Operation.SEND, received).message.parts == sent.message.parts
