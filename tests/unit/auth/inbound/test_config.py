"""The tables of the settings file: what is wrong is told, with what was meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt import PyJWK
from support.imported import modules_after

from dragoman.auth.inbound.config import NAMES, build_schemes
from dragoman.model.error import ConfigError

TOKEN = {"issuer": "https://id.example", "audience": "x", "jwks_url": "https://id.example/keys"}


def test_schemes_come_in_the_order_they_are_named_and_once(door: Any) -> None:
    names = [scheme.name for scheme in door.schemes("basic", "cookie", "basic", "mtls")]
    assert names == ["basic", "cookie", "mtls"]
    assert set(NAMES) == {"cookie", "bearer", "apikey", "basic", "oauth2", "oidc", "mtls"}


@pytest.mark.parametrize(
    ("names", "tables", "expected"),
    [
        (["baerer"], {}, "there is no scheme `baerer`; did you mean `bearer`?"),
        (["zzz"], {}, "there are cookie, bearer"),
        (["basic"], {"apikei": {}}, "there is no scheme `apikei`"),
        (["basic"], {"bearer": TOKEN}, "add 'bearer' to auth"),
        (["basic"], {"basic": {"a": 1}}, "[auth.basic]: there is no setting `a`; there are none"),
        (["bearer"], {"bearer": {"audiense": "x"}}, "there is no setting `audiense`; did you mean `audience`?"),
        (["bearer"], {"bearer": {"issuer": 5}}, "[auth.bearer] issuer: Expected `str"),
        (["bearer"], {"bearer": {"audience": "x"}}, "set jwks_url, jwks_file or pem"),
        (["bearer"], {"bearer": {"users": False}}, "users = false leaves nobody"),
        (["bearer"], {"bearer": {"jwks_url": "https://id.example"}}, "needs audience"),
        (["bearer"], {"bearer": {**TOKEN, "audience": ""}}, "needs audience"),
        (["bearer"], {"bearer": {**TOKEN, "pem": "x"}}, "keep one of"),
        (["bearer"], {"bearer": {**TOKEN, "jwks_url": "http://id.example/keys"}}, "must begin with https://"),
        (["bearer"], {"bearer": {**TOKEN, "algorithms": ["HS256"]}}, "there is no `HS256`; did you mean"),
        (["bearer"], {"bearer": {**TOKEN, "algorithms": ["none"]}}, "there is no `none`"),
        (["bearer"], {"bearer": {**TOKEN, "scopes": ['a"b']}}, "cannot stand in a header"),
        (["bearer"], {"bearer": {**TOKEN, "leeway": -1}}, "from 0 to 600"),
        (["bearer"], {"bearer": {"audience": "x", "jwks_file": "missing"}}, "cannot be read"),
        (["oidc"], {}, "[auth.oidc] needs issuer"),
        (["oidc"], {"oidc": {"issuer": "http://id.example", "audience": "x"}}, "must begin with https://"),
        (["oauth2"], {"oauth2": TOKEN}, "needs token_url for the flow client_credentials"),
        (["oauth2"], {"oauth2": {**TOKEN, "flow": "implicit"}}, "[auth.oauth2] flow"),
        (["cookie"], {"cookie": {"name": "a b"}}, "cannot stand in a header"),
        (["cookie"], {"cookie": {"max_age": 0}}, "at most 400 days"),
        (["apikey"], {"apikey": {"location": "body"}}, "[auth.apikey] location"),
        (["apikey"], {"apikey": {"name": "a\r\nb"}}, "cannot stand in a header"),
    ],
)
def test_an_error_in_a_table_says_what_was_meant(
    door: Any, names: list[str], tables: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        door.schemes(*names, **tables)
    assert expected in str(raised.value)


@pytest.mark.parametrize("name", ["cookie", "bearer", "apikey", "basic"])
def test_a_scheme_for_users_needs_users(door: Any, name: str) -> None:
    with pytest.raises(ConfigError, match="needs a store of users"):
        build_schemes([name], {}, None, door.ring, None, door.clock)


def test_the_cookie_needs_a_secret(door: Any) -> None:
    with pytest.raises(ConfigError, match="needs a secret"):
        build_schemes(["cookie"], {}, door.users, None, None, door.clock)


@pytest.mark.parametrize("form", ["jwks_file", "pem"])
async def test_keys_may_be_in_a_file_beside_the_settings(door: Any, issuer: Any, tmp_path: Path, form: str) -> None:
    signer = issuer.ring.signer()
    (jwk,) = signer.jwks()["keys"]
    (tmp_path / "jwks_file").write_text(json.dumps(signer.jwks()))
    public = PyJWK(jwk).key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "pem").write_bytes(public)
    tables = {"bearer": {"audience": "the-agent", form: form}}
    (scheme,) = build_schemes(["bearer"], tables, door.users, None, None, door.clock, base=tmp_path)
    user = await scheme.identify(door.asked(("Authorization", f"Bearer {issuer.token(door.clock)}")))
    assert user is not None
    assert user.id == "bearer|carol"


def test_a_private_key_or_no_key_in_the_file_is_refused(door: Any, tmp_path: Path) -> None:
    private = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content, expected in ((private, "has a private key"), (b"hello", "no public key in PEM form")):
        (tmp_path / "k.pem").write_bytes(content)
        with pytest.raises(ConfigError, match=expected):
            door.schemes("bearer", bearer={"audience": "x", "pem": str(tmp_path / "k.pem")})
    for content, expected in ((b"hello", "is not JSON"), (b"{}", "is no key set")):
        (tmp_path / "k.json").write_bytes(content)
        with pytest.raises(ConfigError, match=expected):
            door.schemes("bearer", bearer={"audience": "x", "jwks_file": str(tmp_path / "k.json")})


def test_nothing_heavy_is_imported_until_a_scheme_needs_it() -> None:
    code = "import dragoman.auth.inbound.config, dragoman.auth.inbound.login, dragoman.cli.store.users"
    assert not {"cryptography", "jwt", "argon2", "aiohttp", "uvicorn"} & modules_after(code)
