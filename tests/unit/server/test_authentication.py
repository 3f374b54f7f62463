"""Who may call: what the settings turn on, what the card says of it, and who gets in."""

from __future__ import annotations

import json
import os
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import argon2
import httpx2
import pytest
from click.testing import CliRunner

from dragoman import Agent, Client, Context, Server, User
from dragoman.auth import ApiKey, Basic, Bearer, Cookie
from dragoman.cli.main import group
from dragoman.errors import AuthError, Unauthenticated
from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError
from dragoman.server.build import build
from dragoman.server.config.loader import load_settings
from dragoman.testing import Clock, served

CARD = "/.well-known/agent-card.json"
SECRET, OLD_SECRET = "dk1_" + "n" * 43, "dk1_" + "o" * 43  # as if they were generated: no slow derivation
PASSWORD = "correct horse battery"
SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"tool": "whoami"}}]}}


def make_agent(name: str = "vault") -> Agent:
    agent = Agent(name, description="Keeps things")

    @agent.skill
    async def whoami(ctx: Context) -> str:
        """Say who is calling."""
        return ctx.user.id if ctx.user else "nobody"

    @agent.skill(permission="vault-key")
    def empty_vault() -> str:
        """Take everything out."""
        return "empty"

    return agent


class Door:
    """A store, and the commands that administer it."""

    def __init__(self, store: str) -> None:
        self.store = store

    def users(self, *args: str, typed: str | None = None, secret: str = SECRET) -> str:
        """What `dragoman users` prints, run beside the server."""
        environ = {name: None for name in os.environ if name.startswith("DRAGOMAN_")} | {"DRAGOMAN_SECRET": secret}
        result = CliRunner().invoke(group, ["users", *args, "--store", self.store], input=typed, env=environ)
        if result.exit_code:
            raise AssertionError(result.output)
        return result.stdout.strip()

    def add(self, name: str, *permissions: str) -> None:
        """A user with a password."""
        named = [word for each in permissions for word in ("--permission", each)]
        self.users("add", name, "--password-stdin", *named, typed=f"{PASSWORD}\n")

    @contextmanager
    def opened(self, **settings: Any) -> Generator[httpx2.Client]:
        """A server before this store, and a client with its address."""
        given = {"store": self.store, "secret": SECRET, "drain": 0, **settings}
        with (
            served(Server(make_agent()), **given) as url,
            httpx2.Client(base_url=url, trust_env=False, verify=False, timeout=20) as client,
        ):
            yield client


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords are hashed with the least work Argon2 can do; tests/unit/auth proves what is the usual."""
    monkeypatch.setattr(argon2, "PasswordHasher", partial(argon2.PasswordHasher, 1, 8, 1))


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(f"sqlite:///{tmp_path / 't.db'}")


def asked(client: httpx2.Client, **headers: str) -> Any:
    """Who the server says is calling; the status when it does not."""
    answer = client.post("/message:send", json=SEND, headers=headers)
    return (
        answer.json()["task"]["artifacts"][0]["parts"][0]["text"] if answer.status_code == 200 else answer.status_code
    )


# -- settings that cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("coookie", "auth: there is no scheme `coookie`; did you mean `cookie`?"),
        ({"cookie": {"nam": "x"}}, "[auth.cookie]: there is no setting `nam`; did you mean `name`?"),
        ({"cookie": {"name": 1}}, "[auth.cookie] name: Expected `str`, got `int`"),
        ({"bearer": {"audience": "x"}}, "[auth.bearer] needs the issuer's keys: set jwks_url, jwks_file or pem"),
        ({"oidc": {"audience": "x"}}, "[auth.oidc] needs issuer"),
    ],
)
async def test_a_scheme_that_cannot_be_keeps_the_server_from_starting(door: Door, value: Any, expected: str) -> None:
    app = make_agent().app(store=door.store, auth=value)
    for _ in range(2):  # and lets go of everything: the second time the same is told
        with pytest.raises(ConfigError, match=f"^{re.escape(expected)}"):
            await app.start()
    other = make_agent().app(store=door.store)
    await other.start()
    await other.stop()


def test_a_wrong_scheme_ends_the_command_with_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("def shout(text: str) -> str:\n    return text.upper()\n")
    for flags, expected in (
        (["--auth", "coookie"], "auth: there is no scheme `coookie`; did you mean `cookie`?"),
        (["--auth", "mtls"], "auth mtls needs tls_cert, and tls_ca with the authorities of callers' certificates"),
        (["--tls-ca", "ca.pem"], "tls_key and tls_ca need tls_cert"),
    ):
        result = CliRunner().invoke(group, ["serve", "app.py:shout", "--port", "0", "--store", "memory:", *flags])
        assert expected in f"{result.output} {result.exception}", result.output


# -- what the card and a refusal say -----------------------------------------------------------------------------------

SCHEMES = {"cookie": {}, "bearer": {}, "apikey": {"name": "X-Key"}, "basic": {}}


@pytest.mark.parametrize("version", ["both", "1.0", "0.3"])
def test_the_card_says_by_which_schemes_callers_are_known(door: Door, version: str) -> None:
    with door.opened(auth=SCHEMES, card_version=version) as client:
        card = client.get(CARD).json()
    schemes = card["securitySchemes"]
    assert list(schemes) == list(SCHEMES)
    if version != "0.3":
        assert schemes["apikey"]["apiKeySecurityScheme"] == {"location": "header", "name": "X-Key"}
        assert schemes["cookie"]["apiKeySecurityScheme"] == {"location": "cookie", "name": "user"}
        assert schemes["basic"]["httpAuthSecurityScheme"] == {"scheme": "Basic"}
        assert card["securityRequirements"] == [{"schemes": {name: {"list": []}}} for name in SCHEMES]
        assert card["capabilities"]["extendedAgentCard"] is True
    if version != "1.0":
        cookie = schemes["cookie"]
        assert (cookie["type"], cookie["in"], cookie["name"]) == ("apiKey", "cookie", "user")
        assert (schemes["bearer"]["type"], schemes["bearer"]["scheme"]) == ("http", "Bearer")
        assert card["security"] == [{name: []} for name in SCHEMES]
        assert card["supportsAuthenticatedExtendedCard"] is True


@pytest.mark.requirement("S0-21")
def test_a_card_for_0_1_names_the_cookie_in_its_own_field(door: Door) -> None:
    with door.opened(auth="cookie") as client:
        assert client.get(CARD).json()["authentication"] == {"schemes": ["cookie"]}
    with door.opened(auth="cookie", card_version="1.0") as client:
        assert "authentication" not in client.get(CARD).json()


def test_a_refusal_names_every_scheme_on_both_bindings(door: Door) -> None:
    expected = "say who you are, by one of these schemes of the agent's card: cookie, bearer, apikey, basic"
    challenges = [
        'Cookie realm="dragoman", cookie-name="user"',
        'Bearer realm="dragoman"',
        'ApiKey realm="dragoman", in="header", name="X-Key"',
        'Basic realm="dragoman", charset="UTF-8"',
    ]
    with door.opened(auth=SCHEMES) as client:
        rpc = client.post("/a2a", json={"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": SEND})
        rest, old = client.post("/message:send", json=SEND), client.get("/v1/tasks/t")
    for answer in (rpc, rest, old):
        assert answer.status_code == 401
        assert answer.headers.get_list("www-authenticate") == challenges
        assert answer.json()["error"]["message"] == expected
    error = rpc.json()["error"]
    assert (error["code"], error["data"][0]["reason"]) == (-31401, "UNAUTHENTICATED")
    assert error["data"][0]["metadata"] == {"schemes": "cookie,bearer,apikey,basic"}
    assert rest.json()["error"]["status"] == "UNAUTHENTICATED"
    assert old.json()["type"] == "UnauthenticatedError"  # what clients of 0.3 read


def test_a_missing_scope_is_forbidden_and_named(door: Door, tmp_path: Path) -> None:
    issuer = KeyRing.random()
    (tmp_path / "keys.json").write_text(json.dumps(issuer.signer().jwks()))
    table = {"audience": "me", "jwks_file": str(tmp_path / "keys.json"), "scopes": ["tasks"]}
    token = issuer.signer().sign_jwt({"aud": "me", "sub": "carol", "exp": 2**33, "scope": "other"})
    right = issuer.signer().sign_jwt({"aud": "me", "sub": "carol", "exp": 2**33, "scope": "tasks"})
    with door.opened(auth={"bearer": table}) as client:
        card = client.get(CARD).json()
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": SEND}
        rpc = client.post("/a2a", json=body, headers={"Authorization": f"Bearer {token}"})
        rest = client.post("/message:send", json=SEND, headers={"Authorization": f"Bearer {token}"})
        assert asked(client, Authorization=f"Bearer {right}") == "bearer|carol"
    assert card["securityRequirements"] == [{"schemes": {"bearer": {"list": ["tasks"]}}}]
    for answer in (rpc, rest):
        assert answer.status_code == 403
        challenge = 'Bearer realm="dragoman", error="insufficient_scope", scope="tasks"'
        assert answer.headers.get_list("www-authenticate") == [challenge]
        assert answer.json()["error"]["message"] == "the bearer token lacks the scope tasks"
    assert rpc.json()["error"]["code"] == -31403
    assert rest.json()["error"]["status"] == "PERMISSION_DENIED"


@pytest.mark.parametrize("form", ["coroutine function", "function of an awaitable"])
def test_a_function_lets_callers_in_and_the_card_names_no_schemes(door: Door, form: str) -> None:
    async def function(request: Any) -> User | None:
        return User("ann") if request.headers.get("authorization") == "Bearer x" else None

    with door.opened(auth=function if form == "coroutine function" else lambda request: function(request)) as client:
        assert "securitySchemes" not in client.get(CARD).json()
        assert asked(client) == 401
        assert asked(client, Authorization="Bearer x") == "ann"


def test_a_plain_function_may_block_while_others_are_let_in(door: Door) -> None:
    others = threading.Event()
    threads: list[str] = []

    def function(request: Any) -> User | None:
        threads.append(threading.current_thread().name)
        name = request.headers.get("authorization", "").removeprefix("Bearer ")
        if name == "slow":
            others.wait(10)
        elif name == "quick":
            others.set()
        elif name == "odd":
            raise StopIteration
        return User(name) if name else None

    with door.opened(auth=function) as client, ThreadPoolExecutor() as callers:
        slow = callers.submit(asked, client, Authorization="Bearer slow")
        assert asked(client) == 401
        assert asked(client, Authorization="Bearer odd") == 500
        assert asked(client, Authorization="Bearer quick") == "quick"
        assert slow.result(10) == "slow"
    assert len(set(threads)) > 1


def shape(value: Any) -> Any:
    """The keys of JSON, at every depth; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in cast("dict[str, Any]", value).items()}
    return [shape(each) for each in cast("list[Any]", value)[:1]] if isinstance(value, list) else None


@pytest.mark.requirement("S0-13")
def test_the_extended_card_has_the_form_of_the_public_one_and_the_author_s_words(door: Door) -> None:
    agent = make_agent()
    agent.card = {"iconUrl": "https://example.com/i.png", "provider": {"organization": "o", "url": "https://o.example"}}
    door.add("ada")
    cookie = {"Cookie": f"user={door.users('cookie', 'ada')}"}
    for version, path in (("1.0", "/extendedAgentCard"), ("0.3", "/v1/card")):
        with served(agent, store=door.store, secret=SECRET, auth="cookie", card_version=version) as url:
            public = httpx2.get(url + CARD, trust_env=False).json()
            hers = httpx2.get(url + path, headers=cookie, trust_env=False).json()
        assert hers["iconUrl"] == "https://example.com/i.png"
        links = [card["capabilities"].pop("extensions")[0]["params"] for card in (public, hers)]
        assert [list(link) for link in links] == [["url"], ["schemas"]]
        assert shape(hers) == shape(public)


# -- with nothing said, a permission makes the cookie count ------------------------------------------------------------


@pytest.mark.requirement("S0-11")
def test_strangers_reach_what_is_open_and_who_has_a_cookie_is_known(door: Door) -> None:
    door.add("vera", "vault-key")
    cookie = {"Cookie": f"user={door.users('cookie', 'vera')}"}
    tool = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"tool": "empty_vault"}}]}}
    with door.opened() as client:
        assert asked(client) == "nobody"
        assert asked(client, **cookie) == "vera"
        assert asked(client, Cookie="user=garbage") == 401
        card, hers = client.get(CARD).json(), client.get(CARD, headers=cookie).json()
        refused = client.post("/message:send", json=tool).json()["task"]
        opened = client.post("/message:send", json=tool, headers=cookie).json()["task"]
        assert client.get("/login").status_code == 200
    assert list(card["securitySchemes"]) == ["cookie"]
    assert "securityRequirements" not in card
    assert [skill["id"] for skill in card["skills"]] == ["whoami"]
    assert [skill["id"] for skill in hers["skills"]] == ["whoami", "empty_vault"]
    assert (refused["status"]["state"], opened["status"]["state"]) == ("TASK_STATE_REJECTED", "TASK_STATE_COMPLETED")
    assert refused["status"]["message"]["parts"][0]["text"] == "Unauthorized: empty_vault"


def test_without_permissions_and_without_auth_nobody_is_asked() -> None:
    agent = Agent("open", description="Open")

    @agent.skill
    def hi(text: str) -> str:
        """Say hi."""
        return text

    with served(agent) as url:
        card = httpx2.get(url + CARD, trust_env=False).json()
        assert "securitySchemes" not in card
        assert card["capabilities"]["extendedAgentCard"] is False
        assert httpx2.get(url + "/login", trust_env=False).status_code == 404


# -- users come and go while the server runs ---------------------------------------------------------------------------


def test_a_user_is_known_as_soon_as_added_and_no_more_as_soon_as_revoked(door: Door) -> None:
    with door.opened(auth=["cookie", "bearer", "basic"]) as client:
        door.add("ada")
        cookie = {"Cookie": f"user={door.users('cookie', 'ada')}"}
        key = {"Authorization": f"Bearer {door.users('key', 'ada')}"}
        assert [asked(client, **each) for each in (cookie, key)] == ["ada", "ada"]
        assert client.post("/message:send", json=SEND, auth=("ada", PASSWORD)).status_code == 200
        door.users("password", "ada", "--password-stdin", typed="another horse battery\n")
        assert [asked(client, **each) for each in (cookie, key)] == [401, "ada"]
        assert client.post("/message:send", json=SEND, auth=("ada", PASSWORD)).status_code == 401
        door.users("revoke", "ada")
        assert asked(client, **key) == 401


def test_a_secret_is_rotated_without_signing_anybody_out(door: Door) -> None:
    door.add("ada")
    cookie = {"Cookie": f"user={door.users('cookie', 'ada', secret=OLD_SECRET)}"}
    with door.opened(auth="cookie", secret=OLD_SECRET) as client:
        assert asked(client, **cookie) == "ada"
    with door.opened(auth="cookie", secret=f"{SECRET},{OLD_SECRET}") as client:
        assert asked(client, **cookie) == "ada"
        newer = {"Cookie": f"user={door.users('cookie', 'ada', secret=f'{SECRET},{OLD_SECRET}')}"}
    with door.opened(auth="cookie") as client:
        assert [asked(client, **cookie), asked(client, **newer)] == [401, "ada"]


def test_without_a_secret_the_key_file_beside_the_store_is_used(door: Door) -> None:
    door.add("ada")
    cookie = {"Cookie": f"user={door.users('cookie', 'ada', secret='')}"}
    for _ in range(2):
        with door.opened(auth="cookie", secret=None) as client:
            assert asked(client, **cookie) == "ada"


def test_a_browser_signs_in_and_its_cookie_is_a_caller_s(door: Door) -> None:
    door.add("ada")
    with door.opened(auth="cookie") as client:
        token = re.search(r'name="csrf" value="([^"]+)"', client.get("/login").text)
        assert token is not None
        form = {"csrf": token[1], "name": "ada", "password": PASSWORD, "next": CARD}
        answer = client.post("/login", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, CARD)
        assert asked(client) == "ada"
        assert "You are ada." in client.get("/login").text


def test_a_login_at_one_node_counts_at_all_nodes_until_the_password_changes(postgres_url: str) -> None:
    door = Door(postgres_url)
    door.add("ada")
    with door.opened(auth="cookie") as one, door.opened(auth=["cookie", "bearer"]) as two:
        token = re.search(r'name="csrf" value="([^"]+)"', one.get("/login").text)
        assert token is not None
        form = {"csrf": token[1], "name": "ada", "password": PASSWORD, "next": CARD}
        assert two.post("/login", data=form, headers=cookies_of(one)).status_code == 303
        cookie = cookies_of(two)
        assert [asked(each, **cookie) for each in (one, two)] == ["ada", "ada"]
        door.users("password", "ada", "--password-stdin", typed="another horse battery\n")
        for node in (one, two):
            while asked(node, **cookie) == "ada":  # until the notice has come, a few milliseconds later
                pass
            assert asked(node, **cookie) == 401


def cookies_of(client: httpx2.Client) -> dict[str, str]:
    """The header with the cookies that a client has got."""
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}


# -- the clients -------------------------------------------------------------------------------------------------------

CREDENTIALS: dict[str, Callable[[Door], Any]] = {
    "cookie": lambda door: Cookie(door.users("cookie", "ada")),
    "bearer": lambda door: Bearer(door.users("key", "ada")),
    "apikey": lambda door: ApiKey(door.users("key", "ada"), name="X-Key"),
    "basic": lambda door: Basic("ada", PASSWORD),
    "by the card": lambda door: ("ada", PASSWORD),
}


@pytest.mark.parametrize("kind", CREDENTIALS)
@pytest.mark.parametrize("protocol", ["1.0", "0.3"])
async def test_the_client_gets_in_with_every_credential(door: Door, kind: str, protocol: str) -> None:
    with door.opened(auth=SCHEMES) as http:
        door.add("ada")
        async with Client(str(http.base_url), auth=CREDENTIALS[kind](door), protocol=protocol) as client:
            assert (await client.send(tool="whoami")).text == "ada"
        async with Client(str(http.base_url), protocol=protocol) as stranger:
            with pytest.raises((AuthError, Unauthenticated)):
                await stranger.send(tool="whoami")


# -- wrong passwords ---------------------------------------------------------------------------------------------------


async def test_guesses_from_one_ipv6_network_count_as_one_and_behind_a_proxy_by_its_callers(door: Door) -> None:
    clock = Clock()
    settings = load_settings(
        {"store": door.store, "auth": "basic", "trust_proxy": ["192.0.2.0/24"], "drain": 0},
        environ={},
        config=None,
        cwd=Path(),
    )
    app = build([make_agent()], settings, clock=clock)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async def guess(client: str, *forwarded: str) -> int:
        headers = [(b"host", b"localhost"), (b"authorization", b"Basic " + b64encode(b"nobody:guess"))]
        headers += [(b"x-forwarded-for", each.encode()) for each in forwarded]
        sent.clear()
        made = {"type": "http", "method": "GET", "path": "/tasks", "query_string": b"", "client": (client, 1)}
        await app({**made, "headers": headers, "server": ("203.0.113.1", 80)}, receive, send)
        return int(sent[0]["status"])

    assert [await guess(f"2001:db8::{number}") for number in range(1, 8)] == [401] * 6 + [429]
    assert await guess("2001:db8:0:1::1") == 401
    assert [await guess("192.0.2.1", "2001:db8::99"), await guess("192.0.2.1", "198.51.100.1")] == [429, 401]
    clock.move(1)
    assert await guess("2001:db8::9") == 401
    await app.stop()
