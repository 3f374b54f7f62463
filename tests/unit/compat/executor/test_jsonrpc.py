"""JSON-RPC on its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.compat.executor.jsonrpc import (
    METHODS,
    Error,
    ErrorType,
    Request,
    decode_request,
    encode_error,
    encode_response,
    error_code,
    error_type,
    is_streaming,
    request_id,
)

CODES = {
    "parse": -32700,
    "invalid_request": -32600,
    "method_not_found": -32601,
    "invalid_params": -32602,
    "internal": -32603,
    "server_error": -32000,
    "task_not_found": -32001,
    "task_not_cancelable": -32002,
    "push_not_supported": -32003,
    "unsupported_operation": -32004,
    "unsupported_content_type": -32005,
    "invalid_agent_response": -32006,
    "extended_card_not_configured": -32007,
    "unauthenticated": -31401,
    "unauthorized": -31403,
}
HEAVY = (
    "asyncio",
    "dragoman.agents",
    "dragoman.client",
    "dragoman.dialects",
    "dragoman.engine",
    "dragoman.server",
    "dragoman.stores",
    "dragoman.transports",
    "sqlite3",
    "uvicorn",
)


def request_text(**members: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "t"}} | members)


@pytest.mark.requirement("S2-48", "S2-81")
@pytest.mark.parametrize("id", [1, 1.5, "abc", None])
def test_a_request_may_have_a_number_a_string_or_null_as_its_id(id: Any) -> None:
    assert decode_request(request_text(id=id)) == ("ok", Request("tasks/get", {"id": "t"}, id))


@pytest.mark.requirement("S2-48", "S2-81")
def test_a_request_is_read_from_bytes_text_or_a_map() -> None:
    text = request_text()
    assert decode_request(text) == decode_request(text.encode()) == decode_request(json.loads(text))


@pytest.mark.parametrize("members", [{"params": None}, {}])
def test_absent_parameters_are_none(members: dict[str, Any]) -> None:
    assert decode_request({"jsonrpc": "2.0", "method": "tasks/get"} | members) == ("ok", Request("tasks/get", {}))


@pytest.mark.requirement("S2-48", "S2-81")
@pytest.mark.parametrize("body", ["{", "", b"\xff\xfe", b'{"a": \xff}', "[" * 5000])
def test_a_body_that_is_not_json_is_a_parse_error(body: bytes | str) -> None:
    assert decode_request(body) == ("error", Error(ErrorType.PARSE, "malformed JSON"))


@pytest.mark.requirement("S2-48", "S2-81")
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"jsonrpc": "1.0"}, "invalid jsonrpc version"),
        ({"jsonrpc": None}, "invalid jsonrpc version"),
        ({"method": None}, "missing or invalid method"),
        ({"method": ""}, "missing or invalid method"),
        ({"method": 5}, "missing or invalid method"),
        ({"id": [1]}, "invalid request id"),
        ({"id": {"a": 1}}, "invalid request id"),
        ({"id": True}, "invalid request id"),
    ],
)
def test_an_invalid_request_is_refused_with_its_reason(members: dict[str, Any], message: str) -> None:
    assert decode_request(request_text(**members)) == ("error", Error(ErrorType.INVALID_REQUEST, message))


def test_a_batch_is_no_request() -> None:
    status, error = decode_request(f"[{request_text()}]")
    assert status == "error"
    assert isinstance(error, Error)
    assert error.type is ErrorType.INVALID_REQUEST


def test_parameters_that_are_no_object_are_refused() -> None:
    expected = Error(ErrorType.INVALID_PARAMS, "params must be an object")
    assert decode_request(request_text(params=[1])) == ("error", expected)


@pytest.mark.parametrize(("request_map", "id"), [({"id": "a"}, "a"), ({"id": []}, None), ({}, None), ([], None)])
def test_an_answer_carries_the_requests_id_if_it_has_one_that_is_allowed(request_map: Any, id: Any) -> None:
    assert request_id(request_map) == id


@pytest.mark.requirement("S2-48", "S2-81")
def test_a_result_is_encoded_with_the_requests_id() -> None:
    assert json.loads(encode_response({"a": 1}, "x")) == {"jsonrpc": "2.0", "id": "x", "result": {"a": 1}}


@pytest.mark.requirement("S2-48", "S2-80", "S2-81")
def test_an_errors_details_go_out_as_its_data() -> None:
    error = Error(ErrorType.TASK_NOT_FOUND, "task not found", {"taskId": "t"})
    expected = {"code": -32001, "message": "task not found", "data": {"taskId": "t"}}
    assert json.loads(encode_error(error, 1)) == {"jsonrpc": "2.0", "id": 1, "error": expected}


@pytest.mark.requirement("S2-80")
def test_an_error_without_details_has_no_data() -> None:
    assert json.loads(encode_error(Error(ErrorType.INTERNAL, "m"), None))["error"] == {"code": -32603, "message": "m"}


@pytest.mark.requirement("S2-79")
def test_there_are_fifteen_types_of_error() -> None:
    assert {type_.value for type_ in ErrorType} == set(CODES)


@pytest.mark.requirement("S2-79", "S2-81")
@pytest.mark.parametrize(("type", "code"), CODES.items())
def test_every_type_has_its_code_and_every_code_its_type(type: str, code: int) -> None:
    assert error_code(type) == code
    assert error_type(code) == type


@pytest.mark.requirement("S2-81")
@pytest.mark.parametrize("code", [0, -32099, 500])
def test_an_unknown_code_is_internal(code: int) -> None:
    assert error_type(code) is ErrorType.INTERNAL


def test_an_unknown_type_has_no_code() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        error_code("nonsense")


def test_there_are_ten_methods_of_which_two_stream() -> None:
    assert len(set(METHODS)) == 10
    assert {method for method in METHODS if is_streaming(method)} == {"message/stream", "tasks/resubscribe"}
    assert not is_streaming("nonsense")


@pytest.mark.requirement("S2-96")
def test_the_module_alone_brings_no_server_no_store_and_no_engine() -> None:
    script = (
        "import sys; from dragoman.compat.executor import jsonrpc; "
        f"print([name for name in {HEAVY!r} if name in sys.modules], jsonrpc.error_code('parse'))"
    )
    source = str(Path(dragoman.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[] -32700"
