"""Strangers who guess passwords, at the login page and with Basic: they wait, and nobody else does."""

from __future__ import annotations

import contextlib
import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import pytest

PASSWORD = "correct horse battery"
# Loopback has many addresses: each stands for somebody elsewhere.
STRANGER, PERSON, FLOOD = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class Browser:
    """A browser at one address."""

    def __init__(self, house: Any, address: str) -> None:
        transport = httpx2.HTTPTransport(verify=False, local_address=address)
        self.http = httpx2.Client(base_url=house.url, transport=transport, follow_redirects=False, timeout=60)
        self._house = house

    def sign_in(self, name: str, password: str) -> httpx2.Response:
        """Fill in the form that is shown."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.http.get("/login").text)
        assert found is not None
        fields = {"csrf": self._house.secret(found[1]), "name": name, "password": password}
        return self.http.post("/login", data=fields)

    def list_tasks(self, name: str, password: str) -> httpx2.Response:
        """Call with Basic."""
        return self.http.get("/tasks", auth=(name, password))

    def is_signed_in(self) -> bool:
        return "user" in self.http.cookies


@pytest.fixture
def at(house: Any) -> Iterator[Any]:
    """A browser at an address, new each time."""
    with contextlib.ExitStack() as stack:

        def opened(address: str) -> Browser:
            try:
                socket.create_server((address, 0)).close()
            except OSError:
                pytest.skip(f"loopback has no {address} here")
            made = Browser(house, address)
            stack.callback(made.http.close)
            stack.callback(lambda: [house.secret(each.value or "") for each in made.http.cookies.jar])
            return made

        yield opened


@pytest.fixture
def name(house: Any) -> str:
    """A user of this test's own, with a password."""
    made = f"user-{uuid4().hex[:8]}"
    house.users.add(made, house.quick_password(PASSWORD))
    return made


def alert(answer: httpx2.Response) -> str:
    found = re.search(r'<p role="alert">([^<]*)</p>', answer.text)
    return found[1] if found else ""


@pytest.mark.parametrize("door", ["page", "basic"])
def test_a_stranger_who_guesses_must_wait_and_locks_nobody_out(at: Any, name: str, door: str) -> None:
    stranger, person = at(STRANGER), at(PERSON)
    answer = httpx2.Response(401)
    for number in range(12):
        answer = (stranger.sign_in if door == "page" else stranger.list_tasks)(name, f"guess {number}")
        if answer.status_code == 429:
            break
    assert answer.status_code == 429
    wait = int(answer.headers["retry-after"])
    message = alert(answer) if door == "page" else answer.json()["error"]["message"]
    assert message == f"too many wrong passwords from here: try again in {wait} second{'' if wait == 1 else 's'}"
    assert ('name="password"' in answer.text) == (door == "page")

    assert person.list_tasks(name, PASSWORD).status_code == 200
    assert (person.sign_in(name, PASSWORD).status_code, person.is_signed_in()) == (303, True)


def test_eighty_connections_with_invented_names_leave_the_login_page_usable(house: Any, at: Any, name: str) -> None:
    person, where = at(PERSON), urlsplit(house.url)
    with contextlib.ExitStack() as stack:
        for number in range(80):
            made = socket.create_connection((where.hostname, where.port), timeout=60, source_address=(FLOOD, 0))
            stack.enter_context(made).sendall(b"".join(_guess(where.netloc, f"{number}-{again}") for again in range(5)))
        assert (person.sign_in(name, PASSWORD).status_code, person.is_signed_in()) == (303, True)
        assert person.list_tasks(name, PASSWORD).status_code == 200


def _guess(host: str, name: str) -> bytes:
    """A request with an invented name. On one connection each is read once the one before was answered."""
    who = b64encode(f"nobody-{name}:guess".encode()).decode()
    return f"GET /tasks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {who}\r\n\r\n".encode()
