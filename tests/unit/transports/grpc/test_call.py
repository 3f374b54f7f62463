"""gRPC from the client's side, without a network: requests, results, events, and the errors of every kind of server."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from dragoman.dialects.errors import STATUSES, error_details, status_of
from dragoman.dialects.negotiate import dialect_of
from dragoman.dialects.table import GRPC
from dragoman.errors import (
    AuthError,
    BadResponse,
    CannotConnect,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    ServerError,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.model.error import A2AError, Unauthenticated, Unauthorized
from dragoman.model.operation import GetPushConfigRequest, GetTaskRequest, ListTasksRequest, Operation
from dragoman.net.grpc.frames import read_frames, write_message, write_text, write_trailers
from dragoman.net.grpc.status import CODES
from dragoman.transports.grpc.call import GrpcBinding
from dragoman.transports.grpc.codec import codec_of

URL = "grpc://127.0.0.1:50051"


def binding(version: str = "1.0") -> GrpcBinding:
    dialect = dialect_of(version, GRPC)
    assert dialect is not None
    return GrpcBinding(URL, dialect)


def status(name: str, message: str = "", details: list[dict[str, Any]] | None = None) -> dict[str, str]:
    """The trailers of a call that failed."""
    trailers = {"grpc-status": str(CODES[name][0]), "grpc-message": write_text(message)}
    if details is not None:
        encoded = codec_of("google.rpc").encode("Status", {"code": CODES[name][0], "details": details})
        trailers["grpc-status-details-bin"] = b64encode(encoded).decode().rstrip("=")
    return trailers


# -- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "operation", "request_", "path", "message"),
    [
        ("1.0", Operation.GET, GetTaskRequest("t1"), "/lf.a2a.v1.A2AService/GetTask", {"id": "t1"}),
        ("0.3", Operation.GET, GetTaskRequest("t1"), "/a2a.v1.A2AService/GetTask", {"name": "tasks/t1"}),
        (
            "0.3",
            Operation.GET_PUSH,
            GetPushConfigRequest("t1", "p1"),
            "/a2a.v1.A2AService/GetTaskPushNotificationConfig",
            {"name": "tasks/t1/pushNotificationConfigs/p1"},
        ),
    ],
)
def test_a_request_is_a_message_in_a_frame(
    version: str, operation: Operation, request_: Any, path: str, message: dict[str, Any]
) -> None:
    sent = binding(version).build_request(operation, request_, after=7)
    assert (sent.method, sent.url, sent.operation) == ("POST", URL + path, operation)
    assert sent.headers["Last-Event-ID"] == "7"
    assert sent.headers.get("A2A-Version") == ("1.0" if version == "1.0" else None)
    (frame,) = read_frames(sent.body or b"")
    package, _, name = path[1:].partition("/")[0].rpartition(".")[0], "", path.rpartition("/")[2]
    assert codec_of(package).decode(f"{name}Request", frame.data) == message


def test_what_a_version_does_not_have_is_not_sent() -> None:
    with pytest.raises(MethodNotFound, match=r"A2A 0\.3 has no ListTasks: ask for it in A2A 1\.0"):
        binding("0.3").build_request(Operation.LIST, ListTasksRequest())


# -- answers ---------------------------------------------------------------------------------------------------------


def test_a_result_is_read_and_anything_else_is_a_bad_response() -> None:
    task = codec_of("lf.a2a.v1").encode("Task", {"id": "t1", "status": {"state": "TASK_STATE_WORKING"}})
    body = write_message(task) + write_trailers({"grpc-status": "0"})
    assert binding().read_result(Operation.GET, 200, {}, body).id == "t1"  # pyright: ignore
    for broken in (write_trailers({"grpc-status": "0"}), write_message(b"\xff"), write_message(task)[:-1]):
        with pytest.raises(BadResponse):
            binding().read_result(Operation.GET, 200, {}, broken)


def test_events_are_numbered_from_the_first_and_the_trailers_end_them() -> None:
    update = {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}}
    event = codec_of("lf.a2a.v1").encode("StreamResponse", update)
    reader = binding().open_reader({"first-event-id": "5"}, 1000)
    chunk = write_message(event) * 2 + write_trailers(status("NOT_FOUND", "gone"))
    arrived: list[tuple[bytes, int]] = []
    with pytest.raises(TaskNotFound, match="gone"):
        arrived.extend(iter(reader.feed(chunk)))  # what came before the error is not lost:
    reader = binding().open_reader({"first-event-id": "5"}, 1000)
    feeding = iter(reader.feed(chunk))
    assert [next(feeding), next(feeding)] == [(event, 5), (event, 6)]
    assert [number for _, number in binding().open_reader({}, 1000).feed(write_message(event))] == [0]
    assert binding().read_event(event).payload.task_id == "t1"  # pyright: ignore


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [each for each in STATUSES if each is not A2AError])
def test_an_error_with_details_comes_back_as_it_went(kind: type[A2AError]) -> None:
    error = kind("what went wrong", taskId="t1")
    found = binding().read_error(status(status_of(error).name, "what went wrong", error_details(error)))
    if kind in (Unauthenticated, Unauthorized):
        assert isinstance(found, AuthError)
        assert found.status == (401 if kind is Unauthenticated else 403)
        return
    assert type(found) is kind
    assert (str(found), found.metadata) == ("what went wrong", {"taskId": "t1"})


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        # a2a-sdk 0.3 begins its texts with the name of the error.
        ("NOT_FOUND", "TaskNotFoundError: Task not found", TaskNotFound),
        ("UNIMPLEMENTED", "TaskNotCancelableError: Task cannot be canceled", TaskNotCancelable),
        ("UNIMPLEMENTED", "UnsupportedOperationError: no", UnsupportedOperation),
        ("INTERNAL", "InternalError: no", InternalError),
        # Others say nothing but the status.
        ("NOT_FOUND", "no", TaskNotFound),
        ("INVALID_ARGUMENT", "no", InvalidParams),
        ("FAILED_PRECONDITION", "no", UnsupportedOperation),
        ("UNIMPLEMENTED", "Method not found!", MethodNotFound),
        ("RESOURCE_EXHAUSTED", "slow down", Overloaded),
        ("RESOURCE_EXHAUSTED", "SERVER: Received message larger than max (9 vs. 4)", InvalidRequest),
        ("UNKNOWN", "no", InternalError),
        ("UNAVAILABLE", "no healthy upstream", CannotConnect),
        ("DEADLINE_EXCEEDED", "upstream request timeout", CannotConnect),
        ("UNAVAILABLE", "ServerError: stopping", ServerError),
        ("UNAUTHENTICATED", "no", AuthError),
        ("PERMISSION_DENIED", "no", AuthError),
    ],
)
def test_an_error_without_details_is_known_by_its_text_or_its_status(name: str, message: str, kind: Any) -> None:
    found = binding().read_error(status(name, message))
    assert type(found) is kind
    assert found.status in (None, CODES[name][1])


def test_details_that_cannot_be_read_are_none() -> None:
    for details in ("AA", "%%%", b64encode(b"\xff\xff").decode()):
        assert isinstance(
            binding().read_error({**status("NOT_FOUND", "no"), "grpc-status-details-bin": details}), TaskNotFound
        )
