"""Streams: what each version spells in its own way, and what they are on HTTP.

What they carry and when they end is proven for every binding by tests/contract/bindings/test_streams.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from support.polling import until

from dragoman.testing import served

SPEAKERS = ("1.0-rpc", "1.0-rest", "1.0-grpc", "1.1-rpc", "1.1-rest", "0.3-rpc", "0.3-rest", "0.3-grpc", "0.1-rpc")
OVER_HTTP = [name for name in SPEAKERS if "grpc" not in name]
NOT_FOUND = {"rpc": -32001, "rest": 404}


def finals(speaker: Any, events: list[Any]) -> list[bool]:
    """What the status events say in `final`; ProtoJSON leaves false out."""
    carried = [speaker.event(event) for event in events]
    updates = [each.get("statusUpdate", each) for each in carried]
    return [each.get("final", False) for each in updates if "status" in each and each.get("kind") != "task"]


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


def test_the_error_of_a_subscription_in_0_1_is_json(wire: Any) -> None:
    answer = wire.rpc("tasks/resubscribe", {"id": "nobody"}, **{"A2A-Version": "0.1"})
    assert (answer.headers["content-type"], answer.code) == ("application/json", -32001)


# -- where they begin and end ------------------------------------------------------------------------------------------


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
        flags = finals(speaker, list(reading))
    assert flags[-1] is True
    assert True not in flags[:-1]


@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.0-rest", "1.1-rpc", "1.1-rest"], indirect=True)
def test_a_modern_stream_says_final_nowhere(speaker: Any) -> None:
    with speaker.stream(tool="ask_name") as reading:
        assert not any('"final"' in event.data for event in reading)


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
def test_a_reader_who_leaves_is_unsubscribed(wire: Any, new_agent: Callable[..., Any], operation: str) -> None:
    # The heartbeat is out of reach: leaving is noticed by itself.
    app = new_agent().app(store="memory:", drain=0, heartbeat=600)
    watched = Watched(app)
    with served(watched) as url:
        speaker = wire.at(url).speaker("1.0-rest")
        task = speaker.id_of(speaker.begin(tool="until_message"))
        reader = speaker.subscribe(task) if operation == "subscribe" else speaker.stream(tool="slow")
        listeners = app._hosted[0].service._bus.listeners  # no public face shows who listens
        with reader as reading:
            reading.next()
            until(lambda: len(listeners) == 1)
        assert watched.over.wait(5)
        until(lambda: not listeners)
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
