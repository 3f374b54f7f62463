"""Each scheme lets the right caller in, and the card says what it is."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from dragoman.auth.inbound.chain import Chain
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError, ServerError, Unauthenticated


def basic(name: str, password: str) -> tuple[str, str]:
    return "Authorization", "Basic " + b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ({}, lambda key: {"headers": [("x-api-key", key)]}),
        ({"name": "X-Agent-Key"}, lambda key: {"headers": [("X-AGENT-KEY", key)]}),
        ({"location": "query", "name": "key"}, lambda key: {"query": f"key={key}"}),
        ({"location": "cookie", "name": "key"}, lambda key: {"headers": [("Cookie", f"a=b; key={key}")]}),
    ],
)
async def test_a_users_key_is_taken_where_the_card_says(door: Any, table: dict[str, Any], place: Any) -> None:
    chain = door.chain("apikey", apikey=table)
    parts = place(door.key("alice"))

    user = await chain(door.asked(*parts.pop("headers", []), **parts))

    assert (user.id, user.permissions) == ("alice", {"count"})
    card = chain.security()[0]["apikey"]["apiKeySecurityScheme"]
    assert card == {"location": table.get("location", "header"), "name": table.get("name", "X-API-Key")}


async def test_a_users_key_is_a_bearer_token_too(door: Any) -> None:
    chain = door.chain("bearer")
    user = await chain(door.asked(("Authorization", f"bearer {door.key('bob')}")))
    assert (user.id, user.permissions) == ("bob", frozenset())
    assert chain.security() == (
        {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        [{"schemes": {"bearer": {"list": []}}}],
    )


async def test_a_password_is_compared_once_and_then_remembered_for_minutes(door: Any) -> None:
    chain = door.chain("basic")
    for _ in range(3):
        user = await chain(door.asked(basic("alice", door.password)))
        assert user.permissions == {"count"}
    assert door.hasher.verified == 1

    door.clock.move(301)
    await chain(door.asked(basic("alice", door.password)))
    assert door.hasher.verified == 2


@pytest.mark.requirement("S0-5")
async def test_the_cookie_says_who_calls_and_what_they_may_do_now(door: Any) -> None:
    chain = door.chain("cookie")
    cookie = ("Cookie", f"theme=dark; user={await door.cookie('alice')}")

    assert (await chain(door.asked(cookie))).permissions == {"count"}
    door.users.grant("alice", "admin", 3600)
    assert (await chain(door.asked(cookie))).permissions == {"count", "admin"}
    door.clock.move(3600)
    assert (await chain(door.asked(cookie))).permissions == {"count"}
    assert chain.security()[0]["cookie"] == {"apiKeySecurityScheme": {"location": "cookie", "name": "user"}}


@pytest.mark.parametrize(("scheme", "more"), [("bearer", {}), ("oidc", {}), ("oauth2", {"token_url": True})])
async def test_a_token_of_the_issuer_says_who_calls(door: Any, issuer: Any, scheme: str, more: dict[str, Any]) -> None:
    table = {"issuer": issuer.url, "audience": "the-agent", "scopes": ["a"]}
    table |= {"jwks_url": f"{issuer.url}/keys"} if scheme == "bearer" else {}
    table |= {"token_url": f"{issuer.url}/token"} if more else {}
    chain = door.chain(scheme, **{scheme: table})

    user = await chain(door.asked(("Authorization", f"Bearer {issuer.token(door.clock, name='Carol')}")))

    assert (user.id, user.name, user.permissions) == (f"{issuer.url}|carol", "Carol", {"a", "b"})
    assert user.claims is not None
    assert user.claims["sub"] == "carol"
    assert chain.security()[1] == [{"schemes": {scheme: {"list": ["a"]}}}]


async def test_the_card_tells_the_flow_of_an_oauth2_server(door: Any) -> None:
    table = {
        "issuer": "https://id.example",
        "audience": "x",
        "flow": "authorization_code",
        "authorization_url": "https://id.example/authorize",
        "token_url": "https://id.example/token",
        "scopes": ["a2a"],
        "offered": {"a2a": "Talk to agents", "more": "More"},
        "metadata_url": "https://id.example/about",
    }
    assert door.chain("oauth2", oauth2=table).security()[0]["oauth2"] == {
        "oauth2SecurityScheme": {
            "flows": {
                "authorizationCode": {
                    "authorizationUrl": "https://id.example/authorize",
                    "tokenUrl": "https://id.example/token",
                    "scopes": {"a2a": "Talk to agents", "more": "More"},
                    "pkceRequired": True,
                }
            },
            "oauth2MetadataUrl": "https://id.example/about",
        }
    }


async def test_the_card_names_the_document_of_an_openid_provider(door: Any) -> None:
    chain = door.chain("oidc", oidc={"issuer": "https://id.example/realm/", "audience": "x"})
    url = "https://id.example/realm/.well-known/openid-configuration"
    assert chain.security()[0]["oidc"] == {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}


async def test_permissions_come_from_the_claim_that_is_named(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", bearer={**issuer.table(), "permissions": "realm_access.roles"})
    token = issuer.token(door.clock, realm_access={"roles": ["count", 5, "admin"]})
    assert (await chain(door.asked(("Authorization", f"Bearer {token}")))).permissions == {"count", "admin"}
    token = issuer.token(door.clock, realm_access="count")
    assert (await chain(door.asked(("Authorization", f"Bearer {token}")))).permissions == frozenset()


# -- the chain -------------------------------------------------------------------------------------------------------


async def test_a_wrong_token_is_refused_with_its_scheme(door: Any) -> None:
    chain = door.chain("bearer", "basic")
    with pytest.raises(Unauthenticated) as raised:
        await chain(door.asked(("Authorization", "Bearer nonsense")))
    assert raised.value.metadata == {"scheme": "bearer", "schemes": "bearer,basic"}
    assert (b"www-authenticate", b'Bearer realm="dragoman", error="invalid_token"') in chain.challenge_headers(
        raised.value
    )


async def test_what_one_scheme_refuses_may_be_right_for_another(door: Any, issuer: Any) -> None:
    elsewhere = {"issuer": issuer.url, "audience": "another", "jwks_url": f"{issuer.url}/keys"}
    oidc = {"issuer": issuer.url, "audience": "the-agent"}
    chain = door.chain("cookie", "bearer", "oidc", bearer=elsewhere, oidc=oidc)
    token = ("Authorization", f"Bearer {issuer.token(door.clock)}")
    assert (await chain(door.asked(("Cookie", "user=stale"), token))).id == f"{issuer.url}|carol"


async def test_a_user_and_a_stranger_with_one_name_are_two(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", bearer=issuer.table())
    token = issuer.token(door.clock, sub="alice")
    stranger = await chain(door.asked(("Authorization", f"Bearer {token}")))
    user = await chain(door.asked(("Authorization", f"Bearer {door.key('alice')}")))
    assert stranger.id != user.id
    assert "count" not in stranger.permissions


def test_a_chain_needs_schemes_with_different_names(door: Any) -> None:
    with pytest.raises(ConfigError):
        Chain([])
    with pytest.raises(ConfigError):
        Chain([*door.schemes("basic"), *door.schemes("basic")])


# -- the keys of issuers ---------------------------------------------------------------------------------------------


async def test_a_new_key_of_the_issuer_counts_at_once_and_a_withdrawn_one_no_more(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", bearer=issuer.table())
    old = ("Authorization", f"Bearer {issuer.token(door.clock)}")
    await chain(door.asked(old))
    issuer.ring = KeyRing.random()
    door.clock.move(31)

    await chain(door.asked(("Authorization", f"Bearer {issuer.token(door.clock)}")))

    assert issuer.fetched == 2
    with pytest.raises(Unauthenticated):  # though it was remembered as good
        await chain(door.asked(old))


async def test_keys_are_asked_for_again_after_an_hour_and_kept_when_the_issuer_is_down(door: Any, issuer: Any) -> None:
    chain = door.chain("bearer", bearer=issuer.table())
    ask = lambda: chain(door.asked(("Authorization", f"Bearer {issuer.token(door.clock)}")))  # noqa: E731
    await ask()
    issuer.is_down = True
    door.clock.move(3601)
    assert (await ask()).name == "carol"
    assert issuer.fetched == 2
    door.clock.move(24 * 3600)
    with pytest.raises(ServerError):
        await ask()
    issuer.is_down = False
    door.clock.move(30)
    assert (await ask()).name == "carol"


async def test_an_issuer_that_is_down_is_no_verdict_on_the_caller(door: Any, issuer: Any) -> None:
    issuer.is_down = True
    chain = door.chain("basic", "bearer", bearer=issuer.table())
    for _ in range(3):
        with pytest.raises(ServerError):
            await chain(door.asked(("Authorization", f"Bearer {issuer.token(door.clock)}")))
    assert issuer.fetched == 1
    issuer.is_down = False
    door.clock.move(5)
    assert (await chain(door.asked(("Authorization", f"Bearer {issuer.token(door.clock)}")))).name == "carol"


@pytest.mark.parametrize(
    ("claims_to_be", "jwks_uri"), [("https://evil.example", None), (None, "http://evil.example/keys")]
)
async def test_a_document_that_speaks_for_another_or_names_plain_http_gives_no_keys(
    door: Any, issuer: Any, claims_to_be: str | None, jwks_uri: str | None
) -> None:
    issuer.claims_to_be, issuer.jwks_uri = claims_to_be, jwks_uri
    chain = door.chain("oidc", oidc={"issuer": issuer.url, "audience": "the-agent"})
    with pytest.raises(ServerError):
        await chain(door.asked(("Authorization", f"Bearer {issuer.token(door.clock)}")))
    assert issuer.fetched == 0
