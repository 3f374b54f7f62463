"""An open server on loopback answers to its own names, and to no foreign page."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from dragoman import Agent, User
from dragoman.testing import served
from dragoman.transports.http import Request

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
def test_another_name_is_misdirected_and_told_what_to_set(url: str, host: str, method: str, path: str) -> None:
    status, _, body = ask(url, method, path, Host=host)
    assert status == 421
    assert "allow_hosts" in body["error"]


def test_names_that_were_allowed_and_the_public_address_are_answered() -> None:
    with served(echo_agent(), allow_hosts=["agents.lan"], url="https://agents.example.com/x") as url:
        assert [ask(url, Host=host)[0] for host in ("agents.lan", "agents.example.com", "other.lan")] == [200, 200, 421]


def test_a_trusted_proxy_has_checked_the_name_already() -> None:
    with served(echo_agent(), trust_proxy=["127.0.0.0/8"]) as url:
        assert ask(url, Host="agents.example.com")[0] == 200


def test_a_foreign_page_is_refused_and_a_page_of_our_own_is_not(url: str) -> None:
    status, _, body = ask(url, Origin="https://evil.example")
    assert (status, body["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert "cors" in body["error"]["message"]
    assert ask(url, Origin=url)[0] == 200
    assert ask(url, Origin="null")[0] == 403


def test_json_rpc_refuses_a_foreign_page_with_its_own_error(url: str) -> None:
    status, _, body = ask(url, path="/a2a", Origin="https://evil.example")
    assert (status, body["error"]["code"]) == (403, -31403)


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


async def anybody(request: Request) -> User | None:
    return User("ada") if request.headers.get("authorization") else None


def test_a_foreign_page_with_a_token_is_answered() -> None:
    with served(echo_agent(), auth=anybody) as url:
        assert ask(url, Origin="https://app.example", Authorization="Bearer x")[0] == 200
        assert ask(url, Origin="https://app.example")[0] == 403


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


async def test_strangers_on_a_network_see_no_list_unless_that_is_said() -> None:
    # What the server says of itself is all that counts: nothing is sent anywhere.
    assert await listing(("192.0.2.1", 80)) == 403
    assert await listing(("192.0.2.1", 80), open_list=True) == 200
    assert await listing(("testserver", 80)) == 200


def waiting_agent() -> Agent:
    agent = Agent("waits", description="Waits for ever")

    @agent.skill
    async def wait(text: str) -> str:
        """Wait."""
        await asyncio.Event().wait()
        return text

    return agent


@pytest.mark.parametrize("limit", ["tasks", "streams"])
def test_one_too_many_is_told_to_come_back_later_and_one_that_ends_makes_room(limit: str) -> None:
    with served(waiting_agent(), limits={limit: 1}) as url:
        first = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
        first.request("POST", "/message:stream", json.dumps(SEND), {"Content-Type": "application/json"})
        response = first.getresponse()
        task = json.loads(next(line for line in response if line.startswith(b"data: "))[6:])["task"]["id"]

        status, _, body = ask(url, path="/message:stream")
        assert (status, body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")

        assert ask(url, path=f"/tasks/{task}:cancel")[0] == 200
        response.read()
        first.close()
        second = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
        second.request("POST", "/message:stream", json.dumps(SEND), {"Content-Type": "application/json"})
        assert second.getresponse().status == 200
        second.close()
