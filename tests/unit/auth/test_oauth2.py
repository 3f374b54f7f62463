"""Client credentials against a real issuer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.auth import OAuth2
from dragoman.model.error import AuthError, CannotConnect, ConfigError
from dragoman.net.exchange import HttpRequest

CLIENT = "the client"
SECRET = "s3cr3t:+/%&ü"


def scheme(token_url: str = "/token", **flow: Any) -> dict[str, Any]:
    return {"oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": token_url, "scopes": {}, **flow}}}}


def bearer(request: Any) -> str:
    return request.headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def theirs(site: Any, card: Any) -> Any:
    return card({"o": scheme(site.url + "/token")}, ["o"])


@pytest.fixture
def auth(time: Any) -> OAuth2:
    return OAuth2(CLIENT, SECRET, _now=time)


async def test_a_token_is_fetched_where_the_card_says_and_sent(call: Any, site: Any, theirs: Any):
    assert bearer(await call(OAuth2(CLIENT, SECRET), theirs)) == "t0ken-1"
    assert site.forms[0]["grant_type"] == "client_credentials"
    assert "client_secret" not in site.forms[0]


async def test_an_address_relative_to_the_agent_is_understood(call: Any, card: Any):
    assert bearer(await call(OAuth2(CLIENT, SECRET), card({"o": scheme("/token")}, ["o"]))) == "t0ken-1"


async def test_an_issuer_that_wants_the_secret_in_the_form_gets_it_so_from_then_on(
    call: Any, site: Any, theirs: Any, auth: Any
):
    site.accepts = {"body"}
    assert bearer(await call(auth, theirs)) == "t0ken-1"
    assert ["client_secret" in form for form in site.forms] == [False, True]
    auth.reject()
    assert bearer(await call(auth, theirs)) == "t0ken-2"
    assert ["client_secret" in form for form in site.forms] == [False, True, True]


async def test_an_issuer_that_says_invalid_client_with_400_gets_the_form_too(call: Any, site: Any, theirs: Any):
    site.script = [(400, {"error": "invalid_client"})]
    assert bearer(await call(OAuth2(CLIENT, SECRET), theirs)) == "t0ken-1"
    assert "client_secret" in site.forms[1]


async def test_a_client_without_a_secret_names_itself(call: Any, site: Any, theirs: Any):
    site.script = [(200, {"access_token": "abc"})]
    assert bearer(await call(OAuth2(CLIENT), theirs)) == "abc"
    assert site.forms == [{"grant_type": "client_credentials", "client_id": CLIENT, "authorization": ""}]


async def test_the_secret_can_be_in_the_environment(call: Any, theirs: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_SECRET", SECRET)
    assert bearer(await call(OAuth2(CLIENT, env="MY_SECRET"), theirs)) == "t0ken-1"
    monkeypatch.delenv("MY_SECRET")
    with pytest.raises(AuthError, match="MY_SECRET is not set"):
        await call(OAuth2(CLIENT, env="MY_SECRET"), theirs)


@pytest.mark.parametrize(
    ("life", "moments", "tokens"),
    [
        (3600, (0, 3569, 3571, 3572), ["t0ken-1", "t0ken-1", "t0ken-2", "t0ken-2"]),
        ("10", (0, 8.9, 9.1), ["t0ken-1", "t0ken-1", "t0ken-2"]),
    ],
    ids=["an hour", "a short life"],
)
async def test_a_token_is_kept_until_shortly_before_it_expires(
    life: Any, moments: Any, tokens: list[str], call: Any, site: Any, theirs: Any, time: Any, auth: Any
):
    site.life = life
    found = []
    for moment in moments:
        time.now = 1000.0 + moment
        found.append(bearer(await call(auth, theirs)))
    assert found == tokens


@pytest.mark.parametrize("life", [None, "soon", [1], "inf", "nan"])
async def test_a_token_that_does_not_say_when_it_expires_is_kept_until_it_is_refused(
    life: Any, call: Any, site: Any, theirs: Any, time: Any, auth: Any
):
    site.life = life
    assert bearer(await call(auth, theirs)) == "t0ken-1"
    time.now += 1e9
    assert bearer(await call(auth, theirs)) == "t0ken-1"
    assert auth.reject()
    assert bearer(await call(auth, theirs)) == "t0ken-2"


@pytest.mark.parametrize("life", [0, -5])
async def test_a_token_that_has_expired_already_is_used_once(life: int, call: Any, site: Any, theirs: Any, auth: Any):
    site.life = life
    assert [bearer(await call(auth, theirs)) for _ in range(2)] == ["t0ken-1", "t0ken-2"]


async def test_many_at_once_fetch_one_token(call: Any, site: Any, theirs: Any, auth: Any):
    site.gate.clear()
    calls = [asyncio.create_task(call(auth, theirs)) for _ in range(50)]
    await site.reached.wait()
    site.gate.set()
    await asyncio.gather(*calls)
    assert {bearer(each) for each in site.arrived} == {"t0ken-1"}
    assert len(site.forms) == 1


async def test_many_at_once_hear_of_one_failure_and_the_next_tries_again(call: Any, site: Any, theirs: Any, auth: Any):
    site.gate.clear()
    site.script = [(400, {"error": "invalid_scope"})]
    calls = [asyncio.create_task(call(auth, theirs)) for _ in range(20)]
    await site.reached.wait()
    site.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {str(each) for each in answers} == {f"no token from {site.url}/token: invalid_scope"}
    assert {type(each) for each in answers} == {AuthError}
    assert len(site.forms) == 1
    assert bearer(await call(auth, theirs)) == "t0ken-1"


async def test_when_the_one_who_fetches_gives_up_another_goes_on(call: Any, site: Any, theirs: Any, auth: Any):
    site.gate.clear()
    first, second = (asyncio.create_task(call(auth, theirs)) for _ in range(2))
    await site.reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    site.gate.set()
    assert bearer(await second).startswith("t0ken-")


def test_one_credential_serves_several_event_loops():
    from dragoman.net.aio import AioClient

    auth = OAuth2(CLIENT, SECRET, token_url="http://127.0.0.1:9/token")

    async def fail_together() -> list[Any]:
        http = AioClient()
        request = HttpRequest("POST", "http://127.0.0.1:9/")
        answers = await asyncio.gather(*(auth.apply(request, None, http) for _ in range(3)), return_exceptions=True)
        await http.close()
        return answers

    for _ in range(2):
        assert {type(each) for each in asyncio.run(fail_together())} == {CannotConnect}


async def test_a_refresh_token_is_used_when_there_is_one(call: Any, site: Any, theirs: Any, time: Any, auth: Any):
    site.gives_refresh = True
    for expected in ("t0ken-1", "t0ken-2", "t0ken-3"):
        assert bearer(await call(auth, theirs)) == expected
        time.now += 4000
    assert [form.get("refresh_token") for form in site.forms] == [None, "r3fresh-1", "r3fresh-2"]


async def test_a_refresh_token_that_is_refused_means_to_begin_again(
    call: Any, site: Any, theirs: Any, time: Any, auth: Any
):
    site.gives_refresh, site.refresh_works = True, False
    await call(auth, theirs)
    time.now += 4000
    assert bearer(await call(auth, theirs)) == "t0ken-2"
    assert [form["grant_type"] for form in site.forms] == ["client_credentials", "refresh_token", "client_credentials"]


async def test_a_refresh_token_is_kept_when_no_newer_one_comes(call: Any, site: Any, theirs: Any, time: Any, auth: Any):
    site.gives_refresh = True
    for _ in range(3):
        await call(auth, theirs)
        site.gives_refresh = False
        time.now += 4000
    assert [form.get("refresh_token") for form in site.forms] == [None, "r3fresh-1", "r3fresh-1"]


async def test_the_refresh_address_of_the_card_is_used(call: Any, site: Any, card: Any, time: Any, auth: Any):
    site.gives_refresh = True
    theirs = card({"o": scheme(refreshUrl=site.url + "/refresh")}, ["o"])
    await call(auth, theirs)
    time.now += 4000
    await call(auth, theirs)
    assert site.paths == ["/token", "/refresh"]


@pytest.mark.parametrize(
    ("given", "demanded", "flow", "asked"),
    [
        (["x", "y"], ["r"], {"f": "F"}, "x y"),
        ("x y", ["r"], {"f": "F"}, "x y"),
        (None, ["r", "s"], {"f": "F"}, "r s"),
        (None, [], {"f": "F", "g": "G"}, "f g"),
        (None, [], {}, None),
        ([], ["r"], {"f": "F"}, None),
    ],
    ids=["given", "given as text", "demanded", "of the flow", "none", "none wanted"],
)
async def test_the_scopes_asked_for(
    given: Any, demanded: list[str], flow: Any, asked: str | None, call: Any, site: Any, card: Any
):
    await call(OAuth2(CLIENT, SECRET, scopes=given), card({"o": scheme(scopes=flow)}, {"o": demanded}))
    assert site.forms[0].get("scope") == asked


async def test_the_scopes_of_the_card_count_also_with_an_address_of_ones_own(call: Any, site: Any, card: Any):
    theirs = card({"o": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "x"}}}, {"o": ["read"]})
    await call(OAuth2(CLIENT, SECRET, token_url=site.url + "/token"), theirs)
    assert site.forms[0]["scope"] == "read"


async def test_tokens_for_different_scopes_are_kept_apart(call: Any, card: Any, auth: Any):
    one, two = (card({"o": scheme()}, {"o": [scope]}) for scope in ("one", "two"))
    assert [bearer(await call(auth, each)) for each in (one, two, one, two)] == ["t0ken-1", "t0ken-2"] * 2


async def test_the_audience_is_passed_on(call: Any, site: Any, theirs: Any):
    await call(OAuth2(CLIENT, SECRET, audience="https://a.example"), theirs)
    assert site.forms[0]["audience"] == "https://a.example"


async def test_a_card_cannot_have_secrets_sent_to_another_origin(call: Any, card: Any, open_site: Any):
    other = await open_site()
    with pytest.raises(ConfigError) as caught:
        await call(OAuth2(CLIENT, SECRET), card({"o": scheme(other.url + "/token")}, ["o"]))
    assert f"token_url='{other.url}/token'" in str(caught.value)
    assert other.forms == []


async def test_a_card_cannot_have_refresh_tokens_sent_to_another_origin(
    call: Any, card: Any, open_site: Any, site: Any
):
    other = await open_site()
    with pytest.raises(ConfigError, match="not the agent's own origin"):
        await call(OAuth2(CLIENT, SECRET), card({"o": scheme(refreshUrl=other.url + "/refresh")}, ["o"]))
    assert other.forms == site.forms == []


async def test_an_address_the_user_gives_may_be_anywhere_and_wins_over_the_card(
    call: Any, theirs: Any, open_site: Any, site: Any
):
    other = await open_site()
    await call(OAuth2(CLIENT, SECRET, token_url=other.url + "/token"), theirs)
    assert (len(other.forms), len(site.forms)) == (1, 0)


@pytest.mark.parametrize(
    "address",
    [
        "//evil.example/token",
        "https://evil.example/token",
        "http://127.0.0.1:1/token",
        "https://127.0.0.1@evil.example/token",
        "https://evil.example\\@127.0.0.1/token",
        "https://evil.example:99999/token",
        "https://[::1/token",
        "ftp://127.0.0.1/token",
        "file:///etc/passwd",
        "http://evil.example/\ntoken",
    ],
)
async def test_no_spelling_of_an_address_gets_around_that(address: str, call: Any, card: Any, site: Any):
    with pytest.raises(ConfigError, match="token_url="):
        await call(OAuth2(CLIENT, SECRET), card({"o": scheme(address)}, ["o"]))
    assert site.arrived == site.forms == []


async def test_an_agent_reached_without_tls_cannot_have_secrets_from_its_card(http: Any, card: Any):
    request = HttpRequest("POST", "http://agent.example/")
    with pytest.raises(ConfigError, match="must begin with https://"):
        await OAuth2(CLIENT, SECRET).apply(request, card({"o": scheme()}, ["o"]), http)


@pytest.mark.parametrize(
    "flows", [None, {"implicit": {"authorizationUrl": "x"}}, {"clientCredentials": {"tokenUrl": 7}}]
)
async def test_a_card_that_names_no_address_asks_for_one(flows: Any, call: Any, card: Any):
    theirs = card({"o": {"oauth2SecurityScheme": {"flows": flows}}}, ["o"])
    for each in (theirs, None):
        with pytest.raises(ConfigError, match="pass token_url="):
            await call(OAuth2(CLIENT, SECRET), each)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: OAuth2("c", token_url="http://issuer.example/token"), "token_url= must begin with https://"),
        (lambda: OAuth2("c", token_url="issuer/token"), "token_url= is not a URL"),
        (lambda: OAuth2("c", token_url="https://u:hush@issuer.example/"), "must not contain a user or password"),
        (lambda: OAuth2("c", token_url="https://a.example\\.evil.example/"), "token_url= is not a URL"),
        (lambda: OAuth2("c", token_url="https://a.example:99999/"), "token_url= is not a URL"),
        (lambda: OAuth2("c", token_url=7), "must be a str"),
        (lambda: OAuth2("", "hush"), "client_id is empty"),
        (lambda: OAuth2("c", "hush\n"), "control character"),
        (lambda: OAuth2("c", "hush", env="X"), "given twice"),
        (lambda: OAuth2("c", "hush", scopes=[7]), "scope must be a str"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(make: Any, text: str):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (400, {"error": "invalid_scope", "error_description": "no \x1b[2J such"}, "invalid_scope: no  [2J such"),
        (200, {"error": "bad_verification"}, "bad_verification"),
        (500, b"<html>", "HTTP 500"),
        (200, b"<html>", "not a JSON object"),
        (200, b"\xff\xfe", "not a JSON object"),
        (200, [], "not a JSON object"),
        (200, {"token_type": "bearer"}, "access_token"),
        (200, {"access_token": "hush\r\nX: 1"}, "control character"),
        (200, {"access_token": "hush", "token_type": "mac"}, "'mac'"),
        (200, b"[" * 100_000, "not a JSON object"),
        (200, b'"' + b"x" * 1024 * 1024 + b'"', "larger than 1 MB"),
    ],
)
async def test_an_invalid_response_of_the_issuer_is_an_error_with_its_reason(
    status: int, body: Any, text: str, call: Any, site: Any, theirs: Any
):
    site.script = [(status, body)]
    with pytest.raises(AuthError) as caught:
        await call(OAuth2(CLIENT, SECRET), theirs)
    assert text in str(caught.value)
    assert f"{site.url}/token" in str(caught.value)
    assert "hush" not in str(caught.value)
    assert site.arrived == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int, call: Any, site: Any, theirs: Any, open_site: Any):
    other = await open_site()
    site.script, site.headers = [(status, b"")], {"Location": other.url + "/token"}
    with pytest.raises(AuthError, match="not followed"):
        await call(OAuth2(CLIENT, SECRET), theirs)
    assert other.forms == []


async def test_wrong_credentials_are_tried_in_both_ways_and_no_more(call: Any, site: Any, theirs: Any):
    with pytest.raises(AuthError, match="invalid_client"):
        await call(OAuth2(CLIENT, "wrong"), theirs)
    assert len(site.forms) == 2


async def test_a_dead_issuer_is_a_connection_error_and_the_request_did_not_arrive(call: Any, site: Any):
    with pytest.raises(CannotConnect, match="no token") as caught:
        await call(OAuth2(CLIENT, SECRET, token_url="http://127.0.0.1:9/token"))
    assert caught.value.arrived is False
    assert site.arrived == []
