"""Which interface of a card is used, and when another one is tried."""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import Any

import pytest
from support.stub_server import After, AgentStub, Close, Stub, card, html, reply, result, stream, task

from dragoman import Client
from dragoman.client.connect import SHARED_CARDS
from dragoman.client.interface import interfaces_of
from dragoman.dialects.cards.card import read_card
from dragoman.errors import (
    BadCard,
    BadResponse,
    CannotConnect,
    ConfigError,
    DragomanError,
    InvalidParams,
    MethodNotFound,
    TaskNotFound,
)

DEAD = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    # A port is given again, sooner or later, and its card may be that of an earlier test.
    SHARED_CARDS.clear()


def rpc_error(code: int, status: int = 200) -> bytes:
    return reply({"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": "no"}}, status)


def works(got: Any) -> bytes:
    return stream(got, {"task": task()}) if "tream" in got.path + str(got.body) else result(got, task())


def chosen(given: Any, **options: Any) -> list[str]:
    return [repr(each) for each in interfaces_of(read_card(given), **options)]


# -- the choice ------------------------------------------------------------------------------------------------------


def test_the_order_of_the_card_is_kept() -> None:
    both = card(("http://b", "rest"), ("http://a", "jsonrpc"))
    assert chosen(both) == ["HTTP+JSON 1.0 at http://b", "JSONRPC 1.0 at http://a"]
    assert chosen(both, transport="jsonrpc") == ["JSONRPC 1.0 at http://a"]
    assert chosen(both, transport="rest") == ["HTTP+JSON 1.0 at http://b"]


def test_what_is_not_spoken_here_is_passed_over() -> None:
    mixed = card(("http://x", "https://example.org/soap"), ("http://a", "jsonrpc"))
    assert chosen(mixed) == ["JSONRPC 1.0 at http://a"]
    with pytest.raises(BadCard, match=r"speaks only https://example.org/soap, and that is not spoken here"):
        chosen(card(("http://x", "https://example.org/soap")))
    with pytest.raises(ConfigError, match=r"offers no HTTP\+JSON: leave transport out"):
        chosen(mixed, transport="rest")


def test_a_version_narrows_the_choice_and_may_be_one_the_card_does_not_name() -> None:
    versions = card(("http://a", "jsonrpc"), ("http://b", "jsonrpc"))
    versions["supportedInterfaces"][1]["protocolVersion"] = "0.3"
    assert chosen(versions, protocol="0.3") == ["JSONRPC 0.3 at http://b"]
    assert chosen(versions, protocol="1.0") == ["JSONRPC 1.0 at http://a"]
    assert chosen(versions, protocol="1.1") == ["JSONRPC 1.1 at http://a", "JSONRPC 1.1 at http://b"]
    with pytest.raises(ConfigError, match=r"0\.1 has no such transport"):
        chosen(card(("http://a", "rest")), protocol="0.1")


@pytest.mark.parametrize(
    ("written", "spoken"),
    [("1.0", "1.0"), ("1.0.3", "1.0"), ("v1.0", "1.0"), ("1", "1.0"), ("1.7", "1.1"), ("0.3.0", "0.3"), ("2.0", "1.0")],
)
def test_a_version_is_read_in_any_spelling(written: str, spoken: str) -> None:
    assert chosen(card(("http://a", "jsonrpc"), version=written))[0] == f"JSONRPC {spoken} at http://a"


def test_a_card_that_does_not_tell_0_1_from_0_2_is_tried_as_both() -> None:
    old = {"name": "n", "version": "1", "url": "http://a", "authentication": {"schemes": []}}
    assert len(chosen(old)) == 2


def test_langgraph_api_which_takes_files_of_0_3_alone_is_called_in_0_3() -> None:
    given = card(("http://a", "jsonrpc"))
    given["capabilities"]["extensions"] = [{"uri": "https://langchain.com/a2a/extensions/history-scope/v1"}]
    assert chosen(given) == ["JSONRPC 0.3 at http://a", "JSONRPC 1.0 at http://a"]
    assert chosen(given, protocol="1.0") == ["JSONRPC 1.0 at http://a"]


@pytest.mark.parametrize(
    ("address", "source", "url"),
    [
        ("agent.example.com:50051", "http://agent.example.com", "grpc://agent.example.com:50051"),
        ("agent.example.com:50051", "https://agent.example.com", "grpcs://agent.example.com:50051"),
        ("agent.example.com:443", "http://agent.example.com", "grpcs://agent.example.com:443"),
        ("http://agent.example.com:50051", "https://agent.example.com", "grpc://agent.example.com:50051"),
        ("https://agent.example.com", "http://agent.example.com", "grpcs://agent.example.com:443"),
        ("grpcs://agent.example.com:50051/", None, "grpcs://agent.example.com:50051"),
        ("grpc://[::1]:50051", None, "grpc://[::1]:50051"),
        ("dns:agent.example.com:50051", None, "grpc://agent.example.com:50051"),
        ("dns:///agent.example.com:50051", None, "grpc://agent.example.com:50051"),
        ("[::1]:50051", None, "grpc://[::1]:50051"),
    ],
)
def test_the_address_of_grpc_is_read_in_every_form_that_cards_have(address: str, source: str | None, url: str) -> None:
    assert chosen(card((address, "GRPC")), source=source) == [f"GRPC 1.0 at {url}"]


def test_grpc_is_chosen_by_its_place_on_the_card_like_the_others() -> None:
    both = card(("https://a", "jsonrpc"), ("a:50051", "GRPC"), ("no address", "GRPC"))
    assert chosen(both) == ["JSONRPC 1.0 at https://a", "GRPC 1.0 at grpcs://a:50051"]
    assert chosen(both, transport="grpc", protocol="0.3") == ["GRPC 0.3 at grpcs://a:50051"]
    with pytest.raises(ConfigError, match=r"0\.1 has no such transport"):
        chosen(both, transport="grpc", protocol="0.1")


def test_without_grpcio_the_other_interfaces_are_used_and_the_error_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    both = card(("a:50051", "GRPC"), ("http://a", "jsonrpc"))
    assert chosen(both) == ["JSONRPC 1.0 at http://a"]
    install = r"pip install .*\[grpc\]"
    with pytest.raises(ConfigError, match=f"speaks only gRPC, which needs the extra `grpc`: .*{install}"):
        chosen(card(("a:50051", "GRPC")))
    for target, options in (("http://127.0.0.1:1", {"transport": "grpc"}), ("grpc://127.0.0.1:1", {})):
        with pytest.raises(ConfigError, match=install):
            Client(target, **options)


@pytest.mark.parametrize("options", [{"protocol": "0.9"}, {"transport": "soap"}])
def test_what_cannot_be_asked_for_is_refused_at_once(options: Any) -> None:
    with pytest.raises(ConfigError):
        Client("http://127.0.0.1:1", **options)


async def test_grpc_that_cannot_do_what_the_caller_wants_gives_way_too() -> None:
    own = ssl.create_default_context()
    async with Stub(works) as stub:
        async with Client(card(("127.0.0.1:443", "GRPC"), (stub.url, "jsonrpc")), verify=own) as client:
            await client.send("hello")
            assert client.transport == "jsonrpc"
        async with Client(
            card(("127.0.0.1:443", "GRPC"), (stub.url, "jsonrpc")), verify=own, transport="grpc"
        ) as client:
            with pytest.raises(ConfigError, match=r"an ssl\.SSLContext cannot be used over gRPC"):
                await client.send("hello")


async def test_grpc_that_does_not_answer_gives_way_to_the_next_interface() -> None:
    async with Stub(works) as stub, Client(card(("127.0.0.1:1", "GRPC"), (stub.url, "jsonrpc"))) as client:
        await client.send("hello")
        assert client.transport == "jsonrpc"
    with pytest.raises(CannotConnect, match=r"nobody answers at grpc://127\.0\.0\.1:1"):
        async with Client(card(("127.0.0.1:1", "GRPC")), auth="secret") as client:
            await client.send("hello")


# -- the next one ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["send", "stream", "get_task"])
@pytest.mark.parametrize(
    "first",
    [
        None,
        html(404),
        html(405),
        reply({"detail": "Not Found"}, 404),
        reply({"error": "not found: /", "hint": "look elsewhere"}, 404),
        rpc_error(-32601),
        rpc_error(-32009),
        rpc_error(-32601, 404),
    ],
)
async def test_the_next_interface_is_tried_where_the_first_cannot_have_been_it(first: bytes | None, how: str) -> None:
    async with Stub(lambda _: first) as nothing, Stub(works) as stub:
        given = card((DEAD if first is None else nothing.url, "jsonrpc"), (stub.url, "rest"))
        async with asyncio.timeout(10), Client(given) as client:
            for _ in range(2):
                if how == "stream":
                    assert [event.kind async for event in client.stream("hello")] == ["task"]
                elif how == "send":
                    assert (await client.send("hello")).id == "t1"
                else:
                    assert (await client.get_task("t1")).id == "t1"
        # What has answered once is not left again, and what has not is not asked again.
        assert len(nothing.got) <= 1
        assert len(stub.got) == 2


async def test_when_no_interface_works_the_first_error_is_raised() -> None:
    async with Stub(lambda _: html(404)) as stub:
        async with Client(card((DEAD, "jsonrpc"), (stub.url, "rest")), retries=0) as client:
            with pytest.raises(CannotConnect, match="nobody answers"):
                await client.send("hello")
        async with Client(card((stub.url, "jsonrpc"), (DEAD, "rest")), retries=0) as client:
            with pytest.raises(BadResponse, match="there is no A2A at"):
                await client.send("hello")


async def test_an_interface_that_has_answered_once_is_not_left() -> None:
    answers = [works, lambda _: html(404), lambda _: rpc_error(-32601), lambda _: Close]
    async with Stub(lambda got: answers.pop(0)(got)) as stub, Stub(works) as other:
        async with Client(card((stub.url + "/", "jsonrpc"), (other.url, "rest")), retries=0) as client:
            assert (await client.send("hello")).id == "t1"
            for kind in (BadResponse, MethodNotFound, CannotConnect):
                with pytest.raises(kind):
                    await client.send("hello")
        assert other.got == []


@pytest.mark.parametrize(
    "error", [rpc_error(-32602), rpc_error(-32001), rpc_error(-32603), rpc_error(-32004), reply({"a": 1}, 400)]
)
async def test_an_agent_that_says_no_has_answered(error: bytes) -> None:
    async with Stub(lambda _: error) as stub, Stub(works) as other:
        async with Client(card((stub.url + "/", "jsonrpc"), (other.url, "rest"))) as client:
            for _ in range(2):
                with pytest.raises(DragomanError):  # which one is not the question here
                    await client.send("hello")
        # What is not supported was asked for as a stream, too.
        assert (len(stub.got), other.got) == (3 if b"-32004" in error else 2, [])


@pytest.mark.parametrize("how", ["send", "stream"])
@pytest.mark.parametrize(
    "answer",
    [Close, After(b"HTTP/1.1 200", Close), html(200), html(500), html(503), html(504), reply(b"{"), reply({}, 500)],
)
async def test_a_message_that_may_have_been_read_is_sent_to_no_other_interface(answer: Any, how: str) -> None:
    async with Stub(lambda _: answer) as stub, Stub(works) as other:
        async with (
            asyncio.timeout(20),
            Client(card((stub.url + "/", "jsonrpc"), (other.url, "rest")), retries=1) as client,
        ):
            with pytest.raises(DragomanError):  # which one is not the question here
                if how == "send":
                    await client.send("hello")
                else:
                    _ = [event async for event in client.stream("hello")]
        assert stub.got
        assert other.got == []


async def test_a_message_that_may_have_been_read_stays_where_it_was_also_when_nobody_is_there_any_more() -> None:
    async with Stub(works) as other:
        stub = Stub(lambda _: Close)
        await stub.__aenter__()

        async def end(request: Any, call_next: Any) -> Any:
            try:
                return await call_next(request)
            finally:
                if stub.got and stub.port:
                    stub.port = 0
                    await stub.__aexit__()

        given = card((stub.url + "/", "jsonrpc"), (other.url, "rest"))
        async with asyncio.timeout(20), Client(given, retries=2, interceptors=[end]) as client:
            with pytest.raises(CannotConnect):
                await client.send("hello")
        assert len(stub.got) == 1
        assert other.got == []


async def test_a_question_may_be_asked_elsewhere_after_an_answer_that_is_none() -> None:
    async with (
        Stub(lambda _: html(200)) as stub,
        Stub(works) as other,
        Client(card((stub.url + "/", "jsonrpc"), (other.url, "rest"))) as client,
    ):
        assert (await client.get_task("t1")).id == "t1"


async def test_an_operation_that_no_version_of_the_card_has_is_an_error() -> None:
    async with Stub(works) as stub, Client(card((stub.url + "/", "jsonrpc"), version="0.3")) as client:
        with pytest.raises(MethodNotFound, match=r"A2A 0\.3 has no"):
            _ = [each async for each in client.list_tasks()]
        assert stub.got == []


# -- tenants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
async def test_the_tenant_of_an_interface_goes_with_every_request(transport: str) -> None:
    def answer(got: Any) -> bytes:
        wrapped = {"task": task()} if b"messageId" in got.body else task()
        return reply(wrapped if transport == "rest" else {"jsonrpc": "2.0", "id": "1", "result": wrapped})

    async with Stub(answer) as stub:
        given = card((stub.url + "/", transport))
        given["supportedInterfaces"][0]["tenant"] = "a/b c"
        async with Client(given) as client:
            await client.send("hello")
            await client.get_task("t1")
        sent, asked = stub.got
    if transport == "rest":
        assert (sent.path, asked.path) == ("/a%2Fb%20c/message:send", "/a%2Fb%20c/tasks/t1")
    else:
        assert sent.json["params"]["tenant"] == asked.json["params"]["tenant"] == "a/b c"


# -- what only a transport knows -------------------------------------------------------------------------------------


async def test_ids_go_into_a_path_in_one_piece() -> None:
    async with Stub(lambda _: reply(task())) as stub, Client(card((stub.url, "rest"))) as client:
        for name in ("a/b", "a b", "../x", "a?b#c", "ä", "%41"):
            await client.get_task(name)
        assert stub.paths() == [
            "/tasks/a%2Fb",
            "/tasks/a%20b",
            "/tasks/..%2Fx",
            "/tasks/a%3Fb%23c",
            "/tasks/%C3%A4",
            "/tasks/%2541",
        ]


async def test_subscribers_turn_together_to_the_method_a_server_takes() -> None:
    def answer(got: Any) -> bytes:
        if ":subscribe" not in got.path:
            return reply(task())
        return stream(got._replace(body=b"{}"), {"task": task()}) if got.method == "GET" else html(405)

    async with Stub(answer) as stub, Client(card((stub.url, "rest"))) as client:

        async def one() -> list[str]:
            return [event.kind async for event in client.subscribe("t1")]

        await client.get_task("t1")
        async with asyncio.timeout(10):
            assert await asyncio.gather(*(one() for _ in range(4))) == [["task"]] * 4


async def test_a_404_of_an_interface_that_is_known_to_work_is_a_task_that_is_not_there() -> None:
    def answer(got: Any) -> bytes:
        return reply(task()) if got.path.endswith("t1") else reply({"detail": "?"}, 404)

    async with Stub(answer) as stub, Client(card((stub.url, "rest"))) as client:
        await client.get_task("t1")
        with pytest.raises(TaskNotFound):
            await client.get_task("t2")


async def test_an_error_of_the_protocol_keeps_what_it_says() -> None:
    problem = {"code": -32602, "message": "no such skill", "data": {"field": "message.metadata"}}
    answer = reply({"jsonrpc": "2.0", "id": "1", "error": problem}, 400)
    async with AgentStub(lambda _: answer) as stub, Client(stub.url) as client:
        with pytest.raises(InvalidParams, match="no such skill") as caught:
            await client.send("hello")
    assert (caught.value.field, caught.value.status, caught.value.code) == ("message.metadata", 400, -32602)
