"""Webhooks as a weapon: addresses inside the network, headers with line breaks, receivers that point elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from dragoman import User
from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.1-rpc")
INVALID = {"rpc": -32602, "rest": 400}
WAIT = 30

# None of these is ever connected to: they are refused as they stand, without a look-up.
PLACES = {
    "loopback": "http://127.0.0.1/",
    "loopback, another port": "http://127.0.0.1:10/hook",
    "all of loopback": "http://127.255.255.254:9/",
    "its name": "http://localhost/",
    "its name with a dot": "http://localhost.:9/",
    "a name below it": "http://anything.localhost/",
    "IPv6 loopback": "http://[::1]:9/",
    "IPv4 in IPv6": "http://[::ffff:127.0.0.1]/",
    "IPv4 in IPv6, as numbers": "http://[::ffff:7f00:1]/",
    "NAT64": "http://[64:ff9b::7f00:1]/",
    "6to4": "http://[2002:7f00:0001::1]/",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "metadata in IPv6": "http://[fd00:ec2::254]/",
    "metadata by its name": "http://metadata.google.internal/computeMetadata/v1/",
    "link-local": "http://[fe80::1]/",
    "link-local with a zone": "http://[fe80::1%25eth0]/",
    "private 10": "http://10.0.0.1/",
    "private 172": "https://172.16.0.1/",
    "private 192": "https://192.168.1.1:8443/",
    "carrier": "http://100.64.0.1/",
    "unique local": "http://[fc00::1]/",
    "unspecified": "http://0.0.0.0:9/",
    "unspecified IPv6": "http://[::]:9/",
    "multicast": "http://224.0.0.1/",
    "broadcast": "http://255.255.255.255/",
    "one number": "http://2130706433/",
    "hexadecimal": "http://0x7f000001/",
    "octal": "http://0177.0.0.1/",
    "short": "http://127.1/",
    "round digits": "http://①②⑦.⓪.⓪.①/",
    "ideographic dots": "http://127。0。0。1/",
    "credentials": "https://ada:hunter22@hooks.example.com/",
    "a host before the at": "http://hooks.example.com@127.0.0.1:10/",
    "backslash": "http://127.0.0.1:10\\@hooks.example.com/",
    "tab": "http://127.0.0.1\t:10/",
    "line break": "http://127.0.0.1:9/\r\nX-Evil: 1",
    "space": "http://127.0.0.1:9 /",
    "file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:9/_",
    "ftp": "ftp://127.0.0.1/",
    "data": "data:text/plain,hi",
    "no scheme": "//127.0.0.1:9/",
    "no host": "http:///hook",
    "port zero": "http://127.0.0.1:0/",
    "port too high": "http://127.0.0.1:99999/",
    "port of words": "http://127.0.0.1:http/",
    "very long": "http://127.0.0.1:9/" + "a" * 10_000,
    "empty": "",
}
WORDS: dict[str, dict[str, Any]] = {
    "token with a line break": {"token": "abc\r\nX-Evil: 1"},
    "token with a new line": {"token": "abc\nX-Evil: 1"},
    "token with a zero": {"token": "abc\0"},
    "token with a space around": {"token": " abc"},
    "token that is no ASCII": {"token": "abc\u2028def"},
    "token without end": {"token": "a" * 10_000},
    "credentials with a line break": {"authentication": ("Bearer", "abc\r\nX-Evil: 1")},
    "credentials that are no ASCII": {"authentication": ("Bearer", "ä")},
    "scheme with a line break": {"authentication": ("Bearer\r\nX-Evil: 1", "abc")},
    "scheme of two words": {"authentication": ("Bearer x", "abc")},
    "id with a line break": {"id": "a\r\nX-Evil: 1"},
}


def inline(speaker: Any, hook: dict[str, Any], who: Any) -> Any:
    """A message that brings its webhook along."""
    fresh = {"messageId": str(uuid4())}
    if speaker.version == "0.1":
        return speaker.send("hi", pushNotification=hook, message=fresh, **who)
    name = {"1": "taskPushNotificationConfig", "0": "pushNotificationConfig"}[speaker.version[0]]
    name = "pushNotification" if speaker.name == "0.3-rest" else name
    return speaker.send("hi", configuration={name: hook}, message=fresh, **who)


@pytest.mark.parametrize("name", SPEAKERS)
def test_no_webhook_leads_into_the_network(house: Any, rows: Any, name: str) -> None:
    speaker, who = house.wire.speaker(name), house.as_("bob")
    task = speaker.id_of(speaker.task(speaker.send(tool="ask_name", message={"messageId": str(uuid4())}, **who)))
    before = house.rows()
    for place, url in PLACES.items():
        with rows(place):
            made = house.push(speaker, "create", task, url=url, more={}, **who)
            for answer in (made, inline(speaker, {"url": url}, who)):
                assert (answer.code, answer.reason) == (INVALID[speaker.binding], "INVALID_PARAMS"), answer.text
                assert "hunter22" not in answer.text
            assert house.rows() == before
    if name != "0.1-rpc":
        assert "url" not in house.push(speaker, "list", task, **who).text


@pytest.mark.parametrize("name", SPEAKERS)
def test_no_webhook_puts_words_into_our_headers(house: Any, rows: Any, name: str) -> None:
    speaker, who = house.wire.speaker(name), house.as_("bob")
    task = speaker.id_of(speaker.task(speaker.send(tool="ask_name", message={"messageId": str(uuid4())}, **who)))
    before = house.rows()
    for what, words in WORDS.items():
        more = dict(words)
        if "authentication" in more:
            scheme, credentials = more["authentication"]
            said = {"scheme": scheme} if speaker.is_modern else {"schemes": [scheme]}
            more["authentication"] = {**said, "credentials": credentials}
        hook = {"url": "http://127.0.0.1:9/hook", **more}
        with rows(what):
            made = house.push(speaker, "create", task, more.pop("id", ""), more=more, **who)
            for answer in (made, inline(speaker, hook, who)):
                assert (answer.code, answer.reason) == (INVALID[speaker.binding], "INVALID_PARAMS"), answer.text
            assert house.rows() == before


class Receiver:
    """Notes who calls, and answers what a test says; `again` is set when somebody has come twice to every path."""

    def __init__(self, paths: list[str], answer: Callable[[str], tuple[int, list[tuple[bytes, bytes]]]]) -> None:
        self.seen: list[tuple[str, dict[bytes, bytes]]] = []
        self.again = threading.Event()
        self._paths = paths
        self._answer = answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan here")
        self.seen.append((scope["path"], dict(scope["headers"])))
        status, headers = self._answer(scope["path"])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        paths = [path for path, _ in self.seen]
        if all(paths.count(path) > 1 for path in self._paths):
            self.again.set()


def test_a_webhook_that_points_elsewhere_is_not_followed(house: Any, new_agent: Any) -> None:
    """The trap is on loopback, where nothing was allowed but the receiver's own port: it stands for metadata."""
    statuses = ("301", "302", "303", "307", "308")
    trap = Receiver([], lambda _: (200, []))
    with ExitStack() as stack:
        elsewhere = stack.enter_context(served(trap))
        trap.seen.clear()
        to = [(b"location", f"{elsewhere}/latest/meta-data/".encode())]
        receiver = Receiver([f"/{each}" for each in statuses], lambda path: (int(path[1:]), to))
        port = urlsplit(stack.enter_context(served(receiver))).port
        url = stack.enter_context(served(new_agent(), push_allow=[f"127.0.0.1:{port}"], drain=0))
        speaker = house.wire.at(url).speaker("1.0-rpc")
        task = speaker.id_of(speaker.task(speaker.send(tool="ask_name")))
        for status in statuses:
            made = house.push(speaker, "create", task, url=f"http://127.0.0.1:{port}/{status}", more={})
            assert "error" not in made.json
        speaker.send("Ada", task=task, message={"messageId": "m2"})
        # It comes again: so the answer was read, taken for a failure and not followed.
        assert receiver.again.wait(WAIT)
    assert trap.seen == []


async def anybody(request: Any) -> User | None:
    return User("ada") if "cookie" in request.headers else None


def test_a_webhook_hears_nothing_of_its_caller_s_credentials(house: Any, new_agent: Any) -> None:
    receiver = Receiver(["/hook"], lambda _: (500, []))
    theirs = house.secret("what-only-the-caller-and-the-server-know")
    who = {"headers": {"Cookie": f"user={theirs}", "Authorization": f"Bearer {theirs}"}}
    with ExitStack() as stack:
        port = urlsplit(stack.enter_context(served(receiver))).port
        url = stack.enter_context(served(new_agent(), auth=anybody, push_allow=[f"127.0.0.1:{port}"], drain=0))
        speaker = house.wire.at(url).speaker("1.0-rpc")
        task = speaker.id_of(speaker.task(speaker.send(tool="ask_name", **who)))
        house.push(speaker, "create", task, url=f"http://127.0.0.1:{port}/hook", more={"token": "abc"}, **who)
        speaker.send("Ada", task=task, message={"messageId": "m2"}, **who)
        assert receiver.again.wait(WAIT)
    for _, headers in receiver.seen:
        assert headers[b"x-a2a-notification-token"] == b"abc"
        assert b"cookie" not in headers
        assert theirs.encode() not in b"".join(headers.values())
