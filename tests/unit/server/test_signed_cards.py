"""Cards that are served signed: as they go out, with keys that can be found, and for no address a caller made up."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from dragoman import Agent, Server, User
from dragoman.dialects.cards.rules.validate import card_problems
from dragoman.errors import ConfigError
from dragoman.keys.card_signature import headers_of, signatures_for, verify_card
from dragoman.keys.errors import BadSignature
from dragoman.keys.ring import KeyRing
from dragoman.keys.signer import Signer
from dragoman.testing import served

CARD, JWKS = "/.well-known/agent-card.json", "/.well-known/jwks.json"
OLD, NEW = "the secret of last year", "the secret of this year"


def calculator(name: str = "calculator", **options: Any) -> Agent:
    agent = Agent(name, description="Adds numbers", **options)

    @agent.skill(tags=("math",))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent


def got(url: str, **headers: str) -> tuple[int, Any, bytes]:
    try:
        with urlopen(Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def fetched(url: str, **headers: str) -> dict[str, Any]:
    status, _, body = got(url, **headers)
    assert status == 200, body
    return json.loads(body)


def jkus(card: dict[str, Any]) -> set[str | None]:
    return {header.jku for header in headers_of(card)}


async def asked(app: Any, *, host: str, server: tuple[str, int] | None, path: str = CARD) -> dict[str, Any]:
    """A card as a caller of a server on that address gets it, who names that host."""
    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", host.encode())], "server": server}
    body: list[bytes] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        body.append(message.get("body", b""))

    await app(scope, receive, send)
    return json.loads(b"".join(body))


# -- what is signed --------------------------------------------------------------------------------------------------


def test_a_card_is_not_signed_unless_that_is_wanted() -> None:
    with served(calculator()) as url:
        assert "signatures" not in fetched(url + CARD)


@pytest.mark.parametrize("version", ["both", "1.0"])
def test_a_card_is_signed_as_it_goes_out(version: str) -> None:
    with served(calculator(), sign=True, card_version=version) as url:
        card, keys = fetched(url + CARD), fetched(url + JWKS)
    assert jkus(card) == {url + JWKS}
    verified = verify_card(card, keys)
    assert (verified.form, verified.alg, verified.kid) == ("specification", "ES256", keys["keys"][0]["kid"])
    assert ("url" in card) == (version == "both")
    assert not [each for each in card_problems(json.dumps(card).encode(), url=url + CARD) if each.level == "error"]


def test_what_the_author_adds_to_the_card_is_signed_too() -> None:
    theirs = {"protected": "eyJhbGciOiJub25lIn0", "signature": "AAAA"}
    agent = calculator(card={"provider": {"organization": "Ours", "url": "https://x.example"}, "signatures": [theirs]})
    with served(agent, sign=True) as url:
        card, keys = fetched(url + CARD), fetched(url + JWKS)
    assert card["signatures"][0] == theirs
    assert verify_card(card, keys).card["provider"]["organization"] == "Ours"
    with pytest.raises(BadSignature):
        verify_card(card | {"provider": {"organization": "Mine", "url": "https://x.example"}}, keys)


def test_a_skill_that_comes_later_is_signed_with_the_rest() -> None:
    agent = calculator()
    with served(agent, sign=True) as url:
        before = fetched(url + CARD)

        @agent.skill
        def later() -> str:
            """Come later."""
            return ""

        card, keys = fetched(url + CARD), fetched(url + JWKS)
    assert len(card["skills"]) == len(before["skills"]) + 1
    assert verify_card(card, keys)


def test_the_extended_card_is_signed_too() -> None:
    async def anybody(_: Any) -> User:
        return User("ann")

    with served(calculator(), sign=True, auth=anybody) as url:
        card, keys = fetched(f"{url}/extendedAgentCard"), fetched(url + JWKS)
    assert jkus(card) == {url + JWKS}
    assert verify_card(card, keys).card["name"] == "calculator"
    with pytest.raises(BadSignature):
        verify_card(card | {"name": "another"}, keys)


# -- the same card, the same answer ----------------------------------------------------------------------------------


def test_signing_happens_once_and_the_tag_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[bytes] = []
    sign = Signer.sign
    monkeypatch.setattr(Signer, "sign", lambda self, data: signed.append(data) or sign(self, data))
    tags: set[str] = set()
    for _ in range(2):  # and the same again after a restart, with the same secret
        with served(calculator(), sign=True, push=False, secret=NEW, url="https://agent.example") as url:
            already = len(signed)
            tags |= {got(url + CARD)[1]["ETag"] for _ in range(5)}
            assert len(signed) - already == len(fetched(url + CARD)["signatures"])
            status, headers, body = got(url + CARD, **{"If-None-Match": next(iter(tags))})
            assert (status, headers["ETag"], body) == (304, next(iter(tags)), b"")
    assert len(tags) == 1


def test_after_a_rotation_the_new_key_signs_and_the_old_one_is_still_known() -> None:
    with served(calculator(), sign=True, secret=OLD, url="https://agent.example") as url:
        before = fetched(url + CARD)
    with served(calculator(), sign=True, secret=f"{NEW},{OLD}", url="https://agent.example") as url:
        after, keys = fetched(url + CARD), fetched(url + JWKS)
    kids = [KeyRing.from_text(each).signer().kid for each in (NEW, OLD)]
    assert [each["kid"] for each in keys["keys"]] == kids
    assert [verify_card(card, keys).kid for card in (after, before)] == kids


# -- addresses -------------------------------------------------------------------------------------------------------


def test_all_agents_of_a_server_name_the_one_place_of_its_keys() -> None:
    with served(Server(calculator(), calculator("a b")), sign=True) as url:
        keys = fetched(url + JWKS)
        for place in ("", "/agents/calculator", "/agents/a%20b"):
            card = fetched(url + place + CARD)
            assert jkus(card) == {url + JWKS}
            assert verify_card(card, keys)


def test_the_keys_are_where_the_app_is_mounted() -> None:
    app = calculator().app(store="memory:", sign=True)

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await app(scope | {"root_path": "/here"} if scope["type"] == "http" else scope, receive, send)

    with served(mounted) as url:
        card, keys = fetched(f"{url}/here{CARD}"), fetched(f"{url}/here{JWKS}")
    assert jkus(card) == {f"{url}/here{JWKS}"}
    assert verify_card(card, keys)


async def test_no_caller_gets_a_card_signed_that_leads_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    app = calculator().app(store="memory:", sign=True)
    try:
        with caplog.at_level(logging.WARNING, "dragoman.server"):
            for host in ("evil.example", "localhost:1", "127.0.0.1"):
                for _ in range(2):
                    card = await asked(app, host=host, server=("192.0.2.7", 80))
                    assert "signatures" not in card
        assert [each.getMessage() for each in caplog.records] == [
            "the card at http://evil.example is not signed: a caller chose that address. Set url"
        ]
        assert "signatures" not in await asked(app, host="localhost", server=None)
        # On loopback the other names are refused at all.
        assert "signatures" in await asked(app, host="localhost:8080", server=("127.0.0.1", 8080))
        assert "signatures" in await asked(app, host="[::1]:8080", server=("::1", 8080))
        assert "signatures" not in await asked(app, host="evil.example", server=("127.0.0.1", 8080))
    finally:
        await app.stop()


async def test_a_proxy_that_is_trusted_does_not_choose_what_is_signed_either() -> None:
    app = calculator().app(store="memory:", sign=True, trust_proxy="127.0.0.0/8")
    scope = {
        "type": "http", "method": "GET", "path": CARD, "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 9),
        "headers": [(b"host", b"localhost"), (b"x-forwarded-host", b"evil.example")],
    }  # fmt: skip
    body: list[bytes] = []

    async def send(message: Any) -> None:
        body.append(message.get("body", b""))

    await app(scope, lambda: None, send)
    await app.stop()
    card = json.loads(b"".join(body))
    assert card["supportedInterfaces"][0]["url"] == "http://evil.example/a2a"
    assert "signatures" not in card


async def test_with_an_address_of_its_own_a_server_signs_that_for_everybody() -> None:
    app = calculator().app(store="memory:", sign=True, url="https://agent.example/x", host="0.0.0.0")
    try:
        card = await asked(app, host="evil.example", server=("192.0.2.7", 80))
        keys = await asked(app, host="evil.example", server=("192.0.2.7", 80), path=JWKS)
    finally:
        await app.stop()
    assert card["supportedInterfaces"][0]["url"] == "https://agent.example/x/a2a"
    assert jkus(card) == {f"https://agent.example/x{JWKS}"}
    assert verify_card(card, keys)


# -- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"card_version": "0.3"}, "a card of A2A 0.3 alone cannot be signed"),
        ({"host": "0.0.0.0"}, "set url"),
        ({"host": "agents.example"}, "set url"),
    ],
)
def test_settings_that_do_not_go_with_signing_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^sign: .*{expected}"):
        calculator().app(store="memory:", sign=True, **settings)


@pytest.mark.parametrize(
    ("agent", "settings", "expected"),
    [
        (calculator(), {"secret": "short"}, "the setting secret has 5 characters"),
        (
            calculator(card={"capabilities": {"extensions": [{"uri": "u", "params": {"n": 2**60}}]}}),
            {},
            "sign: 'calculator': the card cannot be signed",
        ),
    ],
)
async def test_a_card_that_cannot_be_signed_keeps_the_server_from_starting(
    agent: Agent, settings: dict[str, Any], expected: str
) -> None:
    app = agent.app(store="memory:", sign=True, **settings)
    with pytest.raises(ConfigError, match=expected):
        await app.start()


async def test_the_key_lies_beside_the_store_also_when_the_first_request_is_for_the_card(tmp_path: Path) -> None:
    store = f"sqlite:///{(tmp_path / 'new' / 'tasks.db').as_posix()}"
    card: dict[str, Any] = {}
    for _ in range(2):
        app = calculator().app(store=store, sign=True)
        card, before = await asked(app, host="localhost", server=("127.0.0.1", 80)), card
        await app.stop()
    assert card == before
    ring = KeyRing.from_file(tmp_path / "new" / "tasks.db.key")
    assert card["signatures"] == signatures_for(card, ring.signer(), jku=f"http://localhost{JWKS}")
