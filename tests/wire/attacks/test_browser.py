"""Pages elsewhere that use a browser's cookies, and people who guess at the login."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import httpx2
import pytest

from dragoman.auth.inbound.passwords import new_password
from dragoman.testing import served

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PASSWORD = "correct horse battery"
EVIL = "https://evil.example"


class Browser:
    """Keeps cookies, as browsers do."""

    def __init__(self, house: Any) -> None:
        self._house = house
        self.http = httpx2.Client(base_url=house.url, verify=False, trust_env=False, follow_redirects=False)

    def token(self) -> str:
        """The token of the form that is shown."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.http.get("/login").text)
        assert found is not None
        return self._house.secret(found[1])

    def post(self, path: str, fields: Any, **headers: str) -> httpx2.Response:
        """Send a form."""
        return self.http.post(path, content=urlencode(fields), headers={**FORM, **headers})

    def close(self) -> None:
        for cookie in self.http.cookies.jar:
            self._house.secret(cookie.value or "")
        self.http.close()


@pytest.fixture
def browser(house: Any) -> Any:
    made = Browser(house)
    yield made
    made.close()


@pytest.fixture
def name(house: Any) -> str:
    """A user of this test's own, with a password."""
    made = f"user-{uuid4().hex[:8]}"
    house.users.add(made, house.quick_password(PASSWORD))
    return made


def is_signed_in(browser: Browser) -> bool:
    return "user" in browser.http.cookies


# -- forms -------------------------------------------------------------------------------------------------------------


def test_a_person_signs_in_calls_and_signs_out(house: Any, browser: Browser, name: str) -> None:
    answer = browser.post("/login", {"csrf": browser.token(), "name": name, "password": PASSWORD}, Origin=house.url)
    assert (answer.status_code, is_signed_in(browser)) == (303, True)
    listed = browser.http.get("/tasks")
    assert (listed.status_code, listed.json()["tasks"]) == (200, [])
    answer = browser.post("/logout", {"csrf": browser.token()}, Origin=house.url)
    assert (answer.status_code, is_signed_in(browser)) == (303, False)
    assert browser.http.get("/tasks").status_code == 401


@pytest.mark.requirement("S0-9")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": EVIL, "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"},
        {"Origin": EVIL, "Host": "evil.example"},
    ],
    ids=["origin", "null", "cross-site", "same-site", "forwarded", "host"],
)
@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_a_form_from_another_page_is_refused(
    house: Any, browser: Browser, name: str, path: str, headers: dict[str, str]
) -> None:
    if path == "/logout":
        browser.post("/login", {"csrf": browser.token(), "name": name, "password": PASSWORD})
    before = is_signed_in(browser)
    answer = browser.post(path, {"csrf": browser.token(), "name": name, "password": PASSWORD}, **headers)
    assert (answer.status_code, is_signed_in(browser)) == (421 if "Host" in headers else 403, before)


def test_a_name_with_markup_is_shown_as_text(house: Any, browser: Browser) -> None:
    fields = {"csrf": browser.token(), "name": "<script>alert(1)</script>", "password": "x", "next": '"><script>'}
    answer = browser.post("/login", fields)
    assert answer.status_code == 401
    assert "<script" not in answer.text
    assert "<script" not in browser.http.get("/login", params={"next": '"><script>alert(1)</script>'}).text


@pytest.mark.requirement("S0-9")
@pytest.mark.parametrize("headers", [{}, {"Referer": f"{EVIL}/page"}, {"Sec-Fetch-Site": "none"}])
@pytest.mark.parametrize("path", ["/a2a", "/"])
def test_a_call_with_a_cookie_needs_no_token(house: Any, headers: dict[str, str], path: str) -> None:
    for name in ("0.1-rpc", "0.3-rpc", "1.0-rpc"):
        speaker = house.wire.speaker(name).at(path)
        answer = speaker.send("hi", message={"messageId": str(uuid4())}, **house.as_("ada", **headers))
        assert speaker.texts(answer) == ["hi"]
        assert "access-control-allow-origin" not in answer.headers


def test_a_page_elsewhere_may_not_ask_whether_it_may(house: Any) -> None:
    asked = {"Origin": EVIL, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "cookie"}
    for path in ("/a2a", "/message:send", "/login", "/logout"):
        answer = house.wire.request("OPTIONS", path, headers=asked)
        assert answer.status == 403
        assert "access-control-allow-credentials" not in answer.headers


def test_a_page_elsewhere_can_read_no_card_that_is_for_a_user(house: Any) -> None:
    answer = house.wire.request("GET", "/.well-known/agent-card.json", **house.as_("vera", Origin=EVIL))
    # With `*` browsers hand over nothing that was asked for with credentials.
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


# -- guessing ----------------------------------------------------------------------------------------------------------


def test_a_name_that_exists_takes_as_long_as_one_that_does_not(house: Any, browser: Browser) -> None:
    """Argon2 takes tens of milliseconds: had it been left out, one would take a tenth of the other."""
    taken: dict[str, list[float]] = {"known": [], "unknown": []}
    hashed = new_password(PASSWORD)
    for number in range(3):
        known = f"user-{uuid4().hex[:8]}"
        house.users.add(known, hashed)
        for kind, who in (("known", known), ("unknown", f"nobody-{number}")):
            fields = {"csrf": browser.token(), "name": who, "password": "wrong horse"}
            begun = time.perf_counter()
            assert browser.post("/login", fields).status_code == 401
            taken[kind].append(time.perf_counter() - begun)
    # The quickest of each: a busy machine makes single ones slow, and none quick.
    one, other = (min(taken[kind]) for kind in ("known", "unknown"))
    assert max(one, other) < 4 * min(one, other)


def test_the_login_page_is_not_cached_not_framed_and_loads_nothing(house: Any, browser: Browser) -> None:
    answer = browser.http.get("/login")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "form-action 'self'" in answer.headers["content-security-policy"]
    assert "http" not in answer.text and "<script" not in answer.text
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=Strict" in answer.headers["set-cookie"]


def test_where_no_cookie_is_taken_there_is_no_login(house: Any, new_agent: Any) -> None:
    with served(new_agent(), auth="bearer") as url:
        assert house.wire.at(url).request("GET", "/login").status == 404
        assert house.wire.at(url).request("POST", "/login", content=b"name=ada&password=x", headers=FORM).status == 404
