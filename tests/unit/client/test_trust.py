"""Whose card it is: with `trust`, only what the right keys have signed counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clocks import SettableClock
from support.stub_server import Stub, html, reply

from dragoman import Agent, Client, Server, sync
from dragoman.client.cards import MAX_KEY_BYTES, key_url_of, load_keys
from dragoman.client.connect import SHARED_CARDS, connect
from dragoman.client.options import ClientOptions
from dragoman.dialects.cards.card import read_card
from dragoman.errors import BadCard, CannotConnect, ConfigError, DragomanError, Overloaded
from dragoman.keys.card_signature import sign_card, signatures_for
from dragoman.keys.jws import Header
from dragoman.keys.ring import KeyRing
from dragoman.keys.signer import Signer
from dragoman.model.operation import GetExtendedAgentCardRequest, Operation
from dragoman.testing import Clock, served

CARD, JWKS = "/.well-known/agent-card.json", "/.well-known/jwks.json"
OURS, THEIRS = KeyRing.random().signer(), KeyRing.random().signer()

Change = Callable[[dict[str, Any]], Any]


def calculator() -> Agent:
    agent = Agent("calculator", description="Adds numbers")

    @agent.skill(tags=("math",))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent


def between(app: Any, change: Change, seen: list[tuple[str, dict[str, str]]] | None = None) -> Any:
    """The app behind somebody who changes its card on the way."""

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and seen is not None:
            seen.append((scope["path"], {name.decode(): value.decode() for name, value in scope["headers"]}))
        if scope["type"] != "http" or scope["path"] != CARD:
            await app(scope, receive, send)
            return
        parts: list[bytes] = []

        async def keep(message: Any) -> None:
            if message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await app(scope, receive, keep)
        card = json.loads(b"".join(parts))
        change(card)
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(card).encode()})

    return proxy


def card_at(url: str, **more: Any) -> dict[str, Any]:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {
        "name": "stub", "description": "d", "version": "1", "supportedInterfaces": [interface], "capabilities": {},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
    } | more  # fmt: skip


def signed(card: dict[str, Any], signer: Signer = OURS, **options: Any) -> dict[str, Any]:
    return card | {"signatures": signatures_for(card, signer, **options)}


def site(pages: dict[str, Any]) -> Any:
    """A stub with these pages, each an object, bytes that are sent as they are, or a function of its address."""

    def answer(got: Any) -> bytes:
        page = pages.get(got.path)
        if callable(page):
            page = page(stub.url)
        return html(404) if page is None else page if isinstance(page, bytes) else reply(page)

    stub = Stub(answer)
    return stub


async def refused(target: Any, trust: Any = True, **options: Any) -> BadCard:
    async with Client(target, trust=trust, **options) as client:
        with pytest.raises(BadCard) as caught:
            await client.send("hello")
    return caught.value


# -- who is believed -------------------------------------------------------------------------------------------------


async def test_a_card_is_believed_with_the_keys_of_its_origin_or_with_given_ones(tmp_path: Path) -> None:
    with served(calculator(), sign=True, secret="a secret of some length") as url:
        keys = KeyRing.from_text("a secret of some length").signer().jwks()
        file = tmp_path / "keys.json"
        file.write_text(json.dumps(keys))
        for trust in (True, url + JWKS, file, str(file), keys):
            async with Client(url, trust=trust) as client:
                assert await client.call("add", a=1, b=2) == 3
                assert (await client.card()).name == "calculator"
        with sync.Client(url, trust=True) as client:
            assert client.call("add", a=1, b=2) == 3


async def test_without_trust_nobody_looks_at_signatures() -> None:
    app = calculator().app(store="memory:", sign=True)
    with served(between(app, lambda card: card.update(name="another"))) as url:
        for trust in (None, False):
            async with Client(url, trust=trust) as client:
                assert (await client.card()).name == "another"
                assert await client.call("add", a=1, b=2) == 3


async def test_an_agent_in_front_trusts_the_configured_keys() -> None:
    with served(calculator(), sign=True) as url:
        front = Agent.from_a2a(url, trust=True)
        async with Client(front) as client:
            assert await client.call("add", a=1, b=2) == 3
        await front.close()
        with pytest.raises(BadCard):
            Agent.from_a2a(url, trust=OURS.jwks())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda card: card.pop("signatures"), "NOT_SIGNED"),
        (lambda card: card.update(signatures=[]), "NOT_SIGNED"),
        (lambda card: card.update(description="Adds numbert"), "BAD_SIGNATURE"),
        (lambda card: card["supportedInterfaces"][0].update(url="http://127.0.0.1:9/a2a"), "BAD_SIGNATURE"),
        (lambda card: card.update(supportedInterfaces=[]), "BAD_SIGNATURE"),
        (lambda card: card["skills"][0]["tags"].append("x"), "BAD_SIGNATURE"),
        (lambda card: card.update(securityRequirements=[{"schemes": {"a": {"list": ["b"]}}}]), "BAD_SIGNATURE"),
        (lambda card: [each.update(signature="AAAA") for each in card["signatures"]], "BAD_SIGNATURE"),
        (lambda card: [each.update(protected="e30") for each in card["signatures"]], "BAD_SIGNATURE"),
        (lambda card: card.update(signed(card | {"name": "another"}, THEIRS)), "UNKNOWN_KEY"),
    ],
)  # fmt: skip
async def test_a_card_that_was_changed_on_the_way_is_refused(change: Change, reason: str) -> None:
    seen: list[Any] = []
    with served(between(calculator().app(store="memory:", sign=True), change, seen)) as url:
        for trust in (True, url + JWKS):
            error = await refused(url, trust)
            assert error.reason == reason
            assert "the agent card is not trusted: " in str(error)
            assert str(error).endswith(f"(at {url}{CARD})")
    assert {path for path, _ in seen} <= {CARD, JWKS}  # nothing was sent to the agent


async def test_who_signs_with_a_key_of_the_same_name_is_refused() -> None:
    class Namesake:
        alg = "ES256"
        kid = OURS.kid
        sign = THEIRS.sign

    async with site({CARD: lambda url: signed(card_at(url), Namesake()), JWKS: OURS.jwks()}) as stub:  # pyright: ignore
        assert (await refused(stub.url)).reason == "BAD_SIGNATURE"


async def test_what_nobody_signed_does_not_count() -> None:
    def change(card: dict[str, Any]) -> None:
        assert card["url"]
        card.update(url="http://127.0.0.1:9/", additionalInterfaces=[], security=[{"x": []}], extra={"a": 1})

    with served(between(calculator().app(store="memory:", sign=True), change)) as url:
        async with Client(url, trust=True, protocol="0.3") as client:
            card = await client.card()
            assert {each.url for each in card.supported_interfaces} == {url, f"{url}/a2a"}
            assert (card.security_requirements, card.signatures) == ((), ())
            assert await client.call("add", a=1, b=2) == 3


async def test_a_card_of_0_3_alone_is_not_believed_whoever_signed_it() -> None:
    old = {"name": "old", "description": "d", "version": "1", "protocolVersion": "0.3.0", "capabilities": {},
           "defaultInputModes": [], "defaultOutputModes": [], "skills": []}  # fmt: skip

    async with site({CARD: lambda url: signed(old | {"url": url}), JWKS: OURS.jwks()}) as stub:
        # What it says in the words of 1.0 is signed, but not where the agent is.
        assert "says where the agent is" in str(await refused(stub.url))
    async with site({CARD: lambda url: signed(old | {"url": url}) | {"name": "x"}, JWKS: OURS.jwks()}) as stub:
        error = await refused(stub.url)
        assert error.reason == "BAD_SIGNATURE"
        assert "a card of A2A 0.3 alone" in str(error)


async def test_both_forms_are_believed() -> None:
    for form in ("specification", "sdk"):
        card = card_at("http://127.0.0.1:9", description="")
        card["signatures"] = [sign_card(card, OURS, form=form)]
        async with site({CARD: card, JWKS: OURS.jwks()}) as stub, Client(stub.url, trust=True) as client:
            assert (await client.card()).name == "stub"


# -- where keys come from --------------------------------------------------------------------------------------------


async def test_keys_come_from_the_origin_of_the_card_and_from_nowhere_else() -> None:
    async with site({"/keys": THEIRS.jwks()}) as elsewhere:
        named = {"jku": f"{elsewhere.url}/keys"}
        async with site({CARD: lambda url: signed(card_at(url), THEIRS, **named), JWKS: OURS.jwks()}) as stub:
            error = await refused(stub.url)
            assert error.reason == "UNKNOWN_KEY"
            assert f"its keys are at '{elsewhere.url}/keys', and only those of {stub.url} count" in str(error)
            assert (stub.paths(), elsewhere.got) == ([CARD], [])
        # Given keys count, wherever a signature says that its own are.
        async with site({CARD: lambda url: signed(card_at(url), OURS, **named)}) as stub:
            async with Client(stub.url, trust=OURS.jwks()) as client:
                assert (await client.card()).name == "stub"
            assert (await refused(stub.url, THEIRS.jwks())).reason == "UNKNOWN_KEY"
            assert (stub.paths(), elsewhere.got) == ([CARD, CARD], [])


async def test_each_signature_counts_with_the_keys_of_the_place_it_names() -> None:
    def card(url: str) -> dict[str, Any]:
        plain = card_at(url)
        made = [sign_card(plain, THEIRS, jku="http://127.0.0.1:9/keys"), sign_card(plain, OURS, jku=f"{url}/a")]
        return plain | {"signatures": [*made, sign_card(plain, OURS, jku=f"{url}/b")]}

    async with site({CARD: card, "/b": OURS.jwks()}) as stub, Client(stub.url, trust=True) as client:
        assert (await client.card()).name == "stub"
        assert stub.paths() == [CARD, "/a", "/b"]
    # Keys of one place do not speak for another.
    pages = {CARD: lambda url: signed(card_at(url), OURS, jku=f"{url}/a"), "/a": THEIRS.jwks(), JWKS: OURS.jwks()}
    async with site(pages) as stub:
        assert (await refused(stub.url)).reason == "UNKNOWN_KEY"
        assert stub.paths() == [CARD, "/a"]


async def test_no_more_than_a_few_places_are_asked() -> None:
    def card(url: str) -> dict[str, Any]:
        plain = card_at(url)
        return plain | {"signatures": [sign_card(plain, OURS, jku=f"{url}/{number}") for number in range(20)]}

    async with site({CARD: card}) as stub:
        assert (await refused(stub.url)).reason == "UNKNOWN_KEY"
        assert stub.paths() == [CARD, "/0", "/1", "/2"]


@pytest.mark.parametrize(
    ("jku", "place"),
    [
        (None, "https://agent.example/.well-known/jwks.json"),
        ("https://agent.example/keys?x=1", "https://agent.example/keys?x=1"),
        ("https://AGENT.example:443/keys", "https://AGENT.example:443/keys"),
        ("http://agent.example/keys", None),
        ("https://agent.example:8443/keys", None),
        ("https://agent.example.evil.example/keys", None),
        ("https://agent.example@evil.example/keys", None),
        ("https://user:password@agent.example/keys", None),
        ("https://evil.example\\@agent.example/keys", None),
        ("https://agent.example\\.evil.example/keys", None),
        ("https://agent.example/a b", None),
        ("https://agent.example/\r\nX: y", None),
        ("//agent.example/keys", None),
        ("/keys", None),
        ("file:///etc/passwd", None),
        ("https://[agent.example/keys", None),
        ("", None),
    ],
)
def test_only_a_plain_address_of_the_same_origin_is_asked(jku: str | None, place: str | None) -> None:
    assert key_url_of(Header("ES256", "k", None, jku), f"https://agent.example{CARD}") == place


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (html(404), "HTTP 404"),
        (html(401), "HTTP 401"),
        (html(200), "is no key set"),
        (reply([]), "is no key set"),
        (reply({"keys": {}}), "is no key set"),
        (reply(OURS.jwks() | {"x": "x" * MAX_KEY_BYTES}), "larger than 1 MB"),
        (reply({}, 302, Location="http://127.0.0.1:9/"), "nothing is sent to another origin"),
        (reply({"keys": []}), "no key is named"),
    ],
)
async def test_keys_that_cannot_be_had_believe_nobody(page: bytes, expected: str) -> None:
    async with site({CARD: lambda url: signed(card_at(url)), JWKS: page}) as stub:
        for trust in (True, stub.url + JWKS):
            error = await refused(stub.url, trust)
            assert error.reason == "UNKNOWN_KEY"
            assert expected in str(error)


@pytest.mark.parametrize(("status", "kind"), [(503, CannotConnect), (429, Overloaded)])
async def test_a_server_of_keys_that_is_away_is_no_fault_of_the_card(status: int, kind: type[DragomanError]) -> None:
    pages = {CARD: lambda url: signed(card_at(url)), JWKS: html(status)}
    async with site(pages) as stub, Client(stub.url, trust=True, retries=0) as client:
        with pytest.raises(kind):
            await client.card()


async def test_keys_are_asked_for_without_credentials() -> None:
    async with site({JWKS: OURS.jwks()}) as elsewhere, site({CARD: lambda url: signed(card_at(url))}) as stub:
        own = {"X-Team": "blue"}
        for trust in (elsewhere.url + JWKS, True):
            async with Client(stub.url, trust=trust, auth="a token of ours", headers=own, retries=0) as client:
                if trust is True:
                    with pytest.raises(BadCard):
                        await client.card()
                else:
                    await client.card()
        assert stub.paths() == [CARD, CARD, JWKS]
        assert not any("authorization" in got.headers for got in [*stub.got, *elsewhere.got])
        # The caller's own headers are for the agent's origin.
        assert [got.headers.get("x-team") for got in elsewhere.got] == [None]
        assert [got.headers.get("x-team") for got in stub.got] == ["blue"] * 3


async def test_an_interceptor_sees_what_is_asked() -> None:
    asked: list[str] = []

    async def note(request: Any, call_next: Any) -> Any:
        asked.append(request.operation)
        return await call_next(request)

    with served(calculator(), sign=True) as url:
        async with Client(url, trust=True, interceptors=[note]) as client:
            await client.call("add", a=1, b=2)
    assert asked == ["GetAgentCard", "GetKeySet", "SendMessage"]


# -- remembering -----------------------------------------------------------------------------------------------------


async def test_keys_are_remembered_as_cards_are_and_asked_for_again_when_they_do_not_fit() -> None:
    clock, signer = Clock(), OURS
    pages: dict[str, Any] = {CARD: lambda url: signed(card_at(url), signer), JWKS: OURS.jwks()}
    async with site(pages) as stub:
        connection = connect(ClientOptions(stub.url, trust=True), clock)
        for _ in range(3):
            await connection.card()
        assert stub.paths() == [CARD, JWKS]
        clock.move(301)
        await connection.card()
        assert stub.paths()[2:] == [CARD, JWKS]

        # A new key that is not cached yet, while the old ones are still fresh.
        pages[JWKS] = reply(OURS.jwks(), **{"Cache-Control": "max-age=300"})
        pages[CARD] = lambda url: reply(signed(card_at(url), signer), **{"Cache-Control": "max-age=60"})
        clock.move(301)
        await connection.card()
        signer, pages[JWKS] = THEIRS, THEIRS.jwks()
        clock.move(61)
        await connection.card()
        assert stub.paths()[4:] == [CARD, JWKS, CARD, JWKS]
        clock.move(61)
        await connection.card()
        assert stub.paths()[8:] == [CARD]
        await connection.close()


async def test_keys_are_fetched_again_when_the_clock_was_set_back() -> None:
    clock = SettableClock()
    async with site({CARD: lambda url: signed(card_at(url)), JWKS: OURS.jwks()}) as stub:
        connection = connect(ClientOptions(stub.url, trust=True), clock)
        for _ in range(2):
            await connection.card()
            clock.jump(-3600)
        assert stub.paths() == [CARD, JWKS] * 2
        await connection.close()


async def test_no_more_than_sixteen_key_sets_are_cached() -> None:
    numbers = [*range(16), 0, 16, 0]
    remaining = list(numbers)

    def answer(got: Any) -> bytes:
        if got.path != CARD:
            return reply(OURS.jwks())
        return reply(signed(card_at(stub.url), jku=f"{stub.url}/keys/{remaining.pop(0)}"), Cache_Control="no-store")

    async with Stub(answer) as stub, Client(stub.url, trust=True) as client:
        for _ in numbers:
            await client.card()
        assert [path for path in stub.paths() if path == "/keys/0"] == ["/keys/0"] * 2
        assert stub.paths()[-4:] == [CARD, "/keys/16", CARD, "/keys/0"]


async def test_a_card_that_did_not_change_is_checked_again_for_its_key_may_be_withdrawn() -> None:
    clock, keys = Clock(), [OURS.jwks()]

    def answer(got: Any) -> bytes:
        if got.path == JWKS:
            return reply(keys[0])
        if got.headers.get("if-none-match") == '"1"':
            return reply({}, 304, ETag='"1"')
        return reply(signed(card_at(stub.url)), ETag='"1"')

    async with Stub(answer) as stub:
        connection = connect(ClientOptions(stub.url, trust=True), clock)
        await connection.card()
        clock.move(301)
        assert (await connection.card()).name == "stub"
        keys[0] = THEIRS.jwks()
        clock.move(301)
        with pytest.raises(BadCard) as caught:
            await connection.card()
        assert caught.value.reason == "UNKNOWN_KEY"
        await connection.close()


async def test_what_others_found_without_looking_is_not_believed() -> None:
    change: Change = lambda card: card.update(name="another")  # noqa: E731
    with served(between(calculator().app(store="memory:", sign=True), change)) as url:
        async with Client(url) as careless:
            assert (await careless.card()).name == "another"
        assert len(SHARED_CARDS) == 1
        assert (await refused(url)).reason == "BAD_SIGNATURE"
    with served(calculator(), sign=True) as url:
        SHARED_CARDS.clear()
        async with Client(url, trust=True) as client:
            await client.card()
        assert len(SHARED_CARDS) == 0


# -- cards and agents that are at hand -------------------------------------------------------------------------------


async def test_a_card_that_is_given_is_checked_with_given_keys() -> None:
    with served(calculator(), sign=True, secret="a secret of some length") as url:
        async with Client(url) as client:
            model = await client.card()
        keys = KeyRing.from_text("a secret of some length").signer().jwks()
        async with Client(url + CARD) as client:
            assert await client.card() == model
        for trust in (keys, url + JWKS):
            async with Client(model, trust=trust) as client:
                assert await client.call("add", a=1, b=2) == 3
        assert (await refused(model, OURS.jwks())).reason == "UNKNOWN_KEY"


async def test_a_given_card_that_is_not_believed_is_never_called() -> None:
    async with site({}) as stub:
        card = signed(card_at(stub.url))
        async with Client(card, trust=OURS.jwks()) as client:
            assert (await client.card()).name == "stub"
        for wrong, reason in ((card | {"name": "x"}, "BAD_SIGNATURE"), (card_at(stub.url), "NOT_SIGNED")):
            for given in (wrong, read_card(wrong)):
                assert (await refused(given, OURS.jwks(), auth="token")).reason == reason
        assert stub.got == []


@pytest.mark.parametrize("target", [card_at("http://127.0.0.1:9"), read_card(card_at("http://127.0.0.1:9"))])
def test_a_given_card_has_no_origin_to_be_trusted(target: Any) -> None:
    with pytest.raises(ConfigError, match="this one was given: give keys"):
        Client(target, trust=True)


async def test_what_runs_in_this_process_is_checked_with_given_keys() -> None:
    ring = KeyRing.from_text("a secret of some length")
    server = Server(calculator(), sign=True, url="https://agent.example", secret="a secret of some length")
    async with Client(server.app(store="memory:"), trust=ring.signer().jwks()) as client:
        assert (await client.card()).supported_interfaces[0].url == "https://agent.example/a2a"
    assert (await refused(calculator(), ring.signer().jwks())).reason == "NOT_SIGNED"
    for target in (calculator(), server, server.app(store="memory:")):
        for trust in (True, f"https://agent.example{JWKS}"):
            with pytest.raises(ConfigError, match="give the keys themselves"):
                Client(target, trust=trust)


# -- the extended card -----------------------------------------------------------------------------------------------


async def test_the_extended_card_is_checked_too() -> None:
    extended: dict[str, Any] = {}

    def answer(got: Any) -> bytes:
        if got.path == CARD:
            return reply(signed(card_at(stub.url)))
        if got.path == JWKS:
            return reply(OURS.jwks())
        return reply({"jsonrpc": "2.0", "id": got.json["id"], "result": extended})

    async with Stub(answer) as stub:
        async with Client(stub.url, trust=True) as client:
            for card, reason in (
                (signed(card_at(stub.url, name="more")), None),
                (signed(card_at(stub.url, name="more")) | {"name": "less"}, "BAD_SIGNATURE"),
                (card_at(stub.url, name="more"), "NOT_SIGNED"),
                (signed(card_at(stub.url), THEIRS), "UNKNOWN_KEY"),
            ):
                extended = card
                if reason is None:
                    assert (await client.extended_card()).name == "more"
                else:
                    with pytest.raises(BadCard) as caught:
                        await client.extended_card()
                    assert caught.value.reason == reason
        connection = connect(ClientOptions(stub.url))
        found: Any = await connection.perform(Operation.EXTENDED_CARD, GetExtendedAgentCardRequest())
        assert found.name == "stub"
        await connection.close()


# -- what can be given -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust", "expected"),
    [
        ("missing.json", "the keys in missing.json cannot be read: No such file"),
        (Path(__file__), "cannot be read: it is not JSON"),
        ({"kty": "EC"}, "is no key set"),
        ("ftp://agent.example/keys", "is not the address of a key set"),
        ("https://user@agent.example/keys", "is not the address of a key set"),
        ("https://", "is not the address of a key set"),
    ],
)
def test_an_invalid_trust_option_is_refused_at_once(trust: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^trust: .*{expected}"):
        Client("http://127.0.0.1:9", trust=trust)


def test_what_trust_means() -> None:
    assert [load_keys(trust) for trust in (None, False, True)] == [None, None, True]
    assert load_keys("https://agent.example/keys") == "https://agent.example/keys"
    assert load_keys({"keys": []}) == {"keys": []}
