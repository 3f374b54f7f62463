"""What a user may give as `auth=`, and where the card makes it go."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64decode
from functools import partial
from typing import Any

import pytest

from dragoman.auth import ApiKey, Basic, Bearer, DeviceCode, MutualTLS, OAuth2
from dragoman.auth.outbound.choose import credential_of
from dragoman.auth.outbound.credential import Credential
from dragoman.dialects.cards.card import read_card
from dragoman.model.error import AuthError, ConfigError

BEARER = {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}}
BASIC = {"httpAuthSecurityScheme": {"scheme": "basic"}}
DIGEST = {"httpAuthSecurityScheme": {"scheme": "digest"}}
CUSTOM = {"httpAuthSecurityScheme": {"scheme": "Token"}}
KEY = {"apiKeySecurityScheme": {"location": "header", "name": "X-Their-Key"}}
QUERY = {"apiKeySecurityScheme": {"location": "query", "name": "key"}}
COOKIE = {"apiKeySecurityScheme": {"location": "cookie", "name": "session"}}
OAUTH = {"oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {}}}}}
OIDC = {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://issuer.example"}}
TLS = {"mtlsSecurityScheme": {}}


def sent(request: Any) -> dict[str, str]:
    """Every place of a request that had a credential."""
    places = {
        name: request.headers[name] for name in ("Authorization", "X-Their-Key", "X-API-Key") if name in request.headers
    }
    return places | dict(request.query) | dict(request.cookies)


async def test_nothing_given_is_nothing_sent(call: Any):
    assert credential_of(None) is None
    assert sent(await call(None)) == {}


async def test_without_a_card_a_string_is_a_bearer_token(call: Any):
    assert sent(await call("abc")) == {"Authorization": "Bearer abc"}


async def test_a_string_with_its_scheme_before_it_is_refused_without_being_shown(call: Any):
    with pytest.raises(AuthError, match="without `Bearer`") as caught:
        await call("Bearer hush")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "place"),
    [
        (BEARER, {"Authorization": "Bearer abc"}),
        (OAUTH, {"Authorization": "Bearer abc"}),
        (OIDC, {"Authorization": "Bearer abc"}),
        (CUSTOM, {"Authorization": "Token abc"}),
        (KEY, {"X-Their-Key": "abc"}),
        (QUERY, {"key": "abc"}),
        (COOKIE, {"session": "abc"}),
        ({}, {"Authorization": "Bearer abc"}),
    ],
    ids=["bearer", "oauth2", "oidc", "custom", "header", "query", "cookie", "not described"],
)
async def test_a_string_goes_where_the_card_says(scheme: Any, place: Any, call: Any, card: Any):
    assert sent(await call("abc", card({"s": scheme}, ["s"]))) == place


@pytest.mark.parametrize(
    "members",
    [
        {"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X-Their-Key"}}, "security": [{"k": []}]},
        {
            "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "X-Their-Key"}}},
            "securityRequirements": [{"schemes": {"k": {"list": []}}}],
        },
    ],
    ids=["0.3", "1.0"],
)
async def test_a_card_of_either_version_says_where(members: Any, call: Any):
    card = read_card({"name": "a", "url": "http://127.0.0.1/", "version": "1", "skills": [], **members})
    assert sent(await call("abc", card)) == {"X-Their-Key": "abc"}


async def test_a_card_of_0_1_that_wants_bearer_gets_it(call: Any):
    card = read_card({"name": "a", "url": "/", "version": "1", "authentication": {"schemes": ["Bearer"]}})
    assert sent(await call("abc", card)) == {"Authorization": "Bearer abc"}


async def test_of_several_alternatives_the_first_that_a_string_satisfies_is_taken(call: Any, card: Any):
    schemes = {"t": TLS, "d": DIGEST, "b": BEARER, "k": KEY}
    assert sent(await call("abc", card(schemes, ["t"], ["d"], ["b", "k"], ["k"], ["b"]))) == {"X-Their-Key": "abc"}


async def test_an_empty_alternative_does_not_hide_the_others(call: Any, card: Any):
    assert sent(await call("abc", card({"k": KEY}, [], ["k"]))) == {"X-Their-Key": "abc"}


async def test_a_card_that_demands_nothing_in_so_many_words_gets_a_bearer_token(call: Any, card: Any):
    for auth in ("abc", lambda card, scheme: "abc"):
        assert sent(await call(auth, card({}, []))) == {"Authorization": "Bearer abc"}


async def test_a_string_beside_a_certificate_is_one_string(call: Any, card: Any):
    assert sent(await call("abc", card({"t": TLS, "k": KEY}, ["t", "k"]))) == {"X-Their-Key": "abc"}


async def test_what_is_described_and_not_demanded_is_a_bearer_token_unless_only_keys_are_known(call: Any, card: Any):
    assert sent(await call("abc", card({"k": KEY, "b": BEARER}))) == {"Authorization": "Bearer abc"}
    assert sent(await call("abc", card({"k": KEY}))) == {"X-Their-Key": "abc"}
    assert sent(await call("abc", card({"t": TLS}))) == {"Authorization": "Bearer abc"}


async def test_one_string_for_two_schemes_is_an_error_that_names_both(call: Any, card: Any, site: Any):
    with pytest.raises(AuthError) as caught:
        await call("hush", card({"b": BEARER, "k": KEY}, ["b", "k"]))
    text = str(caught.value)
    assert "`b` (http Bearer) and `k` (apiKey)" in text
    assert "a list of them" in text
    assert "hush" not in text
    assert not site.arrived


async def test_a_string_with_a_colon_serves_for_basic_only_when_nothing_else_does(call: Any, card: Any):
    schemes = {"u": BASIC, "b": BEARER}
    assert sent(await call("1:2", card(schemes, ["u"], ["b"]))) == {"Authorization": "Bearer 1:2"}
    assert sent(await call("1:2", card(schemes, ["u"]))) == {"Authorization": "Basic MToy"}
    with pytest.raises(AuthError, match="http basic"):
        await call("hush", card(schemes, ["u"]))


async def test_names_on_a_card_cannot_write_to_the_terminal(call: Any, card: Any):
    with pytest.raises(AuthError) as caught:
        await call("hush", card({"\x1b[2Jx": TLS}, ["\x1b[2Jx"]))
    assert "\x1b" not in str(caught.value)


async def test_two_strings_in_a_tuple_are_user_and_password(call: Any):
    header = sent(await call(("me", "pw")))["Authorization"]
    assert b64decode(header.removeprefix("Basic ")) == b"me:pw"


@pytest.mark.parametrize("auth", [Basic("u", "p"), ("u", "p"), Bearer("abc")], ids=["basic", "pair", "bearer"])
async def test_an_explicit_credential_is_sent_whatever_the_card_wants(auth: Any, call: Any, card: Any):
    arrived = sent(await call(auth, card({"k": KEY}, ["k"])))
    assert set(arrived) == {"Authorization"}


async def test_a_list_is_sent_together(call: Any, card: Any):
    arrived = await call([Bearer("abc"), ApiKey("k")], card({"b": BEARER, "k": QUERY}, ["b", "k"]))
    assert sent(arrived) == {"Authorization": "Bearer abc", "key": "k"}


async def test_a_list_may_hold_one_string_beside_a_certificate():
    several = credential_of([MutualTLS("cert.pem"), "abc"])
    assert several is not None
    assert "MutualTLS" in repr(several)


def test_all_of_a_list_hear_of_a_rejection():
    received: list[int] = []

    class Own:
        def __init__(self, number: int) -> None:
            self.number = number

        async def apply(self, request: Any, card: Any, http: Any) -> None: ...

        def reject(self) -> bool:
            received.append(self.number)
            return self.number == 1

        def ssl_context(self, verify: Any) -> None: ...

    several = credential_of([Own(1), Own(2)])
    assert several is not None
    assert several.reject()
    assert received == [1, 2]


async def test_an_async_function_is_given_the_card_and_the_scheme(call: Any, card: Any):
    seen: list[Any] = []

    async def give(card: Any, scheme: Any) -> str:
        seen.append((card, scheme))
        return f"for-{scheme}"

    theirs = card({"b": BEARER, "k": KEY}, ["b", "k"])
    assert sent(await call(give, theirs)) == {"Authorization": "Bearer for-b", "X-Their-Key": "for-k"}
    assert seen == [(theirs, "b"), (theirs, "k")]


async def test_without_a_demand_a_function_is_asked_for_a_bearer_token(call: Any):
    assert sent(await call(lambda card, scheme: f"{card}-{scheme}")) == {"Authorization": "Bearer None-None"}


async def test_a_plain_function_does_not_hold_up_the_loop(call: Any):
    freed, threads = threading.Event(), []

    def give(card: Any, scheme: Any) -> str:
        threads.append(threading.current_thread())
        assert freed.wait(20)
        return "abc"

    waiting = asyncio.create_task(call(give))
    await asyncio.sleep(0)
    freed.set()
    assert sent(await waiting) == {"Authorization": "Bearer abc"}
    assert threads != [threading.main_thread()]


async def test_a_function_in_any_shape_will_do(call: Any):
    class Vault:
        async def __call__(self, card: Any, scheme: Any) -> str:
            return "abc"

        async def give(self, extra: str, card: Any, scheme: Any) -> str:
            return extra

    assert sent(await call(Vault())) == {"Authorization": "Bearer abc"}
    assert sent(await call(partial(Vault().give, "xyz"))) == {"Authorization": "Bearer xyz"}


async def test_a_function_is_called_for_every_request_and_after_a_401(call: Any):
    numbers = iter(range(10))
    give = credential_of(lambda card, scheme: str(next(numbers)))
    assert give is not None
    assert sent(await call(give)) == {"Authorization": "Bearer 0"}
    assert give.reject()
    assert give.ssl_context(True) is None
    assert sent(await call(give)) == {"Authorization": "Bearer 1"}


@pytest.mark.parametrize("answer", [None, b"hush", "", "hush\n", 7])
async def test_a_wrong_result_of_a_function_is_an_error_that_does_not_show_it(answer: Any, call: Any):
    with pytest.raises(AuthError, match="answer of the function") as caught:
        await call(lambda card, scheme: answer)
    assert "hush" not in str(caught.value)


async def test_a_function_asked_for_a_password_must_give_the_user_too(call: Any, card: Any):
    theirs = card({"u": BASIC}, ["u"])
    assert sent(await call(lambda card, scheme: "1:2", theirs)) == {"Authorization": "Basic MToy"}
    with pytest.raises(AuthError, match="user:password"):
        await call(lambda card, scheme: "hush", theirs)


@pytest.mark.parametrize(("scheme", "text"), [(TLS, "MutualTLS"), (DIGEST, "http digest")])
async def test_a_scheme_that_no_function_can_serve_is_an_error(scheme: Any, text: str, call: Any, card: Any):
    with pytest.raises(AuthError, match=text):
        await call(lambda card, scheme: "abc", card({"s": scheme}, ["s"]))


async def test_what_a_function_raises_is_passed_on(call: Any):
    def give(card: Any, scheme: Any) -> str:
        raise LookupError("no such vault")

    with pytest.raises(LookupError, match="no such vault"):
        await call(give)


@pytest.mark.parametrize(
    ("auth", "text"),
    [
        (7, "not int"),
        (b"hush", "not bytes"),
        ({"token": "hush"}, "not dict"),
        (Bearer, "write Bearer(…)"),
        ("", "empty"),
        ("hush\r\n", "control character"),
        ([], "auth= is empty"),
        ((), "auth= is empty"),
        ([None], "auth= is empty"),
        (["hush", "hush"], "say what each is"),
        ([Bearer("hush"), Basic("hush", "hush")], "one Authorization header"),
        ([OAuth2("c"), DeviceCode("c")], "one Authorization header"),
        ([ApiKey("hush"), ApiKey("hush")], "pass name="),
        (lambda: "hush", "must take (card, scheme)"),
        (lambda card: "hush", "must take (card, scheme)"),
    ],
)
def test_anything_else_is_an_error_that_says_what_is_possible(auth: Any, text: str):
    with pytest.raises(ConfigError) as caught:
        credential_of(auth)
    assert text in str(caught.value)
    assert "hush" not in str(caught.value)


def test_every_kind_keeps_to_the_interface():
    for auth in (
        "abc",
        ("u", "p"),
        Bearer("a"),
        OAuth2("c"),
        DeviceCode("c"),
        MutualTLS("c"),
        [Bearer("a"), ApiKey("k")],
        lambda c, s: "x",
    ):
        assert isinstance(credential_of(auth), Credential)
