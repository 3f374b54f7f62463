"""The console on a real port: who gets the page, its files and its API, and what everybody else sees."""

from __future__ import annotations

import http.client
import logging
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from dragoman import Agent, Server, User
from dragoman.auth.inbound.passwords import new_password
from dragoman.errors import ConfigError, Unauthenticated
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.testing import served
from dragoman.transports.http import Request

TOKEN = "the-token-of-this-test"
HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
EVIL = "https://evil.example"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "frame-src blob:; media-src blob:; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def trip(name: str = "trip") -> Agent:
    agent = Agent(name, description="Plans trips")

    @agent.skill
    def plan(city: str) -> str:
        """Plan a trip."""
        return f"Walk around {city}."

    return agent


@contextmanager
def opened(target: Any = None, **settings: Any) -> Generator[httpx2.Client]:
    """A browser at a server; it keeps cookies, and does not follow redirects."""
    target = target or trip()
    given: dict[str, Any] = {} if isinstance(target, Starlette) else {"console_token": TOKEN, **settings}
    with (
        served(target, **given) as url,
        httpx2.Client(base_url=url, trust_env=False, verify=False, timeout=20, follow_redirects=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def site() -> Iterator[httpx2.Client]:
    """A server that has a token, and a browser that has not come with it."""
    with opened(Server(trip(), trip("übersetzer"))) as client:
        yield client


@pytest.fixture
def browser(site: httpx2.Client) -> Iterator[httpx2.Client]:
    """A browser without cookies at that server."""
    with httpx2.Client(
        base_url=site.base_url, trust_env=False, verify=False, timeout=20, follow_redirects=False
    ) as client:
        yield client


def session(client: httpx2.Client, **headers: str) -> dict[str, Any]:
    answer = client.get("/console/api/session", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def raw(url: httpx2.URL, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """A request as it is written here, without the Date: no client puts its path in order."""
    connection = http.client.HTTPConnection("127.0.0.1", url.port)
    connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    found = {name.lower(): value for name, value in response.getheaders() if name.lower() != "date"}
    body = response.read()
    connection.close()
    return response.status, found, body


# -- the page ----------------------------------------------------------------------------------------------------------


def test_a_browser_sees_the_page_with_a_policy_that_runs_only_its_own_code(browser: httpx2.Client) -> None:
    answer = browser.get("/", headers=HTML)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "Dragoman" in re.findall("<title>(.*?)</title>", answer.text)[0]
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert "camera=()" in answer.headers["permissions-policy"]
    assert (answer.headers["vary"], answer.headers["cache-control"]) == ("accept, accept-encoding", "no-cache")
    assert "set-cookie" not in answer.headers
    head = browser.head("/", headers=HTML)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == answer.headers["content-length"]


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/plain, */*", None])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("HEAD", "/"),
        ("GET", "/?token=the-token-of-this-test"),
        ("DELETE", "/"),
        ("OPTIONS", "/"),
        ("GET", "/agents"),
        ("GET", "/agents/trip"),
        ("GET", "/agents/trip/"),
        ("GET", "/agents/nobody"),
        ("GET", "/nothing"),
    ],
)
def test_programs_see_byte_for_byte_what_they_see_without_a_console(
    site: httpx2.Client, without: httpx2.Client, method: str, path: str, accept: str | None
) -> None:
    headers = {"host": "agents.localhost", "origin": EVIL} if method == "OPTIONS" else {"host": "localhost"}
    headers |= {} if accept is None else {"accept": accept}
    assert raw(site.base_url, method, path, **headers) == raw(without.base_url, method, path, **headers)


@pytest.fixture(scope="module")
def without() -> Iterator[httpx2.Client]:
    with opened(Server(trip(), trip("übersetzer")), console="off") as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/", "/agents/trip", "/console/app.js", "/console/api/session", "/console/", "/console"]
)
def test_where_the_console_is_off_there_is_none(without: httpx2.Client, path: str) -> None:
    answer = without.get(path, headers=HTML)
    assert answer.status_code == 404
    assert answer.headers["content-type"].endswith("json")
    assert without.get(path).content == answer.content


def test_a_browser_at_an_agent_is_led_to_it_on_the_page(browser: httpx2.Client) -> None:
    for path in ("/agents/trip", "/agents/trip/"):
        answer = browser.get(path, headers=HTML)
        assert answer.status_code == 303
        assert answer.headers["vary"] == "accept"
        place = browser.base_url.join(path).join(answer.headers["location"])
        assert (place.path, place.fragment) == ("/", "/agents/trip")
    strange = browser.get("/agents/%C3%BCbersetzer", headers=HTML)
    assert strange.headers["location"] == "../#/agents/%C3%BCbersetzer"


def test_the_folder_of_the_console_redirects_to_the_page(browser: httpx2.Client) -> None:
    for path, place in (("/console", "./"), ("/console/", "../")):
        answer = browser.get(path, headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, place)
        assert browser.get(path).status_code == 404


# -- the files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/console/../api.py",
        "/console/%2e%2e/api.py",
        "/console/..%2fapi.py",
        "/console/..%5capi.py",
        "/console/static/app.js",
        "/console/../static/app.js",
        "/console//etc/passwd",
        "/console/%2fetc%2fpasswd",
        "/console/app.js%00",
        "/console/app.js/",
        "/console/lib",
        "/console/lib/",
        "/console/./app.js",
        "/console/APP.JS",
        "/console/api.py",
        "/console/__init__.py",
    ],
)
def test_only_files_of_the_page_are_served_whatever_a_path_looks_like(site: httpx2.Client, path: str) -> None:
    status, headers, body = raw(site.base_url, "GET", path)
    if path == "/console/app.js/":  # a slash at the end adds nothing, as everywhere here
        assert status == 200
        return
    assert (status, headers["content-type"]) == (404, "application/json")
    assert b"import" not in body


def test_files_are_only_read(browser: httpx2.Client) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = browser.request(method, "/console/app.js")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_a_file_has_its_type_and_no_other_site_may_use_it(browser: httpx2.Client) -> None:
    answer = browser.get("/console/app.js")
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert browser.get("/console/index.html").headers["content-security-policy"] == POLICY


@pytest.mark.parametrize("path", ["/console/message:send", "/console/tasks/x", "/agents/trip/console/message:send"])
def test_the_console_is_no_tenant(browser: httpx2.Client, path: str) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Rome"}]}
    assert browser.post(path, json={"message": message}).status_code in (404, 405)


# -- the token ---------------------------------------------------------------------------------------------------------


def test_the_token_in_the_address_becomes_a_cookie_and_leaves_the_address(browser: httpx2.Client) -> None:
    assert (session(browser)["token"], session(browser)["admin"]) == (False, False)
    answer = browser.get(f"/?token={TOKEN}", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    assert answer.headers["cache-control"] == "no-store"
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert cookie.startswith(f"dragoman-console-{browser.base_url.port}=")
    assert cookie.partition("; ")[2] == "Path=/console; HttpOnly; SameSite=Strict"
    assert (session(browser)["token"], session(browser)["admin"]) == (True, True)


@pytest.mark.parametrize("wrong", ["", "guess", TOKEN[:-1], f"{TOKEN}x", "%00", "%C3%A4", f"{TOKEN}&token={TOKEN}"])
def test_a_wrong_token_shows_the_page_that_says_so_and_is_in_the_audit_log(
    browser: httpx2.Client, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dragoman.audit"):
        answer = browser.get(f"/?token={wrong}", headers=HTML)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"] == POLICY
    assert "set-cookie" not in answer.headers
    assert not session(browser)["token"]
    assert [record.getMessage() for record in caplog.records] == [
        "event=denied scheme=console reason=wrong-token address=127.0.0.1"
    ]


def test_signing_in_and_out_is_audited_without_the_token(
    browser: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        browser.get(f"/?token={TOKEN}", headers=HTML)
        assert browser.post("/console/api/sign-out", json={}).json() == {}
    assert not session(browser)["token"]
    audit = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
    assert audit == [
        "event=signed-in scheme=console address=127.0.0.1",
        "event=signed-out scheme=console address=127.0.0.1",
    ]
    assert not any(TOKEN in record.getMessage() for record in caplog.records if not record.name.startswith("http"))


def test_the_cookie_of_another_start_is_worth_nothing(browser: httpx2.Client) -> None:
    with opened(console_token="another token, of before".replace(" ", "-")) as before:
        answer = before.get("/?token=another-token,-of-before", headers=HTML)
        value = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    assert not session(browser, Cookie=f"dragoman-console-{browser.base_url.port}={value}")["token"]


def test_an_app_without_a_token_accepts_no_token() -> None:
    with opened(console_token=None) as client:
        for token in ("", "None", TOKEN):
            assert client.get(f"/?token={token}", headers=HTML).status_code == 403
        assert session(client)["mode"] == "token"
        assert client.get("/", headers=HTML).status_code == 200


def test_guesses_at_the_token_are_limited_as_other_requests() -> None:
    with opened(limits={"rate": 0.001, "burst": 2}) as client:
        codes = [client.get("/?token=guess", headers=HTML).status_code for _ in range(3)]
        assert codes == [403, 403, 429]
        refused = client.get("/console/api/session")
        assert (refused.status_code, refused.json()["reason"]) == (429, "RESOURCE_EXHAUSTED")
        assert int(refused.headers["retry-after"]) > 0
        assert client.get("/", headers=HTML).status_code == 200


# -- the API -----------------------------------------------------------------------------------------------------------


def test_the_session_has_the_user_and_the_agents(browser: httpx2.Client) -> None:
    assert session(browser) == {
        "version": session(browser)["version"],
        "mode": "token",
        "token": False,
        "admin": False,
        "user": None,
        "permissions": [],
        "login": None,
        "agents": [
            {
                "name": name,
                "description": "Plans trips",
                "path": path,
                "card": ".well-known/agent-card.json",
                "skillSchemas": ".well-known/skill-schemas.json",
            }
            for name, path in (("trip", "agents/trip/"), ("übersetzer", "agents/%C3%BCbersetzer/"))
        ],
    }
    for agent in session(browser)["agents"]:
        assert browser.get(f"/{agent['path']}{agent['card']}").json()["name"] == agent["name"]


def test_nothing_of_the_api_is_kept_and_no_other_site_reads_it(browser: httpx2.Client) -> None:
    for path in ("session", "nothing"):
        answer = browser.get(f"/console/api/{path}", headers={"Origin": f"http://{browser.base_url.netloc.decode()}"})
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
    missing = browser.get("/console/api/nothing")
    assert (missing.status_code, missing.json()["reason"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("cors", [(), ("*",)])
def test_a_page_of_another_site_gets_nothing_of_the_api_even_with_the_cookie(
    headers: dict[str, str], cors: tuple[str, ...]
) -> None:
    with opened(cors=cors) as client:
        client.get(f"/?token={TOKEN}", headers=HTML)
        assert session(client)["token"]
        read = client.get("/console/api/session", headers=headers)
        assert (read.status_code, read.json()["reason"]) == (403, "PERMISSION_DENIED")
        assert "access-control-allow-origin" not in read.headers
        assert client.post("/console/api/sign-out", json={}, headers=headers).status_code == 403
        preflight = client.options(
            "/console/api/sign-out", headers={**headers, "Access-Control-Request-Method": "POST"}
        )
        assert "access-control-allow-origin" not in preflight.headers
        assert session(client)["token"]


def test_the_page_itself_may_use_the_api(browser: httpx2.Client) -> None:
    own = {"Origin": str(browser.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert browser.post("/console/api/sign-out", json={}, headers=own).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example"])
@pytest.mark.parametrize(
    "path", ["/", "/?token=the-token-of-this-test", "/agents/trip", "/console/app.js", "/console/api/session"]
)
def test_a_name_that_was_pointed_at_this_machine_gets_nothing(site: httpx2.Client, host: str, path: str) -> None:
    status, headers, body = raw(site.base_url, "GET", path, host=host, accept=HTML["Accept"])
    assert status == 421
    assert b"<title>" not in body
    assert "set-cookie" not in headers


@pytest.mark.parametrize("host", ["localhost:abc", "localhost:99999999", "127.0.0.1:"])
def test_a_host_that_no_browser_has_breaks_nothing(site: httpx2.Client, host: str) -> None:
    assert raw(site.base_url, "GET", "/console/api/session", host=host)[0] == 200
    assert raw(site.base_url, "GET", f"/?token={TOKEN}", host=host, accept=HTML["Accept"])[0] == 303


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", None])
def test_a_post_that_a_form_could_send_is_refused(browser: httpx2.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = browser.post("/console/api/sign-out", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (415, "CONTENT_TYPE_NOT_SUPPORTED")


def test_a_method_that_is_not_there_is_named(browser: httpx2.Client) -> None:
    answer = browser.get("/console/api/sign-out")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert browser.delete("/console/api/session").headers["allow"] == "GET, HEAD"
    assert browser.head("/console/api/session").content == b""


# -- other places ------------------------------------------------------------------------------------------------------


def test_in_another_app_all_is_below_its_folder() -> None:
    app = Starlette(routes=[Mount("/tools", app=trip().app(store="memory:", console_token=TOKEN))])
    with opened(app) as client:
        bare = client.get(f"/tools?token={TOKEN}", headers=HTML)
        assert bare.status_code in (303, 307)
        assert client.base_url.join("/tools").join(bare.headers["location"]).path == "/tools/"
        answer = client.get(f"/tools/?token={TOKEN}", headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert "; Path=/tools/console; " in answer.headers["set-cookie"]
        assert client.get("/tools/", headers=HTML).status_code == 200
        assert client.get("/tools/console/app.js").status_code == 200
        found = client.get("/tools/console/api/session").json()
        assert found["token"]
        agent = found["agents"][0]
        assert client.get(f"/tools/{agent['path']}{agent['card']}").status_code == 200
        led = client.get("/tools/agents/trip", headers=HTML)
        assert client.base_url.join("/tools/agents/trip").join(led.headers["location"]).path == "/tools/"


def test_a_mount_that_does_not_add_the_slash_is_led_there() -> None:
    inner = trip().app(store="memory:", console_token=TOKEN)

    async def mount(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "root_path": "/tools"}
        await inner(scope, receive, send)

    with served(mount) as url, httpx2.Client(base_url=url, trust_env=False, follow_redirects=False) as client:
        answer = client.get("/tools?token=x&y", headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "tools/?token=x&y")


def test_behind_a_trusted_proxy_the_cookie_is_that_of_its_address() -> None:
    proxy = {
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "agents.example.com",
        "X-Forwarded-Prefix": "/dragoman",
        "X-Forwarded-For": "203.0.113.7",
        "Host": "agents.example.com",
    }
    with opened(trust_proxy="127.0.0.0/8") as client:
        answer = client.get(f"/?token={TOKEN}", headers=HTML | proxy)
        assert answer.headers["location"] == "./"
        cookie, _, attributes = answer.headers["set-cookie"].partition("; ")
        assert cookie.startswith("dragoman-console-443=")
        assert attributes == "Path=/dragoman/console; HttpOnly; SameSite=Strict; Secure"
        own = {"Origin": "https://agents.example.com", "Cookie": cookie, **proxy}
        assert session(client, **own)["token"]
        assert client.get("/console/api/session", headers=own | {"Origin": EVIL}).status_code == 403
    # Who is not trusted cannot choose the address of the cookie.
    with opened() as client:
        answer = client.get(f"/?token={TOKEN}", headers=HTML | proxy | {"Host": "localhost"})
        assert "Path=/console;" in answer.headers["set-cookie"]


def test_with_a_public_url_the_cookie_is_that_of_the_url() -> None:
    with opened(url="https://agents.example.com/x") as client:
        cookie = client.get(f"/?token={TOKEN}", headers=HTML).headers["set-cookie"]
        assert cookie.startswith("dragoman-console-443=")
        assert cookie.endswith("Path=/x/console; HttpOnly; SameSite=Strict; Secure")


# -- users -------------------------------------------------------------------------------------------------------------


async def by_name(request: Request) -> User | None:
    name = request.headers.get("x-user")
    if name == "wrong":
        raise Unauthenticated("nobody")
    return User(name, name=name, permissions=frozenset({"admin"} if name == "root" else ())) if name else None


def test_in_auth_mode_the_token_counts_for_nothing_and_users_do() -> None:
    with opened(console="auth", auth=by_name) as client:
        answer = client.get(f"/?token={TOKEN}", headers=HTML)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
        nobody = session(client)
        assert (nobody["mode"], nobody["user"]) == ("auth", None)
        assert session(client, **{"X-User": "wrong"})["user"] is None
        ann = session(client, **{"X-User": "ann"})
        assert (ann["user"], ann["admin"]) == ({"name": "ann"}, False)
        root = session(client, **{"X-User": "root"})
        assert (root["admin"], root["token"], root["permissions"]) == (True, False, ["admin"])


@pytest.mark.parametrize("settings", [{"console": "auth"}, {"console": "auth", "console_token": TOKEN}])
def test_without_anybody_who_can_sign_in_auth_mode_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="console: nobody can sign in here: set auth, as with --auth cookie"):
        trip().app(store="memory:", **settings)


def test_with_a_skill_that_needs_a_permission_there_is_a_sign_in() -> None:
    agent = trip()
    agent.skill(permission="key")(lambda: "open")
    with opened(agent, console="auth", store="memory:", secret="a secret for cookies") as client:
        found = session(client)
        assert found["login"] == "login"


async def test_a_user_signs_in_comes_to_the_page_and_signs_out_there(tmp_path: Any) -> None:
    store = tmp_path / "t.db"
    with opened(store=f"sqlite:///{store}", auth="cookie", secret="a secret for cookies") as client:
        users = SqliteUsers(store)
        await users.open()
        users.add("ann", new_password("correct horse battery"))
        await users.close()
        assert session(client)["login"] == "login"
        form = client.get("/login").text
        hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]+)"', form))
        assert hidden["next"] == "./"
        fields = {**hidden, "name": "ann", "password": "correct horse battery"}
        answer = client.post("/login", data=fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert session(client)["user"] == {"name": "ann"}
        assert '<a href="./">Open the console</a>' in client.get("/login").text
        client.get(f"/?token={TOKEN}", headers=HTML)
        both = session(client)
        assert (both["user"], both["admin"], both["token"]) == ({"name": "ann"}, True, True)
        out = client.post("/console/api/sign-out", json={})
        assert len(out.headers.get_list("set-cookie")) == 3
        after = session(client)
        assert (after["user"], after["token"], after["admin"]) == (None, False, False)


def test_the_login_page_leads_nowhere_else_where_there_is_no_console(tmp_path: Any) -> None:
    with opened(console="off", store=f"sqlite:///{tmp_path / 't.db'}", auth="cookie") as client:
        assert 'name="next" value="login"' in client.get("/login").text


def test_a_port_of_another_server_is_another_cookie() -> None:
    with opened() as one, opened() as two:
        names = {
            urlsplit(str(each.base_url)).port: each.get(f"/?token={TOKEN}", headers=HTML).headers["set-cookie"]
            for each in (one, two)
        }
        assert all(cookie.startswith(f"dragoman-console-{port}=") for port, cookie in names.items())
