"""`dragoman serve` with certificates of its own and of its callers, as a process."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
import trustme
from support.server_process import LAST_LINE, ServerProcess

from dragoman import Agent, Client, sync
from dragoman.auth import MutualTLS
from dragoman.errors import AuthError, CannotConnect, Unauthenticated
from dragoman.testing import served

SRC = Path(__file__).resolve().parents[3] / "src"
AGENT = '''
from dragoman import Agent, Context

agent = Agent("vault", description="Keeps things")


@agent.skill
async def whoami(ctx: Context) -> str:
    """Say who is calling."""
    return ctx.user.id
'''
AUTHORITY, STRANGE_AUTHORITY = trustme.CA(), trustme.CA()


class Site(NamedTuple):
    """Where the server is, and the files of its authority and its callers."""

    url: str
    grpc: str
    ca: Path
    ann: Path
    mallory: Path

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tls")
    (folder / "app.py").write_text(AGENT)
    (folder / "dragoman.toml").write_text('[auth.mtls]\nby = "dns"\n')
    own = AUTHORITY.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(str(folder / "own.pem"))
    own.private_key_pem.write_to_path(str(folder / "own.key"))
    AUTHORITY.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, authority in (("ann", AUTHORITY), ("mallory", STRANGE_AUTHORITY)):
        certificate = authority.issue_cert(f"{name}.example")
        certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "COV"))}
    flags = ("--grpc", "0", "--auth", "mtls", "--tls-cert", "own.pem", "--tls-key", "own.key", "--tls-ca", "ca.pem")
    with ServerProcess.serve(folder, "app.py", *flags, environment={**kept, "PYTHONPATH": str(SRC)}) as server:
        server.find(LAST_LINE)
        grpc = re.search(r"\n  grpc    (\S+)\n", server.text)
        assert grpc is not None, server.text
        assert "  auth    mtls\n" in server.output
        yield Site(server.url, grpc[1], folder / "ca.pem", folder / "ann.pem", folder / "mallory.pem")
        assert server.end() == 0


async def test_a_caller_with_a_certificate_gets_in_and_is_known_by_it(site: Site) -> None:
    async with Client(site.url, auth=MutualTLS(site.ann, ca=site.ca)) as client:
        assert (await client.send(tool="whoami")).text == "cert|ann.example"


@pytest.mark.parametrize("page", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site"}])
def test_a_page_elsewhere_cannot_use_the_certificate_of_a_browser(site: Site, page: dict[str, str]) -> None:
    trusting = site.trusting()
    trusting.load_cert_chain(site.ann)
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    with httpx2.Client(base_url=site.url, verify=trusting, trust_env=False) as browser:
        assert browser.post("/message:send", json=body, headers=page).status_code == 403
        assert browser.post("/message:send", json=body, headers={"Origin": site.url}).status_code == 200


def test_the_head_of_a_request_is_bounded_here_too(site: Site) -> None:
    with httpx2.Client(base_url=site.url, verify=site.trusting(), trust_env=False) as stranger:
        response = stranger.get("/.well-known/agent-card.json", headers={"X-Large": "x" * 70_000})
    assert response.status_code == 431


def test_the_client_without_await_gets_in_too(site: Site) -> None:
    with sync.Client(site.url, auth=MutualTLS(site.ann, ca=site.ca)) as client:
        assert client.send(tool="whoami").text == "cert|ann.example"


async def test_a_caller_without_one_sees_the_card_and_does_not_get_in(site: Site) -> None:
    async with Client(site.url, verify=site.trusting()) as client:
        card = await client.card()
        assert list(card.security_schemes or {}) == ["mtls"]
        with pytest.raises((AuthError, Unauthenticated)):
            await client.send(tool="whoami")


async def test_a_certificate_of_another_authority_does_not_get_through_tls(site: Site) -> None:
    async with Client(site.url, auth=MutualTLS(site.mallory, ca=site.ca), retries=0) as client:
        with pytest.raises(CannotConnect):
            await client.send(tool="whoami")


async def test_a_caller_who_does_not_trust_the_server_s_authority_says_so(site: Site) -> None:
    async with Client(site.url, retries=0) as client:
        with pytest.raises(CannotConnect, match="certificate"):
            await client.send(tool="whoami")


# -- gRPC --------------------------------------------------------------------------------------------------------------


async def test_over_grpc_too_a_caller_is_known_by_its_certificate(site: Site) -> None:
    for target in (site.url, f"grpcs://{site.grpc}"):
        async with Client(target, transport="grpc", auth=MutualTLS(site.ann, ca=site.ca)) as client:
            assert (await client.send(tool="whoami")).text == "cert|ann.example"


async def test_over_grpc_strangers_are_refused_with_the_reason(site: Site) -> None:
    for options, says in (
        ({"verify": site.ca}, "closes the connection: perhaps it wants a certificate of yours"),
        ({"auth": MutualTLS(site.mallory, ca=site.ca)}, "closes the connection"),
        ({"auth": MutualTLS(site.ann)}, "is not trusted"),
    ):
        async with Client(f"grpcs://{site.grpc}", retries=0, **options) as client:
            with pytest.raises(CannotConnect, match=says) as caught:
                await client.send(tool="whoami")
            assert caught.value.arrived is False


async def test_a_grpc_call_to_the_wrong_port_fails_with_the_right_address(site: Site) -> None:
    with served(Agent("plain", description="Speaks no TLS"), grpc=0) as url:
        async with Client(url) as client:
            card = await client.card()
        plain = next(each.url for each in card.supported_interfaces or () if each.protocol_binding == "GRPC")
        for target, says in (
            (f"grpc://{site.grpc}", f"perhaps it speaks TLS: try grpcs://{site.grpc}"),
            (f"grpcs://{site.url.removeprefix('https://')}", "speaks TLS and is no gRPC port"),
            (f"grpcs://{plain}", f"does not speak TLS: try grpc://{plain}"),
        ):
            async with Client(target, verify=site.ca, retries=0) as client:
                with pytest.raises(CannotConnect, match=re.escape(says)):
                    await client.send("hello")
