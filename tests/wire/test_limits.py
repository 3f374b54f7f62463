"""Who counts as one caller, what counts for a limit, and what the log and our client make of a refusal."""

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

PARAMS = -32602


@pytest.fixture
def limited(wire: Any, new_agent: Callable[..., Agent]) -> Iterator[Callable[..., Any]]:
    """Servers with limits of their own."""
    with ExitStack() as stack:

        def limited(auth: Any = None, trust_proxy: Any = (), **limits: Any) -> Any:
            settings = {"limits": limits, "drain": 0, "trust_proxy": trust_proxy}
            return wire.at(stack.enter_context(served(new_agent(), auth=auth, **settings)))

        yield limited


async def by_name(request: Any) -> User:
    """Whoever says a name is that user."""
    name = request.headers.get("x-name")
    if name is None:
        raise Unauthenticated
    return User(name)


def check_refused(answer: Any, limit: str) -> None:
    """Check that an answer says which limit was reached."""
    assert (answer.status, answer.reason) == (429, "RESOURCE_EXHAUSTED")
    assert answer.details[0]["metadata"]["limit"] == limit


def nested(depth: int) -> Any:
    value: Any = "inside"
    for _ in range(depth):
        value = [value]
    return value


def test_json_may_have_a_hundred_levels_by_default(wire: Any) -> None:
    speaker = wire.speaker("1.0-rpc")
    assert speaker.state(speaker.send("hi", message={"metadata": {"x": nested(96)}})) == "completed"
    assert speaker.send("hi", message={"metadata": {"x": nested(98)}}).code == PARAMS


# The rate


def test_every_operation_counts_for_the_rate_whether_it_fails_or_not(limited: Callable[..., Any]) -> None:
    there = limited(rate=0.01, burst=4)
    speaker = there.speaker("1.0-rest")
    assert speaker.get("nobody").status == 404
    assert there.rpc("NoSuchMethod").code == -32601
    assert there.request("POST", "/", content=b"{", headers={"Content-Type": "application/json"}).code == -32700
    with speaker.stream("hi") as reading:
        assert list(reading)
    check_refused(speaker.list(), "rate")
    with speaker.stream("hi") as reading:
        check_refused(reading.refusal(), "rate")
    refused = there.speaker("1.0-rpc").send("hi")
    check_refused(refused, "rate")
    assert refused.json["id"] is None
    # The card and the health are read without a limit.
    assert there.request("GET", "/.well-known/agent-card.json").status == 200
    assert there.request("GET", "/healthz").status == 200


def test_each_user_has_a_rate_of_their_own_and_so_have_callers_who_guess(limited: Callable[..., Any]) -> None:
    speaker = limited(rate=0.01, burst=1, auth=by_name).speaker("1.0-rpc")
    assert speaker.state(speaker.send("hi", headers={"X-Name": "alice"})) == "completed"
    check_refused(speaker.send("hi", headers={"X-Name": "alice"}), "rate")
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
def test_strangers_are_identified_by_the_address_that_a_trusted_proxy_gives(
    limited: Callable[..., Any], first: str, second: str, same: bool
) -> None:
    speaker = limited(rate=0.01, burst=1, trust_proxy=["127.0.0.0/8"]).speaker("1.0-rest")
    assert speaker.send("hi", headers={"X-Forwarded-For": first}).status == 200
    assert speaker.send("hi", headers={"X-Forwarded-For": second}).status == (429 if same else 200)


def test_a_claimed_address_raises_no_rate(limited: Callable[..., Any]) -> None:
    speaker = limited(rate=0.01, burst=2).speaker("1.0-rest")
    statuses = [speaker.send("hi", headers={"X-Forwarded-For": f"192.0.2.{number}"}).status for number in range(4)]
    assert statuses == [200, 200, 429, 429]


# The audit log


def test_a_refused_caller_is_audited_once_a_second_without_the_text_of_the_message(
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


async def test_our_client_waits_for_the_time_of_retry_after_and_tries_again() -> None:
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
