"""The second chance: what callers really send is understood, and free JSON is never touched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.dialects.reading.lenient import LenientReader, from_base64
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.dialects.v1.dialect import V1_0, V1_1
from dragoman.model.error import BadResponse, InvalidParams, ParseError
from dragoman.model.event import ArtifactUpdate, StatusUpdate, StreamResponse
from dragoman.model.message import Message
from dragoman.model.operation import (
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    Operation,
    SendMessageRequest,
)
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus


def sent(message: dict[str, Any], **params: Any) -> SendMessageRequest:
    request = V1_0.read_request(Operation.SEND, json.dumps({"message": message, **params}).encode())
    assert isinstance(request, SendMessageRequest)
    return request


def plain(**changes: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], **changes}


EXPECTED = Message("m", Role.USER, (Part(text="hi"),))


@pytest.mark.parametrize(
    "message",
    [
        plain(),
        plain(extensions=None, referenceTaskIds=None, metadata=None, contextId=None, taskId=None),
        plain(contextId="", taskId=""),
        {"message_id": "m", "role": "ROLE_USER", "parts": [{"text": "hi", "media_type": None}]},
        plain(role="user"),
        plain(role="User"),
        plain(role="role_user"),
        plain(role=1),
        plain(role="ROLE_UNSPECIFIED"),
        plain(role=0),
        plain(kind="message", somethingNew={"a": 1}),
        plain(parts=[{"text": "hi", "raw": None, "url": None, "data": None}]),
        plain(parts=[{"kind": "text", "text": "hi"}]),
    ],
)
def test_a_message_in_many_spellings_is_the_same_message(message: dict[str, Any]) -> None:
    assert sent(message).message == EXPECTED


@pytest.mark.parametrize("params", [{"configuration": None}, {"metadata": None}, {"tenant": None}, {"tenant": ""}])
def test_null_and_empty_parameters_are_absent(params: dict[str, Any]) -> None:
    assert sent(plain(), **params) == SendMessageRequest(EXPECTED)


@pytest.mark.parametrize(
    "text", ["+/+/", "-_-_", " -_\n-_ "], ids=["standard", "url-safe", "url-safe with line breaks"]
)
def test_bytes_are_read_in_either_base64_alphabet(text: str) -> None:
    assert sent(plain(parts=[{"raw": text}])).message.parts == (Part(raw=b"\xfb\xff\xbf"),)


@pytest.mark.parametrize("text", ["aGk=", "aGk"])
def test_base64_needs_no_padding(text: str) -> None:
    assert sent(plain(parts=[{"raw": text}])).message.parts == (Part(raw=b"hi"),)
    assert from_base64(text) == b"hi"


@pytest.mark.parametrize("text", ["a", "a*bc", "ä", 5])
def test_invalid_base64_is_refused_with_the_field_named(text: Any) -> None:
    with pytest.raises(InvalidParams, match="must be base64") as caught:
        sent(plain(parts=[{"raw": text}]))
    assert caught.value.field == "message.parts[0].raw"


@pytest.mark.parametrize("length", [5, "5", "+5", 5.0])
def test_a_number_may_be_text_or_have_an_empty_fraction(length: Any) -> None:
    request = V1_0.read_request(Operation.GET, json.dumps({"id": "t", "historyLength": length}).encode())

    assert request == GetTaskRequest("t", 5)


def test_a_query_string_has_only_text() -> None:
    request = V1_0.read_values(
        Operation.LIST,
        {
            "contextId": "c",
            "status": "TASK_STATE_WORKING",
            "pageSize": "10",
            "pageToken": "",
            "historyLength": "0",
            "statusTimestampAfter": "2026-11-15T10:00:00Z",
            "includeArtifacts": "true",
            "unknown": "x",
        },
    )

    assert request == ListTasksRequest(
        context_id="c",
        status=State.WORKING,
        page_size=10,
        history_length=0,
        status_timestamp_after="2026-11-15T10:00:00Z",
        include_artifacts=True,
    )


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("false", False), ("FALSE", False)])
def test_a_boolean_may_be_text(text: str, value: bool) -> None:
    request = V1_0.read_values(Operation.LIST, {"includeArtifacts": text})

    assert request == ListTasksRequest(include_artifacts=value)


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ("TASK_STATE_CANCELED", State.CANCELED),
        ("TASK_STATE_CANCELLED", State.CANCELED),
        ("cancelled", State.CANCELED),
        ("canceled", State.CANCELED),
        ("input-required", State.INPUT_REQUIRED),
        ("input_required", State.INPUT_REQUIRED),
        ("INPUT_REQUIRED", State.INPUT_REQUIRED),
        ("Auth-Required", State.AUTH_REQUIRED),
        (5, State.CANCELED),
        ("6", State.INPUT_REQUIRED),
        (8, State.AUTH_REQUIRED),
        ("unknown", None),
        ("TASK_STATE_UNSPECIFIED", None),
        (0, None),
    ],
)
def test_a_state_is_understood_in_every_spelling_and_by_its_number(given: Any, state: State | None) -> None:
    request = V1_0.read_request(Operation.LIST, json.dumps({"status": given}).encode())

    assert request == ListTasksRequest(status=state)


@pytest.mark.parametrize("given", ["done", 9, -1, "99", True, 1.5, [], ""])
def test_an_invalid_state_is_refused_with_the_field_named(given: Any) -> None:
    with pytest.raises(InvalidParams) as caught:
        V1_0.read_request(Operation.LIST, json.dumps({"status": given}).encode())
    assert caught.value.field == "status"


@pytest.mark.parametrize("given", ["system", 3, -1])
def test_an_invalid_role_is_refused_with_the_field_named(given: Any) -> None:
    with pytest.raises(InvalidParams) as caught:
        sent(plain(role=given))
    assert caught.value.field == "message.role"


def test_snake_case_is_accepted_where_camel_case_is_optional() -> None:
    read = V1_0.read_request(Operation.GET, b'{"id":"t","history_length":3}')
    listed = V1_0.read_request(Operation.LIST, b'{"context_id":"c","page_size":7}')
    hook = V1_0.read_request(Operation.CREATE_PUSH, b'{"task_id":"t","url":"https://x.example"}')

    assert read == GetTaskRequest("t", 3)
    assert listed == ListTasksRequest(context_id="c", page_size=7)
    assert getattr(hook, "task_id", None) == "t"


def test_snake_case_is_accepted_where_camel_case_is_required() -> None:
    assert V1_0.read_request(Operation.GET_PUSH, b'{"task_id":"t","id":"p"}') == GetPushConfigRequest("t", "p")
    assert V1_0.read_request(Operation.LIST_PUSH, b'{"task_id":"t"}') == ListPushConfigsRequest("t")


def test_camel_case_goes_before_snake_case() -> None:
    for body in (
        b'{"id":"t","history_length":3,"historyLength":4}',
        b'{"id":"t","historyLength":4,"history_length":3}',
    ):
        assert V1_0.read_request(Operation.GET, body) == GetTaskRequest("t", 4)


def test_an_underscore_in_a_value_changes_nothing() -> None:
    assert V1_0.read_request(Operation.GET, b'{"id":"task_1"}') == GetTaskRequest("task_1")


def test_free_json_is_never_touched() -> None:
    free = {"page_size": "5", "messageId": None, "role": "user", "raw": "aGk", "n": 1.0, "flag": "true", "l": [None]}
    request = sent(
        {"message_id": "m", "role": 1, "parts": [{"data": free, "metadata": free}], "metadata": free}, metadata=free
    )

    part = request.message.parts[0]
    for found in (part.data, part.metadata, request.message.metadata, request.metadata):
        assert json.dumps(found) == json.dumps(free)


@pytest.mark.parametrize("value", [None, 1, "x", [None], False])
def test_data_alone_may_be_any_json_also_null(value: Any) -> None:
    strict = sent(plain(parts=[{"data": value}]))
    lenient = sent(plain(role="user", parts=[{"data": value}]))

    assert strict.message.parts == lenient.message.parts == (Part(data=value),)


@pytest.mark.parametrize("params", [b"", b"  ", b"null", b"{}"])
def test_no_parameters_are_an_empty_object(params: bytes) -> None:
    assert V1_0.read_request(Operation.LIST, params) == ListTasksRequest()


@pytest.mark.parametrize(
    "text",
    [b"{", b'{"id":}', b"nope", b'{"id":"\xff"}', b'{"id_":"\xff"}', b'{"_"', b'{"message":{"role":1}', b'{"id":NaN}'],
)
def test_invalid_json_is_a_parse_error(text: bytes) -> None:
    for operation in (Operation.GET, Operation.SEND):
        with pytest.raises(ParseError, match="Invalid JSON payload") as caught:
            V1_0.read_request(operation, text if operation is Operation.GET else text.rstrip(b"}"))
        assert caught.value.code == -32700


@pytest.mark.parametrize("key", ["data", "a_b"])
def test_json_nested_too_deeply_is_a_parse_error(key: str) -> None:
    deep = b'{"id":"t","%b":%b%b}' % (key.encode(), b"[" * 100_000, b"]" * 100_000)
    with pytest.raises(ParseError, match="nested too deeply"):
        V1_0.read_request(Operation.GET, deep)


def test_a_number_beyond_every_range_names_its_field() -> None:
    with pytest.raises(InvalidParams, match="out of range") as caught:
        V1_0.read_request(
            Operation.SEND, b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"x":1e999}}]}}'
        )
    assert caught.value.field == "message.parts[0].data"
    with pytest.raises(InvalidParams, match="out of range"):
        V1_0.read_request(Operation.GET, b'{"id_":1e999}')


class TestAnswers:
    """Answers come from ProtoJSON writers, which leave empty values out."""

    def test_a_task_without_what_protojson_omits(self) -> None:
        assert V1_0.read_task(b'{"id":"t"}') == Task("t", "", TaskStatus(State.UNSPECIFIED))

    def test_an_artifact_without_parts(self) -> None:
        event = V1_0.read_event(
            b'{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a"},"lastChunk":true}}'
        )

        assert event == StreamResponse(artifact_update=ArtifactUpdate("t", "c", Artifact("a", ()), last_chunk=True))

    def test_an_envelope_in_snake_case(self) -> None:
        event = V1_0.read_event(b'{"status_update":{"task_id":"t","context_id":"c","status":{"state":2}}}')

        assert event == StreamResponse(status_update=StatusUpdate("t", "c", TaskStatus(State.WORKING)))

    def test_a_generation_as_protojson_spells_it(self) -> None:
        assert V1_1.read_task(b'{"id":"t","contextId":"c","status":{"state":"completed"},"generation":"12"}') == Task(
            "t", "c", TaskStatus(State.COMPLETED), generation=12
        )

    def test_an_unset_field_of_a_task_in_0_3(self) -> None:
        task = V03_RPC.read_task({"id": "t", "status": {"state": "somewhere new"}, "artifacts": None})

        assert task == Task("t", "", TaskStatus(State.UNSPECIFIED))

    @pytest.mark.parametrize("body", [b"{}", b"[]", b"nonsense", b'{"task":5}', b'{"unknown":{}}'])
    def test_what_is_not_an_event_is_a_bad_response(self, body: bytes) -> None:
        with pytest.raises(BadResponse, match="not A2A"):
            V1_0.read_event(body)


def test_a_reader_fills_numbers_and_flags_too() -> None:
    listed = V1_0.read_result(Operation.LIST, b"{}")

    assert listed == V1_0.read_result(Operation.LIST, {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0})


def test_a_reader_of_plain_values_leaves_them_alone() -> None:
    assert LenientReader(dict[str, int]).read({"a": 1}) == {"a": 1}
    assert LenientReader(list[str]).read(b'["a"]') == ["a"]
