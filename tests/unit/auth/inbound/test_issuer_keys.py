"""The keys of an issuer that is slow, broken, taken over or in the middle of a rotation."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from support.web_app import serving

from dragoman.keys.base64url import from_base64url, to_base64url
from dragoman.keys.jwk import MAX_SAME_ID
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ServerError, Unauthenticated

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Json = dict[str, Any]


class Keys:
    """An issuer that answers as it is told, with keys of its own."""

    def __init__(self, clock: Any) -> None:
        self.url = ""
        self.clock = clock
        self.fetched = 0
        self.published: list[Any] = []
        self.answer: Answer | None = None

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.fetched += 1
        if self.answer is not None:
            return await self.answer(request)
        return web.json_response({"keys": self.published})

    def table(self) -> Json:
        return {"issuer": self.url, "audience": "the-agent", "jwks_url": f"{self.url}/keys"}

    def claims(self) -> Json:
        return {"iss": self.url, "aud": "the-agent", "sub": "carol", "exp": self.clock.now() // 1000 + 90_000}

    def token(self, key: Any, kid: str, alg: str = "ES256", **headers: Any) -> tuple[str, str]:
        return "Authorization", "Bearer " + jwt.encode(self.claims(), key, alg, headers={**headers, "kid": kid})


def ec_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


def public(key: Any, kid: str, **more: Any) -> Json:
    kinds = {rsa.RSAPrivateKey: "RS256", ed25519.Ed25519PrivateKey: "EdDSA"}
    alg = next((name for kind, name in kinds.items() if isinstance(key, kind)), "ES256")
    made = json.loads(jwt.get_algorithm_by_name(alg).to_jwk(key.public_key()))
    made.pop("key_ops", None)
    return {**made, "kid": kid, **more}


@pytest.fixture
async def keys(door: Any) -> AsyncIterator[Keys]:
    made = Keys(door.clock)
    async with serving([web.get("/keys", made.respond)]) as made.url:
        yield made


# -- an issuer that does not answer as it should -----------------------------------------------------------------------


async def test_an_issuer_that_sends_a_byte_now_and_then_keeps_nobody_waiting_for_ever(door: Any, keys: Keys) -> None:
    begun, more = asyncio.Event(), asyncio.Queue[bytes]()

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000000"})
        await response.prepare(request)
        begun.set()
        while True:
            await response.write(await more.get())

    keys.answer = drip
    chain, key = door.chain("bearer", bearer=keys.table()), ec_key()
    asking = [asyncio.create_task(chain(door.asked(keys.token(key, "k")))) for _ in range(3)]
    await asyncio.wait_for(begun.wait(), 5)
    for _ in range(5):
        more.put_nowait(b" ")
        await door.clock.advance(5)

    answers = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 5)

    assert [type(each) for each in answers] == [ServerError] * 3
    assert keys.fetched == 1


async def test_keys_that_are_known_are_used_while_the_issuer_is_slow(door: Any, keys: Keys) -> None:
    key, begun, end = ec_key(), asyncio.Event(), asyncio.Event()
    keys.published = [public(key, "k")]
    chain = door.chain("bearer", bearer=keys.table())
    await chain(door.asked(keys.token(key, "k")))

    async def slow(_: web.Request) -> web.StreamResponse:
        begun.set()
        await end.wait()
        return web.json_response({"keys": keys.published})

    keys.answer = slow
    door.clock.move(3601)
    first = asyncio.create_task(chain(door.asked(keys.token(key, "k"))))
    await asyncio.wait_for(begun.wait(), 5)
    assert (await chain(door.asked(keys.token(key, "k", kind="another")))).name == "carol"
    assert not first.done()
    end.set()
    assert (await first).name == "carol"
    assert keys.fetched == 2


async def test_a_caller_who_hangs_up_does_not_keep_the_others_from_the_keys(door: Any, keys: Keys) -> None:
    key, begun, end = ec_key(), asyncio.Event(), asyncio.Event()
    keys.published = [public(key, "k")]

    async def slow(_: web.Request) -> web.StreamResponse:
        begun.set()
        await end.wait()
        return web.json_response({"keys": keys.published})

    keys.answer = slow
    chain = door.chain("bearer", bearer=keys.table())
    stranger = asyncio.create_task(chain(door.asked(keys.token(ec_key(), "unknown"))))
    await asyncio.wait_for(begun.wait(), 5)
    stranger.cancel()
    await asyncio.gather(stranger, return_exceptions=True)
    honest = asyncio.create_task(chain(door.asked(keys.token(key, "k"))))
    end.set()

    assert (await honest).name == "carol"
    assert keys.fetched == 1


def _answered(body: bytes, status: int = 200, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers={"Content-Type": "application/json", **headers})

    return answer


BROKEN: dict[str, Callable[[Keys], Answer]] = {
    "down": lambda _: _answered(b"{}", 503),
    "moved": lambda keys: _answered(b"", 302, Location=f"{keys.url}/elsewhere"),
    "no JSON": lambda _: _answered(b"<html>"),
    "a list": lambda _: _answered(b"[]"),
    "no list of keys": lambda _: _answered(b'{"keys": {"kid": "k"}}'),
    "huge": lambda _: _answered(b'{"keys": [' + b'{"kid": "k"},' * 200_000 + b"{}]}"),
    "unpacks to 50 MB": lambda _: _answered(gzip.compress(b" " * 50_000_000), **{"Content-Encoding": "gzip"}),
    "nested without end": lambda _: _answered(b"[" * 500_000),
    "half of an answer": lambda _: _answered(b'{"keys": [', **{"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_an_issuer_that_answers_nonsense_is_asked_once_and_the_known_keys_stay(
    door: Any, keys: Keys, how: str
) -> None:
    key = ec_key()
    keys.published = [public(key, "k")]
    chain = door.chain("bearer", bearer=keys.table())
    await chain(door.asked(keys.token(key, "k")))
    keys.answer = BROKEN[how](keys)
    door.clock.move(3601)

    for number in range(5):
        assert (await chain(door.asked(keys.token(key, "k", number=number)))).name == "carol"
        with pytest.raises(Unauthenticated):
            await chain(door.asked(keys.token(ec_key(), f"unknown {number}")))

    assert keys.fetched == 2


# -- rotation --------------------------------------------------------------------------------------------------------


async def test_tokens_of_both_keys_hold_while_a_rotation_overlaps(door: Any, keys: Keys) -> None:
    old, new = ec_key(), rsa.generate_private_key(65537, 2048)
    keys.published = [public(old, "old")]
    chain = door.chain("bearer", bearer=keys.table())
    await chain(door.asked(keys.token(old, "old")))
    keys.published = [public(new, "new"), public(old, "old")]
    door.clock.move(31)
    for token in (keys.token(new, "new", "RS256"), keys.token(old, "old"), keys.token(new, "new", "PS256", n=1)):
        assert (await chain(door.asked(token))).name == "carol"
    assert keys.fetched == 2


@pytest.mark.parametrize("left", ["another", "none"])
async def test_a_key_that_was_removed_ends_its_tokens_after_an_hour(door: Any, keys: Keys, left: str) -> None:
    key = ec_key()
    keys.published = [public(key, "k")]
    chain, token = door.chain("bearer", bearer=keys.table()), keys.token(key, "k")
    await chain(door.asked(token))
    keys.published = [public(ec_key(), "another")] if left == "another" else []
    door.clock.move(3599)
    assert (await chain(door.asked(token))).name == "carol"
    # A token that was verified is remembered for five minutes.
    door.clock.move(301)
    with pytest.raises(Unauthenticated):
        await chain(door.asked(token))


async def test_two_keys_of_one_name_both_count(door: Any, keys: Keys) -> None:
    one, two = ec_key(), ec_key()
    odd = public(rsa.generate_private_key(65537, 2048), "k")
    keys.published = [odd] * 90 + [public(one, "k"), public(two, "k")]
    chain = door.chain("bearer", bearer=keys.table())
    for key in (one, two):
        assert (await chain(door.asked(keys.token(key, "k")))).name == "carol"
    with pytest.raises(Unauthenticated):
        await chain(door.asked(keys.token(ec_key(), "k")))


# -- keys that are not what they seem --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"alg": "ES384"},
        {"alg": "none"},
        {"alg": ["ES256"]},
        {"use": "enc"},
        {"use": None},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"kty": "RSA"},
        {"kty": "oct", "k": "AAAA"},
        {"kty": ["EC"]},
        {"crv": "P-384"},
        {"crv": "secp256k1"},
        {"x": "AAAA"},
        {"x": "é" * 43},
        {"y": 5},
        {"kid": ["k"]},
        {"kid": None},
    ],
    ids=str,
)
async def test_a_key_that_is_not_meant_for_it_verifies_nothing(door: Any, keys: Keys, changed: Json) -> None:
    key = ec_key()
    keys.published = [None, 5, "k", [], {}, {**public(key, "k"), **changed}]
    chain = door.chain("bearer", bearer=keys.table())
    with pytest.raises(Unauthenticated):
        await chain(door.asked(keys.token(key, "k")))


async def test_a_published_key_is_no_shared_secret_and_none_is_no_algorithm(door: Any, keys: Keys) -> None:
    key = rsa.generate_private_key(65537, 2048)
    shared = b"a secret that everybody can read, of 32 bytes and more"
    keys.published = [public(key, "k"), {"kty": "oct", "kid": "o", "k": to_base64url(shared), "alg": "HS256"}]
    chain = door.chain("bearer", bearer=keys.table())
    assert (await chain(door.asked(keys.token(key, "k", "RS256")))).name == "carol"
    for token in (
        keys.token(shared, "o", "HS256"),
        keys.token(from_base64url(keys.published[0]["n"]), "k", "HS256"),
        keys.token(None, "k", "none"),
    ):
        with pytest.raises(Unauthenticated):
            await chain(door.asked(token))


@pytest.mark.parametrize("header", ["jku", "x5u", "jwk", "x5c"])
async def test_a_token_that_brings_its_own_key_is_not_believed_and_nothing_is_fetched_for_it(
    door: Any, keys: Keys, header: str
) -> None:
    honest, forger = ec_key(), ec_key()
    keys.published = [public(honest, "k")]
    brought: Any = {
        "jku": f"{keys.url}/keys?forged",
        "x5u": f"{keys.url}/keys?forged",
        "jwk": public(forger, "k"),
        "x5c": ["AAAA"],
    }[header]
    chain = door.chain("bearer", bearer=keys.table())
    with pytest.raises(Unauthenticated):
        await chain(door.asked(keys.token(forger, "k", **{header: brought})))
    assert keys.fetched == 1
    assert (await chain(door.asked(keys.token(honest, "k", **{header: brought})))).name == "carol"


async def test_keys_that_take_long_to_compute_with_are_not_used(door: Any, keys: Keys) -> None:
    """A hundred keys of one name, with an exponent as long as the modulus, took 1.1 s for each token."""
    odd = (1 << 3071) | (1 << 2000) | 12345
    slow = {"kty": "RSA", "kid": "k", "n": to_base64url(odd.to_bytes(384, "big")), "e": to_base64url(b"\x03" * 375)}
    long = {**slow, "n": to_base64url(b"\xff" * 2048), "e": "AQAB"}
    keys.published = [*[slow] * 50, *[long] * 50]
    chain = door.chain("bearer", bearer=keys.table())
    signature = to_base64url(b"\x01" * 384)
    head, claims, _ = keys.token(rsa.generate_private_key(65537, 2048), "k", "RS256")[1].split(".")
    began = time.process_time()
    for _ in range(20):
        with pytest.raises(Unauthenticated, match="cannot be used with RS256"):
            await chain(door.asked(("Authorization", f"{head}.{claims}.{signature}")))
    assert time.process_time() - began < 2


async def test_of_many_good_keys_of_one_name_only_the_first_few_are_tried(door: Any, keys: Keys) -> None:
    many = [ec_key() for _ in range(MAX_SAME_ID + 1)]
    keys.published = [public(key, "k") for key in many]
    chain = door.chain("bearer", bearer=keys.table())
    for key in many[:MAX_SAME_ID]:
        assert (await chain(door.asked(keys.token(key, "k")))).name == "carol"
    with pytest.raises(Unauthenticated):
        await chain(door.asked(keys.token(many[-1], "k")))


async def test_a_thousand_unknown_key_names_at_once_ask_the_issuer_once_and_the_honest_get_in(
    door: Any, keys: Keys
) -> None:
    key = ec_key()
    keys.published = [public(key, "k")]
    chain = door.chain("bearer", bearer=keys.table())
    forged = KeyRing.random().signer().sign_jwt(keys.claims()).split(".")
    tokens = []
    for number in range(1000):
        head = to_base64url(json.dumps({"alg": "ES256", "kid": f"k{number}"}).encode())
        tokens.append(("Authorization", f"Bearer {head}.{forged[1]}.{forged[2]}"))
    answers = await asyncio.gather(
        *(chain(door.asked(token)) for token in [*tokens, keys.token(key, "k")]), return_exceptions=True
    )
    assert {type(each) for each in answers[:-1]} == {Unauthenticated}
    assert answers[-1].name == "carol"
    assert keys.fetched == 1
