"""Requests that a page elsewhere has a browser make: with its cookie, with its password, or with nothing."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest

from dragoman import User
from dragoman.testing import served
from dragoman.transports.http import Request

EVIL = "https://evil.example"
FOREIGN = {
    "origin": {"Origin": EVIL},
    "null": {"Origin": "null"},
    "cross-site": {"Sec-Fetch-Site": "cross-site"},
    "same-site": {"Sec-Fetch-Site": "same-site"},
    "both": {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"},
    "proxy that nobody trusts": {"Origin": EVIL, "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"},
}
JSON = {"Content-Type": "application/json"}
MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"tool": "empty_vault"}}]}
OLD_MESSAGE = {"role": "user", "parts": [{"type": "data", "data": {"tool": "empty_vault"}}]}
OLD_REST = {"messageId": "m", "role": "ROLE_USER", "content": [{"data": {"data": {"tool": "empty_vault"}}}]}


def rpc(method: str, message: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}


# Everything that changes something.
ROUTES: dict[str, tuple[str, str, Any]] = {
    "rpc": ("POST", "/", rpc("SendMessage", MESSAGE)),
    "oldest": ("POST", "/a2a", rpc("tasks/send", OLD_MESSAGE)),
    "rest": ("POST", "/message:send", {"message": MESSAGE}),
    "stream": ("POST", "/message:stream", {"message": MESSAGE}),
    "0.3 rest": ("POST", "/v1/message:send", {"message": OLD_REST}),
    "second agent": ("POST", "/agents/other/message:send", {"message": MESSAGE}),
    "session": ("POST", "/a2a/tasks/send", {"message": "empty the vault"}),
    "cancel": ("POST", "/tasks/t:cancel", None),
    "webhook": ("DELETE", "/tasks/t/pushNotificationConfigs/p", None),
}


def by_cookie(house: Any) -> dict[str, str]:
    return {"Cookie": f"user={house.cookie('vera')}"}


def by_password(house: Any) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(b'ada:' + PASSWORD).decode()}"}


PASSWORD = b"ada's very own password"
AMBIENT: dict[str, Callable[[Any], dict[str, str]]] = {
    "cookie": by_cookie,
    "password": by_password,
    "nothing": lambda _: {},
}


def ask(wire: Any, route: str, headers: dict[str, str]) -> Any:
    method, path, body = ROUTES[route]
    content = {} if body is None else {"content": json.dumps(body).encode()}
    return wire.request(method, path, headers=headers, **content)


@pytest.mark.parametrize("page", FOREIGN.values())
@pytest.mark.parametrize("credential", AMBIENT.values())
@pytest.mark.parametrize("route", ROUTES)
def test_a_page_elsewhere_can_use_nothing_that_a_browser_adds_by_itself(
    house: Any, route: str, credential: Callable[[Any], dict[str, str]], page: dict[str, str]
) -> None:
    before = house.rows()
    answer = ask(house.wire, route, {**JSON, **credential(house), **page})
    assert answer.status == 403, answer.text
    assert "cors" in answer.text
    assert "access-control-allow-origin" not in answer.headers
    assert house.rows() == before


@pytest.mark.parametrize("page", FOREIGN.values(), ids=FOREIGN)
def test_a_page_elsewhere_with_a_token_is_answered_for_its_browser_had_to_ask_first(
    house: Any, page: dict[str, str]
) -> None:
    for headers in ({"Authorization": f"Bearer {house.key('vera')}"}, {"X-API-Key": house.key("vera")}):
        # The cookie beside it is somebody else's, and does not count.
        answer = ask(house.wire, "rpc", {**JSON, **page, **headers, "Cookie": f"user={house.cookie('bob')}"})
        assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "the vault is empty"}]


def test_a_page_elsewhere_with_a_wrong_token_is_not_known(house: Any) -> None:
    answer = ask(house.wire, "rpc", {**JSON, **by_cookie(house), "Origin": EVIL, "Authorization": "Bearer wrong"})
    assert (answer.status, answer.reason) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize(
    "page",
    [{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}, {"Referer": f"{EVIL}/page"}],
)
@pytest.mark.parametrize("own", [True, False])
def test_our_own_pages_and_programs_are_answered(house: Any, page: dict[str, str], own: bool) -> None:
    origin = {"Origin": house.url} if own else {}
    answer = ask(house.wire, "rpc", {**JSON, **by_cookie(house), **page, **origin})
    assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "the vault is empty"}]


def test_a_link_elsewhere_may_lead_here_and_a_picture_may_not(house: Any) -> None:
    headers = {**house.as_("ada")["headers"], "Sec-Fetch-Site": "cross-site"}
    assert house.wire.rest("GET", "/tasks", **headers, **{"Sec-Fetch-Mode": "navigate"}).status == 200
    assert house.wire.rest("GET", "/tasks", **headers, **{"Sec-Fetch-Mode": "no-cors"}).status == 403


# -- the type of a body ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.parametrize("route", [name for name, (_, _, body) in ROUTES.items() if body is not None])
def test_a_body_that_is_not_declared_as_json_runs_nothing(house: Any, route: str, kind: str | None) -> None:
    before = house.rows()
    answer = ask(house.wire, route, {**by_cookie(house), **({} if kind is None else {"Content-Type": kind})})
    if route in ("rpc", "oldest"):
        assert (answer.status, answer.code, answer.reason) == (200, -32005, "CONTENT_TYPE_NOT_SUPPORTED")
    else:
        assert answer.status == 415, answer.text
    assert "application/json" in answer.text
    assert house.rows() == before


def test_a_body_of_unknown_length_must_be_declared_too(house: Any) -> None:
    body = json.dumps({"message": MESSAGE}).encode()
    answer = house.wire.request("POST", "/message:send", headers=by_cookie(house), content=iter([body]))
    assert answer.status == 415


async def test_a_body_that_was_not_announced_must_be_declared_too(new_agent: Any) -> None:
    """Later versions of HTTP need no length: what comes is looked at."""
    app = new_agent().app(store="memory:")
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps({"message": MESSAGE}).encode(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    made = {"type": "http", "method": "POST", "path": "/message:send", "query_string": b"", "http_version": "2"}
    await app({**made, "headers": [(b"host", b"localhost")], "server": ("127.0.0.1", 80)}, receive, send)
    await app.stop()
    assert sent[0]["status"] == 415


def test_nothing_needs_no_type(house: Any) -> None:
    speaker = house.wire.speaker("1.0-rest")
    task = speaker.id_of(speaker.send(tool="ask_name", message={"messageId": str(uuid4())}, **house.as_("ada")))
    answer = house.wire.request("POST", f"/tasks/{task}:cancel", **house.as_("ada"))
    assert (answer.status, answer.json["status"]["state"]) == (200, "TASK_STATE_CANCELED")


# -- pages that were let in, and proxies -------------------------------------------------------------------------------

APP = "https://app.example"


@pytest.fixture
def open_at(wire: Any, new_agent: Any, house: Any) -> Iterator[Callable[..., Any]]:
    """Serve with the users of the house, and other settings."""
    with ExitStack() as stack:

        def opened(**settings: Any) -> Any:
            given = {"store": "memory:", "drain": 0, **settings}
            return wire.at(stack.enter_context(served(new_agent(), **given)))

        yield opened


async def anybody(request: Request) -> User | None:
    return User("ada")


def greet(wire: Any, **headers: str) -> int:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    return wire.rest(
        "POST", "/message:send", body, **{name.replace("_", "-"): value for name, value in headers.items()}
    ).status


def test_a_listed_page_is_answered_as_its_user(open_at: Callable[..., Any]) -> None:
    there = open_at(auth=anybody, cors=["https://App.example:443/"])
    assert greet(there, Origin=APP, Sec_Fetch_Site="cross-site") == 200
    assert greet(there, Origin=EVIL, Sec_Fetch_Site="cross-site") == 403
    assert greet(there, Sec_Fetch_Site="cross-site") == 403


def test_where_every_page_may_call_none_may_do_so_in_somebody_s_name(open_at: Callable[..., Any]) -> None:
    closed, free = open_at(auth=anybody, cors=["*"]), open_at(cors=["*"])
    assert greet(closed, Origin=EVIL) == 401
    assert greet(closed, Origin=EVIL, Authorization="Bearer x") == 200
    assert greet(closed, Origin=closed.url) == 200
    assert greet(free, Origin=EVIL) == 200


def test_a_foreign_page_is_refused_even_if_every_caller_is_known(open_at: Callable[..., Any]) -> None:
    there = open_at(auth=anybody)
    for made_up in ("", "Basic YTpi", "Negotiate YTpi", "NTLM YTpi", "Digest a=b"):
        assert greet(there, Origin=EVIL, **({"Authorization": made_up} if made_up else {})) == 403
    assert greet(there, Origin=EVIL, Authorization="Bearer x") == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_an_open_server_is_closed_to_pages_that_do_not_say_whose_they_are(
    open_at: Callable[..., Any], site: str
) -> None:
    there = open_at()
    assert greet(there, Sec_Fetch_Site=site) == 403
    assert greet(there, Sec_Fetch_Site="none") == 200
    assert greet(there, Sec_Fetch_Site=site, Origin=there.url) == 403


def test_behind_a_proxy_our_own_pages_are_those_of_the_public_address(open_at: Callable[..., Any]) -> None:
    public, forwarded = (
        "https://agents.example.com",
        {"X_Forwarded_Proto": "https", "X_Forwarded_Host": "agents.example.com"},
    )
    trusting = open_at(auth=anybody, trust_proxy=["127.0.0.0/8"])
    assert greet(trusting, Origin=public, **forwarded) == 200
    assert greet(trusting, Origin=public, **{**forwarded, "X_Forwarded_Host": "agents.example.com:443"}) == 200
    assert greet(trusting, Origin="http://agents.example.com", **forwarded) == 403
    assert greet(trusting, Origin="https://agents.example.com:8443", **forwarded) == 403
    named = open_at(auth=anybody, url="https://Agents.example.com:443/below")
    assert greet(named, Origin=public) == 200
    assert greet(named, Origin="https://other.example.com") == 403
    # Who trusts nobody is told what to set, when the browser says that it is the same origin.
    trusting_nobody = open_at(auth=anybody)
    answer = trusting_nobody.rest("POST", "/message:send", {}, **{"Origin": public, "Sec-Fetch-Site": "same-origin"})
    assert answer.status == 403
    assert "trust_proxy" in answer.text


def test_a_key_in_a_cookie_is_one_that_browsers_add(open_at: Callable[..., Any], house: Any) -> None:
    table = {"apikey": {"location": "cookie", "name": "key"}}
    there = open_at(auth=table, store=f"sqlite:///{house.path.with_name('keys.db')}", secret="another secret")
    assert greet(there, Cookie="key=dk_x", Origin=EVIL) == 403
    assert greet(there, Cookie="key=dk_x") == 401
