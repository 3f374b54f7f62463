"""Tokens, keys, passwords and cookies, as they arrive at a server."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest

from dragoman.auth import ApiKey, Basic, Bearer, Cookie
from dragoman.model.error import AuthError, ConfigError
from dragoman.net.exchange import HttpRequest

KEY = {"apiKeySecurityScheme": {"location": "header", "name": "X-Their-Key"}}
QUERY = {"apiKeySecurityScheme": {"location": "query", "name": "key"}}
COOKIE = {"apiKeySecurityScheme": {"location": "cookie", "name": "session"}}
BEARER = {"httpAuthSecurityScheme": {"scheme": "bearer"}}


async def test_a_bearer_token_arrives_in_the_authorization_header(call: Any):
    assert (await call(Bearer("abc"))).headers["Authorization"] == "Bearer abc"


async def test_a_header_given_before_in_another_case_is_replaced(call: Any):
    arrived = await call(Bearer("abc"), headers={"authorization": "Basic old"})
    assert arrived.headers.getall("Authorization") == ["Bearer abc"]


async def test_a_request_never_has_a_header_twice(http: Any):
    request = HttpRequest("POST", "https://a.example/", {"AUTHORIZATION": "x", "authorization": "y", "Accept": "z"})
    await Bearer("abc").apply(request, None, http)
    assert request.headers == {"Accept": "z", "Authorization": "Bearer abc"}


async def test_user_and_password_arrive_as_utf_8(call: Any):
    header = (await call(Basic("jörg", "p:w ü"))).headers["Authorization"]
    assert b64decode(header.removeprefix("Basic ")).decode() == "jörg:p:w ü"


async def test_a_password_may_be_empty(call: Any):
    assert (await call(Basic("key", ""))).headers["Authorization"] == "Basic a2V5Og=="


async def test_a_key_goes_into_the_usual_header_when_no_card_says_otherwise(call: Any):
    assert (await call(ApiKey("k"))).headers["X-API-Key"] == "k"


async def test_a_key_goes_where_the_card_says(call: Any, card: Any):
    arrived = await call(ApiKey("k"), card({"b": BEARER, "k": KEY}, ["b"], ["k"]))
    assert arrived.headers["X-Their-Key"] == "k"
    assert "X-API-Key" not in arrived.headers


async def test_a_key_finds_its_place_among_schemes_that_are_not_demanded(call: Any, card: Any):
    assert (await call(ApiKey("k"), card({"k": KEY}))).headers["X-Their-Key"] == "k"


async def test_the_place_a_user_names_wins_over_the_card(call: Any, card: Any):
    arrived = await call(ApiKey("k", name="mine", location="query"), card({"k": KEY}, ["k"]))
    assert arrived.query["mine"] == "k"
    assert "X-Their-Key" not in arrived.headers


async def test_a_name_alone_finds_its_location_on_the_card(call: Any, card: Any):
    schemes = {"h": KEY, "q": QUERY}
    assert (await call(ApiKey("k", name="key"), card(schemes, ["h"], ["q"]))).query["key"] == "k"


async def test_a_location_alone_finds_its_name_on_the_card(call: Any, card: Any):
    schemes = {"h": KEY, "c": COOKIE}
    assert (await call(ApiKey("k", location="cookie"), card(schemes, ["h"]))).cookies["session"] == "k"


async def test_a_location_without_any_name_is_an_error(call: Any):
    with pytest.raises(AuthError, match="pass name="):
        await call(ApiKey("k", location="query"))


@pytest.mark.parametrize("key", ["a&b=c#d?e/f", "a b+c%20", "ключ", "=", "50%"])
async def test_a_key_in_the_query_arrives_as_it_is(call: Any, card: Any, key: str):
    arrived = await call(ApiKey(key), card({"q": QUERY}, ["q"]), path="/agent?a=1&b=%2B")
    assert arrived.query["key"] == key
    assert (arrived.query["a"], arrived.query["b"]) == ("1", "+")


async def test_a_repeated_request_has_its_key_once(http: Any, card: Any):
    request = HttpRequest("POST", "https://a.example/x?key=old&a=1")
    for _ in range(2):
        await ApiKey("k").apply(request, card({"q": QUERY}, ["q"]), http)
    assert request.url == "https://a.example/x?a=1&key=k"


async def test_a_cookie_is_called_user_and_keeps_the_others(call: Any):
    arrived = await call(Cookie("abc=="), headers={"cookie": "lang=de; user=old; x=y=z"})
    assert arrived.headers.getall("Cookie") == ["lang=de; x=y=z; user=abc=="]


async def test_a_cookie_can_have_another_name(call: Any):
    assert (await call(Cookie("v", name="sid"))).cookies == {"sid": "v"}


@pytest.mark.parametrize("kind", [Bearer, ApiKey, Cookie])
async def test_the_environment_is_read_at_every_request(kind: Any, call: Any, monkeypatch: pytest.MonkeyPatch):
    credential = kind(env="MY_SECRET")
    for value in ("first", "second"):
        monkeypatch.setenv("MY_SECRET", value)
        assert value in str((await call(credential)).headers)


async def test_a_password_can_be_in_the_environment(call: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_SECRET", "pw")
    header = (await call(Basic("me", env="MY_SECRET"))).headers["Authorization"]
    assert b64decode(header.removeprefix("Basic ")) == b"me:pw"


@pytest.mark.parametrize("credential", [Bearer(env="NOT_SET"), ApiKey(env="NOT_SET"), Basic("u", env="NOT_SET")])
async def test_a_missing_variable_is_named(credential: Any, call: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(AuthError, match="NOT_SET is not set"):
        await call(credential)


@pytest.mark.parametrize("value", ["", "abc\n", "a\x00b", "a\udcffb"])
async def test_a_variable_that_cannot_be_sent_is_named(value: str, call: Any, monkeypatch: pytest.MonkeyPatch):
    # The environment itself takes no NUL.
    monkeypatch.setattr("os.environ", {"MY_SECRET": value})
    with pytest.raises(AuthError, match="MY_SECRET"):
        await call(Bearer(env="MY_SECRET"))


@pytest.mark.parametrize(
    "bad", ["hush\r\nX-Admin: 1", "hush\n", "hush\x00", "hush\x7f", "hush\x85", "\thush", "hush\udc80"]
)
@pytest.mark.parametrize(
    "make",
    [Bearer, ApiKey, Cookie, lambda value: Basic("u", value), lambda value: Basic(value, "p")],
    ids=["bearer", "key", "cookie", "password", "user"],
)
def test_a_value_that_could_break_out_of_its_header_is_refused_unseen(make: Any, bad: str):
    with pytest.raises(ConfigError) as caught:
        make(bad)
    assert "control character" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_cookie_cannot_bring_another_with_it():
    with pytest.raises(ConfigError, match="semicolon"):
        Cookie("hush; admin=1")


async def test_a_key_in_a_cookie_cannot_bring_another_with_it(call: Any, card: Any):
    with pytest.raises(AuthError, match="semicolon"):
        await call(ApiKey("hush; admin=1"), card({"c": COOKIE}, ["c"]))


async def test_a_header_carries_ascii_only_and_says_so(call: Any):
    with pytest.raises(AuthError, match="ASCII") as caught:
        await call(Bearer("hüsh"))
    assert "hüsh" not in str(caught.value)


def test_a_token_with_its_scheme_before_it_is_refused():
    with pytest.raises(ConfigError, match="without `Bearer`"):
        Bearer("Bearer abc")


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "HOST", "X Key", "X:Key", "X\r\nEvil", ""])
async def test_a_card_cannot_make_a_key_into_another_kind_of_header(name: str, call: Any, card: Any, site: Any):
    scheme = {"apiKeySecurityScheme": {"location": "header", "name": name}}
    with pytest.raises(AuthError, match="cannot be sent in a header named"):
        await call(ApiKey("hush"), card({"k": scheme}, ["k"]))
    assert not site.arrived


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Bearer(), "token is missing"),
        (lambda: Bearer("a", env="B"), "given twice"),
        (lambda: Bearer(env=""), "env="),
        (lambda: Bearer(b"hush"), "must be a str, not bytes"),
        (lambda: Bearer(""), "empty"),
        (lambda: ApiKey("k", location="body"), "'header', 'query', 'cookie'"),
        (lambda: ApiKey("k", name=""), "empty"),
        (lambda: Basic("u"), "password is missing"),
        (lambda: Basic("u:v", "p"), "colon"),
        (lambda: Cookie("v", name="a b"), "name of the cookie"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(make: Any, text: str):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)


def test_what_never_changes_is_not_tried_again():
    assert [each.reject() for each in (Bearer("a"), ApiKey("a"), Basic("a", "b"), Cookie("a"))] == [False] * 4
    assert Bearer("a").ssl_context(True) is None
