"""1.0 and 1.1 on the wire: the shapes of results and events, and where a generation shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.dialects.v1.dialect import V1_0, V1_1
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface
from dragoman.model.error import BadCard, BadResponse
from dragoman.model.event import ArtifactUpdate, StatusUpdate, StreamResponse, response_of
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetPushConfigRequest,
    GetTaskRequest,
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

MESSAGE = Message("m", Role.AGENT, (Part(text="yo"),))
STATUS = TaskStatus(State.COMPLETED, timestamp="2026-11-15T10:00:00.000Z")
TASK = Task("t", "c", STATUS, (Artifact("a", (Part(text="yo"),)),), generation=4)
WEBHOOK = TaskPushNotificationConfig("https://x.example", "p", "t", "tok", AuthenticationInfo("Bearer", "c"))
CARD = AgentCard(
    "n",
    "d",
    (AgentInterface("https://a.example", "JSONRPC", "1.0"),),
    "1",
    AgentCapabilities(),
    ("text/plain",),
    (),
    (),
)
TASK_JSON = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-15T10:00:00.000Z"},
    "artifacts": [{"artifactId": "a", "parts": [{"text": "yo"}]}],
}
STATUS_JSON = {"taskId": "t", "contextId": "c", "status": TASK_JSON["status"]}
MESSAGE_JSON = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "yo"}]}
WEBHOOK_JSON = {
    "url": "https://x.example",
    "id": "p",
    "taskId": "t",
    "token": "tok",
    "authentication": {"scheme": "Bearer", "credentials": "c"},
}


def written(dialect: Any, operation: Operation, result: Any) -> Any:
    return json.loads(dialect.write_result(operation, result))


@pytest.mark.parametrize(
    ("operation", "result", "expected"),
    [
        (Operation.SEND, TASK, {"task": TASK_JSON}),
        (Operation.STREAM, TASK, {"task": TASK_JSON}),
        (Operation.SEND, MESSAGE, {"message": MESSAGE_JSON}),
        (Operation.GET, TASK, TASK_JSON),
        (Operation.CANCEL, TASK, TASK_JSON),
        (
            Operation.LIST,
            ListTasksResponse((TASK, TASK), "next", 2, 5),
            {"tasks": [TASK_JSON, TASK_JSON], "nextPageToken": "next", "pageSize": 2, "totalSize": 5},
        ),
        (
            Operation.LIST,
            ListTasksResponse((), "", 50, 0),
            {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0},
        ),
        (Operation.CREATE_PUSH, WEBHOOK, WEBHOOK_JSON),
        (Operation.GET_PUSH, WEBHOOK, WEBHOOK_JSON),
        (Operation.LIST_PUSH, (WEBHOOK,), {"configs": [WEBHOOK_JSON], "nextPageToken": ""}),
        (Operation.LIST_PUSH, (), {"configs": [], "nextPageToken": ""}),
        (Operation.DELETE_PUSH, None, {}),
    ],
)
def test_a_1_0_result_has_the_shape_of_the_specification(operation: Operation, result: Any, expected: Any) -> None:
    assert written(V1_0, operation, result) == expected


def test_every_result_can_be_read_back() -> None:
    for dialect, task in ((V1_0, Task("t", "c", STATUS, TASK.artifacts)), (V1_1, TASK)):
        results: list[tuple[Operation, Any]] = [
            (Operation.SEND, task),
            (Operation.SEND, MESSAGE),
            (Operation.GET, task),
            (Operation.CANCEL, task),
            (Operation.LIST, ListTasksResponse((task,), "n", 1, 2)),
            (Operation.CREATE_PUSH, WEBHOOK),
            (Operation.GET_PUSH, WEBHOOK),
            (Operation.LIST_PUSH, (WEBHOOK,)),
            (Operation.DELETE_PUSH, None),
            (Operation.EXTENDED_CARD, CARD),
        ]
        for operation, result in results:
            body = dialect.write_result(operation, result)
            assert dialect.read_result(operation, body) == result
            assert dialect.read_result(operation, json.loads(body)) == result


def test_every_request_can_be_read_back() -> None:
    requests: list[tuple[Operation, Any]] = [
        (Operation.GET, GetTaskRequest("t", 3)),
        (Operation.CANCEL, CancelTaskRequest("t", {"a": 1})),
        (Operation.SUBSCRIBE, SubscribeToTaskRequest("t")),
        (Operation.CREATE_PUSH, WEBHOOK),
        (Operation.GET_PUSH, GetPushConfigRequest("t", "p")),
        (Operation.EXTENDED_CARD, GetExtendedAgentCardRequest()),
    ]
    for operation, request in requests:
        assert V1_0.read_request(operation, V1_0.write_params(operation, request)) == request


def test_empty_ids_that_may_be_absent_count_as_absent() -> None:
    assert V1_0.read_request(Operation.GET, b'{"id":"t","tenant":""}') == GetTaskRequest("t")
    assert V1_0.read_request(Operation.GET_PUSH, b'{"taskId":"t","id":"p","tenant":""}') == GetPushConfigRequest(
        "t", "p"
    )
    hook = V1_0.read_request(Operation.CREATE_PUSH, b'{"taskId":"t","url":"u","id":"","tenant":""}')
    assert hook == TaskPushNotificationConfig("u", task_id="t")


def test_what_a_message_reads_like_is_what_it_was() -> None:
    assert V1_0.read_message(MESSAGE_JSON) == MESSAGE


class TestGeneration:
    def test_1_0_never_shows_it(self) -> None:
        for operation in (Operation.SEND, Operation.GET):
            assert b"generation" not in V1_0.write_result(operation, TASK)
        assert b"generation" not in V1_0.write_result(Operation.LIST, ListTasksResponse((TASK,), "", 1, 1))

    def test_1_1_shows_it_as_protojson_spells_an_int64(self) -> None:
        assert written(V1_1, Operation.GET, TASK) == {**TASK_JSON, "generation": "4"}
        assert written(V1_1, Operation.SEND, TASK) == {"task": {**TASK_JSON, "generation": "4"}}
        page = written(V1_1, Operation.LIST, ListTasksResponse((TASK, TASK), "", 2, 2))
        assert [task["generation"] for task in page["tasks"]] == ["4", "4"]

    def test_1_1_does_not_invent_one(self) -> None:
        assert written(V1_1, Operation.GET, Task("t", "c", STATUS, TASK.artifacts)) == TASK_JSON

    @pytest.mark.parametrize("generation", ["7", 7])
    def test_only_1_1_honours_a_condition(self, generation: Any) -> None:
        body = json.dumps(
            {"message": {**MESSAGE_JSON, "role": "ROLE_USER"}, "configuration": {"ifGenerationMatch": generation}}
        ).encode()
        old, new = V1_0.read_request(Operation.SEND, body), V1_1.read_request(Operation.SEND, body)

        assert isinstance(old, SendMessageRequest)
        assert isinstance(new, SendMessageRequest)
        assert old.configuration.if_generation_match is None
        assert new.configuration.if_generation_match == 7

    @pytest.mark.parametrize("generation", ["7", 7])
    def test_only_1_1_waits_for_a_newer_one(self, generation: Any) -> None:
        body = json.dumps({"id": "t", "currentGeneration": generation}).encode()

        assert V1_0.read_request(Operation.GET, body) == GetTaskRequest("t")
        assert V1_1.read_request(Operation.GET, body) == GetTaskRequest("t", current_generation=7)
        assert V1_1.read_values(Operation.GET, {"id": "t", "currentGeneration": "7"}) == V1_1.read_request(
            Operation.GET, body
        )

    def test_1_0_does_not_even_look_at_it(self) -> None:
        assert V1_0.read_request(Operation.GET, b'{"id":"t","currentGeneration":"soon"}') == GetTaskRequest("t")

    def test_a_1_0_request_does_not_carry_it(self) -> None:
        condition = SendMessageRequest(MESSAGE, SendMessageConfiguration(if_generation_match=3))

        assert b"ifGenerationMatch" not in V1_0.write_params(Operation.SEND, condition)
        assert b'"ifGenerationMatch":3' in V1_1.write_params(Operation.SEND, condition)

    def test_1_0_reads_none_from_an_answer(self) -> None:
        body = V1_1.write_result(Operation.GET, TASK)
        as_number = body.replace(b'"4"', b"4")

        for text in (body, as_number):
            assert V1_0.read_task(text).generation is None
            assert V1_1.read_task(text).generation == 4
        for kind, update in (
            ("statusUpdate", StatusUpdate("t", "c", STATUS)),
            ("artifactUpdate", ArtifactUpdate("t", "c", TASK.artifacts[0])),
            ("task", Task("t", "c", STATUS, TASK.artifacts)),
        ):
            event = V1_1.write_event(Record.of(9, update), last=False)
            assert V1_0.read_event(event.replace(b'"9"', b"9")).payload == update
            assert json.loads(event)[kind]["generation"] == "9"


def test_no_1_x_caller_chooses_a_task_id() -> None:
    body = json.dumps({"message": {**MESSAGE_JSON, "role": "ROLE_USER"}, "newTaskId": "mine"}).encode()
    for dialect in (V1_0, V1_1):
        request = dialect.read_request(Operation.SEND, body)
        assert isinstance(request, SendMessageRequest)
        assert request.new_task_id is None
        assert b"mine" not in dialect.write_params(Operation.SEND, SendMessageRequest(MESSAGE, new_task_id="mine"))


class TestEvents:
    EVENTS = (TASK, MESSAGE, StatusUpdate("t", "c", STATUS), ArtifactUpdate("t", "c", TASK.artifacts[0], append=True))

    def test_1_0_forwards_the_stored_bytes_themselves(self) -> None:
        for event in (*self.EVENTS[1:], Task("t", "c", STATUS, metadata={"generation": 5})):
            record = Record.of(3, event)
            assert V1_0.write_event(record, last=False) is record.body

    def test_1_0_hides_the_generation_a_task_record_may_hold(self) -> None:
        for event, shown in (
            (TASK, {"task": TASK_JSON}),
            (StatusUpdate("t", "c", STATUS, generation=3), {"statusUpdate": STATUS_JSON}),
        ):
            record = Record(3, encode(response_of(event)))
            assert b"generation" in record.body
            assert json.loads(V1_0.write_event(record, last=False)) == shown
            (body,) = json.loads(V1_1.write_event(record, last=False)).values()
            assert body["generation"] == "3"

    def test_a_generation_in_metadata_is_the_authors(self) -> None:
        task = Task("t", "c", STATUS, metadata={"a": {"b": 1, "generation": 5}}, generation=4)
        body = V1_0.write_event(Record(3, encode(response_of(task))), last=False)

        assert json.loads(body)["task"]["metadata"] == {"a": {"b": 1, "generation": 5}}
        assert "generation" not in json.loads(body)["task"]

    def test_a_number_at_the_end_that_is_no_generation_stays(self) -> None:
        update = Record(
            2, b'{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},"x":5}}'
        )

        assert V1_0.write_event(update, last=False) is update.body

    def test_1_1_numbers_every_event_but_a_message(self) -> None:
        for event in self.EVENTS:
            (body,) = json.loads(V1_1.write_event(Record.of(3, event), last=True)).values()
            assert body.get("generation") == (None if event is MESSAGE else "3")

    def test_a_record_read_from_a_store_needs_no_decoding(self) -> None:
        stored = Record(3, Record.of(3, self.EVENTS[2]).body)

        assert json.loads(V1_1.write_event(stored, last=False))["statusUpdate"]["generation"] == "3"
        assert stored.decoded is None

    def test_a_stream_is_spelled_by_the_dialect_itself(self) -> None:
        assert V1_0.event_writer() is V1_0


def test_the_extended_card_is_a_1_0_card() -> None:
    assert "supportedInterfaces" in written(V1_0, Operation.EXTENDED_CARD, CARD)
    assert "protocolVersion" not in written(V1_0, Operation.EXTENDED_CARD, CARD)
    with pytest.raises(BadCard):
        V1_0.read_result(Operation.EXTENDED_CARD, b"[]")


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (Operation.SEND, b'{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}'),
        (Operation.SEND, b"{}"),
        (Operation.GET, b"[]"),
        (Operation.LIST, b'{"tasks":5}'),
        (Operation.GET_PUSH, b'{"url":5}'),
        (Operation.LIST_PUSH, b'{"configs":[5]}'),
    ],
)
def test_an_answer_of_another_shape_is_a_bad_response(operation: Operation, body: bytes) -> None:
    with pytest.raises(BadResponse, match=r"not A2A 1\.0"):
        V1_0.read_result(operation, body)


def test_an_event_holds_exactly_what_it_says() -> None:
    assert V1_0.read_event({"message": MESSAGE_JSON}) == StreamResponse(message=MESSAGE)
