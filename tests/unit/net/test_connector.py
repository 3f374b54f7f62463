"""Connections that a guard lets through. Nothing here reaches more than 127.0.0.1: other sockets are never made."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import trustme
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from support.web_app import serving

from dragoman.net.connector import GuardedConnector, GuardedResolver
from dragoman.net.guard import AddressForbidden, AddressGuard

PUBLIC = "8.8.8.8"
METADATA = "http://169.254.169.254/latest/meta-data/"


class Names(AbstractResolver):
    """A resolver that gives these answers, one after another, and the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []
        self.closed = False

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append((host, port))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        # A port of its own: nobody may be led to another one.
        return [ResolveResult(hostname=host, host=ip, port=1, family=socket.AF_INET, proto=0, flags=0) for ip in answer]

    async def close(self) -> None:
        self.closed = True


class Sockets:
    """Makes sockets to 127.0.0.1 alone, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def __call__(self, info: Any) -> socket.socket:
        family, kind, proto, _, (ip, port, *_) = info
        self.asked.append((ip, port))
        if ip != "127.0.0.1":
            raise ConnectionRefusedError(111, "not in a test")
        return socket.socket(family, kind, proto)


class Web:
    """A server on 127.0.0.1 that sends who asks for `/away` to the metadata service."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.got.append(str(request.rel_url))
        if request.path == "/away":
            return web.Response(status=302, headers={"Location": METADATA})
        return web.Response(text="here")


@asynccontextmanager
async def opened(tls: ssl.SSLContext | None = None) -> AsyncGenerator[Web]:
    here = Web()
    async with serving([web.route("*", "/{path:.*}", here.answer)], tls) as url:
        here.port = urlsplit(url).port or 0
        yield here


@pytest.fixture
async def here() -> AsyncIterator[Web]:
    async with opened() as each:
        yield each


@pytest.fixture
def sockets() -> Sockets:
    return Sockets()


@asynccontextmanager
async def session(
    names: Names, sockets: Sockets, *allow: str, trust_env: bool = False, **options: Any
) -> AsyncGenerator[aiohttp.ClientSession, None]:
    connector = GuardedConnector(AddressGuard(allow), resolver=names, socket_factory=sockets, **options)
    async with aiohttp.ClientSession(connector=connector, trust_env=trust_env) as each:
        yield each


async def get(session: aiohttp.ClientSession, url: str, **options: Any) -> str:
    async with session.get(url, **options) as response:
        return await response.text()


# -- names -----------------------------------------------------------------------------------------------------------


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(sockets: Sockets) -> None:
    names = Names([PUBLIC], ["127.0.0.1"])
    async with session(names, sockets) as http:
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(http, "http://rebinding.example:8080/")
    assert names.asked == [("rebinding.example", 8080)]
    assert sockets.asked == [(PUBLIC, 8080)]


async def test_a_name_that_moved_inside_is_refused_at_the_next_look_up(sockets: Sockets) -> None:
    names = Names([PUBLIC], ["127.0.0.1"])
    async with session(names, sockets, use_dns_cache=False) as http:
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(http, "http://rebinding.example/")
        with pytest.raises(AddressForbidden, match=r"^rebinding\.example is a loopback address"):
            await get(http, "http://rebinding.example/")
    assert sockets.asked == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "inside", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fe80::1%eth0"]
)
@pytest.mark.parametrize("first", [True, False])
async def test_one_address_inside_refuses_all_of_them(sockets: Sockets, inside: str, first: bool) -> None:
    names = Names([inside, PUBLIC] if first else [PUBLIC, "2600::1", inside])
    async with session(names, sockets) as http:
        with pytest.raises(AddressForbidden, match=r"^mixed\.example ") as caught:
            await get(http, "https://mixed.example/")
    assert ip_address(caught.value.address) == ip_address(inside)
    assert sockets.asked == []


async def test_every_public_address_of_a_name_is_tried(sockets: Sockets) -> None:
    async with session(Names(["8.8.8.8", "2600::1", "8.8.4.4"]), sockets) as http:
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(http, "https://many.example/")
    assert set(sockets.asked) == {("8.8.8.8", 443), ("2600::1", 443), ("8.8.4.4", 443)}


async def test_an_answer_that_is_no_address_is_not_looked_up_again_by_anyone(sockets: Sockets) -> None:
    async with session(Names(["localhost"]), sockets, "odd.example") as http:
        with pytest.raises(AddressForbidden):
            await get(http, "http://odd.example/")
    assert sockets.asked == []


async def test_a_name_without_an_address_is_no_such_host(sockets: Sockets) -> None:
    async with session(Names([]), sockets) as http:
        with pytest.raises(aiohttp.ClientConnectorDNSError):
            await get(http, "http://nowhere.example/")


async def test_all_who_wait_for_one_look_up_are_refused(sockets: Sockets) -> None:
    names = Names(["192.168.1.1"])
    async with session(names, sockets) as http:
        outcomes = await asyncio.gather(*(get(http, "http://slow.example/") for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in outcomes] == [AddressForbidden] * 5
    assert sockets.asked == []


async def test_a_name_that_is_allowed_may_lead_inside(here: Web, sockets: Sockets) -> None:
    names = Names(["127.0.0.1"])
    async with session(names, sockets, f"hooks.internal:{here.port}") as http:
        assert await get(http, f"http://hooks.internal:{here.port}/a") == "here"
        assert await get(http, f"http://hooks.internal:{here.port}/b") == "here"
        with pytest.raises(AddressForbidden):
            await get(http, f"http://hooks.internal:{here.port + 1}/")
    assert here.got == ["/a", "/b"]
    # The second one went over the same connection.
    assert sockets.asked == [("127.0.0.1", here.port)]


async def test_tls_still_asks_for_the_certificate_of_the_name(sockets: Sockets) -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("hooks.example").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    async with opened(server) as here, session(Names(["127.0.0.1"]), sockets, "127.0.0.1", ssl=client) as http:
        assert await get(http, f"https://hooks.example:{here.port}/") == "here"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(http, f"https://other.example:{here.port}/")


# -- addresses in URLs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "0.0.0.0", "[::]", "100.64.0.1",
        "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[2002:7f00:1::]", "[64:ff9b::7f00:1]", "2130706433", "0x7f.1",
        "017700000001", "127.1", "\uff11\uff12\uff17.0.0.1", "127.0.0.1.", "localhost", "a.localhost.",
        "metadata.google.internal", "printer.local", "[fe80::1%25lo]",
    ],
)  # fmt: skip
async def test_a_host_inside_is_neither_looked_up_nor_connected_to(sockets: Sockets, host: str) -> None:
    names = Names([PUBLIC])
    async with session(names, sockets) as http:
        with pytest.raises(AddressForbidden):
            await get(http, f"http://{host}:8080/")
    assert names.asked == []
    assert sockets.asked == []


async def test_an_address_that_is_allowed_is_reached_and_its_neighbors_are_not(here: Web, sockets: Sockets) -> None:
    async with session(Names([PUBLIC]), sockets, "127.0.0.1") as http:
        assert await get(http, f"http://127.0.0.1:{here.port}/") == "here"
        with pytest.raises(AddressForbidden):
            await get(http, f"http://127.0.0.2:{here.port}/")
    assert sockets.asked == [("127.0.0.1", here.port)]


@pytest.mark.parametrize("answers", [["127.0.0.1"], ["127.0.0.1", "127.0.0.2"], ["10.0.0.1", "::1", "10.0.0.2"]])
@pytest.mark.parametrize("delay", [None, 0.25])
async def test_what_did_not_come_from_the_resolver_is_checked_when_its_socket_is_made(
    sockets: Sockets, answers: list[str], delay: float | None
) -> None:
    class Poisoned(GuardedConnector):
        async def _resolve_host(self, host: str, port: int, traces: Any = None) -> list[ResolveResult]:
            return [{"hostname": host, "host": ip, "port": port, "family": 0, "proto": 0, "flags": 0} for ip in answers]

    connector = Poisoned(AddressGuard(), resolver=Names([PUBLIC]), socket_factory=sockets, happy_eyeballs_delay=delay)
    async with aiohttp.ClientSession(connector=connector) as http:
        with pytest.raises(AddressForbidden, match=r"^poisoned\.example is a"):
            await get(http, "http://poisoned.example/")
    assert sockets.asked == []


async def test_a_socket_to_another_port_is_not_made(here: Web, sockets: Sockets) -> None:
    class Astray(GuardedConnector):
        async def _resolve_host(self, host: str, port: int, traces: Any = None) -> list[ResolveResult]:
            found = await super()._resolve_host(host, port, traces)
            return [{**each, "port": here.port} for each in found]

    connector = Astray(AddressGuard(["127.0.0.1"]), resolver=Names(["127.0.0.1"]), socket_factory=sockets)
    async with aiohttp.ClientSession(connector=connector) as http:
        with pytest.raises(AddressForbidden, match="port 9000"):
            await get(http, "http://hooks.example:9000/")
    assert (here.got, sockets.asked) == ([], [])


# -- redirects and proxies -------------------------------------------------------------------------------------------


async def test_a_redirect_is_not_followed_to_the_metadata_service(here: Web, sockets: Sockets) -> None:
    async with session(Names([PUBLIC]), sockets, "127.0.0.1") as http:
        async with http.post(f"http://127.0.0.1:{here.port}/away", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (302, METADATA)
        # Nor by someone who forgot to say so.
        with pytest.raises(AddressForbidden, match=r"^169\.254\.169\.254 is a metadata service"):
            await get(http, f"http://127.0.0.1:{here.port}/away")
    assert here.got == ["/away", "/away"]
    assert set(sockets.asked) == {("127.0.0.1", here.port)}


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Web]:
    async with opened() as each:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{each.port}")
        yield each


async def test_the_proxy_of_the_environment_is_not_used(here: Web, proxy: Web, sockets: Sockets) -> None:
    async with session(Names(["127.0.0.1"]), sockets, "127.0.0.1") as http:
        assert await get(http, f"http://hooks.example:{here.port}/direct") == "here"
    assert (here.got, proxy.got) == (["/direct"], [])


async def test_a_request_over_a_proxy_is_refused(proxy: Web, sockets: Sockets) -> None:
    async with session(Names([PUBLIC]), sockets, "127.0.0.1", trust_env=True) as http:
        with pytest.raises(AddressForbidden, match="proxy"):
            await get(http, "http://hooks.example/")
        with pytest.raises(AddressForbidden, match="proxy"):
            await get(http, "http://hooks.example/", proxy=f"http://127.0.0.1:{proxy.port}")
    assert (proxy.got, sockets.asked) == ([], [])


# -- the resolver by itself ------------------------------------------------------------------------------------------


async def test_a_resolver_gives_out_numbers_and_the_port_that_was_asked_for() -> None:
    resolver = GuardedResolver(AddressGuard(), Names([PUBLIC, "2600:0:0::1"]))
    found = await resolver.resolve("hooks.example", 443)
    assert [(each["host"], each["port"], each["family"]) for each in found] == [
        (PUBLIC, 443, socket.AF_INET),
        ("2600::1", 443, socket.AF_INET6),
    ]
    assert all(each["flags"] & socket.AI_NUMERICHOST for each in found)


@pytest.mark.parametrize("host", ["localhost", "db.internal", "metadata", "127.0.0.1", "2130706433"])
async def test_a_resolver_does_not_look_up_what_is_inside(host: str) -> None:
    names = Names([PUBLIC])
    with pytest.raises(AddressForbidden):
        await GuardedResolver(AddressGuard(), names).resolve(host, 80)
    assert names.asked == []


async def test_a_resolver_closes_what_it_made_and_not_what_it_was_given() -> None:
    names = Names([PUBLIC])
    await GuardedResolver(AddressGuard(), names).close()
    assert not names.closed
    # The system's own resolver knows localhost without asking anyone.
    own = GuardedResolver(AddressGuard(["localhost"]))
    assert {each["host"] for each in await own.resolve("localhost", 80)} == {"127.0.0.1"}
    await own.close()
