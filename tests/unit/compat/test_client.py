"""The four functions, against a server that writes everything down."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dragoman.compat import client, sync_client
from dragoman.compat.client import cancel_task, discover, get_task, send_task

CARD: dict[str, Any] = {"name": "elixir-mcp-agent", "skills": [{"id": "add_numbers"}]}
TASK: dict[str, Any] = {
    "id": "1709395200000",
    "status": {"state": "completed", "timestamp": "2026-03-02T10:00:00.000Z"},
    "artifacts": [{"name": "add_numbers-result", "parts": [{"type": "text", "text": "17"}]}],
}


def answering(request: Any, result: Any = TASK) -> Any:
    return {"jsonrpc": "2.0", "id": request.json["id"], "result": result}


OPERATIONS = {
    "send": lambda base, **opts: send_task(base, "hi", **opts),
    "get": lambda base, **opts: get_task(base, "t", **opts),
    "cancel": lambda base, **opts: cancel_task(base, "t", **opts),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


# -- discover ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-2", "S1-5", "S1-9")
async def test_discovery_gets_the_card_as_a_map(stub: Any) -> None:
    server = await stub(lambda _: CARD)
    assert await discover(server.url) == ("ok", CARD)
    assert server.paths == ["GET /.well-known/agent.json"]


@pytest.mark.requirement("S1-7")
async def test_discovery_sends_no_cookie_even_when_it_is_given_one(stub: Any) -> None:
    server = await stub(lambda _: CARD)
    await discover(server.url)
    await discover(server.url, cookie="secret")
    assert len(server.seen) == 2
    for request in server.seen:
        assert "cookie" not in request.headers
        assert "secret" not in str(request)


@pytest.mark.requirement("S1-10")
async def test_discovery_of_an_unreachable_server_is_an_error_pair(refusing: str) -> None:
    outcome, reason = await discover(refusing)
    assert outcome == "error"
    assert "nobody answers" in reason


@pytest.mark.requirement("S1-10")
async def test_discovery_of_a_missing_card_is_an_error_pair(stub: Any) -> None:
    server = await stub(lambda _: (b"", 404))
    assert await discover(server.url) == ("error", "HTTP 404 Not Found")


@pytest.mark.requirement("S1-10")
@pytest.mark.parametrize(
    "body",
    [b"<html>hello</html>", b'{"name": "half', b"", b"[]", b"null", b'"\xff"', b"[" * 100_000],
    ids=["html", "cut", "nothing", "list", "null", "not utf-8", "too deep"],
)
async def test_discovery_of_a_body_that_is_no_json_object_is_an_error_pair(stub: Any, body: bytes) -> None:
    server = await stub(lambda _: body)
    assert await discover(server.url) == ("error", "the agent card is not a JSON object")


@pytest.mark.requirement("S1-10")
async def test_a_redirect_is_not_followed(stub: Any) -> None:
    other = await stub(lambda _: CARD)
    server = await stub(lambda _: (b"", 302, {"Location": f"{other.url}/.well-known/agent.json"}))
    assert await discover(server.url) == ("error", "HTTP 302 Found")
    assert other.seen == []


# -- send ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-2", "S1-12", "S1-13", "S1-15", "S1-22")
async def test_a_text_alone_is_one_part_of_a_users_message(stub: Any) -> None:
    server = await stub(answering)
    await send_task(server.url, "Hello!", cookie="k")
    sent = server.seen[0].json
    assert isinstance(sent.pop("id"), str)
    assert sent == {
        "jsonrpc": "2.0",
        "method": "tasks/send",
        "params": {"message": {"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}},
    }


@pytest.mark.requirement("S1-14")
async def test_a_tool_and_its_arguments_are_a_second_part(stub: Any) -> None:
    server = await stub(answering)
    await send_task(server.url, "Add", cookie="k", tool="add_numbers", arguments={"a": 5, "b": 12})
    assert server.seen[0].json["params"]["message"]["parts"] == [
        {"type": "text", "text": "Add"},
        {"type": "data", "data": {"tool": "add_numbers", "arguments": {"a": 5, "b": 12}}},
    ]


@pytest.mark.requirement("S1-16")
async def test_a_tool_without_arguments_has_none(stub: Any) -> None:
    server = await stub(answering)
    await send_task(server.url, "Time?", cookie="k", tool="current_time")
    data = server.seen[0].json["params"]["message"]["parts"][1]
    assert data == {"type": "data", "data": {"tool": "current_time", "arguments": {}}}


@pytest.mark.requirement("S1-15", "S1-16")
async def test_arguments_without_a_tool_are_not_sent(stub: Any) -> None:
    server = await stub(answering)
    await send_task(server.url, "Hello!", cookie="k", arguments={"a": 5})
    assert server.seen[0].json["params"]["message"]["parts"] == [{"type": "text", "text": "Hello!"}]


async def test_an_argument_without_a_json_form_is_a_mistake_of_the_program(stub: Any) -> None:
    server = await stub(answering)
    with pytest.raises(TypeError):
        await send_task(server.url, "Add", cookie="k", tool="add_numbers", arguments={"a": object()})
    assert server.seen == []


async def test_half_a_character_is_an_error_pair_and_not_sent(stub: Any) -> None:
    server = await stub(answering)
    assert (await send_task(server.url, "\ud800", cookie="k"))[0] == "error"
    assert server.seen == []


# -- get and cancel ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-2", "S1-19", "S1-23")
@pytest.mark.parametrize("state", ["completed", "working", "failed", "canceled"])
async def test_a_task_is_asked_for_by_its_id(stub: Any, state: str) -> None:
    task = {**TASK, "status": {"state": state}}
    server = await stub(lambda request: answering(request, task))
    assert await get_task(server.url, "1709395200000", cookie="k") == ("ok", task)
    sent = server.seen[0].json
    assert (sent["jsonrpc"], sent["method"], sent["params"]) == ("2.0", "tasks/get", {"id": "1709395200000"})


@pytest.mark.requirement("S1-2", "S1-21", "S1-23")
async def test_a_task_is_canceled_by_its_id(stub: Any) -> None:
    server = await stub(lambda request: answering(request, {**TASK, "status": {"state": "canceled"}}))
    outcome, task = await cancel_task(server.url, "1709395200000", cookie="k")
    assert (outcome, task["status"]["state"]) == ("ok", "canceled")
    sent = server.seen[0].json
    assert (sent["jsonrpc"], sent["method"], sent["params"]) == ("2.0", "tasks/cancel", {"id": "1709395200000"})


# -- all three -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-4", "S1-8")
@every_operation
@pytest.mark.parametrize("ending", ["", "/", "/agents/calc", "/agents/calc//"])
async def test_every_operation_posts_to_a2a_with_the_cookie(stub: Any, operation: Any, ending: str) -> None:
    server = await stub(answering)
    await operation(server.url + ending, cookie="SFMyNTY.g3QAAAAB+/=_-")
    assert server.paths == [f"POST {ending.rstrip('/')}/a2a"]
    headers = server.seen[0].headers
    assert headers["cookie"] == "user=SFMyNTY.g3QAAAAB+/=_-"
    assert headers["content-type"] == "application/json"


@pytest.mark.requirement("S1-6")
@every_operation
@pytest.mark.parametrize("opts", [{}, {"cookie": None}, {"cookie": ""}])
async def test_without_a_cookie_nothing_is_sent(stub: Any, operation: Any, opts: dict[str, Any]) -> None:
    server = await stub(answering)
    outcome, reason = await operation(server.url, **opts)
    assert outcome == "error"
    assert "cookie" in reason
    assert server.seen == []


@every_operation
@pytest.mark.parametrize("cookie", ["a; admin=1", "a\r\nX-Admin: 1", "k\u00e4se", "a\x00"])
async def test_what_cannot_be_a_cookies_value_is_not_sent(stub: Any, operation: Any, cookie: str) -> None:
    server = await stub(answering)
    outcome, reason = await operation(server.url, cookie=cookie)
    assert outcome == "error"
    assert cookie not in reason
    assert server.seen == []


@pytest.mark.requirement("S1-22")
async def test_every_request_has_an_id_of_its_own(stub: Any) -> None:
    server = await stub(answering)
    for operation in OPERATIONS.values():
        await operation(server.url, cookie="k")
        await operation(server.url, cookie="k")
    ids = [request.json["id"] for request in server.seen]
    assert len(set(ids)) == len(ids) == 6
    assert all(isinstance(one, str) and one for one in ids)


@pytest.mark.requirement("S1-17", "S1-24")
@every_operation
async def test_a_result_is_unwrapped_to_the_task(stub: Any, operation: Any) -> None:
    server = await stub(answering)
    assert await operation(server.url, cookie="k") == ("ok", TASK)


@pytest.mark.requirement("S1-24")
async def test_a_result_beside_an_empty_error_is_the_task(stub: Any) -> None:
    server = await stub(lambda _: {"result": TASK, "error": None})
    assert await get_task(server.url, "t", cookie="k") == ("ok", TASK)


@pytest.mark.requirement("S1-17", "S1-25")
@every_operation
@pytest.mark.parametrize("status", [200, 401, 500])
async def test_an_error_is_given_as_the_agent_sent_it(stub: Any, operation: Any, status: int) -> None:
    error = {"code": -32001, "message": "Task not found", "data": [1]}
    server = await stub(lambda _: ({"jsonrpc": "2.0", "id": None, "error": error}, status))
    assert await operation(server.url, cookie="k") == ("error", error)


@pytest.mark.requirement("S1-17")
@every_operation
async def test_an_http_error_is_reported_with_its_status_and_text(stub: Any, operation: Any) -> None:
    server = await stub(lambda _: (b"out of\n  order", 500))
    assert await operation(server.url, cookie="k") == ("error", "HTTP 500 — out of order")


@pytest.mark.requirement("S1-17")
@pytest.mark.parametrize("body", [b"<html>", b"", [], {}, {"result": None}, {"result": "x"}, {"error": "x"}])
async def test_an_answer_that_is_neither_task_nor_error_is_an_error_pair(stub: Any, body: Any) -> None:
    server = await stub(lambda _: body)
    reason = "the answer is neither a task nor an error of JSON-RPC"
    assert await get_task(server.url, "t", cookie="k") == ("error", reason)


@pytest.mark.requirement("S1-17")
@every_operation
async def test_an_operation_on_an_unreachable_server_is_an_error_pair(refusing: str, operation: Any) -> None:
    outcome, reason = await operation(refusing, cookie="secret")
    assert outcome == "error"
    assert "nobody answers" in reason
    assert "secret" not in reason


@every_operation
@pytest.mark.parametrize(
    "base", ["", "localhost", "ftp://localhost", "http://", "http://[::1", "http://localhost:x", "http://h/?a=b", "/a"]
)
async def test_an_invalid_base_url_is_an_error_pair(operation: Any, base: str) -> None:
    for outcome, reason in [await operation(base, cookie="k"), await discover(base)]:
        assert outcome == "error"
        assert "is not a base URL" in reason


class Silent:
    """A server that reads and says nothing."""

    def __init__(self) -> None:
        self.asked, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        with suppress(ConnectionError):
            await reader.read()
        self.left.set()
        writer.close()


@asynccontextmanager
async def speaking(speak: Any) -> AsyncIterator[str]:
    """The address of a server that is no more than this function."""
    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_server_that_keeps_silent_is_left_after_the_time_limit() -> None:
    silent = Silent()
    async with speaking(silent) as url:
        outcome, reason = await send_task(url, "hi", cookie="k", timeout=0.05)
        await silent.left.wait()
    assert (outcome, reason) == ("error", f"{url}/a2a did not answer within 0.05 s")


async def test_a_call_that_is_given_up_leaves_the_server() -> None:
    silent = Silent()
    async with speaking(silent) as url:
        calling = asyncio.create_task(send_task(url, "hi", cookie="k", timeout=None))
        await silent.asked.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await silent.left.wait()


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (b"220 smtp.example.com ready\r\n", "does not answer in HTTP"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"result": {', "broke"),
    ],
)
async def test_a_response_that_is_no_http_or_breaks_off_is_an_error_pair(response: bytes, text: str) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        writer.close()

    async with speaking(respond) as url:
        outcome, reason = await get_task(url, "t", cookie="k")
    assert outcome == "error"
    assert text in reason


# -- nothing is remembered -----------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-1")
async def test_calls_to_two_agents_at_once_do_not_mix(stub: Any) -> None:
    # Neither agent answers before both have been asked.
    both = asyncio.Barrier(2)

    def named(name: str) -> Any:
        async def answer(request: Any) -> Any:
            await both.wait()
            return answering(request, {"id": name, "asked": request.json["params"]})

        return answer

    one, two = await stub(named("one")), await stub(named("two"))
    got = await asyncio.gather(get_task(one.url, "a", cookie="1"), get_task(two.url, "b", cookie="2"))
    assert got == [("ok", {"id": "one", "asked": {"id": "a"}}), ("ok", {"id": "two", "asked": {"id": "b"}})]
    assert [server.seen[0].headers["cookie"] for server in (one, two)] == ["user=1", "user=2"]


@pytest.mark.requirement("S1-1")
async def test_nothing_is_left_of_a_call_for_the_next(stub: Any) -> None:
    before = dict(vars(client))

    def answer(request: Any) -> Any:
        return (answering(request), 200, {"Set-Cookie": "user=other"})

    server = await stub(answer)
    await get_task(server.url, "t", cookie="k")
    await get_task(server.url, "t", cookie="k")
    assert [request.headers["cookie"] for request in server.seen] == ["user=k", "user=k"]
    assert server.seen[0].peer != server.seen[1].peer, "each call opens a connection of its own"
    assert dict(vars(client)) == before


# -- https -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-2", "S1-3", "S1-4", "S1-5")
async def test_the_whole_sequence_over_a_self_signed_certificate(stub: Any, certificate: Path) -> None:
    states = {"tasks/send": "completed", "tasks/get": "completed", "tasks/cancel": "canceled"}

    def answer(request: Any) -> Any:
        if request.method == "GET":
            return {"name": "elixir-mcp-agent", "skills": []}
        return {"result": {"id": "7", "status": {"state": states[request.json["method"]]}}}

    server = await stub(answer, certificate)
    assert server.url.startswith("https://")
    assert (await discover(server.url))[0] == "ok"
    assert await send_task(server.url, "hi", cookie="k") == ("ok", {"id": "7", "status": {"state": "completed"}})
    assert await get_task(server.url, "7", cookie="k") == ("ok", {"id": "7", "status": {"state": "completed"}})
    assert await cancel_task(server.url, "7", cookie="k") == ("ok", {"id": "7", "status": {"state": "canceled"}})
    assert server.paths == ["GET /.well-known/agent.json", *["POST /a2a"] * 3]


@pytest.mark.requirement("S1-3")
async def test_with_verify_a_self_signed_certificate_is_refused_before_anything_is_sent(
    stub: Any, certificate: Path
) -> None:
    server = await stub(lambda _: {}, certificate)
    for outcome, reason in [
        await discover(server.url, verify=True),
        await send_task(server.url, "hi", cookie="k", verify=True),
        await get_task(server.url, "t", cookie="k", verify=True),
        await cancel_task(server.url, "t", cookie="k", verify=True),
    ]:
        assert outcome == "error"
        assert "certificate" in reason
        assert "not trusted" in reason
    assert server.seen == []


# -- without an event loop ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-2", "S1-9", "S1-12", "S1-19", "S1-21")
async def test_the_four_functions_work_without_await_also_beside_a_running_loop(stub: Any) -> None:
    card = {"name": "elixir-mcp-agent"}
    server = await stub(lambda seen: card if seen.method == "GET" else answering(seen))

    def script() -> list[Any]:
        return [
            sync_client.discover(server.url),
            sync_client.send_task(server.url, "Hello!", cookie="k"),
            sync_client.get_task(server.url, "t", cookie="k"),
            sync_client.cancel_task(server.url, "t", cookie="k", timeout=5),
            sync_client.get_task(server.url, "t"),
        ]

    found = await asyncio.to_thread(script)
    assert found[:4] == [("ok", card), ("ok", TASK), ("ok", TASK), ("ok", TASK)]
    assert found[4][0] == "error"
    methods = [seen.json["method"] for seen in server.seen if seen.method == "POST"]
    assert methods == ["tasks/send", "tasks/get", "tasks/cancel"]
    assert str(inspect.signature(sync_client.send_task)) == str(inspect.signature(send_task))
