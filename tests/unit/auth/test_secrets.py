"""Secrets stay secret: in errors, in what is printed of a credential, in logs."""

from __future__ import annotations

import logging
import traceback
from base64 import b64encode
from typing import Any
from urllib.parse import quote_plus

import pytest
from support.imported import modules_after

import dragoman.auth
from dragoman.auth import ApiKey, Basic, Bearer, Cookie, DeviceCode, MutualTLS, OAuth2
from dragoman.auth.outbound.choose import credential_of
from dragoman.model.error import AuthError

HUSH = "hush-s3cr3t"
OAUTH = {"oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": "/token"}}}}
DEVICE = {
    "oauth2SecurityScheme": {"flows": {"deviceCode": {"deviceAuthorizationUrl": "/device", "tokenUrl": "/token"}}}
}
QUERY = {"apiKeySecurityScheme": {"location": "query", "name": "key"}}


@pytest.mark.parametrize(
    "auth",
    [
        HUSH,
        (HUSH, HUSH),
        Bearer(HUSH),
        ApiKey(HUSH, name="n", location="query"),
        Basic(HUSH, HUSH),
        Cookie(HUSH),
        OAuth2("me", HUSH),
        DeviceCode("me"),
        MutualTLS("cert.pem", password=HUSH),
        [Bearer(HUSH), ApiKey(HUSH)],
        lambda card, scheme: HUSH,
    ],
)
def test_nothing_printed_of_a_credential_has_the_secret(auth: Any):
    credential = credential_of(auth)
    for text in (repr(credential), str(credential), f"{credential}", repr([credential])):
        assert HUSH not in text


def test_what_is_printed_still_tells_credentials_apart():
    assert repr(Bearer(env="TOKEN")) == "Bearer(env='TOKEN')"
    assert repr(ApiKey("k", name="n", location="query")) == "ApiKey(…, name='n', location='query')"
    assert repr(OAuth2("me", "s")) == "OAuth2('me', …)"
    assert repr(OAuth2("me")) == "OAuth2('me')"
    assert repr(Cookie("v")) == "Cookie(…, name='user')"


@pytest.mark.parametrize(
    "echo",
    [
        HUSH + ":+/",
        quote_plus(HUSH + ":+/"),
        b64encode(f"me:{quote_plus(HUSH + ':+/')}".encode()).decode(),
    ],
    ids=["as it is", "in the form", "in the header"],
)
async def test_an_issuer_that_echoes_the_secret_is_not_quoted(echo: str, call: Any, card: Any, site: Any):
    refusal = (400, {"error": f"bad {echo}", "error_description": f"the secret {echo} is wrong"})
    site.script = [refusal]
    with pytest.raises(AuthError) as caught:
        await call(OAuth2("me", HUSH + ":+/"), card({"o": OAUTH}, ["o"]))
    text = "".join(traceback.format_exception(caught.value))
    assert "the secret *** is wrong" in text
    assert HUSH not in text
    assert echo not in text


async def test_a_long_answer_of_an_issuer_is_cut_after_the_secret_is_gone(call: Any, card: Any, site: Any):
    site.script = [(400, {"error": "e", "error_description": "x" * 292 + HUSH + "y" * 1000})]
    with pytest.raises(AuthError) as caught:
        await call(OAuth2("me", HUSH), card({"o": OAUTH}, ["o"]))
    assert "hush" not in str(caught.value)
    assert len(str(caught.value)) < 500


async def test_no_log_record_has_a_secret(call: Any, card: Any, site: Any, caplog: pytest.LogCaptureFixture):
    async def pause(seconds: float) -> None: ...

    caplog.set_level(logging.DEBUG)
    site.gives_refresh = True
    site.accepts = {"body"}
    oauth = OAuth2("the client", "s3cr3t:+/%&ü")
    device = DeviceCode("me", prompt=lambda *words: None, _pause=pause)
    for auth, theirs in (
        (oauth, card({"o": OAUTH}, ["o"])),
        (device, card({"d": DEVICE}, ["d"])),
        (HUSH, card({"q": QUERY}, ["q"])),
        (Bearer(HUSH), None),
        (Cookie(HUSH), None),
        ((HUSH, HUSH), None),
    ):
        await call(auth, theirs)
    site.script = [(400, {"error": "invalid_grant", "error_description": "s3cr3t"})] * 2
    oauth.reject()
    with pytest.raises(AuthError):
        await call(oauth, card({"o": OAUTH}, ["o"]))
    logged = "\n".join(str(vars(record)) + record.getMessage() for record in caplog.records)
    for secret in (HUSH, "s3cr3t", "t0ken-", "r3fresh-", "dev1ce-c0de", b64encode(f"{HUSH}:{HUSH}".encode()).decode()):
        assert secret not in logged


def test_the_package_has_what_it_promises_and_loads_it_when_used():
    assert set(dir(dragoman.auth)) == set(dragoman.auth.__all__)
    assert all(getattr(dragoman.auth, name).__name__ == name for name in dragoman.auth.__all__)
    with pytest.raises(AttributeError, match="Kerberos"):
        _ = dragoman.auth.Kerberos
    assert not {"ssl", "msgspec", "aiohttp", "dragoman.auth.outbound"} & modules_after("import dragoman.auth")
