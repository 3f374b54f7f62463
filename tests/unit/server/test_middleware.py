"""Each middleware alone: an ASGI app in, an ASGI app out."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from dragoman import User
from dragoman.model.error import A2AError, Unauthenticated
from dragoman.server.config.settings import Limits
from dragoman.server.http.address import Addresses
from dragoman.server.http.authentication import Authentication, authenticate, challenge_anonymous
from dragoman.server.http.cross_site import CrossSiteCheck, add_cors_headers, answer_preflight, check_host, check_page
from dragoman.server.http.limiter import Limiter, admit
from dragoman.server.http.router import AgentRoutes, Mount, PathRoutes, Route, Router
from dragoman.testing import Clock
from dragoman.transports.http import REQUEST, USER, Request, respond

HERE = {"server": ("127.0.0.1", 80), "client": ("10.1.2.3", 5)}


class Exchange:
    """One request through a middleware, and what came of it."""

    def __init__(self, method: str = "POST", path: str = "/", *, user: User | None = None, **headers: str) -> None:
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.scope: MutableMapping[str, Any] = {"method": method, "path": path, "headers": raw, **HERE, USER: user}
        self.request = self.scope[REQUEST] = Request(self.scope, self.receive, path.strip("/").split("/"))
        self.refused: A2AError | None = None
        self.passed = False
        self.sent: list[MutableMapping[str, Any]] = []

    async def receive(self) -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.passed = True
        await respond(send, 200, b"{}")

    async def refuse(self, request: Request, send: Any, error: A2AError) -> None:
        self.refused = error

    async def through(self, app: Any) -> Exchange:
        await app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


def guard(*cors: str, open_list: bool = False) -> CrossSiteCheck:
    return CrossSiteCheck("https://agents.example.com", ("me.test",), cors, open_list=open_list)


def base(_: Request) -> str:
    return "https://agents.example.com"


@pytest.mark.parametrize(
    ("host", "trusted", "passes"),
    [
        ("localhost:80", False, True),
        ("ME.test", False, True),
        ("agents.example.com", False, True),
        ("evil.test", False, False),
        ("evil.test", True, True),
        ("", False, True),
    ],
)
async def test_a_name_that_is_not_ours_is_misdirected(host: str, trusted: bool, passes: bool) -> None:
    at = Exchange(host=host)
    await at.through(check_host(at.app, guard(), lambda _: trusted))
    assert (at.passed, at.status) == (passes, 200 if passes else 421)
    if not passes:
        assert "does not answer to 'evil.test'" in json.loads(at.sent[1]["body"])["error"]


@pytest.mark.parametrize(
    ("headers", "cors", "passes"),
    [
        ({}, (), True),
        ({"origin": "https://agents.example.com"}, (), True),
        ({"origin": "https://evil.test"}, (), False),
        ({"origin": "https://evil.test"}, ("https://evil.test",), True),
        ({"origin": "https://evil.test"}, ("*",), True),
        ({"sec_fetch_site": "cross-site"}, (), False),
        ({"sec_fetch_site": "same-origin"}, (), True),
    ],
)
async def test_a_page_of_another_origin_is_refused(headers: Any, cors: Any, passes: bool) -> None:
    at = Exchange(**headers)
    await at.through(check_page(at.app, guard(*cors), base, at.refuse))
    assert (at.passed, at.refused is None) == (passes, passes)


async def test_a_welcome_page_may_read_the_answer_and_no_other() -> None:
    welcome, other = Exchange(origin="https://a.test"), Exchange(origin="https://b.test")
    for at in (welcome, other):
        await at.through(add_cors_headers(at.app, guard("https://a.test")))
    assert welcome.headers[b"access-control-allow-origin"] == b"https://a.test"
    assert b"access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(("path", "status"), [("/card", 204), ("/other", 403)])
async def test_a_preflight_is_answered_for_what_is_open(path: str, status: int) -> None:
    at = await Exchange("OPTIONS", path, origin="https://b.test").through(answer_preflight(guard(), {"/card"}))
    assert at.status == status


async def test_a_request_counts_for_its_user_or_its_address_and_too_many_are_refused() -> None:
    clock = Clock()
    limiter = Limiter(Limits(rate=1, burst=1), clock, Addresses(None, ()))
    callers: list[tuple[str, bool, bool]] = []
    for user in (None, None, User("ann")):
        at = Exchange(user=user)
        await at.through(admit(at.app, limiter, guard(), at.refuse))
        callers.append((at.request.caller, at.request.user is user, at.passed))
    assert callers == [("address 10.1.2.3", True, True), ("address 10.1.2.3", True, False), ("user ann", True, True)]


@pytest.mark.parametrize("server", ["192.0.2.1", "127.0.0.1"])
async def test_strangers_list_tasks_only_where_nobody_else_is(server: str) -> None:
    at = Exchange()
    at.scope["server"] = (server, 80)
    await at.through(admit(at.app, Limiter(Limits(), Clock(), Addresses(None, ())), guard(), at.refuse))
    assert at.request.may_list == (server == "127.0.0.1")


@pytest.mark.parametrize(("headers", "passes"), [({"authorization": "Bearer t"}, True), ({}, False)])
async def test_a_foreign_page_is_known_by_a_token_only(headers: Any, passes: bool) -> None:
    async def who(request: Request) -> User | None:
        return User("ann")

    at = Exchange(origin="https://evil.test", cookie="c=1", **headers)
    await at.through(authenticate(at.app, Authentication(who), guard(), base, at.refuse))
    assert (at.passed, at.scope.get(USER)) == (passes, User("ann") if passes else None)


async def test_nobody_is_refused_where_callers_are_known() -> None:
    async def nobody(request: Request) -> User | None:
        return None

    at = Exchange()
    await at.through(authenticate(at.app, Authentication(nobody), guard(), base, at.refuse))
    assert isinstance(at.refused, Unauthenticated) and not at.passed


async def test_a_stranger_who_is_refused_inside_learns_how_to_be_known() -> None:
    class Schemes(Authentication):
        def challenge(self, error: A2AError) -> list[tuple[bytes, bytes]]:
            return [(b"www-authenticate", b"Bearer")]

    async def refused(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, 401, b"{}")

    async def nobody(request: Request) -> User | None:
        return None

    for app, told in ((refused, True), (Exchange().app, False)):
        at = await Exchange().through(challenge_anonymous(app, Schemes(nobody)))
        assert (b"www-authenticate" in at.headers) == told


def test_exact_paths_are_found_by_method_and_all_others_by_their_agent() -> None:
    names = ("rpc", "missing", "rest", "preflight", "below", "allowed")
    routes = {name: Route(Exchange().app) for name in names}
    agent = AgentRoutes(
        {"/": PathRoutes({"POST": routes["rpc"]}, routes["allowed"])},
        {("a", "b"): routes["below"]},
        routes["rest"],
        routes["preflight"],
    )
    router = Router(agent, {"/agents/": Mount({"x y": agent}, routes["missing"])})

    def found(method: str, path: str, **scope: Any) -> tuple[str, list[str], str]:
        match = router.find({"method": method, "path": path, "headers": [], **scope})
        name = next(name for name, route in routes.items() if route is match.route)
        return name, list(match.segments), match.prefix

    assert router.exact["POST", "/"].route is routes["rpc"]
    assert router.exact["POST", "/agents/x y"].prefix == "/agents/x%20y"
    assert found("POST", "//") == ("rpc", [], "")
    assert found("PUT", "/") == ("allowed", [], "")
    assert found("GET", "/a/b/c") == ("below", ["a", "b", "c"], "")
    assert found("GET", "/a/b/c/d") == ("rest", ["a", "b", "c", "d"], "")
    assert found("GET", "/agents/x y/tasks", raw_path=b"/agents/x%20y/tasks") == ("rest", ["tasks"], "/agents/x%20y")
    assert found("POST", "/agents/nobody") == ("missing", [], "/agents/nobody")
    assert found("OPTIONS", "/agents/nobody") == ("preflight", [], "/agents/nobody")
    assert found("POST", "/mounted/", root_path="/mounted") == ("rpc", [], "")
