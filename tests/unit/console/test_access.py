"""Who a viewer of the console is: by the cookie that stands for its token, and as a user."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from dragoman.console.access import ConsoleAccess, ConsoleAddress, Viewer, new_token
from dragoman.transports.http import Request

BASE = "http://127.0.0.1:8080"
TOKEN = "a token of twenty ch"


def request(cookie: str = "") -> Request:
    async def receive() -> Any:
        raise AssertionError("nothing is read")

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"cookie", cookie.encode())]}
    return Request(scope, receive, [])


def cookie_of(access: ConsoleAccess, base: str = BASE) -> str:
    return access.cookie(base)[1].decode().partition(";")[0]


@pytest.mark.parametrize("access", [ConsoleAccess("token"), ConsoleAccess("auth", TOKEN), ConsoleAccess("auth")])
def test_without_a_token_none_is_accepted_not_even_an_empty_one(access: ConsoleAccess) -> None:
    assert not access.accepts("")
    assert not access.accepts(TOKEN)
    for cookie in (cookie_of(access), "dragoman-console-8080="):
        assert access.viewer(request(cookie), BASE, None) == Viewer()


def test_the_cookie_stands_for_the_token_and_is_not_the_token() -> None:
    access = ConsoleAccess("token", TOKEN)
    cookie = cookie_of(access)
    assert TOKEN not in cookie
    assert access.viewer(request(cookie), BASE, None) == Viewer(None, admin=True, token=True)
    assert access.viewer(request(f"other=1; {cookie}"), BASE, None).token
    # One that another site has planted changes nothing.
    assert access.viewer(request(f"dragoman-console-8080=planted; {cookie}"), BASE, None).token
    assert ConsoleAccess("token", new_token()).viewer(request(cookie), BASE, None) == Viewer()
    assert access.viewer(request("dragoman-console-8080=ä"), BASE, None) == Viewer()


def test_the_address_is_that_of_browsers_and_has_the_token_where_it_counts() -> None:
    local, public = "http://127.0.0.1:8080", "https://agents.example.com/x"
    assert ConsoleAddress.of("a/b", local) == (local, f"{local}/", f"{local}/?token=a%2Fb")
    assert ConsoleAddress.of(TOKEN, local, public) == (local, f"{public}/", f"{public}/?token={quote(TOKEN)}")
    assert ConsoleAddress.of(None, local, public) == (local, f"{public}/", f"{public}/")


def test_no_two_tokens_are_alike_and_none_is_short() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32
