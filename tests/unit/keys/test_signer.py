"""The server's own key pairs, the tokens they sign, and the tokens that are refused."""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dragoman.keys.base64url import from_base64url, to_base64url
from dragoman.keys.errors import BadSignature
from dragoman.keys.jwk import public_jwk, thumbprint
from dragoman.keys.jws import Header, verify
from dragoman.keys.ring import KeyRing
from dragoman.keys.signer import verify_jwt

OLD, NEW = "an old secret of the house", "a new secret of the house"
SIGNER = KeyRing.from_text(f"{NEW},{OLD}").signer()
NOW = 1_800_000_000
CLAIMS = {"iss": "https://agent.example", "aud": "https://hook.example/é", "iat": NOW, "exp": NOW + 300}

# RFC 7638 3.1, RFC 8037 A.3, RFC 7515 A.3.
RSA_KEY = {
    "kty": "RSA",
    "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4"
    "n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHz"
    "u6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awap"
    "JzKnqDKgw",
    "e": "AQAB",
    "alg": "RS256",
    "kid": "2011-04-29",
}
ED_KEY = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "k"}
EC_KEY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
    "kid": "k",
}


def refused(token: str, says: str | None, jwks: Any = None, **more: Any) -> BadSignature:
    options = {"audience": CLAIMS["aud"], "now": NOW} | more
    with pytest.raises(BadSignature, match=says) as caught:
        verify_jwt(token, SIGNER.jwks() if jwks is None else jwks, **options)
    return caught.value


def token_of(header: dict[str, Any], claims: Any = CLAIMS) -> str:
    """A token with any header, signed as it should be."""
    head = to_base64url(json.dumps(header).encode())
    body = to_base64url(json.dumps(claims).encode())
    return f"{head}.{body}.{to_base64url(SIGNER.sign(f'{head}.{body}'.encode()))}"


def test_thumbprints_are_those_of_the_rfcs():
    assert thumbprint(RSA_KEY) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    assert thumbprint(ED_KEY) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_the_signatures_of_the_rfcs_hold():
    payload = b'{"iss":"joe",\r\n "exp":1300819380,\r\n "http://example.com/is_root":true}'
    signature = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    header = Header("ES256", "k", None, None)
    verify(header, "eyJhbGciOiJFUzI1NiJ9", payload, signature, {"keys": [EC_KEY]})
    with pytest.raises(BadSignature):
        verify(header, "eyJhbGciOiJFUzI1NiJ9", payload + b" ", signature, {"keys": [EC_KEY]})
    signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    header = Header("EdDSA", "k", None, None)
    verify(header, "eyJhbGciOiJFZERTQSJ9", b"Example of Ed25519 signing", signature, {"keys": [ED_KEY]})


def test_the_public_part_of_a_key_has_nothing_private():
    assert set(public_jwk(EC_KEY)) == {"kty", "crv", "x", "y"}
    for wrong in ({"kty": "oct", "k": "AAAA"}, {"kty": "EC", "crv": "P-256", "x": 1, "y": "A"}, {}):
        with pytest.raises(ValueError, match="key"):
            public_jwk(wrong)


def test_base64url_has_one_spelling():
    assert from_base64url(to_base64url(bytes(range(256)))) == bytes(range(256))
    for text in ("QQ==", "QR", "Q", "Q Q", "+/+/", "Qé", "QQ\n"):
        with pytest.raises(ValueError, match="base64url"):
            from_base64url(text)


def test_the_key_pair_comes_from_the_secret_and_is_always_the_same():
    assert SIGNER.kid == KeyRing.from_text(NEW).signer().kid
    # Whoever changes this makes every receiver's pinned key worthless.
    assert SIGNER.kid == "lL9wEoCbaFk7LTR3ktXFMjDQEK19RwtKLdGCCBndfNM"
    assert SIGNER.sign(b"x") == KeyRing.from_text(NEW).signer().sign(b"x")


def test_the_key_set_shows_the_public_keys_of_all_secrets_newest_first():
    first, second = SIGNER.jwks()["keys"]
    assert first["kid"] == SIGNER.kid == thumbprint(first)
    assert second["kid"] == KeyRing.from_text(OLD).signer().kid
    for key in (first, second):
        assert set(key) == {"kty", "crv", "x", "y", "kid", "use", "alg"}
        assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("EC", "P-256", "sig", "ES256")


def test_what_is_done_to_a_key_set_does_not_change_the_next():
    SIGNER.jwks()["keys"].clear()
    SIGNER.jwks()["keys"][0]["kid"] = "x"
    assert SIGNER.jwks()["keys"][0]["kid"] == SIGNER.kid


def test_a_token_holds_here_and_in_a_foreign_library():
    token = SIGNER.sign_jwt(CLAIMS, {"typ": "hook+jwt", "alg": "none", "kid": "x"})
    assert verify_jwt(token, SIGNER.jwks(), audience=CLAIMS["aud"], issuer=CLAIMS["iss"], now=NOW) == CLAIMS
    assert jwt.get_unverified_header(token) == {"typ": "hook+jwt", "alg": "ES256", "kid": SIGNER.kid}
    key = jwt.PyJWKSet.from_dict(SIGNER.jwks())[SIGNER.kid]
    options: Any = {"verify_exp": False, "verify_iat": False}
    assert jwt.decode(token, key, ["ES256"], audience=CLAIMS["aud"], options=options) == CLAIMS


def test_a_token_of_the_old_secret_still_holds_and_one_of_a_retired_secret_does_not():
    token = KeyRing.from_text(OLD).signer().sign_jwt(CLAIMS)
    assert verify_jwt(token, SIGNER.jwks(), audience=CLAIMS["aud"], now=NOW) == CLAIMS
    error = refused(token, "no key is named", KeyRing.from_text(NEW).signer().jwks())
    assert error.reason == "UNKNOWN_KEY"


def test_any_changed_character_of_a_token_breaks_it():
    token = SIGNER.sign_jwt(CLAIMS)
    for place in range(len(token)):
        for other in "AB.=":
            changed = token[:place] + other + token[place + 1 :]
            if changed != token:
                refused(changed, None)


def test_a_token_holds_for_its_time_and_a_minute_of_wrong_clocks():
    token = SIGNER.sign_jwt({"exp": NOW + 300, "nbf": NOW, "iat": NOW})
    for now in (NOW - 60, NOW, NOW + 359):
        assert verify_jwt(token, SIGNER.jwks(), now=now)
    assert refused(token, "expired", audience=None, now=NOW + 360).reason == "EXPIRED"
    assert refused(token, "expired", audience=None, now=NOW + 300, leeway=0).reason == "EXPIRED"
    assert refused(token, "not hold yet", audience=None, now=NOW - 61).reason == "BAD_SIGNATURE"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({}, "has no exp"),
        ({"exp": None}, "has no exp"),
        ({"exp": "tomorrow"}, "exp of the token is not a time"),
        ({"exp": True}, "exp of the token is not a time"),
        ({"exp": float("inf")}, "not JSON"),
        ({"exp": float("nan")}, "not JSON"),
        ({"exp": 10**400, "nbf": 10**400}, "not hold yet"),
        ([], "not a JSON object"),
        ("x", "not a JSON object"),
        ({"exp": NOW + 1}, "another audience"),
        ({"exp": NOW + 1, "aud": "https://else.example"}, "another audience"),
        ({"exp": NOW + 1, "aud": ["https://else.example", 1]}, "another audience"),
        ({"exp": NOW + 1, "aud": {"https://hook.example/é": 1}}, "another audience"),
    ],
)
def test_claims_that_say_otherwise_are_refused(claims: Any, says: str):
    refused(token_of({"alg": "ES256", "kid": SIGNER.kid}, claims), says)


def test_a_token_for_someone_is_not_for_everyone():
    refused(SIGNER.sign_jwt(CLAIMS), "none was asked for", audience=None)
    refused(SIGNER.sign_jwt(CLAIMS), "another issuer", issuer="https://else.example")
    refused(SIGNER.sign_jwt(CLAIMS), "has no jti", required=("exp", "jti"))
    several = SIGNER.sign_jwt({**CLAIMS, "aud": ["https://else.example", CLAIMS["aud"]]})
    assert verify_jwt(several, SIGNER.jwks(), audience=CLAIMS["aud"], now=NOW)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"alg": "none"}, "'none' is none of"),
        ({"alg": "None"}, "is none of"),
        ({"alg": ""}, "is none of"),
        ({"alg": None}, "is none of"),
        ({"alg": ["ES256"]}, "is none of"),
        ({"alg": "HS256"}, "is none of"),
        ({"alg": "ES512"}, "is none of"),
        ({"alg": "ES384"}, "cannot be used with ES384"),
        ({"alg": "RS256"}, "cannot be used with RS256"),
        ({"alg": "EdDSA"}, "cannot be used with EdDSA"),
        ({"kid": None}, "does not name its key"),
        ({"kid": ""}, "does not name its key"),
        ({"kid": 1}, "does not name its key"),
        ({"kid": "else"}, "no key is named"),
        ({"crit": ["exp"]}, "extension"),
        ({"crit": []}, "extension"),
        ({"b64": False}, "extension"),
        ({"typ": "JOSE"}, "not one of a token"),
    ],
)
def test_a_header_that_asks_for_less_or_for_more_is_refused(header: dict[str, Any], says: str):
    assert verify_jwt(token_of({"alg": "ES256", "kid": SIGNER.kid}), SIGNER.jwks(), audience=CLAIMS["aud"], now=NOW)
    refused(token_of({"alg": "ES256", "kid": SIGNER.kid} | header), says)


def test_a_public_key_is_not_a_shared_secret():
    numbers = {name: from_base64url(SIGNER.jwks()["keys"][0][name]) for name in "xy"}
    point = b"\x04" + numbers["x"] + numbers["y"]
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = to_base64url(json.dumps({"alg": "HS256", "kid": SIGNER.kid}).encode())
    body = to_base64url(json.dumps(CLAIMS).encode())
    for secret in (pem, json.dumps(SIGNER.jwks()["keys"][0]).encode(), point):
        mac = hmac.new(secret, f"{head}.{body}".encode(), sha256).digest()
        refused(f"{head}.{body}.{to_base64url(mac)}", "'HS256' is none of")


def test_an_unsigned_token_is_refused():
    head = to_base64url(json.dumps({"alg": "none", "kid": SIGNER.kid}).encode())
    refused(f"{head}.{to_base64url(json.dumps(CLAIMS).encode())}.", "is none of")
    good = SIGNER.sign_jwt(CLAIMS)
    refused(good.rpartition(".")[0] + ".", "does not fit")


@pytest.mark.parametrize(
    "token",
    ["", "x", "..", "a.b", "a.b.c.d", "é.é.é", "W10.e30.AA", "A" * 100_000, to_base64url(b"[" * 5000) + ".e30.AA"],
)
def test_what_is_no_token_is_refused(token: str):
    refused(token, None)


def test_a_header_that_says_a_thing_twice_is_refused():
    head = to_base64url(f'{{"alg":"none","alg":"ES256","kid":"{SIGNER.kid}"}}'.encode())
    body = to_base64url(json.dumps(CLAIMS).encode())
    refused(f"{head}.{body}.{to_base64url(SIGNER.sign(f'{head}.{body}'.encode()))}", "not JSON")


@pytest.mark.parametrize(
    "change",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"alg": "ES384"},
        {"kty": "RSA", "alg": None},
        {"crv": "P-384"},
        {"x": "AAAA"},
        {"x": ""},
        {"y": None},
        {"x": to_base64url(bytes(31) + b"\1")},
        {"kty": "oct", "k": "AAAA"},
    ],
)
def test_a_key_that_is_not_for_this_is_not_used(change: dict[str, Any]):
    key = SIGNER.jwks()["keys"][0] | change
    refused(SIGNER.sign_jwt(CLAIMS), "cannot be used with ES256", {"keys": [key]})


@pytest.mark.parametrize("jwks", [{"keys": {}}, {"keys": None}, {"a": 1}])
def test_what_is_no_key_set_is_refused(jwks: Any):
    refused(SIGNER.sign_jwt(CLAIMS), "no JWKS", jwks)


def test_a_key_set_may_have_other_things_and_one_name_twice():
    other = KeyRing.random().signer().jwks()["keys"][0] | {"kid": SIGNER.kid}
    jwks = {"keys": [None, "x", {"kid": SIGNER.kid}, RSA_KEY, other, *SIGNER.jwks()["keys"]]}
    assert verify_jwt(SIGNER.sign_jwt(CLAIMS), jwks, audience=CLAIMS["aud"], now=NOW) == CLAIMS
