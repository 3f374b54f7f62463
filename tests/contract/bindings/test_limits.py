"""What is too much: each limit is answered with its own error, which says when to come back."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from contract.bindings.caller import Caller, Refused, Site, task_id
from contract.bindings.deviations import GRPC
from support.polling import until

from dragoman import State


def exhausted(refused: pytest.ExceptionInfo[Refused], limit: str) -> int:
    """Check that a refusal says which limit was reached, and return when to come back."""
    error = refused.value
    assert (error.reason, error.metadata["limit"]) == ("RESOURCE_EXHAUSTED", limit)
    assert error.retry_after is not None
    assert error.metadata["retryAfter"] == str(error.retry_after)
    return error.retry_after


@pytest.fixture
def limited(caller: Caller, tight: Site) -> Caller:
    """A user of their own, at a server of narrow limits."""
    return tight.caller(caller.name).as_user(str(uuid4()))


def test_a_message_may_have_so_many_parts(limited: Caller) -> None:
    assert limited.send("a", "b", "c").state is State.COMPLETED
    with pytest.raises(Refused) as refused:
        limited.send("a", "b", "c", "d")
    assert (refused.value.reason, refused.value.field) == ("INVALID_PARAMS", "message.parts")
    assert "3 parts at most, not 4" in refused.value.message


def nested(depth: int) -> object:
    value: object = "inside [[[[[[[[{{{{{{{{"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.needs("bodies of JSON")
def test_json_may_be_nested_so_deeply_and_no_deeper(limited: Caller) -> None:
    assert limited.send("hi", message_metadata={"x": nested(5)}).state is State.COMPLETED
    with pytest.raises(Refused) as refused:
        limited.send("hi", message_metadata={"x": nested(15)})
    assert refused.value.reason == "INVALID_PARAMS"
    assert "nested deeper than 12" in refused.value.message


@pytest.mark.needs("bodies of JSON")
def test_a_message_that_is_too_large_is_refused(limited: Caller) -> None:
    assert limited.send("x" * 10_000).text == "x" * 10_000
    with pytest.raises(Refused) as refused:
        limited.send("x" * 30_000)
    assert refused.value.reason == "INVALID_REQUEST"
    assert "20000 bytes" in refused.value.message


def test_grpc_refuses_what_is_too_large_or_too_deep(tight: Site) -> None:
    for name in GRPC:
        user = tight.caller(name).as_user(str(uuid4()))
        assert user.send("x" * 10_000, message_metadata={"x": nested(5)}).state is State.COMPLETED
        for wrong, reason in (("x" * 30_000, ""), ({"x": nested(200)}, "INVALID_REQUEST")):
            with pytest.raises(Refused) as refused:
                user.send(wrong)
            assert refused.value.reason == reason
        assert user.send("still there").text == "still there"


def test_a_caller_may_have_so_many_tasks_at_work(limited: Caller, tight: Site) -> None:
    task = limited.begin(tool="until_message")
    with pytest.raises(Refused) as refused:
        limited.send("hi")
    assert exhausted(refused, "caller_tasks") == 1
    assert tight.caller(limited.name).as_user(str(uuid4())).send("hi").state is State.COMPLETED
    # Words for the task at work begin nothing; they end this one, and make room.
    assert limited.send("done", task=task).id == task
    assert until_taken(lambda: limited.send("hi").state is State.COMPLETED)


def test_a_caller_may_have_so_many_streams_open(limited: Caller, tight: Site) -> None:
    with limited.stream(tool="until_message") as events:
        task = task_id(events.next())
        with pytest.raises(Refused) as refused, limited.subscribe(task):
            pass
        assert exhausted(refused, "caller_streams") == 1
        with tight.caller(limited.name).as_user(str(uuid4())).stream("hi") as others:
            assert [event.state for event in others][-1] is State.COMPLETED
        limited.send("enough", task=task)
        assert [event.state for event in events][-1] is State.COMPLETED

    def opens() -> bool:
        with limited.stream("hi") as again:
            return [event.state for event in again][-1] is State.COMPLETED

    assert until_taken(opens)


def until_taken(call: Callable[[], bool]) -> bool:
    """Call until the server has room again."""

    def answers() -> list[bool]:
        try:
            return [call()]
        except Refused as refused:
            assert refused.reason == "RESOURCE_EXHAUSTED"
            return []

    return until(answers)[0]


@pytest.mark.parametrize("limit", ["tasks", "streams"])
def test_all_callers_together_may_have_so_many(caller: Caller, opened: Callable[..., Site], limit: str) -> None:
    there = opened(limits={limit: 1}).caller(caller.name)
    with there.stream(tool="slow") as events:
        events.next()
        with pytest.raises(Refused) as refused, there.stream("hi"):
            pass
    assert exhausted(refused, limit) == 1


def test_a_request_over_the_rate_is_refused_with_the_time_to_retry(caller: Caller, hurried: Site) -> None:
    user = hurried.caller(caller.name).as_user(str(uuid4()))
    assert [user.send("hi").state for _ in range(3)] == [State.COMPLETED] * 3
    with pytest.raises(Refused) as refused:
        user.send("hi")
    assert 90 <= exhausted(refused, "rate") <= 100
    with pytest.raises(Refused) as refused, user.stream("hi"):
        pass
    exhausted(refused, "rate")
    assert hurried.caller(caller.name).as_user(str(uuid4())).send("hi").state is State.COMPLETED
