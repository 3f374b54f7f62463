"""Requests that are wrong as HTTP, as JSON or as a path. Each is refused or harmless, and the server goes on."""

from __future__ import annotations

import json
import re
import socket
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

TIMEOUT = 10
SEND = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}'


class Raw(NamedTuple):
    """An answer as it stood on the wire."""

    status: int
    head: str
    body: str


def raw(url: str, request: bytes) -> Raw:
    """Send bytes as they are, and read until the server closes or the answer is whole."""
    place = urlsplit(url)
    with closing(socket.create_connection((place.hostname, place.port), TIMEOUT)) as connection:
        try:
            connection.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            return Raw(0, "", "")
        data = b""
        while True:
            try:
                piece = connection.recv(65536)
            except ConnectionResetError:
                break
            data += piece
            head, blank, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            if not piece or (blank and length and len(body) >= int(length[1])):
                break
    head, _, body = data.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head else 0
    return Raw(status, head.decode("latin-1"), body.decode("utf-8", "replace"))


def request(method: str, target: str, *headers: str, body: bytes = b"", host: str = "127.0.0.1") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    kind = ["Content-Type: application/json"] if body else []
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *length, *kind, *headers]
    return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body


def known(house: Any, name: str) -> str:
    return f"Cookie: user={house.cookie(name)}"


# -- headers -----------------------------------------------------------------------------------------------------------

HEADERS = {
    "line break in a cookie": "Cookie: user=x\r\nX-Evil: 1",
    "new line alone": "Cookie: user=x\nX-Evil: 1",
    "folded": "Cookie: user=x\r\n y",
    "zero": "Cookie: user=x\0y",
    "space before the colon": "Cookie : user=x",
    "no colon": "Cookie",
    "no name": ": user=x",
    "bearer with a tab": "Authorization: Bearer\tx",
    "bearer twice": "Authorization: Bearer x\r\nAuthorization: Bearer y",
    "bearer with a line break in base64": "Authorization: Basic YWRhDQpYLUV2aWw6IDE=",
    "thousand headers": "\r\n".join(f"X-{number}: {number}" for number in range(1000)),
    "thousand cookies": "Cookie: " + "; ".join(f"c{number}={number}" for number in range(1000)),
    "long header": "X-Long: " + "a" * 60_000,
    "upgrade": "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "upgrade to HTTP/2": "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    "expect": "Expect: 200-maybe",
    "range": "Range: bytes=0-1",
    "another host": "X-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\nForwarded: host=evil.example",
    "another path": "X-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz",
    "user of a proxy": "X-Forwarded-User: ada\r\nX-Remote-User: ada\r\nX-Auth-Request-Email: ada",
    "certificate of a proxy": "X-SSL-Client-Cert: ada\r\nX-Client-Cert: ada\r\nX-Forwarded-Client-Cert: Subject=ada",
}


@pytest.mark.parametrize("header", HEADERS.values())
@pytest.mark.parametrize("target", ["/message:send", "/a2a"])
def test_a_malformed_header_lets_no_request_in(house: Any, header: str, target: str) -> None:
    before = house.rows()
    answer = raw(house.url, request("POST", target, header, body=SEND))
    assert answer.status in (0, 400, 401, 431), answer
    assert "X-Evil" not in answer.head
    assert house.rows() == before


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: -1"],
        ["Content-Length: 1e3"],
        ["Content-Length: +5"],
        ["Content-Length: 99999999999999999999999"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked, identity"],
    ],
)
def test_a_body_of_two_lengths_carries_no_second_request(house: Any, headers: list[str]) -> None:
    before = house.rows()
    inner = request("POST", "/message:send", known(house, "ada"), body=SEND)
    lines = ["POST /message:send HTTP/1.1", "Host: 127.0.0.1", known(house, "bob"), *headers]
    answer = raw(house.url, "\r\n".join(lines).encode() + b"\r\n\r\n0\r\n\r\n" + inner[:-1])
    assert answer.status in (0, 400, 408, 411, 413, 501), answer
    assert house.rows() == before


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "evil.example@127.0.0.1",
        "127.0.0.1:80@evil.example",
        "127.0.0.1/evil.example",
        "127.0.0.1?.evil.example",
        "127.0.0.1#.evil.example",
        "127.0.0.1\\.evil.example",
    ],
)
def test_a_server_on_loopback_answers_to_no_other_host_name(house: Any, host: str) -> None:
    for target in ("/message:send", "/a2a", "/login"):
        answer = raw(house.url, request("POST", target, known(house, "ada"), body=SEND, host=host))
        assert answer.status in (400, 421), answer
    card = raw(house.url, request("GET", "/.well-known/agent-card.json", host=host))
    assert "supportedInterfaces" not in card.body


def test_a_stranger_s_forwarded_headers_change_neither_the_card_nor_the_log(house: Any, caplog: Any) -> None:
    forwarded = ("X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https", "X-Forwarded-Prefix: /evil")
    card = raw(house.url, request("GET", "/.well-known/agent-card.json", *forwarded))
    assert "evil" not in card.body
    caplog.clear()
    raw(house.url, request("GET", "/tasks", "Cookie: user=x", "X-Forwarded-For: 203.0.113.7", *forwarded))
    audited = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
    assert audited == ["event=denied scheme=cookie reason=bad-cookie address=127.0.0.1"]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "HEAD", "GET", "PROPFIND"])
@pytest.mark.parametrize("target", ["/a2a", "/", "/message:send", "/login", "/logout", "/.well-known/jwks.json"])
def test_another_method_does_nothing(house: Any, method: str, target: str) -> None:
    before = house.rows()
    for header in ("X-Nothing: 1", known(house, "ada"), "X-HTTP-Method-Override: POST"):
        answer = raw(house.url, request(method, target, header, body=SEND if method != "TRACE" else b""))
        allowed = method in ("GET", "HEAD") and target in ("/login", "/.well-known/jwks.json")
        assert answer.status in ((200,) if allowed else (400, 401, 404, 405)), answer
        assert "user=" not in answer.body  # nothing is sent back as it came
    assert house.rows() == before


# -- bodies ------------------------------------------------------------------------------------------------------------

# Others are in tests/wire/test_bad_input.py.
BODIES = {
    "zero bytes": (b"\0" * 1000, (200, 400)),
    "huge number": (b'{"jsonrpc":"2.0","id":1%s,"method":"GetTask","params":{}}' % (b"0" * 5000), (200, 400)),
    "the same key often": (b'{"jsonrpc":"2.0",%s"id":1}' % (b'"method":"GetTask",' * 2000), (200, 400, 404)),
    "many keys": (json.dumps({str(number): number for number in range(5000)}).encode(), (200, 400)),
    "surrogates": (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\\ud800"}}', (200, 400)),
    "prototype": (
        b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x","__proto__":{"user":"ada"}}}',
        (200, 400),
    ),
}


@pytest.mark.parametrize(("body", "statuses"), BODIES.values())
@pytest.mark.parametrize("target", ["/a2a", "/message:send", "/v1/message:send", "/tasks/t:cancel"])
def test_a_malformed_body_is_refused(house: Any, body: bytes, statuses: tuple[int, ...], target: str) -> None:
    before = house.rows()
    answer = raw(house.url, request("POST", target, known(house, "bob"), body=body))
    assert answer.status in (*statuses, 404), answer
    assert not answer.body or "error" in json.loads(answer.body)
    nobody = raw(house.url, request("POST", target, body=body))
    assert nobody.status in (0, 401)
    assert house.rows() == before


# -- tenants -----------------------------------------------------------------------------------------------------------

TENANTS = [
    "..",
    "../..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%2f..",
    "..%5c..",
    "a%2Fb",
    "a/b",
    "%00",
    "%0d%0aX-Evil:%201",
    "%ff%fe",
    "%E2%80%AE",
    "%C3%A4%CC%88",
    "%2525",
    "~root",
    "%7Broot%7D",
    "ada",
    ".",
    "%20",
    "a" * 5000,
    "agents%2fother",
    "%61gents",
    ".well-known",
    "tasks",
]


@pytest.mark.parametrize("tenant", TENANTS)
def test_no_tenant_leads_to_another_or_out_of_the_house(house: Any, tenant: str) -> None:
    speaker = house.wire.speaker("1.0-rest")
    ada = house.victim(speaker)

    def files() -> list[str]:
        return sorted(str(each) for each in house.path.parent.rglob("*"))

    before = files()
    for target in (f"/{tenant}/tasks/{ada.task}", f"/{tenant}/tasks", f"/{tenant}/tasks/../tasks/{ada.task}"):
        for headers in ([known(house, "bob")], []):
            answer = raw(house.url, request("GET", target, *headers))
            assert answer.status in ((200, 400, 404, 405) if headers else (0, 400, 401, 404)), (target, answer)
            assert "X-Evil" not in answer.head
            assert '"tasks":[{' not in answer.body.replace(" ", "")
            assert ada.context not in answer.body
    assert files() == before


@pytest.mark.parametrize("name", ["1.0-rest", "1.1-rest"])
def test_a_tenant_in_the_path_goes_before_one_in_the_body(house: Any, name: str) -> None:
    speaker, mine, other = house.wire.speaker(name), f"t-{uuid4()}", f"t-{uuid4()}"
    task = speaker.id_of(speaker.at(f"/{mine}").send("hi", message={"messageId": str(uuid4())}, **house.as_("ada")))
    assert speaker.at(f"/{mine}").get(task, tenant=other, **house.as_("ada")).status == 200
    assert speaker.at(f"/{other}").get(task, tenant=mine, **house.as_("ada")).status == 404
    assert speaker.at(f"/{other}").cancel(task, tenant=mine, **house.as_("ada")).status == 404
    for there in (mine, other):
        assert speaker.at(f"/{there}").get(task, **house.as_("bob")).status == 404


def test_an_agent_s_name_in_a_path_is_a_name_and_no_path(house: Any) -> None:
    for name in ("..", "%2e%2e", "wire%2f..%2fother", "other%00", "OTHER", "", "wire/../other"):
        answer = raw(house.url, request("POST", f"/agents/{name}/message:send", known(house, "ada"), body=SEND))
        assert answer.status in (400, 404, 405), (name, answer)
