"""Certificates of callers, over real TLS."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn

from dragoman.auth.inbound.scheme import InvalidCredential
from dragoman.model.error import CannotConnect, ConfigError, Unauthenticated
from dragoman.net.aio import AioClient
from dragoman.net.exchange import HttpRequest
from dragoman.server.listen.tls import PeerCertificateProtocol, tls_options
from dragoman.transports.http import Request, respond, segments_of

AUTHORITY = trustme.CA()


class Site:
    """A server behind TLS that answers with who is calling."""

    def __init__(self, chain: Any) -> None:
        self.chain = chain
        self.url = ""

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive, segments_of(scope))
        try:
            user = await self.chain(request)
        except Unauthenticated as error:
            await respond(send, 401, str(error).encode())
            return
        await respond(send, 200, json.dumps([user.id, sorted(user.permissions)]).encode())

    async def ask(self, certificate: trustme.LeafCert | None, authority: trustme.CA = AUTHORITY) -> tuple[int, Any]:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        http = AioClient(verify=context)
        try:
            for _ in range(2):  # the second on the same connection
                response = await http.send(HttpRequest("GET", self.url))
                body = await response.read()
        finally:
            await http.close()
        return response.status, json.loads(body) if response.status == 200 else body.decode()


@pytest.fixture
async def site(door: Any, tmp_path: Path) -> AsyncIterator[Site]:
    own = AUTHORITY.issue_cert("127.0.0.1")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    made = Site(door.chain("mtls", mtls={"by": "dns", "users": {"known.example": "alice"}}))
    options = tls_options(str(tmp_path / "own.pem"), None, str(tmp_path / "ca.pem"))
    options["http"] = partial(options["http"], limit=65_536)
    config = uvicorn.Config(made.app, interface="asgi3", lifespan="off", log_config=None, **options)
    server = uvicorn.Server(config)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        made.url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        running = asyncio.create_task(server.serve(sockets=[listener]))
        yield made
        server.should_exit = True
        await running


async def test_a_caller_is_known_by_the_name_on_its_certificate(site: Site) -> None:
    assert await site.ask(AUTHORITY.issue_cert("agent.example")) == (200, ["cert|agent.example", []])


async def test_a_certificate_can_stand_for_a_user(site: Site) -> None:
    assert await site.ask(AUTHORITY.issue_cert("known.example")) == (200, ["alice", ["count"]])


async def test_a_caller_without_a_certificate_is_asked_for_one(site: Site) -> None:
    status, reason = await site.ask(None)
    assert status == 401
    assert "mtls" in reason


async def test_a_certificate_of_another_authority_does_not_get_through_tls(site: Site) -> None:
    with pytest.raises(CannotConnect):
        await site.ask(trustme.CA().issue_cert("known.example"))


async def test_a_certificate_of_another_kind_of_name_is_refused(site: Site) -> None:
    status, reason = await site.ask(AUTHORITY.issue_cert("somebody@example.com"))
    assert (status, "no name" in reason) == (401, True)


def shown(certificate: trustme.LeafCert) -> dict[str, Any]:
    pem = certificate.cert_chain_pems[0].bytes().decode()
    return {"extensions": {"tls": {"client_cert_chain": [pem], "client_cert_error": None}}}


@pytest.mark.parametrize(
    ("by", "identity"), [("email", "a@example.com"), ("dns", "a.example"), ("uri", None), ("subject", "")]
)
async def test_the_settings_say_which_name_counts(door: Any, by: str, identity: str | None) -> None:
    certificate = AUTHORITY.issue_cert("a@example.com", "a.example", common_name="A")
    (scheme,) = door.schemes("mtls", mtls={"by": by})
    asked = door.asked(**shown(certificate))
    if identity is None:
        with pytest.raises(InvalidCredential):
            await scheme.identify(asked)
        return
    user = await scheme.identify(asked)
    assert user.id == f"cert|{identity}" if identity else "CN=A" in user.id


async def test_a_list_of_names_keeps_others_out(door: Any) -> None:
    (scheme,) = door.schemes("mtls", mtls={"by": "dns", "allow": ["a.example"]})
    assert (await scheme.identify(door.asked(**shown(AUTHORITY.issue_cert("a.example"))))).name == "a.example"
    with pytest.raises(InvalidCredential, match="not on the list"):
        await scheme.identify(door.asked(**shown(AUTHORITY.issue_cert("b.example"))))


async def test_a_certificate_that_runs_out_while_connected_stops_counting(door: Any) -> None:
    (scheme,) = door.schemes("mtls", mtls={"by": "dns"})
    end = datetime.fromtimestamp(door.clock.now() / 1000 + 60, UTC)
    asked = door.asked(**shown(AUTHORITY.issue_cert("a.example", not_after=end)))
    assert await scheme.identify(asked) is not None
    door.clock.move(60)
    with pytest.raises(InvalidCredential, match="expired"):
        await scheme.identify(asked)


async def test_a_user_who_was_revoked_is_refused_with_a_certificate_too(door: Any) -> None:
    (scheme,) = door.schemes("mtls", mtls={"by": "dns", "users": {"a.example": "alice"}})
    asked = door.asked(**shown(AUTHORITY.issue_cert("a.example")))
    assert (await scheme.identify(asked)).id == "alice"
    door.users.revoke("alice")
    with pytest.raises(InvalidCredential):
        await scheme.identify(asked)


@pytest.mark.parametrize(
    "tls", [{"client_cert_chain": ["nonsense"]}, {"client_cert_chain": ["x"], "client_cert_error": "expired"}]
)
async def test_a_certificate_that_cannot_be_read_is_refused(door: Any, tls: dict[str, Any]) -> None:
    (scheme,) = door.schemes("mtls")
    with pytest.raises(InvalidCredential):
        await scheme.identify(door.asked(extensions={"tls": tls}))
    assert await scheme.identify(door.asked(("X-Client-Cert", "forged"))) is None


def test_files_that_are_missing_or_wrong_are_told(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.pem", tmp_path / "bad.pem"
    AUTHORITY.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(good))
    bad.write_text("nonsense")
    for cert, key, ca, reason in (
        (str(tmp_path / "none.pem"), None, None, "tls_cert: there is no file"),
        (str(bad), None, None, "must be a PEM file with a certificate"),
        (str(good), None, str(bad), "tls_ca"),
    ):
        with pytest.raises(ConfigError, match=reason):
            tls_options(cert, key, ca)
    assert "http" not in tls_options(str(good), None, None)
    asking = tls_options(str(good), None, str(good), required=True)
    assert (asking["http"], asking["ssl_cert_reqs"]) == (PeerCertificateProtocol, ssl.CERT_REQUIRED)
