"""Webhooks as a weapon: addresses inside the network, headers with line breaks, receivers that point elsewhere."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from support.http_server import Answer, HttpServer
from support.webhook_receiver import Delivery, WebhookReceiver

from dragoman import User
from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.1-rpc")
INVALID = {"rpc": -32602, "rest": 400}

# None of these is ever connected to: they are refused as they stand, without a look-up. Every address in every
# spelling is in tests/unit/net/test_guard.py; these are some of each kind.
PLACES = {
    "loopback": "http://127.0.0.1/",
    "its name": "http://localhost/",
    "IPv6 loopback": "http://[::1]:9/",
    "IPv4 in IPv6": "http://[::ffff:127.0.0.1]/",
    "NAT64": "http://[64:ff9b::7f00:1]/",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "metadata by its name": "http://metadata.google.internal/computeMetadata/v1/",
    "private 10": "http://10.0.0.1/",
    "one number": "http://2130706433/",
    "octal": "http://0177.0.0.1/",
    "round digits": "http://①②⑦.⓪.⓪.①/",
    "credentials": "https://ada:hunter22@hooks.example.com/",
    "backslash": "http://127.0.0.1:10\\@hooks.example.com/",
    "line break": "http://127.0.0.1:9/\r\nX-Evil: 1",
    "file": "file:///etc/passwd",
    "no scheme": "//127.0.0.1:9/",
    "no host": "http:///hook",
    "port zero": "http://127.0.0.1:0/",
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
def test_no_webhook_leads_into_the_network(house: Any, subtests: pytest.Subtests, name: str) -> None:
    speaker, who = house.wire.speaker(name), house.as_("bob")
    task = speaker.id_of(speaker.task(speaker.send(tool="ask_name", message={"messageId": str(uuid4())}, **who)))
    before = house.rows()
    for place, url in PLACES.items():
        with subtests.test(place):
            made = house.push(speaker, "create", task, url=url, more={}, **who)
            for answer in (made, inline(speaker, {"url": url}, who)):
                assert (answer.code, answer.reason) == (INVALID[speaker.binding], "INVALID_PARAMS"), answer.text
                assert "hunter22" not in answer.text
            assert house.rows() == before
    if name != "0.1-rpc":
        assert "url" not in house.push(speaker, "list", task, **who).text


@pytest.mark.parametrize("name", SPEAKERS)
def test_no_webhook_puts_words_into_our_headers(house: Any, subtests: pytest.Subtests, name: str) -> None:
    speaker, who = house.wire.speaker(name), house.as_("bob")
    task = speaker.id_of(speaker.task(speaker.send(tool="ask_name", message={"messageId": str(uuid4())}, **who)))
    before = house.rows()
    for what, words in WORDS.items():
        more = dict(words)
        if "authentication" in more:
            scheme, credentials = more["authentication"]
            authentication = {"scheme": scheme} if speaker.is_modern else {"schemes": [scheme]}
            more["authentication"] = {**authentication, "credentials": credentials}
        hook = {"url": "http://127.0.0.1:9/hook", **more}
        with subtests.test(what):
            made = house.push(speaker, "create", task, more.pop("id", ""), more=more, **who)
            for answer in (made, inline(speaker, hook, who)):
                assert (answer.code, answer.reason) == (INVALID[speaker.binding], "INVALID_PARAMS"), answer.text
            assert house.rows() == before


def wait_for_retries(receiver: WebhookReceiver, *paths: str) -> None:
    """Wait until every path was asked for twice."""
    receiver.wait_for(lambda: all([each.path for each in receiver.requests].count(path) > 1 for path in paths))


def test_a_webhook_that_points_elsewhere_is_not_followed(house: Any, new_agent: Any) -> None:
    """The trap is on loopback, where nothing was allowed but the receiver's own port: it stands for metadata."""
    statuses = ("301", "302", "303", "307", "308")
    with ExitStack() as stack:
        trap = stack.enter_context(HttpServer(path="/latest/meta-data/"))

        def elsewhere(delivery: Delivery) -> Answer:
            return Answer(int(delivery.path[1:]), headers={"Location": trap.url})

        receiver = stack.enter_context(WebhookReceiver(elsewhere))
        port = receiver.port
        url = stack.enter_context(served(new_agent(), push_allow=[f"127.0.0.1:{port}"], drain=0))
        speaker = house.wire.at(url).speaker("1.0-rpc")
        task = speaker.id_of(speaker.task(speaker.send(tool="ask_name")))
        for status in statuses:
            made = house.push(speaker, "create", task, url=f"http://127.0.0.1:{port}/{status}", more={})
            assert "error" not in made.json
        speaker.send("Ada", task=task, message={"messageId": "m2"})
        # It comes again: so the answer was read, taken for a failure and not followed.
        wait_for_retries(receiver, *(f"/{status}" for status in statuses))
    assert trap.requests == []


async def anybody(request: Any) -> User | None:
    return User("ada") if "cookie" in request.headers else None


def test_a_webhook_gets_no_credentials_of_its_caller(house: Any, new_agent: Any) -> None:
    theirs = house.secret("what-only-the-caller-and-the-server-know")
    who = {"headers": {"Cookie": f"user={theirs}", "Authorization": f"Bearer {theirs}"}}
    with ExitStack() as stack:
        receiver = stack.enter_context(WebhookReceiver(500))
        port = receiver.port
        url = stack.enter_context(served(new_agent(), auth=anybody, push_allow=[f"127.0.0.1:{port}"], drain=0))
        speaker = house.wire.at(url).speaker("1.0-rpc")
        task = speaker.id_of(speaker.task(speaker.send(tool="ask_name", **who)))
        house.push(speaker, "create", task, url=f"http://127.0.0.1:{port}/hook", more={"token": "abc"}, **who)
        speaker.send("Ada", task=task, message={"messageId": "m2"}, **who)
        wait_for_retries(receiver, "/hook")
    for each in receiver.requests:
        assert each.headers["x-a2a-notification-token"] == "abc"
        assert "cookie" not in each.headers
        assert theirs not in "".join(each.headers.values())
