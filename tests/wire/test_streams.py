"""Streams, the same in every dialect: where they begin, what they carry, when they end, how they are resumed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc")
OVER_HTTP = [name for name in SPEAKERS if "grpc" not in name]
UNSUPPORTED = {"rpc": -32004, "rest": 400}
NOT_FOUND = {"rpc": -32001, "rest": 404}


def kind(speaker: Any, event: Any) -> str:
    """What an event is: task, message, status or artifact."""
    carried = speaker.event(event)
    if "kind" in carried:
        return carried["kind"].removesuffix("-update")
    if speaker.version == "0.1":
        return "artifact" if "artifact" in carried else "status"
    return next(iter(carried)).removesuffix("Update")


def states(speaker: Any, events: list[Any]) -> list[str]:
    return [speaker.state(speaker.event(event)) for event in events if kind(speaker, event) in ("task", "status")]


def first_kind(speaker: Any) -> str:
    """What a stream begins with: 0.1 has no tasks in its streams, so its first event is a status."""
    return "status" if speaker.version == "0.1" else "task"


def finals(speaker: Any, events: list[Any]) -> list[bool]:
    """What the status events say in `final`; ProtoJSON leaves false out."""
    said = [speaker.event(event) for event in events]
    said = [each.get("statusUpdate", each) for each in said]
    return [each.get("final", False) for each in said if "status" in each and each.get("kind") != "task"]


# -- errors instead of a stream ----------------------------------------------------------------------------------------


def test_only_0_3_wants_the_error_of_a_subscription_as_an_event(speaker: Any) -> None:
    with speaker.subscribe("nobody") as reading:
        # 0.1 has the same method, and no version header.
        expected = "text/event-stream" if speaker.name in ("0.3-rpc", "0.1-rpc") else "json"
        assert reading.headers["content-type"].endswith(expected)
        answer = reading.refusal()
    assert (answer.code, answer.reason) == (NOT_FOUND[speaker.binding], "TASK_NOT_FOUND")
    with speaker.stream(message={"taskId": "nobody"} if speaker.version != "0.1" else {"parts": 5}) as reading:
        assert reading.headers["content-type"].endswith("json")


def test_the_error_of_a_subscription_in_0_3_has_the_id_of_its_request(wire: Any) -> None:
    body = {"jsonrpc": "2.0", "id": "r1", "method": "tasks/resubscribe"}
    for params, code in (({"id": "nobody"}, -32001), ({}, -32602)):
        with wire.reading("POST", "/", json={**body, "params": params}) as reading:
            (event,) = list(reading)
        assert (event.id, event.json["id"], event.json["error"]["code"]) == (None, "r1", code)
        assert reading.headers["cache-control"] == "no-store"


def test_who_asks_for_0_1_gets_the_error_of_a_subscription_as_json(wire: Any) -> None:
    answer = wire.rpc("tasks/resubscribe", {"id": "nobody"}, **{"A2A-Version": "0.1"})
    assert (answer.headers["content-type"], answer.code) == ("application/json", -32001)


# -- where they begin and end ------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-6", "S2-82", "S2-83")
def test_a_stream_shows_every_change_once_from_the_task_to_its_end(speaker: Any) -> None:
    with speaker.stream(tool="count", arguments={"n": 3}) as reading:
        assert (reading.status, reading.headers["content-type"]) == (200, "text/event-stream")
        events = list(reading)
    kinds = [kind(speaker, event) for event in events]
    assert kinds == [first_kind(speaker), "status", *["artifact"] * 3, "status"]
    assert states(speaker, events) == ["submitted", "working", "completed"]
    assert [event.id for event in events] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("speaker", OVER_HTTP, indirect=True)
def test_a_stream_is_not_to_be_kept_or_buffered_on_its_way(speaker: Any) -> None:
    with speaker.stream("hi") as reading:
        assert reading.headers["cache-control"] == "no-store"
        assert reading.headers["x-accel-buffering"] == "no"
        assert "content-length" not in reading.headers


@pytest.mark.parametrize("speaker", ["0.3-rpc", "0.3-rest", "0.1-rpc"], indirect=True)
@pytest.mark.parametrize("tool", ["echo", "ask_name", "boom", "deny"])
def test_only_the_last_status_of_an_older_stream_is_final(speaker: Any, tool: str) -> None:
    with speaker.stream("hi", tool=tool) as reading:
        said = finals(speaker, list(reading))
    assert said[-1] is True
    assert True not in said[:-1]


@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest"], indirect=True)
def test_a_modern_stream_says_final_nowhere(speaker: Any) -> None:
    with speaker.stream(tool="ask_name") as reading:
        assert not any('"final"' in event.data for event in reading)


@pytest.mark.requirement("S2-9")
def test_events_arrive_while_the_task_is_at_work(speaker: Any) -> None:
    with speaker.stream(tool="until_told") as reading:
        events = [reading.next(), reading.next(), reading.next()]
        assert states(speaker, events)[-1] == "working"
        task = speaker.event(events[-1])
        task = task.get("statusUpdate", task)
        speaker.send("enough", task=task.get("taskId") or task["id"])
        events += reading
    assert states(speaker, events)[-1] == "completed"


@pytest.mark.requirement("S2-6")
@pytest.mark.parametrize(("tool", "state"), [("deny", "rejected"), ("boom", "failed"), ("ask_name", "input-required")])
def test_a_stream_ends_when_the_task_does_or_asks(speaker: Any, tool: str, state: str) -> None:
    with speaker.stream(tool=tool) as reading:
        events = list(reading)
    worded = "failed" if speaker.version == "0.1" and state == "rejected" else state
    assert states(speaker, events)[-1] == worded


@pytest.mark.requirement("S2-102", "S2-103")
def test_the_stream_of_an_agent_that_breaks_ends_and_says_nothing_of_the_secret(speaker: Any) -> None:
    with speaker.stream(tool="boom") as reading:
        events = list(reading)
    assert states(speaker, events)[-1] == "failed"
    assert "execution failed: " in events[-1].data
    assert "secret" not in "".join(reading.lines)
    speaker.wire.healthy()


def test_a_stream_stays_open_while_the_task_waits_for_credentials(speaker: Any) -> None:
    with speaker.stream(tool="sign_in") as reading:
        events = [reading.next(), reading.next(), reading.next()]
        waiting = "input-required" if speaker.version == "0.1" else "auth-required"
        assert states(speaker, events)[-1] == waiting
        assert "https://login.example.com/" in events[-1].data
        assert finals(speaker, events)[-1] is False
        task = speaker.event(events[0])
        # What the caller says is no login. The stream ends with the task.
        speaker.send("here they are", task=speaker.id_of(task))
        speaker.cancel(speaker.id_of(task))
        events += reading
    assert states(speaker, events)[-2:] == [waiting, "canceled"]


def test_a_bare_reply_is_a_stream_of_one_event_without_a_number(speaker: Any) -> None:
    with speaker.stream(tool="reply") as reading:
        (event,) = reading
    assert event.id is None
    assert kind(speaker, event) == ("status" if speaker.version == "0.1" else "message")
    assert '"at once"' in event.data


def test_an_answer_is_streamed_from_the_task_on_to_its_end(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    # A client's ids are UUIDs, as here; those in other tests are easier to read.
    message = {} if speaker.version == "0.1" else {"messageId": str(uuid4())}
    with speaker.stream("Ada", task=task, message=message) as reading:
        events = list(reading)
    assert kind(speaker, events[0]) == first_kind(speaker)
    assert states(speaker, events) == ["working", "completed"]
    assert [event.id for event in events] == ["4", "5", "6", "7"]


def test_a_message_for_a_task_at_work_is_answered_with_the_rest_of_its_stream(speaker: Any) -> None:
    task = speaker.id_of(speaker.begin(tool="until_told"))
    with speaker.stream("enough", task=task) as reading:
        events = list(reading)
    assert kind(speaker, events[0]) == first_kind(speaker)
    assert states(speaker, events)[-1] == "completed"
    assert '"enough"' in events[-2].data


def test_an_error_before_the_first_event_is_an_ordinary_answer(speaker: Any) -> None:
    ended = speaker.id_of(speaker.send("hi"))
    with speaker.stream("more", task=ended) as reading:
        answer = reading.refusal()
    assert answer.code == UNSUPPORTED[speaker.binding]
    assert answer.reason == "UNSUPPORTED_OPERATION"


# -- subscribing -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-27")
def test_subscribing_shows_the_task_as_it_is_and_then_what_follows(speaker: Any) -> None:
    task = speaker.id_of(speaker.begin(tool="until_told"))
    speaker.wire.speaker("1.1-rpc").get(task, currentGeneration=2)
    with speaker.subscribe(task) as reading:
        assert reading.headers["content-type"] == "text/event-stream"
        events = [reading.next()]
        assert (kind(speaker, events[0]), events[0].id) == (first_kind(speaker), "3")
        speaker.send("enough", task=task)
        events += reading
    assert [event.id for event in events] == ["3", "4", "5"]
    assert states(speaker, events) == ["working", "completed"]


def test_a_subscription_stays_open_while_the_task_waits_for_input(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    with speaker.subscribe(task) as reading:
        events = [reading.next()]
        assert states(speaker, events) == ["input-required"]
        speaker.send("Ada", task=task)
        events += reading
    assert states(speaker, events) == ["input-required", "working", "completed"]
    assert [event.id for event in events] == ["3", "4", "5", "6", "7"]
    if not speaker.is_modern:
        said = finals(speaker, events)
        assert said[-1] is True
        assert True not in said[:-1]


@pytest.mark.parametrize("after", [0, 1, 4, 5])
def test_a_stream_is_resumed_after_the_last_event_a_reader_saw_also_when_the_task_has_ended(
    speaker: Any, after: int
) -> None:
    with speaker.stream(tool="count", arguments={"n": 3}) as reading:
        seen = list(reading)
    task = speaker.event(seen[0]).get("task", speaker.event(seen[0]))["id"]
    with speaker.subscribe(task, after=after) as reading:
        assert list(reading) == seen[after:]


def test_a_running_task_is_resumed_without_a_snapshot(speaker: Any) -> None:
    task = speaker.id_of(speaker.begin(tool="until_told"))
    with speaker.subscribe(task, after=1) as reading:
        events = [reading.next(), reading.next()]
        assert [event.id for event in events] == ["2", "3"]
        speaker.send("enough", task=task)
        events += reading
    assert [event.id for event in events] == ["2", "3", "4", "5"]
    assert {kind(speaker, event) for event in events} == {"status", "artifact"}


# An ended task is there, so it is not "not found": the specification has -32004 for what cannot be subscribed to.
@pytest.mark.requirement("S2-14")
@pytest.mark.parametrize("after", [None, 4, 99, 10**20, -1, "x", "4.0"])
def test_nothing_is_left_of_an_ended_task(speaker: Any, after: Any) -> None:
    task = speaker.id_of(speaker.send("hi"))
    with speaker.subscribe(task, after=after) as reading:
        answer = reading.refusal()
    assert (answer.code, answer.reason) == (UNSUPPORTED[speaker.binding], "UNSUPPORTED_OPERATION")


@pytest.mark.parametrize("after", [99, 10**20, -1, "x"])
def test_an_unknown_number_counts_as_none(speaker: Any, after: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    with speaker.subscribe(task, after=after) as reading:
        first = reading.next()
    assert (kind(speaker, first), first.id) == (first_kind(speaker), "3")


@pytest.mark.requirement("S2-14")
@pytest.mark.parametrize("after", [None, 1])
def test_an_unknown_task_cannot_be_subscribed_to(speaker: Any, after: Any) -> None:
    with speaker.subscribe("nobody", after=after) as reading:
        answer = reading.refusal()
    assert (answer.code, answer.reason) == (NOT_FOUND[speaker.binding], "TASK_NOT_FOUND")


def test_all_readers_of_a_task_see_the_same_events(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    with speaker.subscribe(task) as one, speaker.subscribe(task) as other:
        firsts = one.next(), other.next()
        speaker.send("Ada", task=task)
        assert [firsts[0], *one] == [firsts[1], *other]


# -- silence and leaving -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speaker", OVER_HTTP, indirect=True)
def test_a_silent_stream_shows_signs_of_life(speaker: Any) -> None:
    with speaker.stream(tool="slow") as reading:
        for _ in range(3):
            reading.next()
        assert [reading.comment(), reading.comment()] == [": keep-alive", ": keep-alive"]


@pytest.mark.parametrize("speaker", OVER_HTTP, indirect=True)
def test_a_stream_that_an_event_source_can_open_says_when_to_come_back(speaker: Any) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    with speaker.subscribe(task) as reading:
        reading.next()
        hints = [int(line.removeprefix("retry: ")) for line in reading.lines if line.startswith("retry:")]
        is_event_source = reading.response.request.method == "GET"
    assert len(hints) == is_event_source
    assert all(1000 <= hint <= 5000 for hint in hints)


@pytest.mark.requirement("S2-93")
def test_a_reader_who_leaves_ends_nothing(speaker: Any) -> None:
    with speaker.stream(tool="until_told") as reading:
        task = speaker.id_of(speaker.event(reading.next()))
    speaker.send("enough", task=task)
    assert speaker.state(speaker.get(task)) == "completed"


class Watched:
    """An ASGI app that tells when a request for a stream is over."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.over = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)
        if scope["type"] == "http" and scope["path"].endswith((":stream", ":subscribe")):
            self.over.set()


@pytest.mark.requirement("S2-93")
@pytest.mark.parametrize("operation", ["stream", "subscribe"])
def test_nobody_listens_for_a_reader_who_has_left(wire: Any, new_agent: Callable[..., Any], operation: str) -> None:
    # The heartbeat is out of reach: leaving is noticed by itself.
    app = new_agent().app(store="memory:", drain=0, heartbeat=600)
    watched = Watched(app)
    with served(watched) as url:
        speaker = wire.at(url).speaker("1.0-rest")
        task = speaker.id_of(speaker.begin(tool="until_told"))
        reader = speaker.subscribe(task) if operation == "subscribe" else speaker.stream(tool="slow")
        listeners = app._hosted[0].service._bus.listeners  # no public face shows who listens
        with reader as reading:
            reading.next()
            assert len(listeners) == 1
        assert watched.over.wait(5)
        assert listeners == {}
        speaker.send("enough", task=task)
        assert speaker.state(speaker.get(task)) == "completed"


async def test_a_server_that_stops_begins_no_stream_and_says_so(new_agent: Callable[..., Any]) -> None:
    app = new_agent().app(store="memory:", drain=0, heartbeat=600)
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": {"tool": "ask_name"}}]}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test") as client:
        task = (await client.post("/message:send", json={"message": message})).json()["task"]
        await app.drain()
        # Nothing comes after this number, so there is nothing to begin with.
        answer = await client.post(f"/tasks/{task['id']}:subscribe", headers={"Last-Event-ID": "3"})
        await app.stop()
    assert (answer.status_code, answer.json()["error"]["status"]) == (503, "UNAVAILABLE")
