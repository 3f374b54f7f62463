"""Codes, statuses and details: the tables, literally."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.dialects.errors import error_from_http, error_from_rpc, http_error, rpc_error, rpc_failure, status_of
from dragoman.model import error as e

TABLE = [
    (e.ParseError, -32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
    (e.InvalidRequest, -32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    (e.MethodNotFound, -32601, 404, "UNIMPLEMENTED", "METHOD_NOT_FOUND"),
    (e.InvalidParams, -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    (e.InternalError, -32603, 500, "INTERNAL", "INTERNAL_ERROR"),
    (e.ServerError, -32000, 503, "UNAVAILABLE", "SERVER_ERROR"),
    (e.Overloaded, -32000, 429, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
    (e.TaskNotFound, -32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    (e.TaskNotCancelable, -32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    (e.PushNotificationNotSupported, -32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    (e.UnsupportedOperation, -32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    (e.ContentTypeNotSupported, -32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
    (e.InvalidAgentResponse, -32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    (e.ExtendedAgentCardNotConfigured, -32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    (e.ExtensionSupportRequired, -32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
    (e.VersionNotSupported, -32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    (e.TaskGenerationMismatch, -32010, 409, "ABORTED", "TASK_GENERATION_MISMATCH"),
    (e.Unauthenticated, -31401, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
    (e.Unauthorized, -31403, 403, "PERMISSION_DENIED", "PERMISSION_DENIED"),
]
ERRORS = [row[0] for row in TABLE]
CLASSES = pytest.mark.parametrize("cls", ERRORS)


def error_of(response: dict[str, Any]) -> e.A2AError:
    return error_from_rpc(response["error"], response.get("errorDetails"))


def info(reason: str, **metadata: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
    }
    return {**found, "metadata": metadata} if metadata else found


def test_the_table_has_every_error_of_the_protocol() -> None:
    known = {cls for cls in vars(e).values() if isinstance(cls, type) and issubclass(cls, e.A2AError)}

    assert known - {e.A2AError} == set(ERRORS)


@pytest.mark.parametrize(("cls", "code", "http", "status", "reason"), TABLE)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_1_x_errors_are_as_the_specification_says(
    version: str, cls: type[e.A2AError], code: int, http: int, status: str, reason: str
) -> None:
    error = cls("what happened")

    assert rpc_error(error, version) == {"code": code, "message": "what happened", "data": [info(reason)]}
    assert http_error(error, version) == (
        http,
        {"error": {"code": http, "status": status, "message": "what happened", "details": [info(reason)]}},
    )


NOT_IN_0_3 = (e.Overloaded, e.ExtensionSupportRequired, e.VersionNotSupported, e.TaskGenerationMismatch)
IN_0_3 = [(cls, code) for cls, code, *_ in TABLE if cls not in NOT_IN_0_3]


@pytest.mark.requirement("S2-79")
@pytest.mark.parametrize(("cls", "code"), IN_0_3)
def test_0_3_has_fifteen_errors_with_their_codes(cls: type[e.A2AError], code: int) -> None:
    assert len(IN_0_3) == 15
    assert rpc_error(cls(), "0.3") == {"code": code, "message": cls.text}


@pytest.mark.parametrize(
    ("version", "cls", "code"),
    [
        ("0.3", e.ExtendedAgentCardNotConfigured, -32007),
        ("0.3", e.ExtensionSupportRequired, -32603),
        ("0.3", e.VersionNotSupported, -32009),
        ("0.3", e.TaskGenerationMismatch, -32603),
        ("0.2", e.InvalidAgentResponse, -32006),
        ("0.2", e.ExtendedAgentCardNotConfigured, -32603),
        ("0.1", e.UnsupportedOperation, -32004),
        ("0.1", e.ContentTypeNotSupported, -32603),
        ("0.1", e.InvalidAgentResponse, -32603),
        ("0.1", e.ExtendedAgentCardNotConfigured, -32603),
        ("0.1", e.ExtensionSupportRequired, -32603),
        ("0.1", e.VersionNotSupported, -32009),
        ("0.1", e.TaskGenerationMismatch, -32603),
        ("0.1", e.Overloaded, -32000),
        ("0.1", e.InvalidParams, -32602),
        ("0.1", e.Unauthenticated, -31401),
        ("0.1", e.Unauthorized, -31403),
    ],
)
def test_a_code_an_older_version_does_not_know_is_internal_with_the_message_kept(
    version: str, cls: type[e.A2AError], code: int
) -> None:
    error = rpc_error(cls("why"), version)

    assert (error["code"], error["message"]) == (code, "why")
    assert set(error) == {"code", "message"}
    assert rpc_failure(cls("why"), version, 1)["errorDetails"] == [info(cls.reason)]


@pytest.mark.requirement("S2-80")
@pytest.mark.parametrize("details", [{"a": 1}, [1, "x"], "text", 0])
def test_before_1_0_details_are_the_data(details: Any) -> None:
    for version in ("0.1", "0.3"):
        error = rpc_error(e.TaskNotFound("gone", details=details), version)
        assert (error["code"], error["message"], error["data"]) == (-32001, "gone", details)


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_before_1_0_there_is_no_data_of_ours_which_the_two_a2a_go_read_in_two_ways(version: str) -> None:
    error = e.InvalidParams("no", field="message.parts", hint="h")

    assert rpc_failure(error, version, "r") == {
        "jsonrpc": "2.0",
        "id": "r",
        "error": {"code": -32602, "message": "no"},
        "errorDetails": [
            info("INVALID_PARAMS", hint="h"),
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": "message.parts", "description": "no"}],
            },
        ],
    }


@pytest.mark.parametrize(
    "response",
    [
        rpc_failure(e.TaskNotFound("gone", taskId="t"), "0.3", 1),
        rpc_failure(e.TaskNotFound("gone", details={"own": 1}, taskId="t"), "0.3", 1),
        {"error": {"code": -32001, "message": "gone", "data": {"reason": "TASK_NOT_FOUND", "taskId": "t"}}},
    ],
)
def test_a_caller_reads_the_metadata_of_0_3_in_either_form(response: dict[str, Any]) -> None:
    read = error_of(response)

    assert (type(read), read.message, read.metadata) == (e.TaskNotFound, "gone", {"taskId": "t"})


def test_a_caller_reads_the_field_of_the_old_form_of_0_3() -> None:
    read = error_from_rpc({"code": -32602, "message": "no", "data": {"reason": "INVALID_PARAMS", "field": "id"}})

    assert isinstance(read, e.InvalidParams)
    assert (read.field, read.metadata) == ("id", {})


def test_a_wrong_field_is_a_field_violation() -> None:
    details = [
        info("INVALID_PARAMS"),
        {
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": "message.parts", "description": "message.parts must hold at least one part"}],
        },
    ]
    error = e.InvalidParams("message.parts must hold at least one part", field="message.parts")

    assert rpc_error(error, "1.0")["data"] == details
    assert http_error(error, "1.0")[1]["error"]["details"] == details


def test_metadata_is_text() -> None:
    error = e.TaskGenerationMismatch(taskId="t", expectedGeneration="3", currentGeneration="5")
    error.metadata["count"] = 7  # pyright: ignore[reportArgumentType]

    assert rpc_error(error, "1.1")["data"] == [
        info("TASK_GENERATION_MISMATCH", taskId="t", expectedGeneration="3", currentGeneration="5", count="7")
    ]


@pytest.mark.parametrize(
    ("details", "typed"),
    [
        ({"@type": "t", "a": 1}, [{"@type": "t", "a": 1}]),
        ([{"@type": "t"}, {"@type": "u"}], [{"@type": "t"}, {"@type": "u"}]),
        ({"a": 1}, [{"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": 1}}]),
        ("x", [{"@type": "type.googleapis.com/google.protobuf.Value", "value": "x"}]),
    ],
)
def test_every_detail_of_a_1_x_error_has_a_type(details: Any, typed: Any) -> None:
    assert rpc_error(e.TaskNotFound(details=details), "1.0")["data"] == [info("TASK_NOT_FOUND"), *typed]


def test_a_request_of_the_wrong_content_type_is_415_and_a_part_of_it_400() -> None:
    assert status_of(e.ContentTypeNotSupported(header="content-type")).http == 415
    assert status_of(e.ContentTypeNotSupported()).http == 400


def test_an_error_of_a_new_class_has_the_status_of_its_parent() -> None:
    class Lost(e.TaskNotFound):
        pass

    assert status_of(Lost()) == (404, "NOT_FOUND")
    assert status_of(e.A2AError()) == (500, "INTERNAL")


@CLASSES
@pytest.mark.parametrize("version", ["0.1", "0.3", "1.0", "1.1"])
def test_a_caller_reads_the_error_that_was_raised(cls: type[e.A2AError], version: str) -> None:
    raised = cls("why")
    read = error_of(rpc_failure(raised, version, 1))

    assert type(read) is cls
    assert read.message == "why"


@CLASSES
def test_a_rest_caller_reads_the_error_that_was_raised(cls: type[e.A2AError]) -> None:
    status, body = http_error(cls("why", taskId="t"), "1.0")
    read = error_from_http(status, body)

    assert type(read) is cls
    assert (read.message, read.metadata) == ("why", {"taskId": "t"})


@pytest.mark.parametrize("version", ["0.3", "1.0"])
def test_a_caller_reads_the_field(version: str) -> None:
    read = error_of(rpc_failure(e.InvalidParams("no", field="message.role"), version, 1))

    assert isinstance(read, e.InvalidParams)
    assert read.field == "message.role"


@pytest.mark.parametrize(
    ("error", "cls", "message"),
    [
        ({"code": -32001, "message": "gone"}, e.TaskNotFound, "gone"),
        ({"code": -32001}, e.TaskNotFound, "Task not found"),
        ({"code": -32602, "message": "m", "data": "d"}, e.InvalidParams, "m"),
        ({"code": -12345, "message": "odd"}, e.InternalError, "odd"),
        ({"code": "x", "message": 5}, e.InternalError, "Internal error"),
        ({"code": -32001, "message": "m", "data": {"reason": "UNSUPPORTED_OPERATION"}}, e.TaskNotFound, "m"),
        ({"code": -32602, "data": [{"fieldViolations": []}]}, e.InvalidParams, "Invalid parameters"),
        ("broken", e.InternalError, "Internal error"),
    ],
)
def test_foreign_errors_are_read_as_far_as_they_go(error: Any, cls: type[e.A2AError], message: str) -> None:
    read = error_from_rpc(error)

    assert (type(read), read.message) == (cls, message)


@pytest.mark.parametrize(
    ("status", "body", "cls"),
    [
        (404, {"error": {"details": [{"@type": "x"}, info("TASK_NOT_FOUND")]}}, e.TaskNotFound),
        (404, {"message": "nope"}, e.MethodNotFound),
        (401, None, e.Unauthenticated),
        (403, {}, e.Unauthorized),
        (418, {}, e.InvalidRequest),
        (422, {}, e.InvalidParams),
        (429, {}, e.Overloaded),
        (502, "<html>", e.InternalError),
        (503, {}, e.ServerError),
        (400, {"error": {"details": [info("NEVER_HEARD_OF")]}}, e.InvalidRequest),
    ],
)
def test_foreign_rest_errors_are_read_by_reason_else_by_status(status: int, body: Any, cls: type[e.A2AError]) -> None:
    read = error_from_http(status, body)

    assert type(read) is cls
    explained = ": <html>" if body == "<html>" else ""
    assert read.message == ("nope" if body == {"message": "nope"} else f"{cls.text} (HTTP {status}){explained}")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (e.TaskNotFound(), "TaskNotFoundError"),
        (e.ParseError(), "JSONParseError"),
        (e.InternalError(), "InternalError"),
        (e.ExtendedAgentCardNotConfigured(), "ExtendedAgentCardNotConfiguredError"),
    ],
)
def test_a_0_3_rest_error_also_says_what_the_official_clients_of_0_3_read(error: e.A2AError, name: str) -> None:
    _, body = http_error(error, "0.3")

    assert (body["type"], body["message"]) == (name, error.message)
    assert set(http_error(error, "1.0")[1]) == {"error"}
