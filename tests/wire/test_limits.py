"""What is too much: each limit is answered with its own error, and says when to come back."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dragoman import Agent, Client, Context, User
from dragoman.client.connect import connect
from dragoman.client.options import ClientOptions
from dragoman.errors import Overloaded, Unauthenticated
from dragoman.model.message import Message
from dragoman.model.operation import Operation, SendMessageRequest
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.testing import Clock, served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.0-grpc", "0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc")
PARAMS = -32602


@pytest.fixture
def limited(wire: Any, new_agent: Callable[..., Agent]) -> Iterator[Callable[..., Any]]:
    """Servers with limits of their own."""
    with ExitStack() as stack:

        def limited(auth: Any = None, trust_proxy: Any = (), grpc: int | None = 0, **limits: Any) -> Any:
            settings = {"limits": limits, "drain": 0, "heartbeat": 0.05, "trust_proxy": trust_proxy, "grpc": grpc}
            return wire.at(stack.enter_context(served(new_agent(), auth=auth, **settings)))

        yield limited


async def by_name(request: Any) -> User:
    """Whoever says a name is that user."""
    name = request.headers.get("x-name")
    if name is None:
        raise Unauthenticated
    return User(name)


def refusal(answer: Any, limit: str) -> int:
    """Check that an answer says which limit was reached, in every way it can; when to come back."""
    error = answer.json["error"]
    assert answer.status == 429
    assert answer.code in (429, -32000)
    assert answer.reason == "RESOURCE_EXHAUSTED"
    data = error.get("data")
    said = data if isinstance(data, dict) else answer.details[0]["metadata"]
    assert said["limit"] == limit
    assert said["retryAfter"] == answer.headers["retry-after"]
    return int(answer.headers["retry-after"])


# Parts and nesting


def test_a_message_may_have_so_many_parts(speaker: Any, limited: Callable[..., Any]) -> None:
    there = limited(parts=3).speaker(speaker.name)
    assert there.state(there.send("a", "b", "c")) == "completed"
    answer = there.send("a", "b", "c", "d")
    assert (answer.status, answer.code) == ((400, 400) if there.is_rest else (200, PARAMS))
    assert answer.field == "message.parts"
    assert "3 parts at most, not 4" in answer.json["error"]["message"]


def nested(depth: int) -> Any:
    value: Any = "inside [[[[[[[[{{{{{{{{"
    for _ in range(depth):
        value = {"a": [value]} if depth % 2 else [value]
    return value


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def test_json_may_be_nested_so_deeply_and_no_deeper(speaker: Any, limited: Callable[..., Any]) -> None:
    there = limited(nesting=12).speaker(speaker.name)
    told = set[bool]()
    for depth in range(1, 16):
        params = there.params("hi", message={"metadata": {"x": nested(depth)}})
        method, path, options = there.spell("send", params)
        answer = there.wire.request(method, path, **options)
        told.add(too_deep := depth_of(params) > 12)
        if too_deep:
            assert (answer.status, answer.code) == ((400, 400) if there.is_rest else (200, PARAMS))
            assert answer.field == (None if there.is_rest else "params")
            assert "nested deeper than 12" in answer.json["error"]["message"]
            assert there.is_rest or answer.json["id"] == 1
        else:
            assert there.state(answer) == "completed"
    assert told == {True, False}


def test_a_hundred_levels_are_deep_enough_unless_it_is_said(wire: Any) -> None:
    speaker = wire.speaker("1.0-rpc")
    assert speaker.state(speaker.send("hi", message={"metadata": {"x": nested(96)}})) == "completed"
    assert speaker.send("hi", message={"metadata": {"x": nested(98)}}).code == PARAMS


# The rate


def test_one_request_too_many_is_told_when_to_come_back(speaker: Any, limited: Callable[..., Any]) -> None:
    there = limited(rate=0.01, burst=3).speaker(speaker.name)
    answers = [there.send("hi") for _ in range(4)]
    assert [there.state(answer) for answer in answers[:3]] == ["completed"] * 3
    assert 90 <= refusal(answers[3], "rate") <= 100
    if not there.is_rest:
        assert answers[3].json["id"] is None
    assert there.wire.request("GET", "/.well-known/agent-card.json").status == 200
    assert there.wire.request("GET", "/healthz").status == 200


def test_every_operation_counts_whatever_it_is_and_whatever_becomes_of_it(limited: Callable[..., Any]) -> None:
    there = limited(rate=0.01, burst=4)
    speaker = there.speaker("1.0-rest")
    assert speaker.get("nobody").status == 404
    assert there.rpc("NoSuchMethod").code == -32601
    assert there.request("POST", "/", content=b"{", headers={"Content-Type": "application/json"}).code == -32700
    with speaker.stream("hi") as reading:
        assert list(reading)
    refusal(speaker.list(), "rate")
    with speaker.stream("hi") as reading:
        refusal(reading.refusal(), "rate")


def test_users_are_counted_one_by_one_and_who_keeps_guessing_is_stopped_too(limited: Callable[..., Any]) -> None:
    speaker = limited(rate=0.01, burst=1, auth=by_name).speaker("1.0-rpc")
    assert speaker.state(speaker.send("hi", headers={"X-Name": "alice"})) == "completed"
    refusal(speaker.send("hi", headers={"X-Name": "alice"}), "rate")
    assert speaker.state(speaker.send("hi", headers={"X-Name": "bob"})) == "completed"
    assert [speaker.send("hi").status for _ in range(3)] == [401, 429, 429]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1:4711", "192.0.2.1:4712", True),
        ("198.51.100.7, 192.0.2.1", "203.0.113.9, 192.0.2.1", True),  # who writes the rest nobody knows
        ("192.0.2.1, 127.0.0.9", "192.0.2.2, 127.0.0.9", False),  # two proxies
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8::1", "2001:db8::2", True),  # one network
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("[2001:db8::1]:80", "2001:db8::1", True),
        ("192.0.2.1", "rubbish", False),
        ("rubbish", "127.0.0.1", True),
    ],
)
def test_strangers_are_known_by_the_address_a_trusted_proxy_gives(
    limited: Callable[..., Any], first: str, second: str, same: bool
) -> None:
    speaker = limited(rate=0.01, burst=1, trust_proxy=["127.0.0.0/8"]).speaker("1.0-rest")
    assert speaker.send("hi", headers={"X-Forwarded-For": first}).status == 200
    assert speaker.send("hi", headers={"X-Forwarded-For": second}).status == (429 if same else 200)


def test_nobody_gets_more_by_claiming_addresses(limited: Callable[..., Any]) -> None:
    speaker = limited(rate=0.01, burst=2).speaker("1.0-rest")
    statuses = [speaker.send("hi", headers={"X-Forwarded-For": f"192.0.2.{number}"}).status for number in range(4)]
    assert statuses == [200, 200, 429, 429]


# Tasks and streams of one caller


def test_one_caller_may_have_so_many_tasks_at_work(speaker: Any, limited: Callable[..., Any]) -> None:
    there = limited(caller_tasks=1, auth=by_name).speaker(speaker.name)
    alice, bob = {"X-Name": "alice"}, {"X-Name": "bob"}
    task = there.begin(tool="until_told", headers=alice)
    assert refusal(there.send("hi", headers=alice), "caller_tasks") == 1
    assert there.state(there.send("hi", headers=bob)) == "completed"
    assert there.get(task, headers=alice).status == 200
    # Words for the task at work begin nothing; they end this one, and make room.
    assert there.send("done", task=task, headers=alice).status == 200
    assert _until(lambda: there.send("hi", headers=alice).status == 200)


def _until(condition: Callable[[], bool]) -> bool:
    return any(condition() for _ in range(200))


def test_one_caller_may_have_so_many_streams_open(speaker: Any, limited: Callable[..., Any]) -> None:
    there = limited(caller_streams=1, auth=by_name).speaker(speaker.name)
    alice, bob = {"X-Name": "alice"}, {"X-Name": "bob"}
    with there.stream(tool="slow", headers=alice) as reading:
        task = there.event(reading.next())
        with there.subscribe(task, headers=alice) as second:
            assert refusal(second.refusal(), "caller_streams") == 1
        with there.stream("hi", headers=bob) as other:
            assert list(other)
        assert there.send("hi", headers=alice).status == 200

    def opens() -> bool:
        with there.stream("hi", headers=alice) as again:
            return again.status == 200 and bool(list(again))

    assert _until(opens)


@pytest.mark.parametrize("limit", ["tasks", "streams"])
def test_all_callers_together_may_have_so_many(speaker: Any, limited: Callable[..., Any], limit: str) -> None:
    there = limited(**{limit: 1}).speaker(speaker.name)
    with there.stream(tool="slow") as reading:
        reading.next()
        with there.stream("hi") as second:
            assert refusal(second.refusal(), limit) == 1


# The audit log


def test_who_is_stopped_is_written_down_once_a_second_and_without_a_word_of_the_message(
    limited: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    speaker = limited(rate=0.01, burst=1, parts=1, auth=by_name).speaker("1.0-rpc")
    for _ in range(30):
        speaker.send("a secret", headers={"X-Name": 'mal"lory'})
    speaker.send("a secret", "another", headers={"X-Name": "bob"})
    lines = [record for record in caplog.records if record.name == "dragoman.audit"]
    by_caller = {(record.user, record.reason) for record in lines}  # type: ignore[attr-defined]
    assert by_caller == {('mal"lory', "rate"), ("bob", "parts")}
    assert len(lines) < 10
    assert 'event=limited caller="user mal\\"lory" reason=rate' in {record.getMessage() for record in lines}
    assert "secret" not in caplog.text


# Our own client


async def test_our_client_waits_as_long_as_it_is_told_and_comes_back() -> None:
    agent = Agent("gate")

    @agent.skill
    async def gate(ctx: Context) -> str:
        """Wait for a word when asked to."""
        if ctx.text == "wait":
            async for _ in ctx.messages():
                break
        return "done"

    clock = Clock()
    request = SendMessageRequest(Message("2f1b8a6e-3c4d-4e5f-8a9b-0c1d2e3f4a5b", Role.USER, (Part(text="hi"),)))
    with served(agent, limits={"caller_tasks": 1}, drain=0) as url:
        async with Client(url) as other:
            task = await other.send("wait", wait=False)
            connection = connect(ClientOptions(url), clock)
            try:
                calling = asyncio.create_task(connection.perform(Operation.SEND, request))
                async with asyncio.timeout(10):
                    while not clock.pending:  # noqa: ASYNC110 - it was refused, and waits on the clock
                        await asyncio.sleep(0.001)
                await clock.advance(0.99)
                assert not calling.done()
                ended = await other.send("go on", task=task)
                assert ended.state is State.COMPLETED
                await clock.advance(0.02)
                async with asyncio.timeout(10):
                    while not calling.done():
                        clock.move(0.5 if clock.pending else 0)
                        await asyncio.sleep(0.001)
                assert (await calling).state is State.COMPLETED
            finally:
                await connection.close()


async def test_a_client_that_may_not_try_again_gets_the_error() -> None:
    agent = Agent("echo")
    agent.skill(_echo)
    with served(agent, limits={"rate": 0.01, "burst": 1}, drain=0) as url:
        for transport in ("jsonrpc", "rest"):
            async with Client(url, transport=transport, retries=0) as client:
                if transport == "jsonrpc":
                    await client.send("hi")
                with pytest.raises(Overloaded, match="requests a second"):
                    await client.send("hi")


def _echo(text: str) -> str:
    """Say it again."""
    return text


def test_the_whole_body_is_too_large_before_it_is_read(limited: Callable[..., Any]) -> None:
    there = limited(body=1000)
    answer = there.rest("POST", "/message:send", json.dumps({"x": "y" * 2000}).encode())
    assert answer.status == 413
    assert answer.details[0]["metadata"] == {"limit": "body"}
