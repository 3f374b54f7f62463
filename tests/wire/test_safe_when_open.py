"""An open server on loopback answers to its own names, and to no foreign page."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from dragoman import Agent
from dragoman.testing import served

SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


def echo_agent() -> Agent:
    agent = Agent("echo", description="Echo")

    @agent.skill
    async def echo(text: str) -> str:
        """Echo."""
        return text

    return agent


def ask(url: str, method: str = "POST", path: str = "/message:send", **headers: str) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps(SEND) if method == "POST" else None
        connection.request(method, path, body, {"Content-Type": "application/json", **named})
        response = connection.getresponse()
        text = response.read()
        return (
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            json.loads(text or b"{}"),
        )
    finally:
        connection.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(echo_agent()) as address:
        yield address


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.9.9.9:1", "[::1]:80", "localhost."])
def test_a_loopback_name_is_answered(url: str, host: str) -> None:
    assert ask(url, Host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", "192.0.2.7"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/message:send"), ("POST", "/"), ("GET", "/.well-known/agent.json")]
)
def test_another_host_is_misdirected_and_the_error_names_the_setting(
    url: str, host: str, method: str, path: str
) -> None:
    status, _, body = ask(url, method, path, Host=host)
    assert status == 421
    assert "allow_hosts" in body["error"]


def test_names_that_were_allowed_and_the_public_address_are_answered() -> None:
    with served(echo_agent(), allow_hosts=["agents.lan"], url="https://agents.example.com/x") as url:
        assert [ask(url, Host=host)[0] for host in ("agents.lan", "agents.example.com", "other.lan")] == [200, 200, 421]


def test_a_trusted_proxy_has_checked_the_name_already() -> None:
    with served(echo_agent(), trust_proxy=["127.0.0.0/8"]) as url:
        assert ask(url, Host="agents.example.com")[0] == 200


def test_a_card_may_be_read_by_any_page(url: str) -> None:
    status, headers, _ = ask(url, "GET", "/.well-known/agent-card.json", Origin="https://anybody.example")
    assert (status, headers["access-control-allow-origin"]) == (200, "*")
    status, headers, _ = ask(url, "OPTIONS", "/.well-known/agent-card.json", Origin="https://anybody.example")
    assert (status, headers["access-control-allow-origin"]) == (204, "*")


def test_a_listed_origin_may_ask_first_and_read_the_answer() -> None:
    page = "https://app.example"
    with served(echo_agent(), cors=[page]) as url:
        wanted = {
            "Access_Control_Request_Method": "POST",
            "Access_Control_Request_Headers": "a2a-version, content-type",
        }
        status, headers, _ = ask(url, "OPTIONS", Origin=page, **wanted)
        assert status == 204
        assert headers["access-control-allow-origin"] == page
        assert headers["access-control-allow-headers"] == "a2a-version, content-type"
        status, headers, _ = ask(url, Origin=page)
        assert (status, headers["access-control-allow-origin"], headers["vary"]) == (200, page, "origin")
        assert ask(url, "OPTIONS", Origin="https://evil.example", **wanted)[0] == 403


async def listing(server: tuple[str, int], **settings: Any) -> int:
    """The status of ListTasks as a server at that address answers it."""
    app = echo_agent().app(store="memory:", **settings)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"agents.example.com")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/tasks",
        "headers": headers,
        "query_string": b"",
        "server": server,
    }
    await app(scope, receive, send)
    await app.stop()
    return int(sent[0]["status"])


async def test_strangers_on_a_network_see_no_list_unless_the_setting_allows_it() -> None:
    # What the server says of itself is all that counts: nothing is sent anywhere.
    assert await listing(("192.0.2.1", 80)) == 403
    assert await listing(("192.0.2.1", 80), open_list=True) == 200
    assert await listing(("testserver", 80)) == 200
