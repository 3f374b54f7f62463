"""What goes out with a request, to whom, and what never does."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import contextmanager
from typing import Any

import pytest
from support.stub_server import (
    After,
    AgentStub,
    Close,
    Hold,
    Stub,
    card,
    event,
    head,
    html,
    reply,
    result,
    stream,
    task,
)

from dragoman import Agent, Client, Context
from dragoman.client.connect import SHARED_CARDS
from dragoman.errors import AuthError, BadResponse, CannotConnect, ConfigError, DragomanError
from dragoman.telemetry import trace
from dragoman.testing import served

SECRET = "my-very-own-secret"


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    # A port is given again, sooner or later, and its card may be that of an earlier test.
    SHARED_CARDS.clear()


def works(got: Any) -> bytes:
    return result(got, task())


# -- interceptors ----------------------------------------------------------------------------------------------------


async def test_interceptors_are_called_in_order_and_see_the_answer_in_reverse() -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        async def interceptor(request: Any, call_next: Any) -> Any:
            seen.append(f"{name} {request.operation}")
            request.headers["X-Trail"] = request.headers.get("X-Trail", "") + name
            response = await call_next(request)
            seen.append(f"{name} {response.status}")
            return response

        return interceptor

    async with AgentStub(works) as stub:
        async with Client(stub.url, interceptors=[named("a"), named("b")]) as client:
            await client.send("hello")
        assert seen[:4] == ["a GetAgentCard", "b GetAgentCard", "b 200", "a 200"]
        assert seen[4:] == ["a SendMessage", "b SendMessage", "b 200", "a 200"]
        assert [got.headers["x-trail"] for got in stub.got] == ["ab", "ab"]


async def test_an_interceptor_may_answer_itself_or_change_all_of_a_request() -> None:
    class Mine:
        status = 200

        def __init__(self) -> None:
            self.headers = {"Content-Type": "application/json"}

        async def read(self, limit: int = 0) -> bytes:
            return b'{"jsonrpc":"2.0","id":"1","result":{"id":"mine","contextId":"c","status":{"state":1}}}'

        async def close(self) -> None: ...

    async def answer(request: Any, call_next: Any) -> Any:
        if request.operation == "GetTask":
            return Mine()
        request.url += "?changed"
        request.body = (request.body or b"").replace(b"hello", b"changed")
        return await call_next(request)

    async with AgentStub(lambda got: result(got._replace(path="/"), task())) as stub:
        async with Client(card((stub.url + "/", "jsonrpc")), interceptors=[answer]) as client:
            await client.send("hello")
            assert (await client.get_task("x")).id == "mine"
        (got,) = stub.got
        assert got.path == "/?changed"
        assert b"changed" in got.body


async def test_what_an_interceptor_raises_is_raised() -> None:
    async def refuse(request: Any, call_next: Any) -> Any:
        raise LookupError("not today")

    async with AgentStub(works) as stub, Client(stub.url, interceptors=[refuse]) as client:
        with pytest.raises(LookupError, match="not today"):
            await client.send("hello")
        with pytest.raises(LookupError, match="not today"):
            _ = [event async for event in client.stream("hello")]
        assert stub.got == []


# -- whom secrets are for --------------------------------------------------------------------------------------------


async def test_headers_and_credentials_go_to_the_target_with_every_request() -> None:
    async with AgentStub(works) as stub:
        async with Client(stub.url, auth=SECRET, headers={"X-Own": "mine"}) as client:
            await client.send("hello")
            await client.get_task("t1")
        first, *calls = stub.got
        assert first.headers["x-own"] == "mine"
        for got in calls:
            assert (got.headers["authorization"], got.headers["x-own"]) == (f"Bearer {SECRET}", "mine")


@pytest.mark.parametrize("how", ["send", "stream", "get_task"])
@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
async def test_an_interface_on_another_origin_gets_neither(how: str, transport: str) -> None:
    def answer(got: Any) -> bytes:
        return stream(got, {"task": task()}) if b"tream" in got.path.encode() + got.body else works(got)

    async with Stub(answer) as other:
        page = card((other.url + ("/" if transport == "jsonrpc" else ""), transport))
        async with (
            Stub(lambda _: reply(page)) as home,
            Client(home.url, auth=SECRET, headers={"X-Own": SECRET}) as client,
        ):
            if how == "stream":
                assert [event.kind async for event in client.stream("hello")] == ["task"]
            else:
                assert (await (client.send("hello") if how == "send" else client.get_task("t1"))).id == "t1"
        assert other.got
        assert all(SECRET not in str(got) for got in other.got)
        assert "x-own" in home.got[0].headers


async def test_another_origin_that_wants_credentials_is_an_error_that_names_it() -> None:
    async with Stub(lambda _: reply({"detail": "who are you"}, 401)) as other:
        page = card((other.url + "/", "jsonrpc"))
        async with Stub(lambda _: reply(page)) as home, Client(home.url, auth=SECRET) as client:
            with pytest.raises(AuthError, match="Make a Client for that address if you trust it") as caught:
                await client.send("hello")
    assert caught.value.status == 401
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("other", ["http://LOCALHOST:{}", "http://user@localhost:{}", "http://localhost.:{}"])
async def test_the_same_origin_in_another_spelling_is_the_same(other: str) -> None:
    async with AgentStub(works) as stub:
        async with Client(card((other.format(stub.port) + "/", "jsonrpc")), auth=SECRET, retries=0) as client:
            try:
                await client.send("hello")
            except CannotConnect as error:  # a name with a dot, or one with a user beside a token
                assert SECRET not in str(error)
                return
        assert stub.got[-1].headers["authorization"] == f"Bearer {SECRET}"


async def test_the_credentials_of_a_card_are_for_its_first_interface_that_is_spoken() -> None:
    async with Stub(works) as stub:
        given = card(("127.0.0.1:50051", "GRPC"), (stub.url + "/", "jsonrpc"))
        async with Client(given, auth=SECRET) as client:
            await client.send("hello")
        assert stub.got[0].headers["authorization"] == f"Bearer {SECRET}"


async def test_an_app_in_this_process_gets_both_whatever_its_card_says() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        seen.append(dict(scope["headers"]))
        await receive()
        found: Any = {"jsonrpc": "2.0", "id": "1", "result": {"task": task()}}
        if scope["path"].endswith("card.json"):
            found = card(("https://agent.example.org/rpc", "jsonrpc"))
        _, _, body = reply(found).partition(b"\r\n\r\n")
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": body})

    async with Client(app, auth=SECRET, headers={"X-Own": "mine"}) as client:
        assert (await client.send("hello")).id == "t1"
    assert seen[-1][b"authorization"] == f"Bearer {SECRET}".encode()
    assert seen[-1][b"x-own"] == b"mine"


# -- a user in the address -------------------------------------------------------------------------------------------


async def test_a_user_in_the_address_is_a_credential() -> None:
    async with AgentStub(works) as stub:
        url = stub.url.replace("//", "//ada:p%40ss@")
        async with Client(url) as client:
            await client.send("hello")
        assert stub.got[-1].headers["authorization"] == "Basic YWRhOnBAc3M="
        assert all("@" not in got.headers["host"] for got in stub.got)
        with pytest.raises(ConfigError, match="leave one of them out") as caught:
            Client(url, auth="token")
        assert "p%40ss" not in str(caught.value)
    for wrong in ("http://ada:p%40ss@x:99999", "http://ada:p%40ss@"):
        with pytest.raises(ConfigError) as refused:
            Client(wrong)
        assert "p%40ss" not in str(refused.value)


# -- a token that ran out --------------------------------------------------------------------------------------------


async def test_a_refused_token_is_fetched_anew_once() -> None:
    tokens = iter(["old", "new", "newer"])
    current = ""

    async def token(given: Any, scheme: Any) -> str:
        nonlocal current
        current = current or next(tokens)
        return current

    def answer(got: Any) -> bytes:
        nonlocal current
        if got.headers["authorization"] == "Bearer old":
            current = ""
            return reply({"detail": "expired"}, 401)
        return works(got)

    async with AgentStub(answer) as stub:
        async with Client(stub.url, auth=token) as client:
            assert (await client.send("hello")).id == "t1"
            assert (await client.send("hello")).id == "t1"
        assert [got.headers["authorization"] for got in stub.posts] == ["Bearer old", "Bearer new", "Bearer new"]
        # What was refused was not read: it goes out again as it was.
        assert stub.posts[0].body == stub.posts[1].body


async def test_a_token_refused_twice_is_an_error() -> None:
    async with AgentStub(lambda _: reply({"detail": "no"}, 401)) as stub:
        async with Client(stub.url, auth=lambda given, scheme: "bad-" + SECRET) as client:
            with pytest.raises(AuthError) as caught:
                await client.send("hello")
        assert len(stub.posts) == 2
    assert SECRET not in str(caught.value)


# -- what is never shown ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["send", "stream", "card"])
@pytest.mark.parametrize(
    "answer",
    [
        *(html(404), html(500), html(401), html(503), Close, Hold, reply(b"{"), reply({}, 500)),
        *(After(b"SSH-2.0\r\n\r\n", Close), reply(b"", 302, Location="/x"), reply(b"", 307, Location="")),
        reply(b"", 307, Location="http://127.0.0.1:1/"),
    ],
)
async def test_no_error_and_no_log_shows_a_secret(answer: Any, how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    schemes = {"key": {"apiKeySecurityScheme": {"location": "query", "name": "key"}}}
    needs = {"securitySchemes": schemes, "securityRequirements": [{"schemes": {"key": {"list": []}}}]}

    def answered(got: Any) -> Any:
        asked = got.path.startswith("/.well-known") and how != "card"
        return reply(card((stub.url + "/", "jsonrpc"), **needs)) if asked else answer

    async with Stub(answered) as stub:
        url = f"{stub.url}/?also={SECRET}" if how == "card" else stub.url
        client = Client(url, auth=SECRET, headers={"X-Own": SECRET}, retries=0, connect_timeout=0.3, idle_timeout=0.3)
        async with asyncio.timeout(10), client:
            with pytest.raises(DragomanError) as caught:
                if how == "send":
                    await client.send("hello")
                elif how == "card":
                    await client.card()
                else:
                    _ = [event async for event in client.stream("hello")]
        assert how == "card" or any(SECRET in got.path for got in stub.got)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__
    assert SECRET not in caplog.text
    assert SECRET not in repr(client)


@pytest.mark.parametrize(
    "headers",
    [{"X-Own": f"{SECRET}\r\nX-Other: 1"}, {"X Own": SECRET}, {"X-Own": 5}, {"": "x"}, {"content-length": "5"}],
)
def test_a_header_that_cannot_be_sent_is_refused_at_once_and_not_shown(headers: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Client("http://127.0.0.1:1", headers=headers)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        *({"connect_timeout": 0}, {"connect_timeout": -1}, {"idle_timeout": 0}, {"retries": -1}),
        *({"verify": "/no/such/file"}, {"verify": __file__}, {"verify": None}),
    ],
)
def test_an_option_that_cannot_be_is_refused_at_once(options: Any) -> None:
    with pytest.raises(ConfigError):
        Client("http://127.0.0.1:1", **options)


# -- traces ----------------------------------------------------------------------------------------------------------

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def calling(url: str) -> Agent:
    """An agent that asks another one."""
    agent = Agent("caller")

    @agent.skill
    async def ask(ctx: Context, text: str) -> str:
        async with Client(url) as client:
            return (await client.send(text)).id

    return agent


@contextmanager
def without_telemetry(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As in a program that does not use OpenTelemetry, which other tests may have loaded."""
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "opentelemetry.propagate", raising=False)
        yield


async def test_an_agent_that_asks_another_passes_the_trace_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_telemetry(monkeypatch):
        async with AgentStub(works) as stub:
            with served(calling(stub.url)) as url:
                headers = {"traceparent": PARENT, "tracestate": "a=1,b=2", "baggage": "user=ada"}
                async with Client(url, headers=headers) as client:
                    assert (await client.send("hello")).text == "t1"
                async with Client(url) as client:
                    assert (await client.send("hello")).text == "t1"
            first, second = stub.posts
            assert first.headers["traceparent"] == PARENT
            assert first.headers["tracestate"] == "a=1,b=2"
            assert first.headers["baggage"] == "user=ada"
            # The next request brought none, and none is made up.
            assert not {"traceparent", "tracestate", "baggage"} & set(second.headers)


async def test_requests_at_the_same_time_keep_their_traces_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_telemetry(monkeypatch):
        async with AgentStub(works) as stub:
            with served(calling(stub.url)) as url:

                async def one(number: int) -> None:
                    headers = {"traceparent": f"00-{number:032x}-{1:016x}-01"}
                    async with Client(url, headers=headers) as client:
                        await client.send(str(number))

                await asyncio.gather(*(one(number) for number in range(1, 21)))
            for got in stub.posts:
                number = int(got.json["params"]["message"]["parts"][0]["text"])
                assert got.headers["traceparent"] == f"00-{number:032x}-{1:016x}-01"
            assert len(stub.posts) == 20


async def test_opentelemetry_speaks_first_where_a_program_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Propagate:
        @staticmethod
        def inject(headers: dict[str, str]) -> None:
            headers["traceparent"] = "of telemetry"

    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", Propagate)  # type: ignore[arg-type]
    trace.extract({"traceparent": PARENT, "tracestate": "a=1"})
    async with AgentStub(works) as stub:
        async with Client(stub.url) as client:
            await client.send("hello")
        assert {got.headers["traceparent"] for got in stub.got} == {"of telemetry"}
        assert "tracestate" not in stub.got[0].headers
    trace.extract({})


async def test_opentelemetry_without_a_trace_leaves_the_incoming_headers() -> None:
    propagate = pytest.importorskip("opentelemetry.propagate")
    assert propagate is sys.modules["opentelemetry.propagate"]
    trace.extract({"traceparent": PARENT})
    headers: dict[str, str] = {}
    trace.inject(headers)
    trace.extract({})
    assert headers == {"traceparent": PARENT}


# -- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S2-104")
@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
async def test_the_first_event_is_there_before_the_last_is_made(transport: str) -> None:
    more = asyncio.Event()

    def answer(got: Any) -> Any:
        async def body() -> Any:
            yield head(200, "text/event-stream")
            yield event(got, {"task": task("TASK_STATE_WORKING")}, 1)
            await more.wait()
            done = {"taskId": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}
            yield event(got, {"statusUpdate": done}, 2)

        return body()

    async with asyncio.timeout(10), AgentStub(answer, transport) as stub, Client(stub.url) as client:
        events = aiter(client.stream("hello"))
        assert (await anext(events)).kind == "task"
        more.set()
        assert [event.kind async for event in events] == ["status"]


@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
async def test_a_reader_who_leaves_or_is_canceled_lets_go_of_the_connection(transport: str) -> None:
    def answer(got: Any) -> Any:
        return After(head(200, "text/event-stream") + event(got, {"task": task("TASK_STATE_WORKING")}, 1), Hold)

    async with asyncio.timeout(10), AgentStub(answer, transport) as stub, Client(stub.url) as client:
        events = aiter(client.stream("hello"))
        await anext(events)
        await events.aclose()
        await stub.left.wait()
        stub.left.clear()

        async def read() -> None:
            async for _ in client.stream("hello"):
                begun.set()

        begun = asyncio.Event()
        reader = asyncio.ensure_future(read())
        await begun.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await stub.left.wait()


async def test_an_agent_that_answers_a_stream_in_one_piece_is_understood() -> None:
    async with AgentStub(lambda got: result(got, task())) as stub, Client(stub.url) as client:
        assert [event.kind async for event in client.stream("hello")] == ["task"]
        assert len(stub.posts) == 1


async def test_a_response_that_is_neither_a_stream_nor_an_answer_is_an_error() -> None:
    async with AgentStub(lambda _: reply(b"hello", 200, "text/plain")) as stub, Client(stub.url) as client:
        with pytest.raises(BadResponse, match=r"text/plain: 'hello'"):
            _ = [event async for event in client.stream("hello")]
