"""Bad input gets the specification's error with the field named, and disturbs nobody."""

from __future__ import annotations

import copy
import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from dragoman.testing import served

DEEP = b"[" * 100_000 + b"]" * 100_000
DEEP_OBJECT = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
NOT_UTF8 = b"\xff\xfe"
ABSENT = object()

PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602
VERSION, CONTENT = -32009, -32005
# A JSON-RPC error travels with HTTP 200; these are the statuses the same error has over REST.
STATUSES = {PARSE: 400, REQUEST: 400, METHOD: 404, PARAMS: 400, VERSION: 400, CONTENT: 415}

RPC = ("1.0-rpc", "0.3-rpc", "0.1-rpc")
REST = ("1.0-rest", "0.3-rest")
MODERN = ("1.0-rpc", "1.0-rest")
OLDER = ("0.3-rpc", "0.1-rpc")
WITH_IDS = ("1.0-rpc", "1.0-rest", "0.3-rpc", "0.3-rest")
ALL = ("1.0-rpc", "1.0-rest", "0.3-rpc", "0.3-rest", "0.1-rpc")


class Case(NamedTuple):
    """A request nobody should make, by a speaker, and the error it gets."""

    name: str
    speaker: str
    make: Callable[[Any], tuple[str, str, dict[str, Any]]]
    code: int
    field: str | None


# -- what makes the cases of the table ---------------------------------------------------------------------------------


def sent(where: str, value: Any, *speakers: str, field: str = "") -> Iterator[Case]:
    """Messages that are right but for one value; PARTS is what the speaker calls a message's parts."""
    for speaker in speakers or ALL:
        parts = "content" if speaker == "0.3-rest" else "parts"
        path = where.replace("PARTS", parts).split(".")

        def make(speaker: Any, path: list[str] = path) -> tuple[str, str, dict[str, Any]]:
            params = copy.deepcopy(speaker.params("hi"))
            target = params
            for step in path[:-1]:
                target = target.setdefault(step, {})
            if value is ABSENT:
                target.pop(path[-1], None)
            else:
                target[path[-1]] = value
            return speaker.spell("send", params)

        shown = "absent" if value is ABSENT else json.dumps(value)
        yield Case(f"{where}={shown}", speaker, make, PARAMS, (field or where).replace("PARTS", parts))


def asked(operation: str, params: dict[str, Any], field: str, *speakers: str) -> Iterator[Case]:
    """Other operations with a wrong parameter."""
    for speaker in speakers or ALL:
        yield Case(
            f"{operation} {json.dumps(params)}",
            speaker,
            lambda speaker: speaker.spell(operation, {"id": "t", **params}),
            PARAMS,
            field,
        )


def envelope(name: str, body: bytes, code: int, *, field: str | None = None) -> Iterator[Case]:
    """JSON-RPC requests as they are; METHOD and ROLE are replaced by the speaker's words for them."""
    methods = {"1.0-rpc": b"SendMessage", "0.3-rpc": b"message/send", "0.1-rpc": b"tasks/send"}
    for speaker in RPC if b"METHOD" in body else RPC[:1]:
        role = b"ROLE_USER" if speaker == "1.0-rpc" else b"user"
        content = body.replace(b"METHOD", methods[speaker]).replace(b"ROLE", role)
        options = {"content": content, "headers": {"Content-Type": "application/json"}}
        yield Case(name, speaker, lambda _, options=options: ("POST", "/", options), code, field)


def body(name: str, content: bytes, code: int, *, field: str | None = None) -> Iterator[Case]:
    """REST requests with a body as it is."""
    for speaker in REST:
        root = "/v1" if speaker == "0.3-rest" else ""
        for path in ("/message:send", "/message:stream"):
            options = {"content": content, "headers": {"Content-Type": "application/json"}}
            yield Case(
                f"{name} {path}", speaker, lambda _, at=root + path, options=options: ("POST", at, options), code, field
            )


def query(text: str, field: str) -> Iterator[Case]:
    """Lists over REST with a wrong parameter in the query."""
    yield Case(f"?{text}", "1.0-rest", lambda _: ("GET", f"/tasks?{text}", {}), PARAMS, field)


def headers(name: str, code: int, *speakers: str, **given: str) -> Iterator[Case]:
    """Messages that are right, with headers that are wrong."""
    named = {key.replace("_", "-"): value for key, value in given.items()}
    for speaker in speakers or ALL:
        yield Case(name, speaker, lambda speaker: speaker.spell("send", speaker.params("hi"), named), code, None)


def part(value: Any, field: str, *speakers: str) -> Iterator[Case]:
    """Messages with one part that is wrong."""
    return sent("message.PARTS", [value], *speakers, field=f"message.PARTS[0]{field}")


def message(parts: bytes) -> bytes:
    """A JSON-RPC request whose parts are written by hand."""
    text = b'{"messageId":"m1","role":"ROLE","parts":[%b]}' % parts
    return b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"message":%b}}' % text


# -- the table ---------------------------------------------------------------------------------------------------------

# Every wrong field of every dialect is in tests/unit/dialects/test_invalid.py; here are some of each kind.

TABLE: list[Iterator[Case]] = [
    # not JSON
    envelope("nothing", b"", PARSE),
    envelope("spaces", b" \n ", PARSE),
    envelope("words", b"hello", PARSE),
    envelope("truncated", b'{"jsonrpc":"2.0","id":1,"method":"METHOD"', PARSE),
    envelope("trailing", b'{"jsonrpc":"2.0","id":1,"method":"METHOD"} x', PARSE),
    envelope("a byte order mark", b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"METHOD"}', PARSE),
    envelope("UTF-16", '{"jsonrpc":"2.0","id":1}'.encode("utf-16"), PARSE),
    envelope("not UTF-8", NOT_UTF8, PARSE),
    envelope("not UTF-8 in the method", b'{"jsonrpc":"2.0","id":1,"method":"METHOD\xff"}', PARSE),
    envelope("not UTF-8 in a text", message(b'{"text":"\xff"}'), PARSE),
    envelope("half a surrogate", message(b'{"text":"\\ud800"}'), PARSE),
    envelope("a raw line break in a text", message(b'{"text":"a\nb"}'), PARSE),
    envelope("NaN", message(b'{"data":{"a":NaN}}'), PARSE),
    envelope("deep", DEEP_OBJECT, PARSE),
    envelope("deep id", b'{"jsonrpc":"2.0","id":%b,"method":"METHOD"}' % DEEP, PARSE),
    envelope("deep params", b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"x":%b}}' % DEEP, PARSE),
    envelope("deep data", message(b'{"data":{"a":%b}}' % DEEP_OBJECT), PARSE),
    envelope("deep metadata", message(b'{"text":"hi","metadata":{"a":%b}}' % DEEP), PARSE),
    envelope("deep and unknown", b'{"jsonrpc":"2.0","id":1,"method":"METHOD","novelty":%b}' % DEEP, PARSE),
    body("truncated", b'{"message":{"messageId":"m1"', PARSE),
    body("words", b"hello", PARSE),
    body("not UTF-8", NOT_UTF8, PARSE),
    body("not UTF-8 in a text", b'{"message":{"messageId":"\xff"}}', PARSE),
    body("deep", DEEP, PARSE),
    body("deep object", DEEP_OBJECT, PARSE),
    body("deep data", b'{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":%b}]}}' % DEEP, PARSE),
    # JSON, but no request
    envelope("a batch", b'[{"jsonrpc":"2.0","id":1,"method":"METHOD"}]', REQUEST),
    envelope("an empty batch", b"[]", REQUEST),
    envelope("a deep batch", DEEP, REQUEST),
    envelope("a string", b'"METHOD"', REQUEST),
    envelope("a number", b"7", REQUEST),
    envelope("null", b"null", REQUEST),
    envelope("no version", b'{"id":1,"method":"METHOD"}', REQUEST),
    envelope("another version", b'{"jsonrpc":"1.0","id":1,"method":"METHOD"}', REQUEST),
    envelope("a version that is a number", b'{"jsonrpc":2.0,"id":1,"method":"METHOD"}', REQUEST),
    envelope("no method", b'{"jsonrpc":"2.0","id":1}', REQUEST),
    envelope("an empty method", b'{"jsonrpc":"2.0","id":1,"method":""}', REQUEST),
    envelope("a method that is a number", b'{"jsonrpc":"2.0","id":1,"method":7}', REQUEST),
    envelope("a method that is an object", b'{"jsonrpc":"2.0","id":1,"method":{}}', REQUEST),
    envelope("an id that is an array", b'{"jsonrpc":"2.0","id":[1],"method":"METHOD"}', REQUEST),
    envelope("an id that is an object", b'{"jsonrpc":"2.0","id":{},"method":"METHOD"}', REQUEST),
    envelope("an id that is true", b'{"jsonrpc":"2.0","id":true,"method":"METHOD"}', REQUEST),
    envelope("an id out of range", b'{"jsonrpc":"2.0","id":1e400,"method":"METHOD"}', REQUEST),
    # no such method, version or media type
    envelope("an unknown method", b'{"jsonrpc":"2.0","id":1,"method":"METHODS"}', METHOD),
    headers("a version of the future", VERSION, A2A_Version="9.9"),
    headers("a version that is none", VERSION, A2A_Version="garbage"),
    headers("plain text", CONTENT, Content_Type="text/plain"),
    headers("a form", CONTENT, Content_Type="application/x-www-form-urlencoded"),
    headers("garbage for a media type", CONTENT, Content_Type="=/=;;"),
    headers("two media types", CONTENT, Content_Type="application/json, application/json"),
    # ids that would forge a line of a log, or command a terminal
    sent("message.messageId", "m1\n2026-01-01 INFO dragoman.audit: event=signed-in user=root", *WITH_IDS),
    sent("message.messageId", "m" * 257, *WITH_IDS),
    sent("message.contextId", "c\x1b]52;c;ZXZpbA==\x07", *WITH_IDS),
    sent("message.contextId", "c\u202ed", *WITH_IDS),
    sent("message.contextId", "c" * 257, *WITH_IDS),
    sent("id", "t1\n2026-01-01 INFO dragoman.audit: event=signed-in user=root", "0.1-rpc"),
    sent("id", "t\x9b1m", "0.1-rpc"),
    sent("id", "t" * 257, "0.1-rpc"),
    sent("sessionId", "s\ns", "0.1-rpc", field="message.contextId"),
    # params
    envelope(
        "params that are an array", b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":[]}', PARAMS, field="params"
    ),
    envelope(
        "params that are text", b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":"x"}', PARAMS, field="params"
    ),
    envelope(
        "params that are a number", b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":7}', PARAMS, field="params"
    ),
    envelope(
        "params that are null", b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":null}', PARAMS, field="message"
    ),
    envelope("no params", b'{"jsonrpc":"2.0","id":1,"method":"METHOD"}', PARAMS, field="message"),
    envelope("a number out of range", message(b'{"data":{"a":1e400}}'), PARAMS, field="message.parts[0].data"),
    body("an array", b"[]", PARAMS),
    body("a string", b'"x"', PARAMS),
    body("a number", b"7", PARAMS),
    body("null", b"null", PARAMS, field="message"),
    body("an empty body", b"", PARAMS, field="message"),
    # the message
    sent("message", ABSENT),
    sent("message", "hi", *WITH_IDS),
    sent("message.PARTS", ABSENT),
    sent("message.PARTS", []),
    sent("message.role", "ROLE_AGENT"),
    sent("message.role", "nonsense", *MODERN, "0.3-rpc"),
    sent("message.messageId", 7),
    sent("message.messageId", ABSENT, *WITH_IDS),
    sent("message.contextId", 7, *WITH_IDS),
    sent("message.extensions", [1], *WITH_IDS, field="message.extensions[0]"),
    sent("message.referenceTaskIds", [1], *MODERN, "0.3-rpc", field="message.referenceTaskIds[0]"),
    sent("message.metadata", []),
    # its parts
    part("hi", ""),
    part({}, "", *MODERN, "0.3-rest"),
    part({}, ".kind", *OLDER),
    part({"text": 7}, ".text"),
    part({"text": "a", "metadata": []}, ".metadata"),
    part({"text": "a", "mediaType": 7}, ".mediaType", *MODERN),
    part({"raw": "%%%"}, ".raw", *MODERN),
    part({"url": 7}, ".url", *MODERN),
    part({"kind": "nonsense", "text": "a"}, ".kind", *OLDER),
    part({"file": {"fileWithBytes": "%%%"}}, ".file.fileWithBytes", "0.3-rest"),
    # what is said beside the message
    sent("metadata", []),
    sent("tenant", 7, *MODERN),
    sent("configuration", [], *WITH_IDS),
    sent("configuration.historyLength", "many", *WITH_IDS),
    sent("configuration.historyLength", -1, *WITH_IDS),
    sent("configuration.historyLength", 1.5, *WITH_IDS),
    sent("configuration.historyLength", True, *WITH_IDS),
    sent("configuration.acceptedOutputModes", "x", *WITH_IDS),
    sent("configuration.acceptedOutputModes", [1], *WITH_IDS, field="configuration.acceptedOutputModes[0]"),
    sent("configuration.returnImmediately", "maybe", *MODERN),
    sent("configuration.taskPushNotificationConfig.url", "", *MODERN),
    sent("configuration.pushNotificationConfig.url", "", "0.3-rpc"),
    sent("configuration.pushNotification.url", "", "0.3-rest"),
    sent("id", [], "0.1-rpc"),
    sent("sessionId", {}, "0.1-rpc"),
    sent("pushNotification.url", "", "0.1-rpc"),
    # the other operations
    asked("get", {"historyLength": -1}, "historyLength"),
    asked("get", {"historyLength": "many"}, "historyLength"),
    asked("cancel", {"metadata": []}, "metadata", *MODERN, *OLDER),
    asked("subscribe", {"id": ""}, "id", *RPC),
    asked("list", {"pageSize": 101}, "pageSize", *MODERN),
    asked("list", {"pageSize": "many"}, "pageSize", *MODERN),
    asked("list", {"pageToken": "garbage"}, "pageToken", *MODERN),
    asked("list", {"pageToken": "W10"}, "pageToken", *MODERN),
    asked("list", {"includeArtifacts": "maybe"}, "includeArtifacts", *MODERN),
    asked("list", {"historyLength": -5}, "historyLength", *MODERN),
    query("pageSize=", "pageSize"),
    query("pageSize=1&pageSize=2", "pageSize"),
    query("pageToken=%ff%00", "pageToken"),
]
CASES = [case for rows in TABLE for case in rows]
LEAKS = re.compile(r"Traceback|File \"|\.py\b|site-packages|msgspec|line \d+")


def check(answer: Any, case: Case) -> None:
    is_rest = case.speaker in REST
    assert answer.code == (STATUSES[case.code] if is_rest else case.code)
    assert answer.status == (STATUSES[case.code] if is_rest else 200)
    assert answer.field == case.field
    assert LEAKS.search(answer.text) is None


@pytest.mark.requirement("S2-8", "S2-100")
@pytest.mark.parametrize("name", ALL)
def test_bad_input_gets_its_error_and_the_next_request_its_answer(
    wire: Any, subtests: pytest.Subtests, name: str
) -> None:
    for case in CASES:
        if case.speaker == name:
            with subtests.test(case.name):
                method, path, options = case.make(wire.speaker(name))
                with wire.reading(method, path, **options) as reading:
                    check(reading.refusal(), case)
                wire.healthy()


# -- too much ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(wire: Any, new_agent: Callable[..., Any]) -> Iterator[Any]:
    """A server that takes a thousand bytes, and one stream at a time."""
    with served(new_agent(), limits={"body": 1000, "streams": 1}, drain=0, heartbeat=0.05) as url:
        yield wire.at(url)


@pytest.mark.parametrize("speaker", ALL, indirect=True)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [1001, 5_000_000])
def test_a_body_that_is_too_large_is_refused(speaker: Any, small: Any, size: int, chunked: bool) -> None:
    method, path, options = speaker.spell("send", speaker.params("hi"))
    content = options["content"] + b" " * (size - len(options["content"]))
    chunks = (content[start : start + 65536] for start in range(0, size, 65536))
    answer = small.request(method, path, content=chunks if chunked else content, headers=options["headers"])
    assert (answer.status, answer.code) == (413, 413 if speaker.is_rest else REQUEST)
    assert "1000 bytes" in answer.json["error"]["message"]
    small.healthy()


@pytest.mark.parametrize("speaker", ALL, indirect=True)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_just_small_enough_is_taken(speaker: Any, small: Any, chunked: bool) -> None:
    method, path, options = speaker.spell("send", speaker.params("hi"))
    content = options["content"] + b" " * (1000 - len(options["content"]))
    halves = (half for half in (content[:500], content[500:]))
    answer = small.request(method, path, content=halves if chunked else content, headers=options["headers"])
    assert speaker.state(answer) == "completed"


# -- not even HTTP -----------------------------------------------------------------------------------------------------


def spoken(wire: Any, request: bytes) -> bytes:
    """What the server says to these bytes before it closes, or before we do."""
    address = urlsplit(wire.url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        response = b""
        while data := connection.recv(65536):
            response += data
    return response


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nno colon here\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: abc\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"POST / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00",
        b"",
    ],
)
def test_a_request_that_is_not_http_is_a_400_and_the_server_keeps_answering(wire: Any, request_: bytes) -> None:
    response = spoken(wire, request_)
    assert not response or response.startswith(b"HTTP/1.1 400 ")
    assert LEAKS.search(response.decode()) is None
    wire.healthy()


@pytest.mark.parametrize(
    "line",
    [
        b"A2A-Version: \xff\xfe",
        b"A2A-Version: 1.0\r\nA2A-Version: 1.0",
        b"Last-Event-ID: \xe2\x91\xa0",
        b"Last-Event-ID: 99999999999999999999",
        b"A2A-Extensions: ,,,;;\x80",
        b"X-Forwarded-For: nobody, \xff",
        b"If-None-Match: \xff",
        b"Content-Type: application/json; charset=\xff",
        b"Cookie: " + b"a" * 5000,
    ],
)
def test_garbage_in_a_header_is_answered_like_any_request(wire: Any, line: bytes) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"nobody"}}'
    if b"Content-Type" not in line:
        line += b"\r\nContent-Type: application/json"
    response = spoken(
        wire,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n%b\r\n\r\n%b"
        % (len(body), line, body),
    )
    assert response.startswith(b"HTTP/1.1 200 ")
    assert json.loads(response.rpartition(b"\r\n\r\n")[2])["error"]["code"] in (-32001, -32009)
    wire.healthy()


@pytest.mark.parametrize("path", ["/", "/message:send", "/v1/message:send"])
def test_a_caller_who_leaves_in_the_middle_of_a_body_is_no_error(
    wire: Any, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    spoken(wire, start.encode() + b'{"jsonrpc"')
    wire.healthy()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
