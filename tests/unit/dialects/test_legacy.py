"""0.1 on the wire, literally."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.model.error import BadResponse, MethodNotFound
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.operation import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListTasksRequest,
    Operation,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

TIME = "2026-11-15T10:00:00.000Z"
ASKED = Message("m", Role.USER, (Part(text="Add"), Part(data={"tool": "add_numbers"})), "c", "t")
ASKED_JSON = {
    "role": "user",
    "parts": [{"type": "text", "text": "Add"}, {"type": "data", "data": {"tool": "add_numbers"}}],
}
RESULT = Artifact("t-result", (Part(text="10", media_type="application/json"),), "add_numbers-result")


def sent(**params: Any) -> SendMessageRequest:
    request = V01_RPC.read_request(Operation.SEND, json.dumps(params).encode())
    assert isinstance(request, SendMessageRequest)
    return request


@pytest.mark.requirement("S0-38")
def test_a_send_takes_text_and_data_parts() -> None:
    request = sent(
        message={
            "role": "user",
            "parts": [
                {"type": "text", "text": "Add these numbers"},
                {"type": "data", "data": {"tool": "add_numbers", "arguments": {"a": 3, "b": 7}}},
            ],
        }
    )

    assert request.message.role is Role.USER
    assert request.message.parts == (
        Part(text="Add these numbers"),
        Part(data={"tool": "add_numbers", "arguments": {"a": 3, "b": 7}}),
    )
    assert UUID(request.message.message_id).version == 4
    assert not request.configuration.return_immediately
    assert request.new_task_id is None


@pytest.mark.requirement("S0-39")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "parts": [{"type": "text", "text": "Hello!"}]},
        {"role": "user", "parts": [{"kind": "text", "text": "Hello!"}]},
        {"parts": [{"text": "Hello!"}]},
        {"role": "stranger", "parts": [{"type": "text", "text": "Hello!"}], "metadata": None},
        "Hello!",
    ],
)
def test_a_message_may_be_text_alone(message: Any) -> None:
    request = sent(message=message)

    assert (request.message.role, request.message.parts) == (Role.USER, (Part(text="Hello!"),))


@pytest.mark.parametrize(
    ("params", "task_id", "context_id"),
    [
        ({}, None, None),
        ({"id": "T", "sessionId": "S"}, "T", "S"),
        ({"id": 1763200000000, "session_id": 7}, "1763200000000", "7"),
        ({"id": "", "sessionId": ""}, None, None),
        ({"id": None, "sessionId": None}, None, None),
    ],
)
def test_the_caller_may_choose_the_task_id(params: Any, task_id: str | None, context_id: str | None) -> None:
    request = sent(message="hi", **params)

    assert request.new_task_id == task_id
    assert request.message.context_id == context_id
    assert request.message.task_id is None


def test_every_parameter_of_a_send_is_read() -> None:
    request = sent(
        message={"role": "user", "parts": [{"type": "text", "text": "hi"}], "messageId": "mine", "metadata": {"a": 1}},
        historyLength=3,
        acceptedOutputModes=["text"],
        pushNotification={"url": "u", "token": "tok", "authentication": {"schemes": ["basic"], "credentials": "c"}},
        metadata={"k": 1},
    )

    assert request.message == Message("mine", Role.USER, (Part(text="hi"),), metadata={"a": 1})
    assert request.configuration.history_length == 3
    assert request.configuration.accepted_output_modes == ("text",)
    assert request.configuration.task_push_notification_config == TaskPushNotificationConfig(
        "u", token="tok", authentication=AuthenticationInfo("basic", "c")
    )
    assert request.metadata == {"k": 1}


def test_a_caller_that_has_no_task_id_invents_one() -> None:
    message = Message("m", Role.USER, (Part(text="hi"),), context_id="S")
    fresh = json.loads(V01_RPC.write_params(Operation.SEND, SendMessageRequest(message)))
    follow_up = json.loads(
        V01_RPC.write_params(Operation.SEND, SendMessageRequest(Message("m", Role.USER, message.parts, task_id="T")))
    )

    assert UUID(fresh["id"]).version == 4
    assert fresh["sessionId"] == "S"
    assert follow_up["id"] == "T"


@pytest.mark.parametrize(
    ("operation", "params", "expected"),
    [
        (Operation.GET, {"id": "t", "historyLength": 2}, GetTaskRequest("t", 2)),
        (Operation.GET, {"id": 1763200000000}, GetTaskRequest("1763200000000")),
        (Operation.CANCEL, {"id": "t", "metadata": {"a": 1}}, CancelTaskRequest("t", {"a": 1})),
        (Operation.SUBSCRIBE, {"id": "t"}, SubscribeToTaskRequest("t")),
        (Operation.GET_PUSH, {"id": "t"}, GetPushConfigRequest("t", "")),
        (
            Operation.CREATE_PUSH,
            {"id": "t", "pushNotificationConfig": {"url": "u"}},
            TaskPushNotificationConfig("u", task_id="t"),
        ),
    ],
)
def test_parameters_are_read_and_written_back(operation: Operation, params: dict[str, Any], expected: Any) -> None:
    assert V01_RPC.read_values(operation, params) == expected
    assert V01_RPC.read_request(operation, V01_RPC.write_params(operation, expected)) == expected


@pytest.mark.requirement("S0-56")
@pytest.mark.parametrize("operation", [Operation.SEND, Operation.GET, Operation.CANCEL])
def test_every_operation_answers_with_the_same_task_shape(operation: Operation) -> None:
    task = Task("1763200000000", "S", TaskStatus(State.COMPLETED, timestamp=TIME), (RESULT,), (ASKED,))

    assert json.loads(V01_RPC.write_result(operation, task)) == {
        "id": "1763200000000",
        "sessionId": "S",
        "status": {"state": "completed", "timestamp": TIME},
        "history": [ASKED_JSON],
        "artifacts": [{"name": "add_numbers-result", "parts": [{"type": "text", "text": "10"}]}],
    }


@pytest.mark.requirement("S0-56")
def test_history_and_artifacts_are_there_even_when_empty() -> None:
    task = Task("t", "", TaskStatus(State.WORKING, timestamp=TIME))

    assert V01_RPC.write_result(Operation.GET, task).decode() == (
        f'{{"id":"t","status":{{"state":"working","timestamp":"{TIME}"}},"history":[],"artifacts":[]}}'
    )


@pytest.mark.requirement("S0-60")
def test_a_result_artifact_is_its_name_and_a_text_part() -> None:
    task = Task("t", "S", TaskStatus(State.COMPLETED), (RESULT,))

    assert V01_RPC.write_result(Operation.SEND, task).endswith(
        b'"artifacts":[{"name":"add_numbers-result","parts":[{"type":"text","text":"10"}]}]}'
    )


def test_later_artifacts_have_their_place_as_index() -> None:
    artifacts = (RESULT, Artifact("b", (), description="d", metadata={"k": 1}))
    task = Task("t", "S", TaskStatus(State.COMPLETED), artifacts, metadata={"z": 1})

    shown = json.loads(V01_RPC.write_result(Operation.GET, task))

    assert shown["artifacts"][1] == {"description": "d", "parts": [], "index": 1, "metadata": {"k": 1}}
    assert shown["metadata"] == {"z": 1}


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (State.SUBMITTED, "submitted"),
        (State.WORKING, "working"),
        (State.INPUT_REQUIRED, "input-required"),
        (State.AUTH_REQUIRED, "input-required"),
        (State.COMPLETED, "completed"),
        (State.FAILED, "failed"),
        (State.REJECTED, "failed"),
        (State.CANCELED, "canceled"),
        (State.UNSPECIFIED, "unknown"),
    ],
)
def test_states_0_1_does_not_know_become_the_nearest(state: State, word: str) -> None:
    shown = json.loads(V01_RPC.write_result(Operation.GET, Task("t", "S", TaskStatus(state))))

    assert shown["status"] == {"state": word}


def test_a_bare_message_is_a_completed_task() -> None:
    reply = Message("m", Role.AGENT, (Part(text="yo"),), "S")
    shown = json.loads(V01_RPC.write_result(Operation.SEND, reply))

    assert UUID(shown.pop("id")).version == 4
    assert shown == {
        "sessionId": "S",
        "status": {"state": "completed", "message": {"role": "agent", "parts": [{"type": "text", "text": "yo"}]}},
        "history": [],
        "artifacts": [],
    }
    read = V01_RPC.read_result(Operation.SEND, V01_RPC.write_result(Operation.SEND, reply))
    assert isinstance(read, Task)
    assert read.text == "yo"


def test_a_message_alone_is_read_with_a_fresh_id() -> None:
    message = V01_RPC.read_message({"role": "agent", "parts": [{"type": "text", "text": "yo"}]})

    assert (message.role, message.text) == (Role.AGENT, "yo")
    assert UUID(message.message_id).version == 4


class TestStream:
    def spelled(self, *events: Any) -> list[Any]:
        stream = V01_RPC.event_writer()
        return [
            json.loads(stream.write_event(Record.of(number, event), last=number == len(events)))
            for number, event in enumerate(events, 1)
        ]

    def test_a_task_and_a_status_are_status_events_and_the_last_is_final(self) -> None:
        working, done = TaskStatus(State.WORKING), TaskStatus(State.COMPLETED, timestamp=TIME)

        assert self.spelled(
            Task("t", "S", TaskStatus(State.SUBMITTED)),
            StatusUpdate("t", "S", working, {"k": 1}),
            StatusUpdate("t", "S", done),
        ) == [
            {"id": "t", "status": {"state": "submitted"}, "final": False},
            {"id": "t", "status": {"state": "working"}, "final": False, "metadata": {"k": 1}},
            {"id": "t", "status": {"state": "completed", "timestamp": TIME}, "final": True},
        ]

    def test_artifacts_keep_the_index_they_got_first(self) -> None:
        def chunk(artifact_id: str, **flags: bool) -> ArtifactUpdate:
            return ArtifactUpdate("t", "S", Artifact(artifact_id, (Part(text=artifact_id),)), **flags)

        spelled = self.spelled(
            Task("t", "S", TaskStatus(State.WORKING), (Artifact("old", ()),)),
            chunk("first"),
            chunk("second"),
            chunk("first", append=True, last_chunk=True),
            chunk("old"),
        )

        assert spelled[1:] == [
            {"id": "t", "artifact": {"parts": [{"type": "text", "text": "first"}], "index": 1}},
            {"id": "t", "artifact": {"parts": [{"type": "text", "text": "second"}], "index": 2}},
            {
                "id": "t",
                "artifact": {
                    "parts": [{"type": "text", "text": "first"}],
                    "index": 1,
                    "append": True,
                    "lastChunk": True,
                },
            },
            {"id": "t", "artifact": {"parts": [{"type": "text", "text": "old"}]}},
        ]

    def test_a_bare_message_is_a_completed_status(self) -> None:
        (event,) = self.spelled(Message("m", Role.AGENT, (Part(text="yo"),), task_id="t"))

        assert event == {
            "id": "t",
            "status": {"state": "completed", "message": {"role": "agent", "parts": [{"type": "text", "text": "yo"}]}},
            "final": True,
        }

    def test_two_streams_do_not_know_of_each_other(self) -> None:
        one, other = V01_RPC.event_writer(), V01_RPC.event_writer()
        for stream, artifact_id in ((one, "a"), (other, "b")):
            record = Record.of(1, ArtifactUpdate("t", "S", Artifact(artifact_id, ())))
            assert json.loads(stream.write_event(record, last=False)) == {"id": "t", "artifact": {"parts": []}}


@pytest.mark.parametrize("body", [b"{}", b'{"id":"t"}', b'{"id":"t","artifact":{"parts":[{}]}}', b"[]"])
def test_a_body_that_is_no_event_is_a_bad_response(body: bytes) -> None:
    with pytest.raises(BadResponse, match=r"not A2A 0\.1"):
        V01_RPC.read_event(body)


def test_webhooks_are_named_by_their_task() -> None:
    webhook = TaskPushNotificationConfig("u", task_id="t", token="tok")
    body = V01_RPC.write_result(Operation.CREATE_PUSH, webhook)

    assert json.loads(body) == {"id": "t", "pushNotificationConfig": {"url": "u", "token": "tok"}}
    assert V01_RPC.read_result(Operation.GET_PUSH, body) == webhook


def test_what_0_1_does_not_have_is_not_found() -> None:
    for attempt in (
        lambda: V01_RPC.read_request(Operation.LIST, b"{}"),
        lambda: V01_RPC.write_params(Operation.LIST, ListTasksRequest()),
        lambda: V01_RPC.write_params(Operation.DELETE_PUSH, GetPushConfigRequest("t", "p")),
        lambda: V01_RPC.write_result(Operation.DELETE_PUSH, None),
    ):
        with pytest.raises(MethodNotFound, match=r"A2A 0\.1 has no"):
            attempt()


def test_0_1_callers_are_never_asked() -> None:
    assert V01_RPC.asks is False
    assert V01_RPC.row.extensions_header == ""
