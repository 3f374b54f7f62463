"""Whose request it is and how it is to be taken: tenants, owners, repeats, extensions, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from dragoman import User
from dragoman.testing import served

MODERN = ["1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest"]
SINCE_0_3 = [*MODERN, "0.3-rpc", "0.3-rest"]


# -- tenants -----------------------------------------------------------------------------------------------------------


def test_one_tenant_is_the_same_in_a_path_in_a_body_and_in_a_query(wire: Any) -> None:
    tenant = f"tenant {uuid4()}/ü"
    rest, rpc = wire.speaker("1.0-rest"), wire.speaker("1.0-rpc")
    task = rpc.id_of(rpc.send("hi", tenant=tenant))
    assert rest.at(f"/{quote(tenant, safe='')}").get(task).json["id"] == task
    assert rest.get(task, tenant=tenant).json["id"] == task
    assert rest.at(f"/{quote(tenant, safe='')}").get(task).json == rpc.get(task, tenant=tenant).result


def test_a_stream_of_another_tenant_cannot_be_read(wire: Any) -> None:
    rest = wire.speaker("1.0-rest")
    task = rest.id_of(rest.at("/acme").send(tool="ask_name"))
    with rest.at("/acme").subscribe(task) as reading:
        assert reading.next().json["task"]["id"] == task
    for after in (None, 1):
        with rest.subscribe(task, after=after) as reading:
            assert reading.refusal().reason == "TASK_NOT_FOUND"


# -- owners ------------------------------------------------------------------------------------------------------------


async def by_name(request: Any) -> User | None:
    """Trusts everybody who says a name."""
    name = request.headers.get("x-user")
    if name == "broken":
        raise ValueError("the directory at /etc/users is gone")
    return User(name) if name else None


@pytest.fixture(scope="module")
def guarded(wire: Any, new_agent: Callable[..., Any]) -> Iterator[Any]:
    """A server that wants to know who is calling."""
    with served(new_agent(), auth=by_name, heartbeat=0.05, drain=0) as url:
        yield wire.at(url)


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/healthz", "/readyz"])
def test_a_stranger_may_read_the_card_and_the_health(guarded: Any, path: str) -> None:
    assert guarded.request("GET", path).status == 200


def test_an_authenticator_that_raises_lets_nobody_in_and_reveals_nothing(speaker: Any, guarded: Any) -> None:
    speaker = guarded.speaker(speaker.name)
    answer = speaker.send("hi", headers={"X-User": "broken"})
    assert (answer.code, answer.reason) == (500 if speaker.is_rest else -32603, "INTERNAL_ERROR")
    assert "/etc" not in answer.text
    assert speaker.state(speaker.send("hi", headers={"X-User": "ada"})) == "completed"


# -- repeats -----------------------------------------------------------------------------------------------------------


def repeated(answer: Any) -> bool:
    return answer.headers.get("idempotent-replayed") == "true"


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_a_repeated_stream_joins_the_task_at_work(speaker: Any) -> None:
    message = {"messageId": str(uuid4())}
    with (
        speaker.stream(tool="until_message", message=message) as one,
        speaker.stream(tool="until_message", message=message) as two,
    ):
        firsts = one.next(), two.next()
        assert firsts[0] == firsts[1]
        task = speaker.event(firsts[0])
        speaker.send("enough", task=speaker.id_of(task), message={"messageId": "m2"})
        assert list(one) == list(two)


@pytest.mark.parametrize("speaker", SINCE_0_3, indirect=True)
def test_an_answer_that_arrives_twice_is_accepted_once(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    message = {"messageId": str(uuid4())}
    first, second = (speaker.send("Ada", task=task, message=message) for _ in range(2))
    assert (repeated(first), repeated(second)) == (False, True)
    assert second.json == first.json


def test_repeats_can_be_turned_off(wire: Any, new_agent: Callable[..., Any]) -> None:
    with served(new_agent(), dedupe=0) as url:
        speaker = wire.at(url).speaker("1.0-rpc")
        message = {"messageId": str(uuid4())}
        tasks = [speaker.send("hi", message=message) for _ in range(2)]
    assert [repeated(task) for task in tasks] == [False, False]
    assert speaker.id_of(tasks[0]) != speaker.id_of(tasks[1])


# -- extensions --------------------------------------------------------------------------------------------------------

ONE, TWO, NEED = "https://example.com/one", "https://example.com/two", "https://example.com/need"


@pytest.fixture(scope="module")
def extended(wire: Any, new_agent: Callable[..., Any]) -> Iterator[Any]:
    """A server whose agent knows two extensions."""
    with served(new_agent(extensions=[ONE, TWO]), drain=0) as url:
        yield wire.at(url)


@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
@pytest.mark.parametrize(
    ("asked", "activated"),
    [(ONE, ONE), (f"{TWO}, {ONE}", f"{ONE}, {TWO}"), (f"{ONE},https://example.com/unknown", ONE), ("nothing", None)],
)
def test_caller_and_agent_learn_which_extensions_are_active(
    speaker: Any, extended: Any, header: str, asked: str, activated: str | None
) -> None:
    speaker = extended.speaker(speaker.name)
    answered = {"1": "a2a-extensions", "0": "x-a2a-extensions"}[speaker.version[0]]
    answer = speaker.send(tool="who", headers={header: asked})
    shown = None if speaker.version == "0.1" else activated
    assert answer.headers.get(answered) == shown
    assert speaker.texts(answer) == [f"user= tenant= extensions={(activated or '').replace(', ', ',')}"]
    with speaker.stream("hi", headers={header: asked}) as reading:
        assert reading.headers.get(answered) == shown


def test_an_extension_that_is_not_requested_is_not_activated(speaker: Any, extended: Any) -> None:
    answer = extended.speaker(speaker.name).send("hi")
    assert "a2a-extensions" not in answer.headers
    assert "x-a2a-extensions" not in answer.headers


def test_a_required_extension_must_be_asked_for(speaker: Any, wire: Any, new_agent: Callable[..., Any]) -> None:
    with served(new_agent(extensions=[{"uri": NEED, "required": True}]), drain=0) as url:
        speaker = wire.at(url).speaker(speaker.name)
        code = 400 if speaker.is_rest else -32008 if speaker.is_modern else -32603
        for answer in (speaker.send("hi"), speaker.get("t"), speaker.cancel("t")):
            assert (answer.code, answer.reason) == (code, "EXTENSION_SUPPORT_REQUIRED")
            assert NEED in answer.json["error"]["message"]
        assert speaker.state(speaker.send("hi", headers={"A2A-Extensions": NEED})) == "completed"
        card = wire.at(url).request("GET", "/.well-known/agent-card.json").json
    assert card["capabilities"]["extensions"][0] == {"uri": NEED, "required": True}


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.0-rest"], indirect=True)
@pytest.mark.parametrize(("version", "counts"), [("1.1", True), ("1.1.0", True), ("1.0", False), ("1.0.1", False)])
def test_the_version_is_asked_for_in_a_header_or_in_the_query(speaker: Any, version: str, counts: bool) -> None:
    header = speaker.send("hi", headers={"A2A-Version": version})
    method, path, options = speaker.spell("send", speaker.params("hi"))
    del options["headers"]["A2A-Version"]
    query = speaker.wire.request(method, f"{path}?A2A-Version={version}", **options)
    assert [("generation" in answer.result["task"]) for answer in (header, query)] == [counts, counts]


def test_the_header_counts_before_the_query(wire: Any) -> None:
    speaker = wire.speaker("1.0-rest")
    answer = wire.rest("POST", "/message:send?A2A-Version=1.1", speaker.params("hi"), **{"A2A-Version": "1.0"})
    assert "generation" not in answer.result["task"]
