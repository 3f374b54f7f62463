"""JSON-RPC: the envelope of every version, and the exact shapes of 1.0."""

from __future__ import annotations

import json
from typing import Any

import pytest

SPEAKERS = ["1.0-rpc"]


def said(speaker: Any, text: str, **members: Any) -> dict[str, Any]:
    """A message of the user's as it comes back in a task."""
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}], **members}


# -- the envelope ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-1")
@pytest.mark.parametrize("number", ["abc-1", 7, "", 0, -1, 1.5, None, 9007199254740993, "ü\u2028"])
@pytest.mark.parametrize(("method", "member"), [("GetTask", "error"), ("ListTasks", "result"), ("nothing", "error")])
def test_a_response_has_the_request_s_id_and_either_a_result_or_an_error(
    wire: Any, number: Any, method: str, member: str
) -> None:
    for path in ("/", "/a2a"):
        answer = wire.rpc(method, {}, id=number, path=path).json
        assert set(answer) == {"jsonrpc", "id", member}
        assert (answer["jsonrpc"], answer["id"], type(answer["id"])) == ("2.0", number, type(number))


@pytest.mark.requirement("S0-1", "S2-11")
def test_every_event_of_a_stream_is_a_response_with_the_request_s_id(wire: Any) -> None:
    body = {"jsonrpc": "2.0", "id": "abc-1", "method": "message/stream"}
    body["params"] = wire.speaker("0.3-rpc").params("hi")
    with wire.reading("POST", "/", json=body) as reading:
        assert reading.headers["content-type"] == "text/event-stream"
        events = [event.json for event in reading]
    assert len(events) == 4
    assert {tuple(event) for event in events} == {("jsonrpc", "id", "result")}
    assert {event["id"] for event in events} == {"abc-1"}


@pytest.mark.requirement("S2-35")
@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.1-rpc", "0.3-rpc", "0.1-rpc"], indirect=True)
@pytest.mark.parametrize("path", ["/", "/a2a", "/a2a/", "//"])
def test_every_version_is_answered_at_the_root_and_at_a2a(speaker: Any, path: str) -> None:
    answer = speaker.at(path).send("hi")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert speaker.texts(answer) == ["hi"]


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON;charset=utf-8", "application/a2a+json"])
def test_a_request_may_name_its_json_in_several_ways(speaker: Any, content_type: str) -> None:
    _, path, options = speaker.spell("send", speaker.params("hi"), {"Content-Type": content_type})
    answer = speaker.wire.request("POST", path, **options)
    assert answer.headers["content-type"] == "application/json"
    assert speaker.texts(answer) == ["hi"]


@pytest.mark.parametrize("headers", [{}, {"Content-Type": ""}, {"Content-Type": "text/plain"}])
def test_a_request_that_does_not_name_its_json_is_refused(speaker: Any, headers: dict[str, str]) -> None:
    _, path, options = speaker.spell("send", speaker.params("hi"))
    answer = speaker.wire.request("POST", path, content=options["content"], headers=headers)
    assert (answer.status, answer.code, answer.reason) == (200, -32005, "CONTENT_TYPE_NOT_SUPPORTED")


@pytest.mark.requirement("S2-100")
@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("GetTasks", "GetTask"),
        ("gettask", "GetTask"),
        ("tasks/list", "ListTasks"),
        ("tasks/subscribe", "tasks/resubscribe"),
        ("message/sent", "message/send"),
        ("zzz", None),
    ],
)
def test_an_unknown_method_is_told_which_one_may_have_been_meant(wire: Any, method: str, hint: str | None) -> None:
    answer = wire.rpc(method)
    assert answer.code == -32601
    assert answer.json["error"]["message"].endswith(f"Did you mean '{hint}'?" if hint else f"{method!r}")


# -- sending -----------------------------------------------------------------------------------------------------------


def test_a_finished_task_in_1_0(speaker: Any, like: Any) -> None:
    answer = speaker.send("hi")
    ids = {"contextId": answer.result["task"]["contextId"], "taskId": answer.result["task"]["id"]}
    assert answer.json == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "task": {
                "id": like.uuid,
                "contextId": like.uuid,
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": like.time},
                "artifacts": [{"artifactId": "echo-result", "parts": [{"text": "hi"}], "name": "echo-result"}],
                "history": [said(speaker, "hi", **ids)],
            }
        },
    }


def test_a_bare_message_in_1_0(speaker: Any, like: Any) -> None:
    assert speaker.send(tool="reply").result == {
        "message": {
            "messageId": like.uuid,
            "role": "ROLE_AGENT",
            "parts": [{"text": "at once"}],
            "contextId": like.uuid,
        }
    }


def test_a_bare_message_stays_in_the_context_of_its_question(speaker: Any) -> None:
    answer = speaker.send(tool="reply", message={"contextId": "my-context"})
    assert answer.result["message"]["contextId"] == "my-context"


def test_a_task_that_asks_in_1_0(speaker: Any, like: Any) -> None:
    task = speaker.task(speaker.send(tool="ask_name"))
    assert task["status"] == {
        "state": "TASK_STATE_INPUT_REQUIRED",
        "message": {
            "messageId": like.uuid,
            "role": "ROLE_AGENT",
            "parts": [{"text": "What is your name?"}],
            "contextId": task["contextId"],
            "taskId": task["id"],
        },
        "timestamp": like.time,
    }
    assert set(task) == {"id", "contextId", "status", "history"}


def test_a_missing_argument_is_asked_for_by_name_and_type(speaker: Any) -> None:
    asked = speaker.send(tool="add_numbers", arguments={"a": 3})
    assert speaker.state(asked) == "input-required"
    assert "`b` (a whole number)" in asked.text
    assert speaker.texts(speaker.send("7", task=asked)) == ["10"]


def test_a_number_is_text_that_says_it_is_json(speaker: Any) -> None:
    task = speaker.task(speaker.send(tool="add_numbers", arguments={"a": 3, "b": 7}))
    assert task["artifacts"][0]["parts"] == [{"text": "10", "mediaType": "application/json"}]


@pytest.mark.parametrize(("tool", "state"), [("boom", "TASK_STATE_FAILED"), ("deny", "TASK_STATE_REJECTED")])
def test_a_task_that_ends_badly_says_why_in_its_status(speaker: Any, tool: str, state: str) -> None:
    status = speaker.task(speaker.send(tool=tool))["status"]
    assert status["state"] == state
    assert status["message"]["role"] == "ROLE_AGENT"
    text = status["message"]["parts"][0]["text"]
    assert text == "not today" if tool == "deny" else text.startswith("execution failed: Internal error, reference ")


def test_an_own_context_is_kept_and_shared_by_its_tasks(speaker: Any) -> None:
    tasks = [speaker.task(speaker.send("hi", message={"contextId": "my-context"})) for _ in range(2)]
    assert [task["contextId"] for task in tasks] == ["my-context", "my-context"]
    assert tasks[0]["id"] != tasks[1]["id"]


def test_what_a_message_says_beside_its_parts_is_kept(speaker: Any) -> None:
    members = {
        "metadata": {"z": 1, "a": {"deep": [None, 1.0]}},
        "extensions": ["https://example.com/x"],
        "referenceTaskIds": ["t1", "t2"],
    }
    history = speaker.task(speaker.send("hi", message=members))["history"]
    assert {key: history[0][key] for key in members} == members


def test_unknown_members_and_null_are_ignored(speaker: Any) -> None:
    answer = speaker.send("hi", message={"taskId": None, "novelty": 1}, configuration={"news": []}, tomorrow={})
    assert speaker.state(answer) == "completed"
    assert "novelty" not in answer.text


def test_names_may_be_spelled_as_in_the_proto(speaker: Any) -> None:
    message = {"message_id": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}], "context_id": "snake"}
    params = {"message": message, "configuration": {"history_length": 0, "return_immediately": False}}
    task = speaker.wire.rpc("SendMessage", params).result["task"]
    assert (task["contextId"], "history" in task) == ("snake", False)


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-37", "S2-39")
def test_a_stream_in_1_0(speaker: Any, like: Any) -> None:
    with speaker.stream(tool="count", arguments={"n": 2}) as reading:
        events = [event.json["result"] for event in reading]
    task = events[0]["task"]
    ids = {"taskId": task["id"], "contextId": task["contextId"]}

    def artifact(text: str, **members: Any) -> dict[str, Any]:
        parts = {"artifactId": "count-result", "parts": [{"text": text}], "name": "count-result"}
        return {"artifactUpdate": {**ids, "artifact": parts, **members}}

    def status(state: str) -> dict[str, Any]:
        return {"statusUpdate": {**ids, "status": {"state": state, "timestamp": like.time}}}

    assert (task["status"]["state"], set(task)) == ("TASK_STATE_SUBMITTED", {"id", "contextId", "status", "history"})
    assert events[1:] == [
        status("TASK_STATE_WORKING"),
        artifact("1 "),
        artifact("2 ", append=True, lastChunk=True),
        status("TASK_STATE_COMPLETED"),
    ]


def test_the_bytes_of_a_stream_are_server_sent_events(speaker: Any) -> None:
    with speaker.stream("hi") as reading:
        text = "".join(reading.response.iter_text())
    frames = text.split("\n\n")
    assert frames.pop() == ""
    for number, frame in enumerate(frames, 1):
        name, data = frame.split("\n")
        assert name == f"id: {number}"
        assert data.startswith('data: {"jsonrpc":"2.0","id":1,"result":{')
        json.loads(data.removeprefix("data: "))


def test_a_progress_note_is_a_status_with_its_measure(speaker: Any) -> None:
    with speaker.stream(tool="slow") as reading:
        _, _, note = (reading.next().json["result"] for _ in range(3))
    status = note["statusUpdate"]["status"]
    assert (status["state"], status["message"]["parts"]) == ("TASK_STATE_WORKING", [{"text": "begun"}])


@pytest.mark.parametrize("length", [0, 1])
def test_the_first_event_has_as_much_history_as_was_asked_for(speaker: Any, length: int) -> None:
    with speaker.stream("hi", configuration={"historyLength": length}) as reading:
        task = reading.next().json["result"]["task"]
    assert len(task.get("history", [])) == length


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_in_1_0_has_typed_details(speaker: Any) -> None:
    assert speaker.get("nobody").json == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {
            "code": -32001,
            "message": "Task not found",
            "data": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "TASK_NOT_FOUND",
                    "domain": "a2a-protocol.org",
                    "metadata": {"taskId": "nobody"},
                }
            ],
        },
    }


def test_a_wrong_parameter_in_1_0_is_a_field_violation(speaker: Any) -> None:
    error = speaker.wire.rpc("SendMessage", {"message": {**speaker.message(), "parts": []}}).json["error"]
    assert error["code"] == -32602
    assert error["data"][1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": error["message"]}],
    }
    assert error["message"] == "message.parts must hold at least one part"
