"""Signing in with a browser: forms that only our own page can send."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest

from dragoman.auth.inbound.cookie import CookieScheme
from dragoman.auth.inbound.login import Login, LoginResponse, local_path

ORIGIN = "https://agents.example.com"
FORM = ("Content-Type", "application/x-www-form-urlencoded")


class Browser:
    """Keeps cookies and fills in forms."""

    def __init__(self, door: Any, *, secure: bool = True) -> None:
        self.door = door
        self.secure = secure
        self.scheme = CookieScheme(door.users, door.ring, door.clock)
        self.login = Login(door.passwords, self.scheme, door.ring, door.clock)
        self.cookies: dict[str, str] = {}
        self.page = ""
        self.sent: list[str] = []

    async def open(self, query: str = "") -> LoginResponse:
        asked = self.door.asked(*self.headers(), method="GET", path="/login", query=query)
        return self.took(await self.login.show(asked, secure=self.secure))

    async def sign_in(self, name: str = "alice", password: str | None = None, **changed: Any) -> LoginResponse:
        form = {"csrf": self.token(), "name": name, "password": password or self.door.password, "next": "/console"}
        return await self.post("/login", {**form, **changed})

    async def post(self, path: str, form: dict[str, Any], *headers: tuple[str, str]) -> LoginResponse:
        body = urlencode({name: value for name, value in form.items() if value is not None}).encode()
        asked = self.door.asked(*self.headers(), *(headers or (FORM, ("Origin", ORIGIN))), path=path)
        send = self.login.sign_in if path == "/login" else self.login.sign_out
        return self.took(await send(asked, body, secure=self.secure, origin=ORIGIN))

    def headers(self) -> list[tuple[str, str]]:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return [("Cookie", cookie)] if cookie else []

    def token(self) -> str:
        found = re.search(r'name="csrf" value="(\w+)"', self.page)
        assert found is not None
        return found[1]

    def took(self, reply: LoginResponse) -> LoginResponse:
        self.page = reply.body.decode()
        for name, value in reply.headers:
            if name == b"set-cookie":
                self.sent.append(value.decode())
                key, _, rest = value.decode().partition("=")
                kept, *attributes = rest.split("; ")
                if "Max-Age=0" in attributes:
                    self.cookies.pop(key, None)
                else:
                    self.cookies[key] = kept
        return reply


@pytest.fixture
def browser(door: Any) -> Browser:
    return Browser(door)


def place(reply: LoginResponse) -> str:
    return dict(reply.headers)[b"location"].decode()


async def test_cookies_are_out_of_reach_of_scripts_and_other_sites(browser: Browser) -> None:
    await browser.open()
    await browser.sign_in()
    seed, session, _ = browser.sent
    assert seed.startswith("__Host-dragoman-form=")
    assert session.startswith("user=")
    for cookie, site in ((seed, "Strict"), (session, "Lax")):
        assert {"Path=/", "HttpOnly", "Secure", f"SameSite={site}"} <= set(cookie.split("; "))


async def test_without_tls_cookies_are_not_marked_secure_or_they_would_be_dropped(door: Any) -> None:
    browser = Browser(door, secure=False)
    await browser.open()
    assert (await browser.sign_in()).status == 303
    assert all("Secure" not in cookie for cookie in browser.sent)


async def test_a_token_without_its_cookie_is_refused(browser: Browser) -> None:
    await browser.open()
    token = browser.token()
    browser.cookies.clear()
    assert (await browser.sign_in(csrf=token)).status == 403


async def test_a_token_from_before_signing_in_does_not_sign_out(browser: Browser) -> None:
    await browser.open()
    token, cookies = browser.token(), dict(browser.cookies)
    await browser.sign_in()
    browser.cookies |= cookies
    assert (await browser.post("/logout", {"csrf": token})).status == 403
    assert "user" in browser.cookies


async def test_a_seed_that_somebody_else_put_is_refused(browser: Browser) -> None:
    await browser.open()
    browser.cookies["__Host-dragoman-form"] = "of-the-attacker"
    assert (await browser.sign_in()).status == 403


async def test_a_form_that_lay_open_for_too_long_is_shown_again(door: Any, browser: Browser) -> None:
    await browser.open()
    door.clock.move(3601)
    assert (await browser.sign_in()).status == 403
    assert (await browser.sign_in()).status == 303  # with the form that came back


@pytest.mark.parametrize("body", [b"csrf=a&csrf=b", b"a=1&" * 50, b"\xff\xfe", b"x" * 9000])
async def test_a_body_that_is_no_form_is_refused(door: Any, browser: Browser, body: bytes) -> None:
    asked = door.asked(FORM, ("Origin", ORIGIN), path="/login")
    assert (await browser.login.sign_in(asked, body, secure=True, origin=ORIGIN)).status == 403


@pytest.mark.parametrize(
    "onward",
    [
        "//evil.example",
        "///evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\r\nSet-Cookie: user=x",
        "javascript:alert(1)",
        "evil.example",
        " /console",
        "/ü",
        '/"><script>',
        "",
    ],
)
async def test_nobody_is_sent_to_another_place(browser: Browser, onward: str) -> None:
    assert local_path(onward) == "login"
    await browser.open()
    reply = await browser.sign_in(next=onward)
    assert (reply.status, place(reply)) == (303, "login")


async def test_wrong_passwords_look_alike_and_say_no_more(browser: Browser) -> None:
    answers = set()
    for name in ("alice", "bob", "nobody", "<b>x</b>", "a\0b"):
        await browser.open()
        reply = await browser.sign_in(name, "wrong")
        assert reply.status == 401
        answers.add(re.sub(r'value="\w+"', "", browser.page))
    assert len(answers) == 1
    assert "the name or the password is wrong<" in browser.page
    for _ in range(4):
        await browser.sign_in("alice", "wrong")
    assert (await browser.sign_in()).status == 303


async def test_a_throttled_browser_gets_the_form_again_with_the_time_to_wait(door: Any, browser: Browser) -> None:
    await browser.open()
    for _ in range(7):
        door.clock.move(2)
        reply = await browser.sign_in("alice", "wrong")
    assert (reply.status, "try again in 2 seconds" in browser.page) == (401, True)
    reply = await browser.sign_in()
    assert (reply.status, dict(reply.headers)[b"retry-after"]) == (429, b"2")
    assert "too many wrong passwords from here: try again in 2 seconds<" in browser.page
    assert 'name="password"' in browser.page
    door.clock.move(2)
    assert (await browser.sign_in()).status == 303


async def test_an_old_cookie_shows_the_form_again(door: Any, browser: Browser) -> None:
    await browser.open()
    await browser.sign_in()
    door.users.revoke("alice")
    await browser.open()
    assert "Password" in browser.page


async def test_the_log_tells_who_signed_in_and_no_password(
    door: Any, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await browser.open()
    await browser.sign_in("alice", "my wrong password")
    await browser.sign_in("my password, typed as a name", "x")
    await browser.sign_in(csrf="nonsense")
    await browser.sign_in()
    await browser.open()
    await browser.post("/logout", {"csrf": browser.token()})
    names = ("event", "user", "reason")
    audited = [tuple(record.__dict__.get(name, "") for name in names) for record in caplog.records]
    assert audited == [
        ("denied", "alice", "wrong-password"),
        ("denied", "", "unknown-user"),
        ("denied", "", "csrf"),
        ("signed-in", "alice", ""),
        ("signed-out", "alice", ""),
    ]
    assert "password, typed" not in caplog.text
    assert "my wrong" not in caplog.text
    assert door.password not in caplog.text
