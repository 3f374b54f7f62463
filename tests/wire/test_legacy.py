"""A2A 0.1: `tasks/send`, parts with `type`, sessions, and ids the caller chooses."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

SPEAKERS = ["0.1-rpc"]
TASK = {"id", "sessionId", "status", "history", "artifacts"}


@pytest.fixture
def chosen() -> str:
    return f"my-task-{uuid4()}"


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-31")
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_the_data_part_is_found_wherever_it_stands(speaker: Any, place: int) -> None:
    values: list[Any] = ["one", "two", "three"]
    values.insert(place, {"tool": "add_numbers", "arguments": {"a": 3, "b": 7}})
    assert speaker.texts(speaker.send(*values)) == ["10"]


@pytest.mark.requirement("S0-39")
def test_the_data_part_may_be_left_out(speaker: Any) -> None:
    assert speaker.texts(speaker.send("Hello!")) == ["Hello!"]


@pytest.mark.parametrize("tool", ["echo", "ask_name", "boom", "deny"])
def test_send_get_and_cancel_answer_with_the_same_members(speaker: Any, tool: str) -> None:
    sent = speaker.send("hi", tool=tool).result
    assert set(sent) == set(speaker.get(sent).result) == TASK


# -- ids and sessions --------------------------------------------------------------------------------------------------


def test_the_caller_chooses_the_id_of_the_task_and_of_the_session(speaker: Any, chosen: str) -> None:
    task = speaker.send("hi", id=chosen, sessionId="my-session").result
    assert (task["id"], task["sessionId"]) == (chosen, "my-session")
    assert speaker.get(chosen).result == task


def test_a_number_is_taken_for_its_digits(speaker: Any) -> None:
    number = uuid4().int >> 80
    assert speaker.send("hi", id=number, sessionId=7).result["id"] == str(number)
    assert speaker.wire.rpc("tasks/get", {"id": number}).result["sessionId"] == "7"


def test_the_same_id_continues_the_task(speaker: Any, chosen: str) -> None:
    assert speaker.send(tool="ask_name", id=chosen, sessionId="s").result["status"]["state"] == "input-required"
    answered = speaker.send("Ada", id=chosen, sessionId="s").result
    assert (answered["status"]["state"], speaker.texts(answered)) == ("completed", ["Hello, Ada!"])
    assert [message["role"] for message in answered["history"]] == ["user", "agent", "user"]


def test_another_session_cannot_go_on_with_the_task(speaker: Any, chosen: str) -> None:
    speaker.send(tool="ask_name", id=chosen, sessionId="s")
    assert speaker.send("Ada", id=chosen, sessionId="other").code == -32602


def test_missing_arguments_are_not_asked_for(speaker: Any) -> None:
    task = speaker.send(tool="add_numbers", arguments={"a": 3}).result
    assert task["status"]["state"] == "failed"
    assert "`b` (a whole number)" in task["status"]["message"]["parts"][0]["text"]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-25")
def test_an_error_of_a_method_of_0_1_has_a_code_and_a_message_only(wire: Any) -> None:
    params = {"id": "t", "pushNotificationConfig": {"url": "https://example.com/"}}
    answer = wire.rpc("tasks/pushNotification/set", params, path="/a2a")
    assert set(answer.json["error"]) == {"code", "message"}
    assert answer.json["errorDetails"][0]["reason"] == answer.reason


@pytest.mark.parametrize(("version", "has_data"), [("0.1", False), ("0.3", False), ("1.0", True)])
def test_a_shared_method_spells_its_errors_as_the_version_header_says(wire: Any, version: str, has_data: bool) -> None:
    method = "GetTask" if version == "1.0" else "tasks/get"
    answer = wire.rpc(method, {"id": "nobody"}, **{"A2A-Version": version})
    assert ("data" in answer.json["error"], "errorDetails" in answer.json) == (has_data, not has_data)


# -- which dialect answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/a2a"])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
def test_a_task_is_answered_in_the_version_it_was_created_in(wire: Any, method: str, path: str) -> None:
    for name, shape in (("0.1-rpc", TASK), ("0.3-rpc", {"kind", "id", "contextId", "status", "history"})):
        task = wire.speaker(name).send(tool="ask_name")
        answer = wire.rpc(method, {"id": wire.speaker(name).id_of(task)}, path=path)
        assert set(answer.result) == shape


def test_resubscribing_is_answered_in_the_version_of_the_task(wire: Any) -> None:
    for name, member in (("0.1-rpc", "final"), ("0.3-rpc", "kind")):
        speaker = wire.speaker(name)
        task = speaker.id_of(speaker.send(tool="ask_name"))
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": task}}
        with wire.reading("POST", "/", json=body) as reading:
            assert member in reading.next().json["result"]
