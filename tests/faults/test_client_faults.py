"""Whatever a server does wrong, a caller gets a clear typed error, in time and without the caller's secrets leaving."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.stub_server import (
    After,
    AgentStub,
    Close,
    Hold,
    Reset,
    Stub,
    card,
    chunked,
    head,
    html,
    reply,
    task,
)

from dragoman import Agent, Client, Context, Task
from dragoman.client.connect import SHARED_CARDS
from dragoman.errors import (
    A2AError,
    AuthError,
    BadCard,
    BadResponse,
    CannotConnect,
    DragomanError,
    InternalError,
    InvalidParams,
)
from dragoman.server.agent.in_process import connect as in_process
from dragoman.server.build import build
from dragoman.server.config.settings import Settings
from dragoman.testing import Clock

MB = 1024 * 1024
IN_TIME = 10
QUICK = {"connect_timeout": 0.5, "idle_timeout": 0.3, "retries": 0}

Call = Callable[[Client], Awaitable[Any]]


async def send(client: Client) -> Any:
    return await client.send("hello", message_id="m1")


async def get_task(client: Client) -> Any:
    return await client.get_task("t1")


async def streamed(client: Client) -> Any:
    return [event async for event in client.stream("hello", message_id="m1")]


async def get_card(client: Client) -> Any:
    return await client.card()


OPERATIONS = pytest.mark.parametrize("call", [send, get_task, streamed])
TRANSPORTS = pytest.mark.parametrize("transport", ["jsonrpc", "rest"])


async def problem(client: Client, call: Call) -> DragomanError:
    """What a call raises, in time."""
    async with asyncio.timeout(IN_TIME):
        async with client:
            with pytest.raises(DragomanError) as caught:
                await call(client)
    return caught.value


@pytest.fixture(autouse=True)
def no_card_of_another_test() -> None:
    # A port is given again, sooner or later, and its card may be that of an earlier test.
    SHARED_CARDS.clear()


# -- nobody there ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [send, get_task, streamed, get_card])
async def test_a_dead_port_is_an_error_at_once(call: Call) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        # With all its retries: who was never there is not waited for.
        error = await problem(Client(f"http://127.0.0.1:{taken.getsockname()[1]}"), call)
    assert isinstance(error, CannotConnect)
    assert (error.reason, error.arrived) == ("CANNOT_CONNECT", False)
    assert "nobody answers at http://127.0.0.1" in str(error)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://no-such-host.invalid", "NO_SUCH_HOST"),
        ("http://127.0.0.1:1/x", "CANNOT_CONNECT"),
        ("http://[::1]:1", "CANNOT_CONNECT"),
    ],
)
async def test_addresses_that_lead_nowhere(url: str, reason: str) -> None:
    error = await problem(Client(url), get_card)
    assert isinstance(error, CannotConnect)
    assert error.reason == reason


async def test_a_host_that_takes_no_connection_is_given_up_after_the_connect_limit() -> None:
    # A listener whose queue is full answers nobody.
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        error = await problem(Client(f"http://127.0.0.1:{deaf.getsockname()[1]}", connect_timeout=0.3), get_card)
    assert isinstance(error, CannotConnect)
    assert (error.reason, error.arrived) == ("TIMED_OUT", False)
    assert "0.3 s" in str(error)


# -- TLS -------------------------------------------------------------------------------------------------------------


def certificate(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("call", [send, streamed, get_card])
async def test_a_certificate_nobody_vouches_for_is_refused_and_nothing_is_sent(call: Call) -> None:
    async with AgentStub(lambda _: html(), tls=certificate(trustme.CA())) as stub:
        error = await problem(Client(stub.url, auth="secret"), call)
        assert stub.got == []
    assert isinstance(error, CannotConnect)
    assert (error.reason, error.arrived) == ("TLS", False)
    assert "certificate" in str(error)
    assert "not trusted" in str(error)


async def test_a_certificate_of_a_given_authority_or_none_wanted_is_accepted(tmp_path: Path) -> None:
    authority = trustme.CA()
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with AgentStub(lambda _: html(), tls=certificate(authority)) as stub:
        for verify in (file, str(file), context, False):
            async with Client(stub.url, verify=verify) as client:
                assert (await client.card()).name == "stub"


async def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("example.org").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with AgentStub(lambda _: html(), tls=context) as stub:
        error = await problem(Client(stub.url, verify=tmp_path / "ca.pem"), get_card)
    assert isinstance(error, CannotConnect)
    assert error.reason == "TLS"


async def test_plain_http_on_an_https_address_is_a_tls_error() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await problem(Client(f"https://127.0.0.1:{port}"), get_card)
    assert isinstance(error, CannotConnect)
    assert error.reason == "TLS"


async def test_a_tls_handshake_without_end_is_given_up_after_the_connect_limit() -> None:
    async with Stub(lambda _: html()) as stub:  # it waits for a request that never ends
        error = await problem(Client(stub.url.replace("http:", "https:"), connect_timeout=0.3), get_card)
    assert isinstance(error, CannotConnect)
    assert (error.reason, error.arrived) == ("TIMED_OUT", False)


async def test_https_on_a_plain_address_is_an_error() -> None:
    async with Stub(lambda _: html(), certificate(trustme.CA())) as stub:
        error = await problem(Client(stub.url.replace("https:", "http:"), **QUICK), get_card)
    assert isinstance(error, CannotConnect)
    assert error.reason in ("CONNECTION_LOST", "NOT_HTTP")


# -- answers that are none -------------------------------------------------------------------------------------------


@OPERATIONS
@TRANSPORTS
@pytest.mark.parametrize(
    ("answer", "kind", "says", "status"),
    [
        (html(404), BadResponse, "there is no A2A at", 404),
        (html(500), BadResponse, "HTTP 500, text/html.*nginx", 500),
        (html(200), BadResponse, "HTTP 200, text/html.*nginx", 200),
        (reply({"detail": "boom"}, 500), InternalError, r"HTTP 500\): boom", 500),
        (reply({"error": "the model is gone"}, 500), InternalError, "the model is gone", 500),
        (reply({"error": {"message": "no more credit"}}, 500), InternalError, "no more credit", 500),
        (reply({"title": "Broken", "status": 500}, 500, "application/problem+json"), InternalError, "Broken", 500),
        (reply({"detail": [{"loc": ["body"], "msg": "Field required"}]}, 422), InvalidParams, "Field required", 422),
        (reply("just words", 500), InternalError, "just words", 500),
        (reply({"detail": "a\x1b[31m\nb" + "c" * 9000}, 500), InternalError, r"a\\x1b\[31m bc{400,500}…$", 500),
        (reply(b"out of memory", 500, "text/plain"), BadResponse, "out of memory", 500),
        (reply(b"back at noon", 503, "text/plain"), CannotConnect, "back at noon", 503),
        (reply(b'{"jsonrpc": "2.0", "id": 1, "resu'), BadResponse, "", None),
        (reply(b'{"task": {"id": "t1", "contextId'), BadResponse, "", None),
        (reply(b""), BadResponse, "answered with nothing", 200),
        (reply(b"\xff\xfe\x00"), BadResponse, "broken JSON", 200),
        (reply(b"[" * 100_000), BadResponse, "", None),
        (reply(b"true"), BadResponse, "", None),
        (reply(b"no gzip", Content_Encoding="gzip"), BadResponse, "cannot be decompressed", None),
        (reply(b"magic", Content_Encoding="br"), BadResponse, "'br', which was not requested", None),
        (reply({"detail": "who are you"}, 401), AuthError, "requires authentication.*who are you", 401),
        (reply(b"no such key", 401, "text/plain"), AuthError, "requires authentication.*no such key", 401),
        (reply({"error": "invalid_token"}, 401), AuthError, "requires authentication", 401),
        (reply({"detail": "no"}, 403), AuthError, "does not allow", 403),
        (html(401), AuthError, "requires authentication", 401),
        (html(503), CannotConnect, "not available: HTTP 503", 503),
        (reply({"message": "no upstream"}, 503), CannotConnect, "not available: HTTP 503: no upstream", 503),
        (html(502), CannotConnect, "not available: HTTP 502", 502),
        (html(504), CannotConnect, "not available: HTTP 504", 504),
        (reply({"message": "bad gateway"}, 502), CannotConnect, "not available: HTTP 502", 502),
    ],
)
async def test_an_answer_that_is_none_is_a_clear_error(
    answer: bytes, kind: type[DragomanError], says: str, status: int | None, call: Call, transport: str
) -> None:
    async with AgentStub(lambda _: answer, transport) as stub:
        error = await problem(Client(stub.url, retries=0), call)
    assert isinstance(error, kind)
    assert re.search(says, str(error))
    assert status is None or error.status == status


@TRANSPORTS
@pytest.mark.parametrize("call", [send, streamed])
async def test_an_answer_that_holds_nothing_is_a_clear_error(call: Call, transport: str) -> None:
    for answer in ({}, {"result": {}}, {"jsonrpc": "2.0", "id": "1", "result": None}):
        async with AgentStub(lambda _, answer=answer: reply(answer), transport) as stub:
            assert isinstance(await problem(Client(stub.url, retries=0), call), BadResponse)


@OPERATIONS
@TRANSPORTS
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Close, "CONNECTION_LOST"),
        (Reset, "CONNECTION_LOST"),
        (After(b"HTTP/1.1 200 OK\r\nContent-Ty", Close), "CONNECTION_LOST"),
        (After(b"HTTP/1.1 200 OK\r\nContent-Ty", Hold), "TIMED_OUT"),
        (Hold, "TIMED_OUT"),
        (After(head(200, Content_Length="500") + b'{"jsonrpc":', Close), "CONNECTION_LOST"),
        (After(head(200, Content_Length="500") + b'{"jsonrpc":', Hold), "TIMED_OUT"),
        (After(head(200, Transfer_Encoding="chunked") + chunked(b'{"jsonrpc":'), Close), "CONNECTION_LOST"),
        (After(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Close), "NOT_HTTP"),
        (After(b"\x15\x03\x01\x00\x02\x02\x46", Close), "NOT_HTTP"),
    ],
)
async def test_an_answer_that_breaks_off_or_never_arrives_is_an_error_in_time(
    answer: Any, reason: str, call: Call, transport: str
) -> None:
    async with AgentStub(lambda _: answer, transport) as stub:
        error = await problem(Client(stub.url, **QUICK), call)
        assert len(stub.posts) <= 1
    assert isinstance(error, CannotConnect)
    assert error.reason == reason
    assert error.arrived is None  # it may have been read


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (html(404), BadCard, "there is no agent card at .*HTTP 404 .*agent-card.json.*HTTP 404 .*agent.json"),
        (html(500), BadCard, "HTTP 500"),
        (reply({"detail": "boom"}, 500), BadCard, "HTTP 500"),
        (html(200), BadCard, "text/html instead of JSON"),
        (reply(b'{"name": "stub", "vers'), BadCard, "not JSON"),
        (reply({}), BadCard, "name is required"),
        (reply(card(("http://x", "jsonrpc"), name="")), BadCard, "name is required"),
        (reply({**card(("http://x", "jsonrpc")), "version": None}), BadCard, "version is required"),
        (reply(card()), BadCard, "says where the agent is"),
        (reply(b""), BadCard, "instead of JSON"),
        (reply(b" " * 5 * MB + b"{}"), BadCard, "larger than 4 MB"),
        (html(401), AuthError, "requires authentication"),
        (html(403), AuthError, "does not allow"),
        (html(503), CannotConnect, "not available"),
        (Close, CannotConnect, "broke"),
        (Hold, CannotConnect, "said nothing for 0.5 s"),
        (After(b"HTTP/1.1 2", Hold), CannotConnect, "said nothing for 0.5 s"),
        (After(head(200, Content_Length="500") + b'{"name":', Close), CannotConnect, "broke"),
        (After(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Close), CannotConnect, "does not answer in HTTP"),
        (reply(b"", 302, Location="http://127.0.0.1:1/card"), BadResponse, "nothing is sent to another origin"),
    ],
)
async def test_a_card_that_is_none_is_a_clear_error(answer: Any, kind: type[DragomanError], says: str) -> None:
    async with Stub(lambda _: answer) as stub:
        for call in (get_card, send):
            error = await problem(Client(stub.url, **QUICK), call)
            assert isinstance(error, kind)
            assert re.search(says, str(error))


# -- streams that are none ---------------------------------------------------------------------------------------------


async def test_a_stream_that_says_what_is_not_a2a_is_a_clear_error() -> None:
    for chunk in (b"data: <html>\n\n", b"data: {}\n\n", b"data: []\n\n", b'data: {"jsonrpc":"2.0","result":{}}\n\n'):
        answer = head(200, "text/event-stream", Connection="close") + chunk
        async with AgentStub(lambda _, answer=answer: answer) as stub:
            assert isinstance(await problem(Client(stub.url, **QUICK), streamed), BadResponse)


async def test_an_error_within_a_stream_is_that_error() -> None:
    chunk = b'data: {"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"no such skill"}}\n\n'
    async with AgentStub(lambda _: head(200, "text/event-stream", Connection="close") + chunk) as stub:
        error = await problem(Client(stub.url, **QUICK), streamed)
    assert isinstance(error, A2AError)
    assert (error.code, str(error)) == (-32602, "no such skill")


# -- redirects -------------------------------------------------------------------------------------------------------


@OPERATIONS
@TRANSPORTS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_is_an_error_and_that_origin_hears_nothing(
    status: int, call: Call, transport: str
) -> None:
    async with Stub(lambda _: html()) as other:
        location = f"{other.url}/?token=of-theirs"
        async with AgentStub(lambda _: reply(b"", status, Location=location), transport) as stub:
            client = Client(stub.url, auth="my-secret", headers={"X-Own": "my-own"}, retries=0)
            error = await problem(client, call)
        assert (other.connections, other.got) == (0, [])
    assert isinstance(error, BadResponse)
    assert error.status == status
    assert other.url in str(error)
    assert "of-theirs" not in str(error)
    assert "my-secret" not in str(error)


async def test_a_card_that_moved_to_another_origin_is_not_fetched_there() -> None:
    async with AgentStub(lambda _: html()) as other:
        async with Stub(lambda _: reply(b"", 308, Location=f"{other.url}/.well-known/agent-card.json")) as stub:
            error = await problem(Client(stub.url, auth="my-secret"), get_card)
        assert other.got == []
    assert isinstance(error, BadResponse)


@pytest.mark.parametrize(
    "location", ["", "http://[", "http://127.0.0.1:99999/", "//127.0.0.1:1/", "file:///etc/passwd", "http://@/"]
)
async def test_a_redirect_to_nowhere_is_a_clear_error(location: str) -> None:
    async with AgentStub(lambda _: reply(b"", 307, Location=location)) as stub:
        assert isinstance(await problem(Client(stub.url, retries=0), send), BadResponse)


@TRANSPORTS
@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed_with_all_that_was_sent(status: int, transport: str) -> None:
    def answer(got: Any) -> bytes:
        if got.path.startswith("/moved"):
            assert got.headers["authorization"] == "Bearer my-secret"
            wrapped = {"task": task()}
            return reply(wrapped if transport == "rest" else {"jsonrpc": "2.0", "id": "1", "result": wrapped})
        return reply(b"", status, Location="/moved" + got.path)

    async with AgentStub(answer, transport) as stub:
        async with Client(stub.url, auth="my-secret") as client:
            assert isinstance(await client.send("hello"), Task)
        first, second = stub.posts
        assert first.body == second.body
        assert first.headers["content-type"] == second.headers["content-type"]


async def test_redirects_in_a_circle_end() -> None:
    async with AgentStub(lambda got: reply(b"", 307, Location=got.path + "?")) as stub:
        error = await problem(Client(stub.url, retries=0), send)
        assert len(stub.posts) <= 6
    assert isinstance(error, BadResponse)
    assert "circles" in str(error)


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_post_that_would_become_a_get_is_not_followed(status: int) -> None:
    async with AgentStub(lambda _: reply(b"", status, Location="/moved")) as stub:
        error = await problem(Client(stub.url, retries=0), send)
        assert "/moved" not in stub.paths()
    assert isinstance(error, BadResponse)
    assert "/moved" in str(error)


# -- 100 MB of garbage -----------------------------------------------------------------------------------------------


async def endless(start: bytes, piece: bytes, most: int = 100 * MB) -> AsyncIterator[bytes]:
    yield start
    for _ in range(most // len(piece)):
        yield piece


GARBAGE = b"garbage " * 8192


@asynccontextmanager
async def little_memory(most: int) -> AsyncIterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@OPERATIONS
@TRANSPORTS
@pytest.mark.parametrize("kind", ["text/html", "application/octet-stream", "image/png", ""])
@pytest.mark.parametrize("length", [True, False])
async def test_garbage_that_is_no_json_is_not_read_for_long(
    kind: str, length: bool, call: Call, transport: str
) -> None:
    def answer(_: Any) -> AsyncIterator[bytes]:
        if length:
            return endless(head(200, kind, Content_Length=str(100 * MB)), GARBAGE)
        return endless(head(200, kind, Transfer_Encoding="chunked"), chunked(GARBAGE))

    async with AgentStub(answer, transport) as stub, little_memory(8 * MB):
        error = await problem(Client(stub.url, retries=0), call)
        assert stub.sent < 16 * MB  # what the sockets of both sides hold
    assert isinstance(error, BadResponse)
    assert "larger than 65536 bytes" in str(error)


@pytest.mark.parametrize("call", [send, streamed])
async def test_json_of_a_length_that_cannot_be_is_not_read_at_all(call: Call) -> None:
    start = head(200, "application/json", Content_Length=str(100 * MB))
    async with AgentStub(lambda _: endless(start, GARBAGE)) as stub, little_memory(8 * MB):
        error = await problem(Client(stub.url, retries=0), call)
        assert stub.sent < 16 * MB
    assert isinstance(error, BadResponse)
    assert "larger than 64 MB" in str(error)


JSON_CHUNKS = head(200, "application/json", Transfer_Encoding="chunked")
EVENT = head(200, "text/event-stream") + b"data: "


@pytest.mark.parametrize(
    ("start", "piece", "call", "transport", "says"),
    [
        (JSON_CHUNKS, chunked(GARBAGE), send, "jsonrpc", "larger than 64 MB"),
        (EVENT, GARBAGE, streamed, "jsonrpc", "more than 64 MB"),
        (EVENT, GARBAGE, streamed, "rest", "more than 64 MB"),
    ],
    ids=["JSON", "an event", "an event over REST"],
)
async def test_an_answer_without_a_length_is_read_up_to_the_limit(
    start: bytes, piece: bytes, call: Call, transport: str, says: str
) -> None:
    async with AgentStub(lambda _: endless(start, piece), transport) as stub:
        error = await problem(Client(stub.url, retries=0), call)
        assert stub.sent < 80 * MB
    assert isinstance(error, BadResponse)
    assert says in str(error)


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_a_compressed_answer_is_unpacked_up_to_the_limit(kind: str) -> None:
    bomb = gzip.compress(bytes(100 * MB), 1)
    answer = reply(bomb, 200, kind, Content_Encoding="gzip")
    async with AgentStub(lambda _: answer) as stub, little_memory((8 if kind == "text/html" else 96) * MB):
        error = await problem(Client(stub.url, retries=0), send)
    assert isinstance(error, BadResponse)
    assert "larger than" in str(error)


async def test_a_card_without_an_end_is_read_up_to_its_own_limit() -> None:
    start = head(200, "application/json", Transfer_Encoding="chunked") + chunked(b"{")
    async with Stub(lambda _: endless(start, chunked(GARBAGE))) as stub, little_memory(16 * MB):
        error = await problem(Client(stub.url, retries=0), get_card)
        assert stub.sent < 20 * MB
    assert isinstance(error, BadCard)


@pytest.mark.parametrize("piece", [b"X-Header: " + b"a" * 60_000 + b"\r\n", b"a" * 60_000])
async def test_a_head_without_an_end_is_not_read_for_long(piece: bytes) -> None:
    async with AgentStub(lambda _: endless(b"HTTP/1.1 200 OK\r\nX: ", piece)) as stub, little_memory(48 * MB):
        error = await problem(Client(stub.url, retries=0), send)
        assert stub.sent < 32 * MB
    assert isinstance(error, CannotConnect)
    assert error.reason == "NOT_HTTP"
    assert len(str(error)) < 400


# -- silence that is none --------------------------------------------------------------------------------------------


def thoughtful(clock: Clock, thinking: asyncio.Event) -> Agent:
    agent = Agent("thoughtful")

    @agent.skill
    async def think(ctx: Context, text: str) -> Any:
        for word in ("after", "a while"):
            done = asyncio.get_running_loop().create_future()
            clock.call_later(90, lambda done=done: done.set_result(None))
            thinking.set()
            await done
            yield word + " "

    return agent


class Timed:
    """An agent in this process, on a clock of its own."""

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self.agent = agent
        self.clock = clock

    def in_process(self) -> Any:
        return in_process(self.agent, clock=self.clock)


@pytest.mark.parametrize("how", ["in process", "over ASGI"])
@pytest.mark.parametrize("call", [send, streamed])
async def test_an_agent_silent_for_90_seconds_does_not_time_out(how: str, call: Call) -> None:
    clock, thinking = Clock(), asyncio.Event()
    agent = thoughtful(clock, thinking)
    target: Any = Timed(agent, clock) if how == "in process" else build([agent], Settings(store="memory:"), clock=clock)
    async with asyncio.timeout(IN_TIME), Client(target) as client:
        running = asyncio.ensure_future(call(client))
        for _ in range(2):
            await thinking.wait()
            thinking.clear()
            for _ in range(9):
                assert not running.done()
                await clock.advance(10)
        found = await running
    text = "".join(event.text for event in found) if isinstance(found, list) else found.text
    assert text == "after a while "
