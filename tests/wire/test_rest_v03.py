"""HTTP+JSON of 0.3 under /v1: ProtoJSON of package a2a.v1, which is not the JSON of 0.3 JSON-RPC."""

from __future__ import annotations

from typing import Any

import pytest

SPEAKERS = ["0.3-rest"]


def test_a_bare_message_in_0_3_over_rest(speaker: Any, like: Any) -> None:
    assert speaker.send(tool="reply").json == {
        "message": {
            "messageId": like.uuid,
            "contextId": like.uuid,
            "role": "ROLE_AGENT",
            "content": [{"text": "at once"}],
        }
    }


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_task_is_subscribed_to_with_get_and_with_post(speaker: Any, method: str) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    with speaker.wire.reading(method, f"/v1/tasks/{task}:subscribe") as reading:
        assert reading.next().json["task"]["id"] == task


def test_zero_is_no_limit_for_the_history(speaker: Any) -> None:
    task = speaker.id_of(speaker.send("hi", configuration={"historyLength": 0}))
    assert len(speaker.get(task, historyLength=0).json["history"]) == 1


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "as it should be"}]}, "as it should be"),
        ({"message_id": "m1", "role": 1, "content": [{"text": "as in the proto"}]}, "as in the proto"),
        (
            {
                "kind": "message",
                "messageId": "m1",
                "role": "user",
                "parts": [{"kind": "text", "text": "as in JSON-RPC"}],
            },
            "as in JSON-RPC",
        ),
    ],
)
def test_messages_that_callers_really_send_are_understood(wire: Any, speaker: Any, message: Any, text: str) -> None:
    for body in ({"message": message}, {"request": message}):
        assert speaker.texts(wire.rest("POST", "/v1/message:send", body)) == [text]


@pytest.mark.parametrize("role", [{}, {"role": None}, {"role": ""}, {"role": "ROLE_UNSPECIFIED"}, {"role": 0}])
def test_a_message_without_a_role_is_invalid(wire: Any, role: dict[str, Any]) -> None:
    for name in ("message", "request"):
        answer = wire.rest("POST", "/v1/message:send", {name: {"messageId": "m1", "content": [{"text": "hi"}], **role}})
        assert (answer.status, answer.reason, answer.field) == (400, "INVALID_PARAMS", "message.role")


def test_there_is_no_list_and_no_extended_card(wire: Any) -> None:
    assert wire.rest("GET", "/v1/tasks").status == 404
    answer = wire.rest("GET", "/v1/card")
    assert answer.status == 400


@pytest.mark.parametrize("version", ["0.3", "1.0", "1.1", "0.1"])
def test_the_path_decides_and_not_the_header(speaker: Any, version: str) -> None:
    answer = speaker.send("hi", headers={"A2A-Version": version})
    assert "content" in answer.json["task"]["history"][0]
    assert "generation" not in answer.json["task"]
