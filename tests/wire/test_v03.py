"""A2A 0.3 over JSON-RPC: `kind`, `blocking`, `final`, and the errors of that version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.testing import served

SPEAKERS = ["0.3-rpc"]
METHODS = (
    "message/send",
    "message/stream",
    "tasks/get",
    "tasks/cancel",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/delete",
    "tasks/pushNotificationConfig/list",
    "agent/getAuthenticatedExtendedCard",
)


def keys(value: Any) -> set[str]:
    """All names in a JSON value, at every depth."""
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-10", "S2-97")
def test_a_finished_task_in_0_3(speaker: Any, like: Any) -> None:
    answer = speaker.send("hi")
    task = answer.result
    assert answer.json == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "kind": "task",
            "id": like.uuid,
            "contextId": like.uuid,
            "status": {"state": "completed", "timestamp": like.time},
            "artifacts": [
                {"artifactId": "echo-result", "parts": [{"kind": "text", "text": "hi"}], "name": "echo-result"}
            ],
            "history": [
                {
                    "kind": "message",
                    "messageId": "m1",
                    "role": "user",
                    "parts": [{"kind": "text", "text": "hi"}],
                    "contextId": task["contextId"],
                    "taskId": task["id"],
                }
            ],
        },
    }


@pytest.mark.requirement("S2-10", "S2-97")
def test_a_bare_message_in_0_3(speaker: Any, like: Any) -> None:
    assert speaker.send(tool="reply").result == {
        "kind": "message",
        "messageId": like.uuid,
        "role": "agent",
        "parts": [{"kind": "text", "text": "at once"}],
        "contextId": like.uuid,
    }


def test_a_task_that_asks_in_0_3(speaker: Any, like: Any) -> None:
    task = speaker.send(tool="ask_name").result
    assert task["status"] == {
        "state": "input-required",
        "message": {
            "kind": "message",
            "messageId": like.uuid,
            "role": "agent",
            "parts": [{"kind": "text", "text": "What is your name?"}],
            "contextId": task["contextId"],
            "taskId": task["id"],
        },
        "timestamp": like.time,
    }


@pytest.mark.requirement("S2-11", "S2-37", "S2-39")
def test_a_stream_in_0_3(speaker: Any, like: Any) -> None:
    with speaker.stream(tool="count", arguments={"n": 2}) as reading:
        assert reading.headers["content-type"] == "text/event-stream"
        events = [event.json["result"] for event in reading]
    task = events[0]
    ids = {"taskId": task["id"], "contextId": task["contextId"]}

    def artifact(text: str, **flags: bool) -> dict[str, Any]:
        parts = [{"kind": "text", "text": text}]
        carried = {"artifactId": "count-result", "parts": parts, "name": "count-result"}
        return {"kind": "artifact-update", **ids, "artifact": carried, **flags}

    def status(state: str, *, final: bool) -> dict[str, Any]:
        shown = {"state": state, "timestamp": like.time}
        return {"kind": "status-update", **ids, "status": shown, "final": final}

    assert (task["kind"], task["status"]["state"]) == ("task", "submitted")
    assert events[1:] == [
        status("working", final=False),
        artifact("1 "),
        artifact("2 ", append=True, lastChunk=True),
        status("completed", final=True),
    ]


@pytest.mark.requirement("S2-97")
def test_every_name_in_0_3_is_camel_case_and_nothing_is_null(speaker: Any) -> None:
    answer = speaker.send(tool="ask_name")
    names = keys(answer.result) - {"tool", "arguments"}
    assert not any("_" in name or name[0].isupper() for name in names)
    assert "null" not in answer.text


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
def test_get_and_cancel_answer_with_the_task(speaker: Any, method: str) -> None:
    task = speaker.send(tool="ask_name").result
    answered = speaker.wire.rpc(method, {"id": task["id"], "metadata": {}}).result
    assert (answered["kind"], answered["id"], answered["contextId"]) == ("task", task["id"], task["contextId"])


@pytest.mark.requirement("S2-27", "S2-14")
def test_resubscribing_begins_with_the_task(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    with speaker.subscribe(task) as reading:
        assert reading.headers["content-type"] == "text/event-stream"
        first = reading.next()
    assert (first.json["result"]["kind"], first.json["result"]["id"]) == ("task", task)


@pytest.mark.requirement("S2-15", "S2-16", "S2-17", "S2-18")
def test_a_webhook_is_set_read_listed_and_deleted_in_the_forms_of_0_3(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    hook = {"url": "https://hooks.example.com/a2a", "token": "T0K3N"}
    rpc = speaker.wire.rpc
    made = rpc("tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": hook}).result
    given = made["pushNotificationConfig"]["id"]
    assert len(given) == 36
    assert made == {"taskId": task, "pushNotificationConfig": {**hook, "id": given}}
    shown = {
        "taskId": task,
        "pushNotificationConfig": {"id": given, "url": hook["url"]},
    }  # the secret is not read again
    named = {"id": task, "pushNotificationConfigId": given}
    assert rpc("tasks/pushNotificationConfig/get", named).result == shown
    assert rpc("tasks/pushNotificationConfig/list", {"id": task}).result == [shown]
    for _ in range(2):
        assert rpc("tasks/pushNotificationConfig/delete", named).result is None
    assert rpc("tasks/pushNotificationConfig/list", {"id": task}).result == []


# -- what 0.3 leaves to the server -------------------------------------------------------------------------------------


@pytest.mark.parametrize("configuration", [{}, {"blocking": True}, {"acceptedOutputModes": ["text/plain"]}])
def test_a_message_that_does_not_say_otherwise_blocks(speaker: Any, configuration: Any) -> None:
    assert speaker.send("hi", configuration=configuration).result["status"]["state"] == "completed"


@pytest.mark.parametrize("name", ["0.3-rpc", "0.3-rest"])
def test_a_setting_flips_what_a_message_without_blocking_means(
    wire: Any, new_agent: Callable[..., Any], name: str
) -> None:
    with served(new_agent(), blocking=False, drain=0) as url:
        speaker = wire.at(url).speaker(name)
        assert speaker.state(speaker.send(tool="slow")) in ("submitted", "working")
        assert speaker.state(speaker.send("hi", configuration={"blocking": True})) == "completed"


@pytest.mark.requirement("S2-12")
def test_no_history_is_shown_to_who_wants_none(speaker: Any) -> None:
    task = speaker.id_of(speaker.send("hi"))
    assert speaker.get(task, historyLength=0).result["history"] == []


@pytest.mark.parametrize("role", ["user", "USER", "ROLE_USER", ""])
def test_the_user_s_role_may_be_spelled_in_other_ways_or_left_out(speaker: Any, role: str) -> None:
    assert speaker.send("hi", message={"role": role}).result["history"][0]["role"] == "user"


@pytest.mark.requirement("S2-63")
@pytest.mark.parametrize("role", ["nonsense", "moderator"])
def test_a_role_that_does_not_exist_is_refused(speaker: Any, role: str) -> None:
    answer = speaker.send("hi", message={"role": role})
    assert (answer.code, answer.field) == (-32602, "message.role")


@pytest.mark.parametrize(
    "part",
    [{"kind": "text", "text": "hi"}, {"type": "text", "text": "hi"}, {"text": "hi"}],
)
def test_a_part_s_kind_may_be_said_in_the_older_way_or_not_at_all(speaker: Any, part: Any) -> None:
    answer = speaker.send(message={"parts": [part]})
    assert answer.result["history"][0]["parts"] == [{"kind": "text", "text": "hi"}]


def test_data_that_is_no_object_is_wrapped_as_the_official_sdk_wraps_it(wire: Any, speaker: Any) -> None:
    modern = wire.speaker("1.0-rpc")
    task = modern.id_of(modern.send("hi", [1, 2.0, None]))
    shown = speaker.get(task).result["history"][0]["parts"][1]
    assert shown == {"kind": "data", "data": {"value": [1, 2.0, None]}, "metadata": {"data_part_compat": True}}
    again = speaker.id_of(speaker.send(message={"parts": [speaker.part("hi"), shown]}))
    assert modern.get(again).result["history"][0]["parts"][1] == {"data": [1, 2.0, None]}


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_in_0_3_says_its_reason_beside_the_error(speaker: Any) -> None:
    assert speaker.get("nobody").json == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32001, "message": "Task not found"},
        "errorDetails": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "TASK_NOT_FOUND",
                "domain": "a2a-protocol.org",
                "metadata": {"taskId": "nobody"},
            }
        ],
    }


@pytest.mark.parametrize("method", METHODS)
def test_all_ten_methods_are_known(wire: Any, method: str) -> None:
    assert '"code":-32601' not in wire.rpc(method, {}).text
    assert '"code":-32601' in wire.rpc(f"{method}s", {}).text


@pytest.mark.requirement("S2-12")
@pytest.mark.parametrize("length", [-1, -99])
def test_a_negative_history_length_is_refused(speaker: Any, length: int) -> None:
    answer = speaker.get("t", historyLength=length)
    assert (answer.code, answer.field) == (-32602, "historyLength")


def test_an_error_0_3_does_not_know_is_an_internal_one_with_its_reason(
    wire: Any, new_agent: Callable[..., Any]
) -> None:
    required = {"uri": "https://example.com/x", "required": True}
    with served(new_agent(extensions=[required])) as url:
        answer = wire.at(url).speaker("0.3-rpc").send("hi")
    assert (answer.code, answer.reason) == (-32603, "EXTENSION_SUPPORT_REQUIRED")


@pytest.mark.requirement("S2-19")
@pytest.mark.parametrize("method", ["agent/getAuthenticatedExtendedCard", "agent/authenticatedExtendedCard"])
def test_an_extended_card_that_is_not_configured(wire: Any, method: str) -> None:
    assert wire.rpc(method).code == -32007
