"""What attackers send. None of it gets in, none of it breaks anything, and the log holds no secret."""

from __future__ import annotations

import hmac
import json
import logging
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dragoman.keys.ring import KeyRing
from dragoman.model.error import Unauthenticated

Header = tuple[str, str]
Attack = Callable[[Any], Awaitable[list[Header]] | list[Header]]


def part(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def bearer(token: str) -> list[Header]:
    return [("Authorization", f"Bearer {token}")]


def basic(text: str | bytes) -> list[Header]:
    raw = text if isinstance(text, bytes) else text.encode()
    return [("Authorization", "Basic " + b64encode(raw).decode())]


def user_cookie(value: str) -> list[Header]:
    return [("Cookie", f"user={value}")]


# -- cookies ---------------------------------------------------------------------------------------------------------


async def tampered(door: Any) -> list[Header]:
    good = await door.cookie("alice")
    middle = len(good) // 2
    return user_cookie(good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :])


async def truncated(door: Any) -> list[Header]:
    return user_cookie((await door.cookie("alice"))[:-8])


async def expired(door: Any) -> list[Header]:
    good = await door.cookie("alice")
    door.clock.move(31 * 24 * 3600)
    return user_cookie(good)


async def from_the_future(door: Any) -> list[Header]:
    door.clock.move(3600)
    good = await door.cookie("alice")
    door.clock._now -= 3600 * 1_000_000
    return user_cookie(good)


def of_a_foreign_key(door: Any) -> list[Header]:
    return user_cookie(KeyRing.random().seal("cookie", b'{"u":"alice","e":0,"t":1}').decode())


def sealed_for_another_purpose(door: Any) -> list[Header]:
    now = door.clock.now()
    told = json.dumps({"u": "alice", "e": 0, "t": now}).encode()
    return user_cookie(door.ring.seal("csrf", told, now=now / 1000).decode())


def sealed_and_senseless(door: Any) -> list[Header]:
    return user_cookie(door.ring.seal("cookie", b"[1,2]", now=door.clock.now() / 1000).decode())


async def of_a_revoked_user(door: Any) -> list[Header]:
    good = await door.cookie("alice")
    door.users.revoke("alice")
    return user_cookie(good)


async def of_a_user_who_was_revoked_and_came_back(door: Any) -> list[Header]:
    good = await door.cookie("alice")
    door.users.revoke("alice")
    door.users.add("alice")
    return user_cookie(good)


async def from_before_the_password_changed(door: Any) -> list[Header]:
    good = await door.cookie("alice")
    door.users.set_password("alice", "another hash")
    return user_cookie(good)


async def of_nobody(door: Any) -> list[Header]:
    now = door.clock.now()
    told = json.dumps({"u": "mallory", "e": 0, "t": now}).encode()
    return user_cookie(door.ring.seal("cookie", told, now=now / 1000).decode())


async def twice(door: Any) -> list[Header]:
    return [("Cookie", f"user={await door.cookie('bob')}; user={await door.cookie('alice')}")]


async def in_another_spelling(door: Any) -> list[Header]:
    return user_cookie((await door.cookie("alice")) + "%3D")


COOKIES: list[Attack] = [
    tampered,
    truncated,
    expired,
    from_the_future,
    of_a_foreign_key,
    sealed_for_another_purpose,
    sealed_and_senseless,
    of_a_revoked_user,
    of_a_user_who_was_revoked_and_came_back,
    from_before_the_password_changed,
    of_nobody,
    twice,
    in_another_spelling,
    lambda _: user_cookie(""),
    lambda _: user_cookie("garbage"),
    lambda _: user_cookie("\u00ff" * 40),
    lambda _: user_cookie("A" * 20_000),
    lambda _: user_cookie('{"u":"alice","e":0,"t":1}'),
]


@pytest.mark.requirement("S0-5")
@pytest.mark.parametrize("attack", COOKIES, ids=lambda attack: attack.__name__)
async def test_no_false_cookie_gets_in(door: Any, attack: Any) -> None:
    await refuses(door, door.chain("cookie"), attack)


# -- keys ------------------------------------------------------------------------------------------------------------


def revoked_key(door: Any) -> list[Header]:
    key = door.key("alice")
    door.users.revoke_key("alice", key[-4:])
    return [("X-API-Key", key)]


def key_of_a_revoked_user(door: Any) -> list[Header]:
    key = door.key("alice")
    door.users.revoke("alice")
    return [("X-API-Key", key)]


def key_that_has_run_out(door: Any) -> list[Header]:
    key = door.key("alice", 60)
    door.clock.move(60)
    return [("X-API-Key", key)]


KEYS: list[Attack] = [
    revoked_key,
    key_of_a_revoked_user,
    key_that_has_run_out,
    lambda door: [("X-API-Key", door.key("alice")[:-1])],
    lambda door: [("X-API-Key", door.key("alice").upper())],
    lambda door: [("X-API-Key", door.key("alice")), ("X-API-Key", door.key("bob"))],
    lambda door: [("Authorization", f"Bearer {door.key('alice')}")],  # the wrong place
    lambda door: [("Cookie", f"X-API-Key={door.key('alice')}")],
    lambda _: [("X-API-Key", "dk_" + "A" * 20_000)],
    lambda _: [("X-API-Key", "")],
    lambda _: [("X-API-Key", "dk_' OR 1=1 --")],
]


@pytest.mark.parametrize("attack", KEYS, ids=lambda attack: attack.__name__)
async def test_no_false_key_gets_in(door: Any, attack: Any) -> None:
    await refuses(door, door.chain("apikey"), attack)


async def test_a_key_in_the_query_is_not_one_in_the_header(door: Any) -> None:
    with pytest.raises(Unauthenticated):
        await door.chain("apikey")(door.asked(query=f"X-API-Key={door.key('alice')}"))


# -- tokens ----------------------------------------------------------------------------------------------------------

TOKENS: dict[str, Callable[[Any, Any], str]] = {
    "wrong audience": lambda door, issuer: issuer.token(door.clock, aud="another"),
    "no audience": lambda door, issuer: issuer.token(door.clock, aud=None),
    "wrong issuer": lambda door, issuer: issuer.token(door.clock, iss="https://evil.example"),
    "no issuer": lambda door, issuer: issuer.token(door.clock, iss=None),
    "expired": lambda door, issuer: issuer.token(door.clock, exp=door.clock.now() // 1000 - 61),
    "never expires": lambda door, issuer: issuer.token(door.clock, exp=None),
    "expires at a word": lambda door, issuer: issuer.token(door.clock, exp="tomorrow"),
    "not yet": lambda door, issuer: issuer.token(door.clock, nbf=door.clock.now() // 1000 + 120),
    "issued in the future": lambda door, issuer: issuer.token(door.clock, iat=door.clock.now() // 1000 + 120),
    "nobody": lambda door, issuer: issuer.token(door.clock, sub=None),
    "an empty name": lambda door, issuer: issuer.token(door.clock, sub=""),
    "a name that is none": lambda door, issuer: issuer.token(door.clock, sub={"a": 1}),
    "a name without end": lambda door, issuer: issuer.token(door.clock, sub="x" * 2000),
    "a name of two lines": lambda door, issuer: issuer.token(door.clock, sub="carol\nadmin"),
    "a name with an escape": lambda door, issuer: issuer.token(door.clock, sub="carol\x1b[2J"),
    "a name with U+0000": lambda door, issuer: issuer.token(door.clock, sub="carol\0"),
    "a name with U+2028": lambda door, issuer: issuer.token(door.clock, sub="carol\u2028"),
    "an extension it demands": lambda door, issuer: issuer.token(door.clock, {"crit": ["b64"], "b64": False}),
    "signature of a card": lambda door, issuer: issuer.token(door.clock, {"typ": "JOSE"}),
    "signed by another": lambda door, issuer: KeyRing.random().signer().sign_jwt({"sub": "carol"}),
    "signature cut": lambda door, issuer: issuer.token(door.clock)[:-4],
    "no signature": lambda door, issuer: issuer.token(door.clock).rpartition(".")[0] + ".",
    "two parts": lambda door, issuer: issuer.token(door.clock).rpartition(".")[0],
    "claims exchanged": lambda door, issuer: _exchanged(issuer.token(door.clock)),
    "alg none": lambda door, issuer: (
        f"{part({'alg': 'none', 'kid': issuer.ring.signer().kid})}.{_claims(door, issuer)}."
    ),
    "alg None": lambda door, issuer: (
        f"{part({'alg': 'None', 'kid': issuer.ring.signer().kid})}.{_claims(door, issuer)}."
    ),
    "no kid": lambda door, issuer: f"{part({'alg': 'ES256'})}.{_claims(door, issuer)}.AAAA",
    "kid is a path": lambda door, issuer: f"{part({'alg': 'ES256', 'kid': '/dev/null'})}.{_claims(door, issuer)}.AAAA",
    "key of its own": lambda door, issuer: issuer.token(door.clock, {"jwk": {"kty": "oct", "k": "AAAA"}})[:-2],
    "huge": lambda door, issuer: issuer.token(door.clock, pad="x" * 20_000),
    "nested without end": lambda door, issuer: f"{part([[[[]]]])}.{'A' * 5000}.A",
    "empty": lambda door, issuer: "",
    "dots": lambda door, issuer: "..",
}


def _claims(door: Any, issuer: Any) -> str:
    now = door.clock.now() // 1000
    return part({"iss": issuer.url, "aud": "the-agent", "sub": "carol", "exp": now + 600})


def _exchanged(token: str) -> str:
    header, claims, signature = token.split(".")
    told = json.loads(urlsafe_b64decode(claims + "=="))
    return f"{header}.{part({**told, 'sub': 'admin'})}.{signature}"


AUDITED = {"wrong audience": "wrong-audience", "no audience": "wrong-audience", "wrong issuer": "wrong-issuer"}


@pytest.mark.parametrize("attack", AUDITED)
async def test_a_token_for_or_from_somebody_else_is_audited_as_that(
    door: Any, issuer: Any, attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    with pytest.raises(Unauthenticated):
        await door.chain("bearer", bearer=issuer.table())(door.asked(*bearer(TOKENS[attack](door, issuer))))
    assert [record.__dict__["reason"] for record in caplog.records] == [AUDITED[attack]]


@pytest.mark.parametrize("attack", TOKENS)
async def test_no_false_token_gets_in(door: Any, issuer: Any, attack: str) -> None:
    chain = door.chain("bearer", bearer=issuer.table())
    assert (await chain(door.asked(*bearer(issuer.token(door.clock))))).name == "carol"
    await refuses(door, chain, lambda _: bearer(TOKENS[attack](door, issuer)))


@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
async def test_a_public_key_is_no_shared_secret(door: Any, tmp_path: Path, algorithm: str) -> None:
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pem").write_bytes(public)
    chain = door.chain("bearer", bearer={"audience": "a", "pem": str(tmp_path / "key.pem")})
    claims = {"sub": "x", "aud": "a", "exp": door.clock.now() // 1000 + 600}
    honest = jwt.encode(claims, key, "RS256", headers={"kid": "any"})
    assert (await chain(door.asked(*bearer(honest)))).id == "bearer|x"

    signing = f"{part({'alg': algorithm, 'kid': 'any'})}.{part(claims)}"
    signature = hmac.digest(public, signing.encode(), algorithm.replace("HS", "sha"))
    forged = f"{signing}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    await refuses(door, chain, lambda _: bearer(forged))


async def test_a_key_is_used_with_its_own_algorithm_only(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", bearer=issuer.table())
    key = rsa.generate_private_key(65537, 2048)
    claims = {"iss": issuer.url, "aud": "the-agent", "sub": "carol", "exp": door.clock.now() // 1000 + 600}
    token = jwt.encode(claims, key, "RS256", headers={"kid": issuer.ring.signer().kid})
    await refuses(door, chain, lambda _: bearer(token))


async def test_an_algorithm_that_is_not_on_the_list_is_refused(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", bearer={**issuer.table(), "algorithms": ["RS256"]})
    await refuses(door, chain, lambda _: bearer(issuer.token(door.clock)))


async def test_a_flood_of_unknown_key_names_asks_the_issuer_once(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", bearer=issuer.table())
    await chain(door.asked(*bearer(issuer.token(door.clock))))
    door.clock.move(31)
    for number in range(100):
        token = f"{part({'alg': 'ES256', 'kid': f'k{number}'})}.{_claims(door, issuer)}.AAAA"
        with pytest.raises(Unauthenticated):
            await chain(door.asked(*bearer(token)))
    assert issuer.fetched == 2


async def test_two_authorization_headers_are_refused(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", "basic", bearer=issuer.table())
    good = bearer(issuer.token(door.clock))
    for headers in (good + good, good + basic("alice:x"), basic(f"alice:{door.password}") + good):
        await refuses(door, chain, lambda _, headers=headers: headers)


# -- Basic -----------------------------------------------------------------------------------------------------------

BASIC: dict[str, list[Header]] = {
    "no base64": [("Authorization", "Basic !!!!")],
    "base64 with a hole": [("Authorization", "Basic YWxp Y2U6eA==")],
    "no padding": [("Authorization", "Basic YWxpY2U6eA")],
    "nothing": [("Authorization", "Basic")],
    "spaces": [("Authorization", "Basic      ")],
    "no colon": basic("alice"),
    "only a colon": basic(":"),
    "no name": basic(":correct horse"),
    "colon in the name": basic("alice:x:correct horse"),
    "another colon": basic("alice::correct horse"),
    "empty password": basic("alice:"),
    "NUL": basic("alice\0:correct horse"),
    "NUL in the password": basic("alice:correct horse\0"),
    "line break": basic("alice\r\n:correct horse"),
    "not UTF-8": basic(b"alice:\xff\xfe"),
    "not ASCII": [("Authorization", "Basic \u00ff\u00ff")],
    "huge": basic("alice:" + "x" * 9000),
    "huger": basic("alice:" + "x" * 30_000),
    "a hash": basic("alice:$argon2id$v=19$m=8,t=1,p=1$AAAA$AAAA"),
    "another case": basic("ALICE:correct horse"),
    "user without a password": basic("bob:"),
    "user without a password, guessed": basic("bob:anything"),
    "SQL": basic("' OR '1'='1:x"),
}


@pytest.mark.parametrize("attack", BASIC)
async def test_no_false_name_and_password_get_in(door: Any, attack: str) -> None:
    await refuses(door, door.chain("basic"), lambda _: BASIC[attack])


# -- all of them -----------------------------------------------------------------------------------------------------


async def refuses(door: Any, chain: Any, attack: Any) -> None:
    """The attack raises what a caller is told, and tells the log what happened and nothing that opens a door."""
    headers = attack(door)
    headers = headers if isinstance(headers, list) else await headers
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger("dragoman").setLevel(logging.DEBUG)
    try:
        with pytest.raises(Unauthenticated) as raised:
            await chain(door.asked(*headers))
    finally:
        logging.getLogger("dragoman").setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(handler)
    assert raised.value.code == -31401
    audits = [record for record in records if record.name == "dragoman.audit"]
    assert {record.__dict__["event"] for record in audits} <= {"denied", "asked"}
    assert audits
    assert all(record.__dict__["address"] == "203.0.113.9" for record in audits)
    told = " ".join(f"{record.getMessage()} {record.__dict__}" for record in records) + str(raised.value)
    for _, value in headers:
        secret = value.rpartition(" ")[2].rpartition("=")[2] or value
        assert len(secret) < 12 or secret[:100] not in told
    assert "correct horse" not in told
