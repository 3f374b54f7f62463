"""JSON-RPC: the envelope of every version."""

from __future__ import annotations

from typing import Any

import pytest

SPEAKERS = ["1.0-rpc"]


# -- the envelope ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S0-1")
@pytest.mark.parametrize("number", ["abc-1", 7, "", 0, -1, 1.5, None, 9007199254740993, "ü\u2028"])
@pytest.mark.parametrize(("method", "member"), [("GetTask", "error"), ("ListTasks", "result"), ("nothing", "error")])
def test_a_response_has_the_request_s_id_and_either_a_result_or_an_error(
    wire: Any, number: Any, method: str, member: str
) -> None:
    for path in ("/", "/a2a"):
        answer = wire.rpc(method, {}, id=number, path=path).json
        assert set(answer) == {"jsonrpc", "id", member}
        assert (answer["jsonrpc"], answer["id"], type(answer["id"])) == ("2.0", number, type(number))


@pytest.mark.requirement("S0-1", "S2-11")
def test_every_event_of_a_stream_is_a_response_with_the_request_s_id(wire: Any) -> None:
    body = {"jsonrpc": "2.0", "id": "abc-1", "method": "message/stream"}
    body["params"] = wire.speaker("0.3-rpc").params("hi")
    with wire.reading("POST", "/", json=body) as reading:
        assert reading.headers["content-type"] == "text/event-stream"
        events = [event.json for event in reading]
    assert len(events) == 4
    assert {tuple(event) for event in events} == {("jsonrpc", "id", "result")}
    assert {event["id"] for event in events} == {"abc-1"}


@pytest.mark.requirement("S2-35")
@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.1-rpc", "0.3-rpc", "0.1-rpc"], indirect=True)
@pytest.mark.parametrize("path", ["/", "/a2a", "/a2a/", "//"])
def test_every_version_is_answered_at_the_root_and_at_a2a(speaker: Any, path: str) -> None:
    answer = speaker.at(path).send("hi")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert speaker.texts(answer) == ["hi"]


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON;charset=utf-8", "application/a2a+json"])
def test_a_request_may_name_its_json_in_several_ways(speaker: Any, content_type: str) -> None:
    _, path, options = speaker.spell("send", speaker.params("hi"), {"Content-Type": content_type})
    answer = speaker.wire.request("POST", path, **options)
    assert answer.headers["content-type"] == "application/json"
    assert speaker.texts(answer) == ["hi"]
