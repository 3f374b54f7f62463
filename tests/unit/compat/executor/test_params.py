"""Parameters and webhooks as maps and back."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.compat.executor import (
    Message,
    MessageSendConfig,
    MessageSendParams,
    PushAuthInfo,
    PushConfig,
    Role,
    TaskIDParams,
    TaskPushConfig,
    TaskQueryParams,
    TextPart,
)
from dragoman.model.error import InvalidParams
from dragoman.model.operation import AuthenticationInfo, CancelTaskRequest, GetTaskRequest, TaskPushNotificationConfig

MESSAGE = Message(Role.USER, (TextPart("hi"),), "m")
AUTH = PushAuthInfo(("Bearer",), "secret")
PUSH = PushConfig("https://x.example/hook", "p", "token", AUTH)
PUSH_MAP: dict[str, Any] = {
    "url": "https://x.example/hook",
    "id": "p",
    "token": "token",
    "authentication": {"schemes": ["Bearer"], "credentials": "secret"},
}
CONFIG = MessageSendConfig(("text/plain",), False, 3, PUSH)
CONFIG_MAP: dict[str, Any] = {
    "acceptedOutputModes": ["text/plain"],
    "blocking": False,
    "historyLength": 3,
    "pushNotificationConfig": PUSH_MAP,
}
CASES = [
    pytest.param(TaskIDParams("t", {"k": 1}), {"id": "t", "metadata": {"k": 1}}, id="task id"),
    pytest.param(TaskQueryParams("t", 0, {"k": 1}), {"id": "t", "historyLength": 0, "metadata": {"k": 1}}, id="query"),
    pytest.param(
        MessageSendParams(MESSAGE, CONFIG, {"k": 1}),
        {"message": MESSAGE.to_map(), "configuration": CONFIG_MAP, "metadata": {"k": 1}},
        id="send",
    ),
    pytest.param(CONFIG, CONFIG_MAP, id="configuration"),
    pytest.param(PUSH, PUSH_MAP, id="webhook"),
    pytest.param(AUTH, {"schemes": ["Bearer"], "credentials": "secret"}, id="credentials"),
    pytest.param(TaskPushConfig("t", PUSH), {"taskId": "t", "pushNotificationConfig": PUSH_MAP}, id="task's webhook"),
]


@pytest.mark.requirement("S2-72", "S2-73", "S2-74", "S2-75", "S2-76", "S2-77", "S2-78", "S2-98")
@pytest.mark.parametrize(("params", "map"), CASES)
def test_parameters_with_everything_come_back_as_they_went(params: Any, map: dict[str, Any]) -> None:
    assert params.to_map() == map
    assert type(params).from_map(map) == ("ok", params)


@pytest.mark.requirement("S2-72", "S2-73", "S2-74", "S2-75", "S2-76", "S2-77")
@pytest.mark.parametrize(
    ("params", "map"),
    [
        (TaskIDParams("t"), {"id": "t"}),
        (TaskQueryParams("t"), {"id": "t"}),
        (MessageSendParams(MESSAGE), {"message": MESSAGE.to_map()}),
        (MessageSendConfig(), {}),
        (PushConfig("https://x"), {"url": "https://x"}),
        (PushAuthInfo(("Basic",)), {"schemes": ["Basic"]}),
    ],
)
def test_what_parameters_have_not_is_not_said(params: Any, map: dict[str, Any]) -> None:
    assert params.to_map() == map
    assert type(params).from_map(map) == ("ok", params)


@pytest.mark.parametrize(
    ("cls", "map", "field"),
    [
        (TaskIDParams, {}, "id"),
        (TaskQueryParams, {"id": "t", "historyLength": -1}, "historyLength"),
        (MessageSendParams, {}, "message"),
        (PushConfig, {}, "url"),
        (TaskPushConfig, {"taskId": "t"}, "pushNotificationConfig"),
    ],
)
def test_parameters_that_are_wrong_name_the_field(cls: Any, map: dict[str, Any], field: str) -> None:
    status, reason = cls.from_map(map)
    assert status == "error"
    assert field in str(reason)


def test_parameters_become_the_models_requests_and_come_back() -> None:
    assert TaskQueryParams("t", 2).to_model() == GetTaskRequest("t", 2)
    assert TaskQueryParams.from_model(GetTaskRequest("t", 2)) == TaskQueryParams("t", 2)
    assert TaskIDParams("t", {"k": 1}).to_model() == CancelTaskRequest("t", {"k": 1})
    assert TaskIDParams.from_model(CancelTaskRequest("t", {"k": 1})) == TaskIDParams("t", {"k": 1})
    params = MessageSendParams(MESSAGE, CONFIG, {"k": 1})
    assert MessageSendParams.from_model(params.to_model()) == params


def test_a_webhook_becomes_the_models_and_comes_back() -> None:
    model = TaskPushNotificationConfig(PUSH.url, "p", "t", "token", AuthenticationInfo("Bearer", "secret"))
    assert TaskPushConfig("t", PUSH).to_model() == model
    assert TaskPushConfig.from_model(model) == TaskPushConfig("t", PUSH)


def test_a_message_without_parts_cannot_be_sent() -> None:
    with pytest.raises(InvalidParams, match="parts"):
        MessageSendParams(Message(Role.USER, ())).to_model()
