"""Cookies, tokens, keys and passwords that are false, through the whole server: none gets in, none leaves a trace."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest
from pytest import param

from dragoman.clock import SystemClock
from dragoman.keys.ring import KeyRing
from dragoman.testing import served

Headers = list[tuple[str, str]]
Attack = Callable[[Any], Headers]
AN_HOUR_AGO = 3600


def cookie(value: str) -> Headers:
    return [("Cookie", f"user={value}")]


def bearer(token: str) -> Headers:
    return [("Authorization", f"Bearer {token}")]


def basic(text: str) -> Headers:
    return [("Authorization", f"Basic {b64encode(text.encode()).decode()}")]


def now() -> int:
    return SystemClock().now() // 1000


def part(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def claims(**changed: Any) -> str:
    payload = {"iss": "https://issuer.example", "aud": "the-agent", "sub": "carol", "exp": now() + 600, **changed}
    return part(payload)


def flipped(text: str, at: int) -> str:
    other = "A" if text[at] != "A" else "B"
    return text[:at] + other + (text[at + 1 :] if at != -1 else "")


def sealed(house: Any, purpose: str = "cookie", *, at: float = 0, name: str = "ada", epoch: int = 0) -> str:
    """A cookie as the server itself would seal it, for another time, user or purpose."""
    then = SystemClock().now() - int(at * 1000)
    payload = json.dumps({"u": name, "e": epoch, "t": then}).encode()
    return house.secret(house.ring.seal(purpose, payload, now=then / 1000).decode())


def of_a_revoked_user(house: Any) -> Headers:
    name = f"user-{uuid4().hex[:8]}"
    house.users.add(name)
    made = cookie(house.cookie(name))
    house.users.revoke(name)
    return made


def of_a_user_who_was_added_again(house: Any) -> Headers:
    name = f"user-{uuid4().hex[:8]}"
    house.users.add(name)
    made = cookie(house.cookie(name))
    house.users.revoke(name)
    house.users.add(name)
    return made


def from_before_another_password(house: Any) -> Headers:
    name = f"user-{uuid4().hex[:8]}"
    house.users.add(name)
    made = cookie(house.cookie(name))
    house.users.set_password(name, "$argon2id$none")
    return made


def key_that_was_revoked(house: Any) -> Headers:
    key = house.key("ada")
    house.users.revoke_key("ada", key[-4:])
    return [("X-API-Key", key)]


def key_of_a_revoked_user(house: Any) -> Headers:
    name = f"user-{uuid4().hex[:8]}"
    house.users.add(name)
    key = house.key(name)
    house.users.revoke(name)
    return bearer(key)


def wrong_password(house: Any) -> Headers:
    """Of a user of its own: after some of them the next must wait."""
    name = f"user-{uuid4().hex[:8]}"
    house.users.add(name, house.quick_password("correct horse battery"))
    return basic(f"{name}:wrong horse battery")


def without_a_password(house: Any) -> Headers:
    name = f"user-{uuid4().hex[:8]}"
    house.users.add(name)
    return basic(f"{name}:")


def signed_with_the_public_key(house: Any) -> Headers:
    """The oldest trick: what is public is taken for a shared secret."""
    public = json.dumps(house.issuer.signer().jwks()["keys"][0]).encode()
    unsigned = f"{part({'alg': 'HS256', 'kid': house.issuer.signer().kid})}.{claims()}"
    return bearer(
        f"{unsigned}.{urlsafe_b64encode(hmac.new(public, unsigned.encode(), sha256).digest()).decode().rstrip('=')}"
    )


def signed_by_the_server_s_own_key(house: Any) -> Headers:
    """The key at /.well-known/jwks.json signs webhooks and cards, and lets nobody in."""
    payload = {"iss": "https://issuer.example", "aud": "the-agent", "sub": "ada", "iat": now(), "exp": now() + 600}
    return bearer(house.ring.signer().sign_jwt(payload))


def with_another_subject(house: Any) -> Headers:
    header, _, signature = house.token().split(".")
    return bearer(f"{header}.{claims(sub='ada')}.{signature}")


def none(spelled: str) -> Attack:
    return lambda house: bearer(f"{part({'alg': spelled, 'kid': house.issuer.signer().kid})}.{claims()}.")


def token(headers: dict[str, Any] | None = None, **changed: Any) -> Attack:
    return lambda house: bearer(house.token(headers, **changed))


COOKIES: dict[str, Attack] = {
    "empty": lambda _: cookie(""),
    "garbage": lambda _: cookie("garbage"),
    "in the clear": lambda _: cookie('{"u":"ada","e":0,"t":1}'),
    "first letter changed": lambda house: cookie(flipped(house.cookie("ada"), 0)),
    "letter in the middle changed": lambda house: cookie(flipped(house.cookie("ada"), 40)),
    "last letter changed": lambda house: cookie(house.cookie("ada")[:-2] + "AA"),
    "cut": lambda house: cookie(house.cookie("ada")[:-10]),
    "longer": lambda house: cookie(house.cookie("ada") + "AAAA"),
    "two joined": lambda house: cookie(house.cookie("ada") + house.cookie("bob")),
    "of another server": lambda house: cookie(house.cookie("ada", KeyRing.random())),
    "expired": lambda house: cookie(sealed(house, at=31 * 24 * 3600)),
    "from the future": lambda house: cookie(sealed(house, at=-AN_HOUR_AGO)),
    "sealed for forms": lambda house: cookie(sealed(house, "csrf")),
    "sealed for webhooks": lambda house: cookie(sealed(house, "push")),
    "of another epoch": lambda house: cookie(sealed(house, epoch=7)),
    "of nobody": lambda house: cookie(sealed(house, name="mallory")),
    "sealed and senseless": lambda house: cookie(house.ring.seal("cookie", b"[1,2]").decode()),
    "in another spelling": lambda house: cookie(house.cookie("ada") + "%3D"),
    "of a revoked user": of_a_revoked_user,
    "of a user who was added again": of_a_user_who_was_added_again,
    "from before another password": from_before_another_password,
    "twice": lambda house: [("Cookie", f"user={house.cookie('bob')}; user={house.cookie('ada')}")],
    "in two headers": lambda house: [*cookie(house.cookie("bob")), *cookie(house.cookie("ada"))],
    "under another name": lambda house: [("Cookie", f"USER={house.cookie('ada')}")],
    "under a longer name": lambda house: [("Cookie", f"__Host-user={house.cookie('ada')}")],
    "as a token": lambda house: bearer(house.cookie("ada")),
    "very long": lambda _: cookie("A" * 20_000),
    "no latin": lambda _: cookie("\u00ff" * 40),
}
TOKENS: dict[str, Attack] = {
    "alg none": none("none"),
    "alg None": none("None"),
    "alg NONE": none("NONE"),
    "public key as secret": signed_with_the_public_key,
    "server's own key": signed_by_the_server_s_own_key,
    "another key": lambda house: bearer(KeyRing.random().signer().sign_jwt({"sub": "carol", "exp": now() + 600})),
    "another subject": with_another_subject,
    "signature cut": lambda house: bearer(house.token()[:-4]),
    "no signature": lambda house: bearer(house.token().rpartition(".")[0] + "."),
    "wrong audience": token(aud="another-agent"),
    "no audience": token(aud=None),
    "wrong issuer": token(iss="https://evil.example"),
    "no issuer": token(iss=None),
    "expired": token(exp=now() - AN_HOUR_AGO),
    "never expires": token(exp=None),
    "expires at a word": token(exp="tomorrow"),
    "issued in the future": token(iat=now() + AN_HOUR_AGO),
    "not yet": token(nbf=now() + AN_HOUR_AGO),
    "nobody": token(sub=None),
    "an empty name": token(sub=""),
    "a name that is none": token(sub={"a": 1}),
    "a name without end": token(sub="x" * 2000),
    "a name of two lines": token(sub="carol\nadmin"),
    "a name with an escape": token(sub="carol\x1b[2J"),
    "a name with U+0000": token(sub="carol\0"),
    "a name with U+2028": token(sub="carol\u2028"),
    "signature of a card": token({"typ": "JOSE"}),
    "key of its own": lambda house: bearer(house.token({"jwk": {"kty": "oct", "k": "AAAA"}})[:-2]),
    "no kid": lambda _: bearer(f"{part({'alg': 'ES256'})}.{claims()}.AAAA"),
    "two parts": lambda house: bearer(house.token().rpartition(".")[0]),
    "nested without end": lambda _: bearer(f"{part([[[[]]]])}.{'A' * 5000}.A"),
    "empty": lambda _: [("Authorization", "Bearer")],
    "dots": lambda _: bearer(".."),
    "demands an extension": token({"crit": ["b64"], "b64": False}),
    "five parts": lambda house: bearer("a.b.c.d.e"),
    "kid is a path": lambda _: bearer(f"{part({'alg': 'ES256', 'kid': '../../etc/passwd'})}.{claims()}.AAAA"),
    "twice": lambda house: [*bearer(house.token()), *bearer(house.token(sub="dave"))],
    "two in one": lambda house: [("Authorization", f"Bearer {house.token()}, Bearer {house.token()}")],
    "another word": lambda house: [("Authorization", f"Token {house.token()}")],
    "as a cookie": lambda house: cookie(house.token()),
    "very long": token(pad="x" * 20_000),
}
KEYS: dict[str, Attack] = {
    "revoked": key_that_was_revoked,
    "of a revoked user": key_of_a_revoked_user,
    "unknown": lambda _: [("X-API-Key", "dk_" + "A" * 43)],
    "cut": lambda house: [("X-API-Key", house.key("ada")[:-1])],
    "upper case": lambda house: [("X-API-Key", house.key("ada").upper())],
    "twice": lambda house: [("X-API-Key", house.key("ada")), ("X-API-Key", house.key("bob"))],
    "as a cookie": lambda house: [("Cookie", f"X-API-Key={house.key('ada')}")],
    "wildcard": lambda _: [("X-API-Key", "dk_%")],
    "SQL": lambda _: [("X-API-Key", "dk_' OR 1=1 --")],
    "empty": lambda _: [("X-API-Key", "")],
    "very long": lambda _: [("X-API-Key", "dk_" + "A" * 20_000)],
    "wrong password": wrong_password,
    "no password": without_a_password,
    "unknown user": lambda _: basic(f"mallory-{uuid4()}:ada's very own password"),
    "no colon": lambda _: basic("ada"),
    "line break": lambda _: basic("ada\r\nX-Evil: 1:password"),
    "no base64": lambda _: [("Authorization", "Basic ???")],
}
TABLES = [param(COOKIES, id="cookies"), param(TOKENS, id="tokens"), param(KEYS, id="keys")]
# Compared with a hash that is as slow as those of real users: two of the ways in are enough.
SLOW = ("no password", "unknown user")
SEND = {
    "0.1": ("/a2a", {"method": "tasks/send", "params": {"message": {"role": "user", "parts": [{"type": "text"}]}}}),
    "1.0": ("/", {"method": "SendMessage", "params": {"message": {"messageId": "m", "role": "ROLE_USER"}}}),
}


def requests() -> list[tuple[str, str, Any]]:
    """The same in a few words of every kind."""
    calls = [(path, {"jsonrpc": "2.0", "id": 1, **body}) for path, body in SEND.values()]
    posts: list[tuple[str, str, Any]] = [("POST", path, body) for path, body in calls]
    posts.append(("POST", "/message:send", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}))
    return [*posts, ("GET", "/tasks", None), ("GET", "/v1/tasks/t", None), ("GET", "/extendedAgentCard", None)]


@pytest.mark.requirement("S0-5", "S2-32")
@pytest.mark.parametrize("attacks", TABLES)
def test_no_false_credential_gets_in(house: Any, subtests: pytest.Subtests, attacks: dict[str, Attack]) -> None:
    for name, attack in attacks.items():
        headers, before = attack(house), house.rows()
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        presented = [value for _, value in headers if len(value) > 12]
        for method, path, body in requests()[2:4] if name in SLOW else requests():
            with subtests.test(name, method=method, path=path):
                content = {} if body is None else {"content": json.dumps(body).encode()}
                sent = [*raw, (b"content-type", b"application/json")]
                answer = house.wire.request(method, path, headers=sent, **content)
                assert (answer.status, answer.reason) == (401, "UNAUTHENTICATED")
                assert answer.headers.get_list("www-authenticate")
                assert [value for value in presented if value in answer.text] == []
                assert "set-cookie" not in answer.headers
                assert house.rows() == before


@pytest.mark.parametrize("attacks", TABLES)
def test_a_false_credential_shows_the_public_card(
    house: Any, subtests: pytest.Subtests, attacks: dict[str, Attack]
) -> None:
    public = house.wire.request("GET", "/.well-known/agent-card.json")
    assert "vault" not in public.text
    for name, attack in attacks.items():
        with subtests.test(name):
            raw = [(name.encode(), value.encode("latin-1")) for name, value in attack(house)]
            shown = house.wire.request("GET", "/.well-known/agent-card.json", headers=raw)
            assert (shown.status, shown.text) == (200, public.text)


@pytest.mark.requirement("S0-5")
@pytest.mark.parametrize("name", ["ada", "bob"])
def test_the_right_cookie_gets_in(house: Any, name: str) -> None:
    answer = house.wire.speaker("0.1-rpc").at("/a2a").send(tool="who", **house.as_(name))
    assert house.wire.speaker("0.1-rpc").texts(answer) == [f"user={name} tenant= extensions="]


# One right thing is enough: a browser sends its cookies along, old ones too.
RIGHT: dict[str, tuple[Attack, str]] = {
    "token": (lambda house: bearer(house.token()), "https://issuer.example|carol"),
    "key as a token": (lambda house: bearer(house.key("ada")), "ada"),
    "key": (lambda house: [("X-API-Key", house.key("bob"))], "bob"),
    "password": (lambda _: basic("ada:ada's very own password"), "ada"),
    "key beside an old cookie": (lambda house: [*cookie("garbage"), ("X-API-Key", house.key("bob"))], "bob"),
}


@pytest.mark.parametrize(("headers", "user"), RIGHT.values(), ids=RIGHT)
def test_every_right_credential_gets_in(house: Any, headers: Attack, user: str) -> None:
    # From where nobody has guessed.
    with httpx2.Client(transport=httpx2.HTTPTransport(verify=False, local_address="127.0.0.3"), timeout=60) as client:
        speaker = type(house.wire)(client, house.url).speaker("1.0-rpc")
        answer = speaker.send(tool="who", headers=dict(headers(house)))
        assert speaker.texts(answer) == [f"user={user} tenant= extensions="]


def test_the_key_set_that_a_token_names_is_never_fetched(house: Any) -> None:
    """`jku` and `x5u` are addresses that an attacker chooses."""
    asked: list[str] = []

    async def trap(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(mallory.signer().jwks()).encode()})

    mallory = KeyRing.random()
    payload = {"iss": "https://issuer.example", "aud": "the-agent", "sub": "ada", "iat": now(), "exp": now() + 600}
    with served(trap) as url:
        asked.clear()
        for name in ("jku", "x5u", "iss"):
            forged = mallory.signer().sign_jwt(
                {**payload, "iss": url} if name == "iss" else payload, {name: f"{url}/keys"}
            )
            assert house.wire.rest("GET", "/tasks", Authorization=f"Bearer {forged}").status == 401
        assert asked == []


def test_a_key_in_a_query_is_none_in_a_header_and_is_not_logged(house: Any) -> None:
    key = house.key("ada")
    answer = house.wire.rest("GET", f"/tasks?X-API-Key={quote(key)}&access_token={quote(key)}")
    assert answer.status == 401
    assert key not in answer.text
