"""gRPC as an HTTP client: metadata are headers, messages are frames, and every failure is one of ours."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import CannotConnect, ConfigError, ResponseTooLarge, TimedOut
from dragoman.model.operation import Operation
from dragoman.net.exchange import HttpRequest
from dragoman.net.grpc.frames import FrameReader, parse_trailers, read_frames, write_message, write_trailers
from dragoman.net.pem import ClientCertificate, PemContext
from dragoman.net.sockets import SocketClient

library = pytest.importorskip("grpc")
grpc = pytest.importorskip("grpc.aio")

Answer = Callable[[bytes, Any], Awaitable[bytes]]
Stream = Callable[[bytes, Any], AsyncIterator[bytes]]


class Handlers(library.GenericRpcHandler):
    """Bytes in, bytes out: `answers` by the name of the method, `streams` likewise."""

    def __init__(self, answers: dict[str, Answer], streams: dict[str, Stream]) -> None:
        self.answers, self.streams = answers, streams

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.rpartition("/")[2]
        if name in self.answers:
            return library.unary_unary_rpc_method_handler(self.answers[name])
        return library.unary_stream_rpc_method_handler(self.streams[name]) if name in self.streams else None


@asynccontextmanager
async def server(port: int = 0, credentials: Any = None, **methods: Any) -> AsyncIterator[str]:
    """Serve the methods, coroutines as one answer and generators as streams, and yield their URL."""
    streams = {name: method for name, method in methods.items() if not asyncio.iscoroutinefunction(method)}
    made = grpc.server(options=[("grpc.so_reuseport", 0)])
    made.add_generic_rpc_handlers((Handlers({k: v for k, v in methods.items() if k not in streams}, streams),))
    at = f"127.0.0.1:{port}"
    port = made.add_insecure_port(at) if credentials is None else made.add_secure_port(at, credentials)
    await made.start()
    try:
        yield f"{'grpc' if credentials is None else 'grpcs'}://127.0.0.1:{port}/a.B"
    finally:
        await made.stop(None)


async def echo(message: bytes, _: Any) -> bytes:
    return message


def call(url: str, body: bytes = b"hi", streams: bool = False, **options: Any) -> HttpRequest:
    operation = Operation.STREAM if streams else Operation.GET
    return HttpRequest("POST", url, options.pop("headers", {}), write_message(body), operation=operation, **options)


@pytest.fixture
async def http() -> AsyncIterator[SocketClient]:
    client = SocketClient()
    yield client
    await client.close()


# -- frames ----------------------------------------------------------------------------------------------------------


def test_frames_are_read_however_they_are_cut() -> None:
    body = write_message(b"one") + write_message(b"") + write_trailers({"grpc-status": "5", "x": "a\r\nb"})
    whole = read_frames(body)
    assert [each.data for each in whole[:2]] == [b"one", b""]
    assert whole[2].is_trailers
    assert parse_trailers(whole[2].data) == {"grpc-status": "5", "x": "a b"}
    for size in (1, 2, 7):
        reader = FrameReader()
        assert [each for at in range(0, len(body), size) for each in reader.feed(body[at : at + size])] == whole
        assert not reader.pending


def test_a_frame_beyond_the_limit_is_refused_by_its_length_alone() -> None:
    with pytest.raises(ResponseTooLarge, match="larger than 10 bytes"):
        FrameReader(10).feed(write_message(b"x" * 11)[:5])


# -- calls -----------------------------------------------------------------------------------------------------------


async def test_a_call_carries_headers_as_metadata_and_answers_in_frames(http: SocketClient) -> None:
    got: list[Any] = []

    async def answer(message: bytes, context: Any) -> bytes:
        got.extend(context.invocation_metadata())
        await context.send_initial_metadata((("x-first", "1"), ("x-some-bin", b"\x00\x01")))
        context.set_trailing_metadata((("x-last", "2"),))
        return message + b"!"

    async with server(Get=answer) as url:
        headers = {"Authorization": "Bearer abc", "Content-Type": "application/grpc", "X-Own-bin": "AAE"}
        response = await http.send(call(f"{url}/Get", headers=headers))
        message, trailers = read_frames(await response.read())
    assert (response.status, message.data) == (200, b"hi!")
    assert (response.headers["X-First"], response.headers["x-some-bin"]) == ("1", "AAE=")
    assert response.headers["Content-Type"] == "application/grpc+proto"
    assert trailers.trailers() == {"grpc-status": "0", "x-last": "2"}
    metadata = dict(got)
    assert metadata["authorization"] == "Bearer abc"
    assert metadata["x-own-bin"] == b"\x00\x01"
    assert metadata["user-agent"].startswith("dragoman grpc-python")


async def test_an_error_has_the_http_status_that_means_the_same(http: SocketClient) -> None:
    async def refuse(_: bytes, context: Any) -> bytes:
        await context.abort(library.StatusCode.UNAUTHENTICATED, "wrong\n100 %", (("www-authenticate", "Bearer"),))

    async def overloaded(_: bytes, context: Any) -> bytes:
        await context.abort(library.StatusCode.UNAVAILABLE, "later", (("retry-after", "3"),))

    async with server(Refuse=refuse, Overloaded=overloaded) as url:
        response = await http.send(call(f"{url}/Refuse"))
        assert (response.status, await response.read()) == (401, b"")
        assert response.headers["grpc-status"] == "16"
        assert response.headers["grpc-message"] == "wrong%0A100 %25"
        assert response.headers["WWW-Authenticate"] == "Bearer"
        response = await http.send(call(f"{url}/Overloaded"))
        assert (response.status, response.headers["Retry-After"]) == (503, "3")
        assert (await http.send(call(f"{url}/Nothing"))).status == 501
        assert (await http.send(call(f"{url}/Nothing", streams=True))).status == 501


async def test_a_stream_comes_message_by_message_and_ends_with_its_trailers(http: SocketClient) -> None:
    read = asyncio.Event()

    async def numbers(_: bytes, context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata((("first-event-id", "7"),))
        yield b"one"
        await read.wait()
        yield b"two"
        await context.abort(library.StatusCode.NOT_FOUND, "gone")

    async with server(Numbers=numbers) as url:
        response = await http.send(call(f"{url}/Numbers", streams=True))
        assert (response.status, response.headers["first-event-id"]) == (200, "7")
        chunks = response.chunks()
        assert await anext(chunks) == write_message(b"one")
        read.set()
        assert await anext(chunks) == write_message(b"two")
        (last,) = read_frames(await anext(chunks))
        assert last.trailers() == {"grpc-status": "5", "grpc-message": "gone"}
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)


async def test_leaving_a_stream_cancels_the_call(http: SocketClient) -> None:
    canceled = asyncio.Event()

    async def endless(_: bytes, context: Any) -> AsyncIterator[bytes]:
        context.add_done_callback(lambda _: canceled.set())
        yield b"one"
        await asyncio.Event().wait()

    async with server(Endless=endless) as url:
        response = await http.send(call(f"{url}/Endless", streams=True))
        await response.close()
        await canceled.wait()


async def test_a_message_that_is_too_large_is_not_read() -> None:
    async def large(_: bytes, context: Any) -> bytes:
        return b"x" * 2000

    client = SocketClient(limit=1000)
    async with server(Large=large) as url:
        with pytest.raises(ResponseTooLarge):
            await client.send(call(f"{url}/Large"))
        await client.close()


async def test_a_closed_client_ends_the_calls_in_flight(http: SocketClient) -> None:
    begun = asyncio.Event()

    async def wait(_: bytes, context: Any) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    async with server(Wait=wait) as url:
        sending = asyncio.ensure_future(http.send(call(f"{url}/Wait")))
        await begun.wait()
        await http.close()
        with pytest.raises(CannotConnect) as caught:
            await sending
        assert caught.value.reason == "CLIENT_CLOSED"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_closed_client_ends_the_calls_that_are_not_connected(http: SocketClient, streams: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}/a.B/Echo"
        sending = asyncio.ensure_future(http.send(call(url, streams=streams)))
        connection, _ = await asyncio.to_thread(silent.accept)
        with connection:
            await http.close()
            with pytest.raises(CannotConnect) as caught:
                await sending
        assert caught.value.reason == "CLIENT_CLOSED"


async def test_a_canceled_caller_cancels_the_call(http: SocketClient) -> None:
    begun, canceled = asyncio.Event(), asyncio.Event()

    async def wait(_: bytes, context: Any) -> bytes:
        context.add_done_callback(lambda _: canceled.set())
        begun.set()
        await asyncio.Event().wait()
        return b""

    async with server(Wait=wait) as url:
        sending = asyncio.ensure_future(http.send(call(f"{url}/Wait")))
        await begun.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await canceled.wait()


def test_every_event_loop_has_channels_of_its_own() -> None:
    client = SocketClient()
    ready, stop, at = threading.Event(), threading.Event(), []

    async def serve() -> None:
        async with server(Echo=echo) as url:
            at.append(url)
            ready.set()
            await asyncio.to_thread(stop.wait)

    async def one() -> bytes:
        response = await client.send(call(f"{at[0]}/Echo"))
        return read_frames(await response.read())[0].data

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        assert [asyncio.run(one()) for _ in range(3)] == [b"hi"] * 3
    finally:
        stop.set()
        thread.join()


# -- what goes wrong on the way --------------------------------------------------------------------------------------


async def test_a_refused_connection_is_an_error_at_once_and_the_next_call_connects_again(http: SocketClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(CannotConnect, match=r"nobody answers at grpc://127.0.0.1.*connection refused") as caught:
        await http.send(call(f"grpc://127.0.0.1:{port}/a.B/Echo"))
    assert (caught.value.reason, caught.value.arrived) == ("CANNOT_CONNECT", False)
    async with server(port, Echo=echo) as url:
        # grpcio alone would not try to connect for a second after a failure.
        assert (await http.send(call(f"{url}/Echo", connect_timeout=None))).status == 200


async def test_a_host_that_does_not_exist_is_named(http: SocketClient) -> None:
    with pytest.raises(CannotConnect) as caught:
        await http.send(call("grpc://no-such-host.invalid:1/a.B/Echo"))
    assert (caught.value.reason, caught.value.arrived) == ("NO_SUCH_HOST", False)


async def test_a_server_that_says_nothing_is_not_waited_for(http: SocketClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        request = call(f"grpc://127.0.0.1:{silent.getsockname()[1]}/a.B/Echo", connect_timeout=0.05)
        with pytest.raises(TimedOut, match=r"did not accept the connection within 0.05 s") as caught:
            await http.send(request)
        assert caught.value.arrived is False


async def test_a_connection_timeout_of_one_call_does_not_end_the_others(http: SocketClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}/a.B/Echo"
        patient = asyncio.ensure_future(http.send(call(url, connect_timeout=None)))
        with pytest.raises(TimedOut):
            await http.send(call(url, connect_timeout=0.05))
        assert not patient.done()
        # It shares a channel with nobody now, and closing the client still ends it.
        another = asyncio.ensure_future(http.send(call(url, connect_timeout=None)))
        await asyncio.sleep(0)
        await http.close()
        patient.cancel()
        with pytest.raises(CannotConnect, match="the client was closed"):
            await another


@pytest.mark.parametrize(
    "problem",
    [
        (library.StatusCode.UNAVAILABLE, "the database is down"),
        (library.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: refused"),
        (library.StatusCode.UNKNOWN, "Unexpected error: [Errno 104] Connection reset by peer"),
        (library.StatusCode.CANCELLED, "the run was canceled"),
    ],
)
async def test_a_server_in_trouble_has_answered(http: SocketClient, problem: tuple[Any, str]) -> None:
    # As a lost connection, the message would be sent a second time.
    async def fail(_: bytes, context: Any) -> bytes:
        await context.abort(*problem)

    async with server(Fail=fail) as url:
        response = await http.send(call(f"{url}/Fail"))
    assert (response.headers["grpc-status"], response.headers["grpc-message"]) == (str(problem[0].value[0]), problem[1])


@pytest.mark.parametrize("streams", [False, True])
async def test_a_call_that_takes_too_long_ends(http: SocketClient, streams: bool) -> None:
    async def wait(_: bytes, context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def quiet(_: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.Event().wait()

    async with server(Wait=wait, Quiet=quiet, Echo=echo) as url:
        await http.send(call(f"{url}/Echo"))
        with pytest.raises(TimedOut, match=r"said nothing for 0.1 s") as caught:
            request = call(f"{url}/{'Quiet' if streams else 'Wait'}", streams=streams, read_timeout=0.1)
            await (await http.send(request)).read()
        assert caught.value.arrived is None
        assert (await http.send(call(f"{url}/Echo"))).status == 200


@pytest.mark.parametrize("first", [b"", b"one"])
async def test_a_server_that_dies_is_a_lost_connection(http: SocketClient, first: bytes) -> None:
    begun = asyncio.Event()

    async def wait(_: bytes, context: Any) -> AsyncIterator[bytes]:
        if first:
            yield first
        begun.set()
        await asyncio.Event().wait()

    async with server(Wait=wait) as url:
        reading = asyncio.ensure_future(_read(http, call(f"{url}/Wait", streams=True)))
        await begun.wait()
    with pytest.raises(CannotConnect) as caught:
        await reading
    assert (caught.value.reason, caught.value.arrived) == ("CONNECTION_LOST", None)


async def _read(http: SocketClient, request: HttpRequest) -> bytes:
    return await (await http.send(request)).read()


async def test_a_server_without_grpc_is_an_error_that_says_so(http: SocketClient) -> None:
    async def http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(http1, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        with pytest.raises(CannotConnect, match=r"http1\.x server") as caught:
            await http.send(call(f"grpc://127.0.0.1:{port}/a.B/Echo"))
        assert caught.value.arrived is False


@pytest.mark.parametrize(
    "headers", [{"X-Name": "é"}, {"X-Name": "a\nb"}, {"grpc-timeout": "1S"}, {"X Y": "1"}, {"x-bin": "?"}]
)
async def test_a_header_that_grpc_cannot_carry_is_refused(http: SocketClient, headers: dict[str, str]) -> None:
    with pytest.raises(CannotConnect) as caught:
        await http.send(call("grpc://127.0.0.1:1/a.B/Echo", headers=headers))
    assert caught.value.reason == "BAD_ADDRESS"


async def test_a_key_in_the_query_cannot_be_sent(http: SocketClient) -> None:
    with pytest.raises(ConfigError, match="gRPC has none"):
        await http.send(call("grpc://127.0.0.1:1/a.B/Echo?key=abc"))


async def test_a_proxy_is_not_used_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    client = SocketClient()
    async with server(Echo=echo) as url:
        assert (await client.send(call(f"{url}/Echo"))).status == 200
        with pytest.raises(CannotConnect) as caught:
            await client.send(call("grpc://agent.invalid:50051/a.B/Echo"))
        assert caught.value.reason == "CANNOT_CONNECT"  # it is the proxy that does not answer
    await client.close()


# -- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Any:
    trustme = pytest.importorskip("trustme")
    return TlsFiles(trustme.CA(), tmp_path_factory.mktemp("tls"))


class TlsFiles:
    """An authority, and files of certificates that it has issued."""

    def __init__(self, authority: Any, folder: Path) -> None:
        self.folder = folder
        self.server = authority.issue_cert("127.0.0.1")
        self.stranger = authority.issue_cert("elsewhere.example")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        self.authority = authority.cert_pem.bytes()
        own = authority.issue_cert("alice@example.com")
        own.private_key_and_cert_chain_pem.write_to_path(folder / "own.pem")

    def credentials(self, leaf: Any = None, *, mutual: bool = False) -> Any:
        leaf = leaf or self.server
        pair = (leaf.private_key_pem.bytes(), b"".join(each.bytes() for each in leaf.cert_chain_pems))
        return library.ssl_server_credentials([pair], self.authority if mutual else None, mutual)

    def context(self) -> PemContext:
        return PemContext.default(self.folder / "ca.pem")


async def test_tls_trusts_the_authorities_of_the_caller(tls: Any) -> None:
    async with server(credentials=tls.credentials(), Echo=echo) as url:
        for verify, works in ((tls.context(), True), (False, True), (True, False)):
            client = SocketClient(verify=verify)
            if works:
                assert (await client.send(call(f"{url}/Echo"))).status == 200
            else:
                with pytest.raises(CannotConnect, match="is not trusted") as caught:
                    await client.send(call(f"{url}/Echo"))
                assert (caught.value.reason, caught.value.arrived) == ("TLS", False)
            await client.close()


async def test_a_certificate_for_another_name_is_refused_unless_any_is_accepted(tls: Any) -> None:
    async with server(credentials=tls.credentials(tls.stranger), Echo=echo) as url:
        client = SocketClient(verify=tls.context())
        with pytest.raises(CannotConnect) as caught:
            await client.send(call(f"{url}/Echo"))
        assert caught.value.reason == "TLS"
        await client.close()
        client = SocketClient(verify=False)
        assert (await client.send(call(f"{url}/Echo"))).status == 200
        await client.close()


async def test_a_certificate_of_the_caller_opens_a_server_that_wants_one(tls: Any) -> None:
    async with server(credentials=tls.credentials(mutual=True), Echo=echo) as url:
        client = SocketClient(verify=tls.context())
        with pytest.raises(CannotConnect):
            await client.send(call(f"{url}/Echo"))
        await client.close()
        context = tls.context()
        context.client_certificate = ClientCertificate(tls.folder / "own.pem", None, None)
        client = SocketClient(verify=context)
        assert (await client.send(call(f"{url}/Echo"))).status == 200
        await client.close()


async def test_an_ssl_context_is_refused_with_what_to_pass() -> None:
    client = SocketClient(verify=ssl.create_default_context())
    with pytest.raises(ConfigError, match="cannot be used over gRPC: give verify="):
        await client.send(call("grpcs://127.0.0.1:1/a.B/Echo"))
    await client.close()
