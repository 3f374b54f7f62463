"""Certificates of callers, over real TLS."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from dragoman.auth.inbound.scheme import InvalidCredential
from dragoman.model.error import ConfigError
from dragoman.server.listen.tls import PeerCertificateProtocol, tls_options

AUTHORITY = trustme.CA()


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


def test_missing_or_wrong_files_are_errors_with_the_setting(tmp_path: Path) -> None:
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
