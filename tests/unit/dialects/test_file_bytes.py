"""The files of 0.3 over REST and gRPC: encoded once or twice, and how that is told."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from dragoman.dialects.v03_proto.file_bytes import (
    ONCE,
    TWICE,
    UNKNOWN,
    PeerFormat,
    caller_format,
    grpc_server_format,
    server_format,
    shows_twice,
    unwrap,
    wrap,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
ANY = b"\x00\x01dragoman"
OFFICE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def once(content: bytes) -> str:
    return base64.b64encode(content).decode()


def twice(content: bytes) -> str:
    return once(wrap(content))


def request(*files: tuple[str, str], snake: bool = False) -> bytes:
    content, kind = ("file_with_bytes", "mime_type") if snake else ("fileWithBytes", "mimeType")
    parts = [{"file": {content: text, kind: media_type}} for text, media_type in files]
    return json.dumps({"message": {"messageId": "m", "role": "ROLE_USER", "content": parts}}).encode()


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ([(twice(PNG), "image/png")], True),
        ([(twice(PNG), "IMAGE/PNG; x=y")], True),
        ([(once(PNG), "image/png")], False),
        ([(twice(b"%PDF-1.7 ..."), "application/pdf")], True),
        ([(twice(b"PK\x03\x04....."), OFFICE)], True),
        ([(twice(b"\x00\x00\x00\x18ftypmp42"), "video/mp4")], True),
        # Without magic bytes only a file that is no base64 inside is certain.
        ([(twice(ANY), "application/octet-stream")], None),
        ([(once(ANY), "application/octet-stream")], False),
        ([(twice(PNG), "")], None),
        ([(twice(PNG), "image/jpeg")], None),
        # A text may be base64 that is meant so.
        ([(twice(b"hello there"), "text/plain")], None),
        ([(twice(PNG), "text/plain")], None),
        ([(once(b"hello there"), "text/plain")], False),
        # All files of a request are encoded alike.
        ([(twice(ANY), "application/octet-stream"), (twice(PNG), "image/png")], True),
        ([(twice(PNG), "image/png"), (once(ANY), "application/octet-stream")], False),
        ([("!", "image/png")], None),
        ([], None),
    ],
)
def test_a_request_shows_how_its_files_are_encoded_where_that_is_certain(
    files: list[tuple[str, str]], shown: bool | None
) -> None:
    assert shows_twice(request(*files)) is shown
    assert shows_twice(request(*files, snake=True)) is shown


@pytest.mark.parametrize("body", [b"", b"fileWithBytes", b'{"fileWithBytes":1}', b'[{"file":{"bytes":5}}]', b'"bytes"'])
def test_a_body_without_a_file_does_not_decide(body: bytes) -> None:
    assert shows_twice(body) is None


def test_files_in_data_and_metadata_are_not_those_of_the_protocol() -> None:
    file = {"file": {"fileWithBytes": twice(PNG), "mimeType": "image/png"}}

    assert shows_twice(json.dumps({"data": file, "metadata": file}).encode()) is None
    assert shows_twice(json.dumps({"task": {"artifacts": [{"parts": [file]}]}}).encode()) is True


@pytest.mark.parametrize(
    ("user_agent", "body", "expected"),
    [
        ("python-httpx/0.28.1", None, UNKNOWN),
        ("Go-http-client/1.1", b'{"message": {"parts": []}}', UNKNOWN),
        ("python-httpx/0.28.1", request(), PeerFormat(twice=True, guessed=True, likely=True)),
        (
            "Go-http-client/1.1",
            request((twice(ANY), "application/octet-stream")),
            PeerFormat(twice=True, guessed=True, likely=True),
        ),
        ("Go-http-client/1.1", request((twice(PNG), "image/png")), PeerFormat(twice=True, guessed=True)),
        ("python-httpx/0.28.1", request((once(PNG), "image/png")), UNKNOWN),
        ("grpc-python-asyncio/1.85.1", None, UNKNOWN),
        ("grpc-python-asyncio/1.85.1", request((twice(b"text"), "text/plain")), PeerFormat(twice=True, guessed=True)),
        ("grpc-go/1.82.1", request((twice(b"text"), "text/plain")), PeerFormat(twice=True, guessed=True, likely=True)),
        ("node", None, PeerFormat(appends=False)),
        ("node", request((twice(PNG), "image/png")), PeerFormat(appends=False)),
        ("curl/8", None, UNKNOWN),
        ("", request((twice(ANY), "application/octet-stream")), UNKNOWN),
        ("mine", request((once(PNG), "image/png")), UNKNOWN),
        ("mine", request((twice(PNG), "image/png")), PeerFormat(twice=True, guessed=True)),
        ("Java-http-client/21.0.2", None, PeerFormat(named=False, guessed=True)),
        ("Java-http-client/21", request((twice(PNG), "image/png")), PeerFormat(twice=True, named=False, guessed=True)),
    ],
)
def test_a_caller_is_known_by_its_http_library_and_by_what_it_sends(
    user_agent: str, body: bytes | None, expected: PeerFormat
) -> None:
    assert caller_format(user_agent, body) == expected


INFO = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org"}
STATUS = {"code": 404, "status": "NOT_FOUND", "message": "Task not found", "details": [INFO]}


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/problem+json", {"error": STATUS}, TWICE),  # a2a-go
        ("application/json", {"message": "Task not found"}, TWICE),  # a2a-sdk 0.3
        ("application/json", {"error": STATUS}, TWICE),  # a2a-sdk 1.x
        ("application/json; charset=utf-8", {"code": -32001, "message": "Task not found: none"}, ONCE),  # @a2a-js/sdk
        ("application/a2a+json", {"error": STATUS, "code": -32001, "type": "T", "message": "m"}, ONCE),  # Dragoman
        ("application/problem+json", {"type": "about:blank", "title": "Not Found", "status": 404}, ONCE),
        ("application/json", {"error": "not found"}, ONCE),
        ("application/json", [], ONCE),
    ],
)
def test_a_server_is_known_by_its_error_for_an_unknown_task(content_type: str, body: Any, expected: PeerFormat) -> None:
    assert server_format({"Content-Type": content_type}, json.dumps(body).encode()) == expected


@pytest.mark.parametrize(
    ("message", "detailed", "expected"),
    [
        ("TaskNotFoundError: Task not found", False, TWICE),  # a2a-sdk 0.3 and 1.x
        ("failed to get task: task not found", True, TWICE),  # a2a-go
        ("Task not found: none", True, ONCE),  # @a2a-js/sdk
        ("TaskNotFoundError: Task not found", True, ONCE),  # Dragoman
        ("", False, ONCE),
    ],
)
def test_a_server_over_grpc_is_known_by_its_error_for_an_unknown_task(
    message: str, detailed: bool, expected: PeerFormat
) -> None:
    assert grpc_server_format(message, detailed=detailed) == expected


def test_a_server_that_does_not_answer_in_json_is_not_known() -> None:
    assert server_format({}, b"<html>") == UNKNOWN


@pytest.mark.parametrize(
    ("raw", "media_type", "content"),
    [
        (wrap(ANY), "application/octet-stream", ANY),
        (wrap(ANY), None, ANY),
        (wrap("grüße".encode()), "text/plain", "grüße".encode()),
        (b"", None, b""),
        (ANY, None, ANY),
        # Texts that happen to be base64.
        (b"test", "text/plain", b"test"),
        (b"no base64!", "text/plain", b"no base64!"),
    ],
)
def test_what_was_encoded_twice_is_decoded_again(raw: bytes, media_type: str | None, content: bytes) -> None:
    assert unwrap(raw, media_type) == content
