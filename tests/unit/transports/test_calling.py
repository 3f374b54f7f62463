"""Answers as a caller reads them: whatever the bytes are, a result or an error of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.dialects.v03_proto.dialect import V03_PROTO
from dragoman.dialects.v1.dialect import V1_0
from dragoman.errors import AuthError, BadResponse, CannotConnect, DragomanError, MethodNotFound, Overloaded
from dragoman.model.operation import GetPushConfigRequest, GetTaskRequest, ListTasksRequest, Operation
from dragoman.transports.jsonrpc.call import JsonRpcBinding
from dragoman.transports.rest.call import RestBinding

URL = "http://agent.example/rpc?key=secret"
BINDINGS = [
    JsonRpcBinding(URL, V1_0),
    JsonRpcBinding(URL, V03_RPC),
    JsonRpcBinding(URL, V01_RPC),
    RestBinding("http://agent.example/rest/", V1_0),
    RestBinding("http://agent.example/rest/", V03_PROTO),
]
EVERY = pytest.mark.parametrize("binding", BINDINGS, ids=lambda each: f"{each.name} {each.dialect.version}")
JSON = {"Content-Type": "application/json"}

NAMES = ["jsonrpc", "id", "result", "error", "code", "message", "data", "details", "task", "status", "state", "kind"]
NAMES += ["statusUpdate", "artifactUpdate", "parts", "artifact", "role", "reason", "@type", "history", "text"]
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-40_000, 40_000) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
BODIES = VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60) | st.sampled_from([b"", b" \n"])


@EVERY
@given(body=BODIES, status=st.sampled_from([200, 200, 201, 400, 401, 403, 404, 405, 409, 429, 500, 502, 503, 504]))
def test_any_answer_is_read_or_is_an_error_of_ours(binding: Any, body: bytes, status: int) -> None:
    for operation in (Operation.SEND, Operation.GET, Operation.DELETE_PUSH):
        try:
            binding.read_result(operation, status, JSON, body)
        except DragomanError as error:
            assert "secret" not in str(error)
        else:
            assert status < 400


@EVERY
@given(data=BODIES)
def test_any_event_is_read_or_is_an_error_of_ours(binding: Any, data: bytes) -> None:
    with suppress(DragomanError):
        binding.read_event(data)


@EVERY
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AuthError),
        (403, AuthError),
        (429, Overloaded),
        (502, CannotConnect),
        (504, CannotConnect),
        (404, Exception),
    ],
)
@pytest.mark.parametrize("value", [{}, {"error": "no"}, {"error": {"message": "no"}}, {"detail": "no"}, [], "no", None])
def test_the_status_of_somebody_before_the_agent_counts(binding: Any, value: Any, status: int, kind: Any) -> None:
    with pytest.raises(kind) as caught:
        binding.read_result(Operation.SEND, status, JSON, json.dumps(value).encode())
    if status == 404:
        assert isinstance(caught.value, (MethodNotFound, BadResponse))


def test_a_deletion_may_be_answered_with_nothing() -> None:
    rpc, rest = BINDINGS[0], BINDINGS[3]
    for body in (b'{"jsonrpc":"2.0","id":"1","result":null}', b'{"jsonrpc":"2.0","id":"1"}'):
        assert rpc.read_result(Operation.DELETE_PUSH, 200, JSON, body) is None
    for body in (b"", b"{}", b" "):
        assert rest.read_result(Operation.DELETE_PUSH, 200, JSON, body) is None


def test_requests_say_which_version_they_are_and_where_a_reader_was() -> None:
    for binding in BINDINGS[:4]:
        request = binding.build_request(Operation.GET, GetTaskRequest("t1"))
        version = binding.dialect.version
        assert request.headers.get("A2A-Version") == (version if version.startswith("1.") else None)
        assert "Last-Event-ID" not in request.headers
    request = BINDINGS[0].build_request(Operation.SUBSCRIBE, GetTaskRequest("t1"), 7)  # type: ignore[arg-type]
    assert request.headers["Last-Event-ID"] == "7"
    assert "text/event-stream" in request.headers["Accept"]


def test_every_request_of_json_rpc_has_an_id_of_its_own() -> None:
    ids = {
        json.loads(BINDINGS[0].build_request(Operation.GET, GetTaskRequest("t")).body or b"")["id"] for _ in range(50)
    }
    assert len(ids) == 50
    assert all(isinstance(each, str) and each for each in ids)


def test_what_is_asked_for_over_rest_stands_in_path_and_query() -> None:
    rest = BINDINGS[3]
    listed = rest.build_request(Operation.LIST, ListTasksRequest(page_size=5, include_artifacts=True))
    assert listed.method == "GET"
    assert listed.url.startswith("http://agent.example/rest/tasks?")
    assert {"pageSize=5", "includeArtifacts=true"} == set(listed.url.partition("?")[2].split("&"))
    push = rest.build_request(Operation.DELETE_PUSH, GetPushConfigRequest("a/b", "c d"))
    assert (push.method, push.url, push.body) == (
        "DELETE",
        "http://agent.example/rest/tasks/a%2Fb/pushNotificationConfigs/c%20d",
        None,
    )
