"""Client certificates over real TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from support.web_app import serving

from dragoman.auth import Bearer, MutualTLS
from dragoman.auth.outbound.choose import credential_of
from dragoman.model.error import AuthError, CannotConnect, ConfigError
from dragoman.net.aio import AioClient
from dragoman.net.exchange import HttpRequest


class Papers:
    """An authority, and a certificate it gave to a caller, as files."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        mine = self.authority.issue_cert("caller@a.example", common_name="the caller")
        self.ca, self.cert, self.key, self.both, self.locked = (
            folder / name for name in ("ca.pem", "cert.pem", "key.pem", "both.pem", "locked.pem")
        )
        self.authority.cert_pem.write_to_path(self.ca)
        mine.cert_chain_pems[0].write_to_path(self.cert)
        mine.private_key_pem.write_to_path(self.key)
        mine.private_key_and_cert_chain_pem.write_to_path(self.both)
        key = serialization.load_pem_private_key(mine.private_key_pem.bytes(), None)
        self.locked.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"hush"),
            )
        )


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


@pytest.fixture
async def address(papers: Papers) -> AsyncIterator[str]:
    """A server that lets nobody in without a certificate and answers with the name on it."""

    async def name(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = dict(pair[0] for pair in request.transport.get_extra_info("peercert")["subject"])
        return web.Response(text=f"{subject['commonName']} {request.headers.get('Authorization', '')}".strip())

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(papers.ca))
    context.verify_mode = ssl.CERT_REQUIRED
    papers.authority.issue_cert("127.0.0.1").configure_cert(context)
    async with serving([web.get("/", name)], context) as url:
        yield url


async def get(address: str, auth: object, verify: bool | ssl.SSLContext | str = True) -> str:
    credential = credential_of(auth)
    assert credential is not None
    context = credential.ssl_context(verify)
    assert context is not None
    http = AioClient(verify=context)
    try:
        request = HttpRequest("GET", address)
        await credential.apply(request, None, http)
        return (await (await http.send(request)).read()).decode()
    finally:
        await http.close()


GIVEN: dict[str, Callable[[Papers], tuple[MutualTLS, bool | str]]] = {
    "two files": lambda papers: (MutualTLS(papers.cert, papers.key, ca=papers.ca), True),
    "one file": lambda papers: (MutualTLS(str(papers.both), ca=str(papers.ca)), True),
    "a key with a password": lambda papers: (MutualTLS(papers.cert, papers.locked, "hush", ca=papers.ca), True),
    "authorities as verify": lambda papers: (MutualTLS(papers.both), str(papers.ca)),
    "a server that need not be trusted": lambda papers: (MutualTLS(papers.both), False),
}


@pytest.mark.parametrize("given", GIVEN)
async def test_a_certificate_lets_the_caller_in(address: str, papers: Papers, given: str):
    auth, verify = GIVEN[given](papers)
    assert await get(address, auth, verify) == "the caller"


async def test_the_authorities_may_be_a_folder(papers: Papers, tmp_path: Path):
    assert MutualTLS(papers.both, ca=tmp_path).ssl_context(True) is not None


async def test_a_context_of_ones_own_is_given_the_certificate(address: str, papers: Papers):
    own = ssl.create_default_context(cafile=str(papers.ca))
    assert MutualTLS(papers.both).ssl_context(own) is own
    assert await get(address, MutualTLS(papers.both), own) == "the caller"


async def test_a_certificate_does_not_make_the_server_trusted(address: str, papers: Papers):
    with pytest.raises(CannotConnect) as caught:
        await get(address, MutualTLS(papers.both))
    assert caught.value.reason == "TLS"


async def test_a_certificate_and_a_token_are_sent_together(address: str, papers: Papers):
    both = [MutualTLS(papers.both, ca=papers.ca), Bearer("abc")]
    assert await get(address, both) == "the caller Bearer abc"


async def test_without_a_certificate_the_server_lets_nobody_in(address: str, papers: Papers):
    http = AioClient(verify=ssl.create_default_context(cafile=str(papers.ca)))
    with pytest.raises(CannotConnect):
        await (await http.send(HttpRequest("GET", address))).read()
    await http.close()


async def test_a_request_without_tls_is_refused(papers: Papers, http: Any):
    with pytest.raises(AuthError, match="https://"):
        await MutualTLS(papers.both).apply(HttpRequest("GET", "http://a.example/"), None, http)


def test_wrong_files_are_errors_with_the_reason(papers: Papers, tmp_path: Path):
    stranger = tmp_path / "stranger.pem"
    trustme.CA().issue_cert("x.example").private_key_pem.write_to_path(stranger)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    cases = [
        (MutualTLS(tmp_path / "none.pem"), "there is no file"),
        (MutualTLS(papers.cert, tmp_path / "none.pem"), "there is no file"),
        (MutualTLS(papers.both, ca=tmp_path / "none.pem"), "there is no file"),
        (MutualTLS(papers.both, ca=garbage), "certificate authorities"),
        (MutualTLS(garbage), "must be PEM files"),
        (MutualTLS(papers.cert), "must be PEM files"),
        (MutualTLS(papers.cert, stranger), "is not that of"),
        (MutualTLS(papers.cert, papers.locked), "pass password="),
        (MutualTLS(papers.cert, papers.locked, "s3cr3t"), "does not open the key"),
    ]
    for credential, text in cases:
        with pytest.raises(ConfigError) as caught:
            credential.ssl_context(True)
        assert text in str(caught.value)
        assert "s3cr3t" not in str(caught.value)


def test_a_certificate_is_not_tried_again(papers: Papers):
    assert not MutualTLS(papers.both).reject()
