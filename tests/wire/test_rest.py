"""HTTP+JSON: paths, methods, media types, and requests of JSON-RPC at the paths of REST."""

from __future__ import annotations

from typing import Any

import pytest

SPEAKERS = ["1.0-rest"]


# -- media types -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("application/json", "application/json"),
        ("application/json; charset=utf-8", "application/json"),
        ("application/a2a+json", "application/a2a+json"),
        ("application/vnd.other+json", "application/a2a+json"),
    ],
)
def test_json_is_answered_with_json_and_everything_else_with_a2a_json(speaker: Any, asked: str, answered: str) -> None:
    _, path, options = speaker.spell("send", speaker.params("hi"))
    headers = {"Content-Type": asked}
    for body, status in ((options["content"], 200), (b"{}", 400)):
        answer = speaker.wire.request("POST", path, content=body, headers=headers)
        assert (answer.status, answer.headers["content-type"]) == (status, answered)


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/xml", "multipart/form-data", "json"])
@pytest.mark.parametrize("path", ["/message:send", "/message:stream", "/tasks/t:cancel", "/v1/message:send"])
def test_a_body_that_is_not_json_is_refused_with_415(wire: Any, path: str, content_type: str) -> None:
    answer = wire.request("POST", path, content=b"{}", headers={"Content-Type": content_type})
    assert (answer.status, answer.code, answer.reason) == (415, 415, "CONTENT_TYPE_NOT_SUPPORTED")


@pytest.mark.parametrize("body", [b"null", b"{}", b"", b" \n", b" null\n"])
@pytest.mark.parametrize("version", ["1.0-rest", "1.1-rest", "0.3-rest"])
def test_json_that_says_nothing_is_no_body(wire: Any, version: str, body: bytes) -> None:
    speaker = wire.speaker(version)
    root = "/v1/tasks" if version == "0.3-rest" else "/tasks"
    headers = {"Content-Type": "application/json", **({"A2A-Version": "1.1"} if version == "1.1-rest" else {})}
    task = speaker.id_of(speaker.begin(tool="slow"))
    with wire.reading("POST", f"{root}/{task}:subscribe", content=body, headers=headers) as reading:
        assert reading.next().json["task"]["id"] == task
    answer = wire.request("POST", f"{root}/{task}:cancel", content=body, headers=headers)
    assert speaker.state(answer) == "canceled"


@pytest.mark.parametrize("body", [b"[]", b"0", b"false", b'""', b"nul"])
def test_other_json_is_still_no_body(wire: Any, body: bytes) -> None:
    answer = wire.request("POST", "/tasks/t:cancel", content=body, headers={"Content-Type": "application/json"})
    assert answer.status == 400


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "*/*", ""])
@pytest.mark.parametrize("path", ["/tasks/{}:cancel", "/v1/tasks/{}:cancel"])
def test_an_empty_post_may_have_any_content_type(wire: Any, path: str, content_type: str) -> None:
    task = wire.speaker("1.0-rest").begin(tool="slow")
    answer = wire.request("POST", path.format(task["id"]), content=b"", headers={"Content-Type": content_type})
    assert wire.speaker("1.0-rest").state(answer) == "canceled"


def test_an_empty_post_in_chunks_may_have_any_content_type(wire: Any) -> None:
    task = wire.speaker("1.0-rest").begin(tool="slow")
    headers = {"Content-Type": "text/plain"}
    answer = wire.request("POST", f"/tasks/{task['id']}:cancel", content=iter([b""]), headers=headers)
    assert wire.speaker("1.0-rest").state(answer) == "canceled"
    answer = wire.request("POST", f"/tasks/{task['id']}:cancel", content=iter([b"", b"{}"]), headers=headers)
    assert answer.status == 415


# -- JSON-RPC at the paths of REST -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/message:send", "/message:send", "/v1/message:stream"])
@pytest.mark.parametrize("version", ["0.3-rpc", "1.0-rpc"])
def test_a_json_rpc_message_at_a_path_of_rest_is_answered_as_json_rpc(wire: Any, path: str, version: str) -> None:
    speaker = wire.speaker(version)
    send = {"0.3-rpc": "message/send", "1.0-rpc": "SendMessage"}[version]
    answer = wire.rpc(send, speaker.params("hi"), id="r1", path=path)
    assert (answer.json["jsonrpc"], answer.json["id"]) == ("2.0", "r1")
    assert speaker.texts(answer) == ["hi"]
    refused = wire.rpc(send, {"message": {}}, id="r2", path=path)
    assert (refused.status, refused.json["id"], refused.code) == (200, "r2", -32602)
    assert refused.headers["content-type"] == "application/json"


def test_an_envelope_of_json_rpc_is_refused_where_a_path_says_more(wire: Any) -> None:
    params = wire.speaker("1.0-rpc").params("hi")
    for path, method in (
        ("/acme/message:send", "SendMessage"),  # the path names a tenant
        ("/tasks/nope:cancel", "SendMessage"),
        ("/tasks/nope:subscribe", "SendMessage"),
        ("/message:send", "CancelTask"),
        ("/v1/message:send", "tasks/get"),
    ):
        answer = wire.rpc(method, params, path=path)
        assert answer.status in (400, 404), path
        assert "jsonrpc" not in answer.json


def test_a_json_rpc_stream_at_a_path_of_rest_is_one_of_json_rpc(wire: Any) -> None:
    params = wire.speaker("0.3-rpc").params("hi")
    body = {"jsonrpc": "2.0", "id": 7, "method": "message/stream", "params": params}
    with wire.reading("POST", "/v1/message:stream", json=body) as reading:
        assert {event.json["id"] for event in reading} == {7}


def test_a_message_of_rest_that_mentions_json_rpc_stays_one_of_rest(wire: Any, speaker: Any) -> None:
    text = '{"jsonrpc":"2.0","method":"x"}'
    assert speaker.texts(speaker.send(text)) == [text]
    assert wire.rest("POST", "/message:send", {"jsonrpc": "2.0"}).status == 400


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["", "/v1"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_task_is_subscribed_to_with_get_and_with_post(speaker: Any, method: str, root: str) -> None:
    task = speaker.id_of(speaker.send(tool="ask_name"))
    with speaker.wire.reading(method, f"{root}/tasks/{task}:subscribe") as reading:
        assert reading.next().json["task"]["id"] == task


@pytest.mark.parametrize("path", ["/tasks/{}", "/tasks/{}/", "/tasks/{}?historyLength=0", "/tasks/{}?history_length=0"])
def test_parameters_of_a_path_and_of_a_query(speaker: Any, path: str) -> None:
    task = speaker.id_of(speaker.send("hi"))
    answer = speaker.wire.rest("GET", path.format(task))
    assert (answer.json["id"], "history" in answer.json) == (task, "?" not in path)


def test_the_verb_of_a_path_may_be_encoded(wire: Any, speaker: Any) -> None:
    answer = wire.rest("POST", "/message%3Asend", speaker.params("hi"))
    assert speaker.texts(answer) == ["hi"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/message:send", "POST"),
        ("PUT", "/message:stream", "POST"),
        ("POST", "/tasks", "GET"),
        ("DELETE", "/tasks/t", "GET"),
        ("GET", "/tasks/t:cancel", "POST"),
        ("PUT", "/tasks/t:subscribe", "POST, GET"),
        ("PUT", "/tasks/t/pushNotificationConfigs", "POST, GET"),
        ("POST", "/tasks/t/pushNotificationConfigs/p", "GET, DELETE"),
        ("POST", "/extendedAgentCard", "GET"),
        ("POST", "/acme/extendedAgentCard", "GET"),
        ("GET", "/v1/message:send", "POST"),
        ("DELETE", "/v1/tasks/t", "GET"),
        ("POST", "/v1/card", "GET"),
        ("GET", "/acme/message:send", "POST"),
    ],
)
def test_the_refusal_of_a_wrong_method_names_the_right_ones(wire: Any, method: str, path: str, allow: str) -> None:
    answer = wire.request(method, path)
    assert (answer.status, answer.headers["allow"], answer.code) == (405, allow, 405)


@pytest.mark.requirement("S2-47")
@pytest.mark.parametrize(
    "path",
    [
        "/unknown",
        "/tasks/t/unknown",
        "/tasks/t/pushNotificationConfigs/p/more",
        "/a2a/tasks",
        "/v1",
        "/v1/tasks",
        "/v1/extendedAgentCard",
        "/card",
        "/acme/unknown",
        "/message:sent",
        "/a/b/message:send",
        "/api/message:send",
        "/agents/nobody",
        "/agents/nobody/message:send",
    ],
)
def test_anything_else_is_not_found(wire: Any, path: str) -> None:
    for method in ("GET", "POST"):
        answer = wire.request(method, path)
        assert answer.status == 404
        assert answer.headers["content-type"] in ("application/json", "application/a2a+json")
