"""Protocol errors that a skill raises, in every dialect and binding."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.errors import A2AError, InvalidParams, Overloaded, Unauthorized
from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc")


class QuotaUsedUp(A2AError):
    """An error of the agent's own."""

    code = -32050
    reason = "QUOTA_USED_UP"


def book(city: str) -> str:
    """Book a trip."""
    raise InvalidParams(f"no such city: {city}", field="city")


def enter() -> str:
    """Refuse everybody."""
    raise Unauthorized("members only")


def buy() -> str:
    """Have no credits."""
    raise QuotaUsedUp("no more credits", details={"left": 0})


def hurry(after: str) -> str:
    """Be busy."""
    raise Overloaded("come back later", retryAfter=after)


async def trip(ctx: Context) -> AsyncIterator[str]:
    """Ask, then fail."""
    yield "A trip to "
    raise InvalidParams(f"no such city: {await ctx.ask('Where to?')}")


def crash() -> str:
    """Raise what callers must not read."""
    raise RuntimeError("secret text in /etc/shadow")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    agent = Agent("raising")
    for skill in (book, enter, buy, hurry, trip, crash):
        agent.skill(skill)
    with served(agent, drain=0, grpc=0) as url:
        yield url


@pytest.fixture
def caller(wire: Any, url: str, speaker: Any) -> Any:
    return wire.at(url).speaker(speaker.name)


def failure(speaker: Any, holder: Any) -> dict[str, Any]:
    """The message of a failed task or of a status event."""
    for wrapper in ("task", "statusUpdate"):
        holder = holder.get(wrapper, holder)
    return holder["status"].get("message") or holder["status"]["update"]


def text_of(speaker: Any, message: dict[str, Any]) -> str:
    return message["content" if speaker.form == "0.3-rest" else "parts"][0]["text"]


def test_the_error_is_spelled_as_every_error_of_the_dialect(caller: Any) -> None:
    answer = caller.send(tool="book", arguments={"city": "Atlantis"})
    assert answer.code == (400 if caller.is_rest else -32602)
    assert answer.status == (400 if caller.is_rest else 200)
    assert answer.json["error"]["message"] == "no such city: Atlantis"
    assert (answer.reason, answer.field) == ("INVALID_PARAMS", "city")


def test_the_failed_task_can_be_read_by_the_id_that_came_with_the_error(caller: Any) -> None:
    error = caller.send(tool="book", arguments={"city": "Atlantis"})
    data = error.json["error"].get("data")
    task_id = data["taskId"] if isinstance(data, dict) else error.details[0]["metadata"]["taskId"]
    task = caller.get(task_id).result
    assert caller.state(task) == "failed"
    message = failure(caller, task)
    assert text_of(caller, message) == "no such city: Atlantis"
    assert message["metadata"]["dragoman/error"] == {"code": -32602, "reason": "INVALID_PARAMS", "field": "city"}


def test_an_error_of_the_agents_own_keeps_its_code_where_the_version_can_have_it(caller: Any) -> None:
    answer = caller.send(tool="buy")
    if caller.is_rest:
        assert answer.status == 500
    else:
        assert answer.code == (-32050 if caller.is_modern else -32603)
    assert answer.json["error"]["message"] == "no more credits"
    if caller.is_modern:
        assert answer.reason == "QUOTA_USED_UP"


def test_a_permission_is_denied_with_403(caller: Any) -> None:
    answer = caller.send(tool="enter")
    assert answer.status == 403
    assert answer.json["error"]["message"] == "members only"


@pytest.mark.parametrize(("after", "header"), [("3", "3"), ("soon\r\nX-Evil: 1", None)])
def test_a_busy_agent_may_say_when_to_come_back(caller: Any, after: str, header: str | None) -> None:
    answer = caller.send(tool="hurry", arguments={"after": after})
    assert (answer.status, answer.headers.get("retry-after")) == (429, header)
    assert "x-evil" not in answer.headers


def test_a_stream_has_the_task_which_fails_with_text_and_reason(caller: Any) -> None:
    with caller.stream(tool="book", arguments={"city": "Atlantis"}) as reading:
        events = [caller.event(event) for event in reading]
    assert caller.state(events[-1]) == "failed"
    message = failure(caller, events[-1])
    assert text_of(caller, message) == "no such city: Atlantis"
    assert message["metadata"]["dragoman/error"]["reason"] == "INVALID_PARAMS"


def test_who_answers_a_task_gets_that_task(caller: Any) -> None:
    asked = caller.task(caller.send(tool="trip"))
    answer = caller.send("Atlantis", task=asked)
    assert caller.state(answer) == "failed"
    task = caller.task(answer)
    assert caller.id_of(task) == caller.id_of(asked)
    assert text_of(caller, failure(caller, task)) == "no such city: Atlantis"


def test_any_other_exception_stays_hidden(caller: Any) -> None:
    answer = caller.send(tool="crash")
    assert caller.state(answer) == "failed"
    assert "secret" not in answer.text
