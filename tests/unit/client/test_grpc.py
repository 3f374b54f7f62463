"""The client over gRPC: credentials, TLS, limits, and servers that are given by their address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Client, Server, State, User
from dragoman.auth import ApiKey, Basic, Bearer, MutualTLS
from dragoman.client.connection import Sender
from dragoman.errors import AuthError, CannotConnect, ConfigError, MethodNotFound, ResponseTooLarge, TimedOut
from dragoman.net.exchange import Headers, HttpRequest
from dragoman.sync import Client as SyncClient
from dragoman.testing import served

pytest.importorskip("grpc")

PACKAGES = pytest.mark.parametrize("protocol", ["1.0", "0.3"])
Metadata = list[dict[str, str]]


def counter() -> Agent:
    agent = Agent("counter", description="Counts")

    @agent.skill(default=True)
    async def count(to: int = 3) -> Any:
        for number in range(to):
            yield f"{number} "
            await asyncio.sleep(0)

    @agent.skill
    async def large(size: int) -> str:
        return "x" * size

    @agent.skill
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    return agent


def address_of(url: str) -> str:
    """The address of gRPC on the card of a server."""
    with SyncClient(url) as client:
        found = [each.url for each in client.card().supported_interfaces if each.protocol_binding == "GRPC"]
    return found[0]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(counter(), grpc=0) as url:
        yield url


@pytest.fixture(scope="module")
def address(url: str) -> str:
    return address_of(url)


# -- credentials -----------------------------------------------------------------------------------------------------


class Door:
    """Lets in who has the key; `seen` are the headers of all requests."""

    def __init__(self) -> None:
        self.seen: Metadata = []
        self.key = ("authorization", "Bearer new")

    async def __call__(self, request: Any) -> User | None:
        self.seen.append(dict(request.headers))
        name, value = self.key
        return User("alice") if request.headers.get(name) == value else None


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[str, Door]]:
    door = Door()
    with served(counter(), auth=door, grpc=0) as url:
        yield url, door


@PACKAGES
@pytest.mark.parametrize(
    ("auth", "key"),
    [
        (Bearer("abc"), ("authorization", "Bearer abc")),
        (ApiKey("abc", name="X-Own-Key"), ("x-own-key", "abc")),
        (Basic("ada", "pw"), ("authorization", "Basic YWRhOnB3")),
    ],
)
async def test_credentials_are_metadata(
    guarded: tuple[str, Door], auth: object, key: tuple[str, str], protocol: str
) -> None:
    url, door = guarded
    door.key = key
    async with Client(url, transport="grpc", protocol=protocol, auth=auth) as client:
        assert (await client.send("3")).state is State.COMPLETED
    async with Client(url, transport="grpc", protocol=protocol) as client:
        with pytest.raises(AuthError, match="requires authentication") as caught:
            await client.send("3")
        assert caught.value.status == 401
        with pytest.raises(AuthError):
            await anext(aiter(client.stream("3")))


async def test_a_token_that_has_expired_is_renewed_once(guarded: tuple[str, Door]) -> None:
    url, door = guarded
    door.key = ("authorization", "Bearer new")
    tokens = iter(["old", "new", "new"])

    async def token(card: object, scheme: object) -> str:
        return next(tokens)

    async with Client(url, transport="grpc", auth=token) as client:
        assert (await client.send("3")).state is State.COMPLETED


class RecordingClient:
    """An `HttpClient` that records what it is to send, and wants credentials."""

    def __init__(self) -> None:
        self.sent: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> Any:
        self.sent.append(request)
        return self

    status, headers = 401, Headers()

    async def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.parametrize(
    ("origin", "called", "goes"),
    [
        ("https://a.example", "grpcs://a.example:50051", True),
        ("http://a.example:8080", "grpc://a.example:50051", True),
        ("http://a.example:8080", "grpcs://a.example:50051", True),
        ("grpc://a.example:50051", "grpc://a.example:50051", True),
        ("https://a.example", "grpc://a.example:50051", False),
        ("https://a.example", "grpcs://b.example:50051", False),
        ("https://a.example", "https://a.example:8443", False),
    ],
)
async def test_credentials_go_to_the_host_of_the_card_and_never_lose_their_tls(
    origin: str, called: str, goes: bool
) -> None:
    http = RecordingClient()
    sender = Sender(http, origin=origin, credential=Bearer("secret"))
    request = HttpRequest("POST", f"{called}/lf.a2a.v1.A2AService/GetTask")
    if goes:
        await sender.send(request)
    else:
        says = "not sent without TLS" if called.startswith("grpc://") else "are for .* alone"
        with pytest.raises(AuthError, match=says):
            await sender.send(request)
    assert ("Authorization" in http.sent[0].headers) is goes


# -- TLS -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutual", [False, True])
async def test_tls_and_certificates_of_both_ends(tmp_path: Path, mutual: bool) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.issue_cert("ada@example.com").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    settings: Any = {"tls_ca": str(tmp_path / "ca.pem"), "auth": ["mtls"]} if mutual else {}
    with served(counter(), grpc=0, tls_cert=str(tmp_path / "server.pem"), **settings) as url:
        target = f"grpcs://{address_of(url) if not mutual else await _address(url)}"
        auth = MutualTLS(tmp_path / "own.pem") if mutual else None
        async with Client(target, verify=tmp_path / "ca.pem", auth=auth) as client:
            assert (await client.send("3")).state is State.COMPLETED
        async with Client(target, verify=False, auth=auth) as client:
            assert (await client.send("3")).state is State.COMPLETED
        async with Client(target, auth=auth) as client:
            with pytest.raises(CannotConnect) as caught:
                await client.send("3")
            assert caught.value.reason == "TLS"


async def _address(url: str) -> str:
    async with Client(url) as client:
        return next(each.url for each in (await client.card()).supported_interfaces if each.protocol_binding == "GRPC")


# -- limits ----------------------------------------------------------------------------------------------------------


async def test_what_is_too_large_is_not_read(url: str) -> None:
    async with Client(url, transport="grpc", limit=10_000) as client:
        with pytest.raises(ResponseTooLarge):
            await client.call("large", size=20_000)
        with pytest.raises(ResponseTooLarge):
            async for _ in client.stream(tool="large", arguments={"size": 20_000}):
                pass
        assert len(await client.call("large", size=2_000)) == 2_000


async def test_an_agent_that_says_nothing_is_not_waited_for(url: str) -> None:
    async with Client(url, transport="grpc", idle_timeout=0.2) as client:
        with pytest.raises(TimedOut, match=r"said nothing for 0\.2 s"):
            await client.call("never")


# -- servers by their address ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [None, "1.0", "1.1", "0.3"])
async def test_an_address_of_grpc_is_enough(address: str, protocol: str | None) -> None:
    async with Client(f"grpc://{address}", protocol=protocol) as client:
        card = await client.card()
        assert card.name == ("counter" if protocol in (None, "0.3") else address)  # 1.x has no method for it
        assert (await client.send("3")).text == "0 1 2 "
        assert (client.transport, client.protocol) == ("grpc", protocol or "1.0")


def test_an_address_of_grpc_is_enough_for_who_does_not_await(address: str) -> None:
    with SyncClient(f"grpc://{address}") as client:
        assert client.send("3").text == "0 1 2 "
        assert "".join(event.text for event in client.stream("3")) == "0 1 2 "


async def test_each_agent_of_a_server_is_called_by_its_card_and_by_its_address() -> None:
    other = Agent("other", description="Says who it is")

    @other.skill(default=True)
    async def say() -> str:
        return "I am the other one"

    with served(Server(counter(), other), grpc=0) as url:
        async with Client(f"{url}/agents/other", transport="grpc") as client:
            assert (await client.send("who?")).text == "I am the other one"
        async with Client(f"grpc://{await _address(url)}/other") as client:
            assert (await client.send("who?")).text == "I am the other one"


async def test_a_grpc_server_without_a2a_is_a_clear_error() -> None:
    library = pytest.importorskip("grpc.aio")
    server = library.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with Client(f"grpc://127.0.0.1:{port}") as client:
            with pytest.raises(MethodNotFound):
                await client.send("3")
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"protocol": "0.1"}, r"A2A 0\.1 has no gRPC"),
        ({"trust": True}, "a card that comes over gRPC has no signature"),
    ],
)
def test_an_option_that_a_grpc_address_does_not_support_is_refused_at_once(options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Client("grpc://127.0.0.1:1", **options)
