"""Remote agents whose address a stranger chose. Nothing here reaches more than 127.0.0.1."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from dragoman.compat.remote import (
    ValidationError,
    clear_agent_card_cache,
    discover_agent,
    fetch_agent_card,
    invoke_remote_agent,
)
from dragoman.net import aio
from dragoman.net.guard import AddressGuard
from dragoman.testing import Clock

PUBLIC = "8.8.8.8"
CARD: dict[str, Any] = {"name": "fox", "version": "1"}
DONE = {"id": "t1", "state": "completed", "messages": []}

# All spellings of all addresses are in tests/unit/net/test_guard.py.
BLOCKED = [
    *("http://localhost:3000", "http://127.0.0.1:3000", "http://10.0.0.1", "http://169.254.169.254", "http://[::1]"),
    *("http://[::ffff:127.0.0.1]", "http://2130706433", "http://0x7f000001", "http://127.1", "http://db.internal"),
    *("ftp://8.8.8.8", "file:///etc/passwd", "javascript:alert(1)", "http://someone:secret@8.8.8.8", "//8.8.8.8", ""),
]


class Names(AbstractResolver):
    """A resolver that gives these answers, one after another, and the last one for ever."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        ip = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [ResolveResult(hostname=host, host=ip, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        pass


class Network:
    """The names there are, and the addresses that were connected to: those that are not here refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names = Names(PUBLIC)
        self.reached: list[str] = []
        # Both that look names up: the one behind a guard, and the one without.
        monkeypatch.setattr(aiohttp, "DefaultResolver", lambda: self.names)
        monkeypatch.setattr(aiohttp.connector, "DefaultResolver", lambda **_: self.names)
        monkeypatch.setattr(aio, "_open_socket", self._socket)

    def _socket(self, info: Any) -> socket.socket:
        family, kind, proto, _, (ip, *_) = info
        self.reached.append(ip)
        if ip != "127.0.0.1":
            raise ConnectionRefusedError(111, "not in a test")
        return socket.socket(family, kind, proto)


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    clear_agent_card_cache()
    yield Network(monkeypatch)
    clear_agent_card_cache()


def port_of(url: str) -> str:
    return url.rpartition(":")[2]


# -- what a URL says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", BLOCKED)
async def test_a_url_that_leads_inside_is_blocked_before_anything_is_looked_up(network: Network, url: str) -> None:
    with pytest.raises(ValidationError, match=r"^Blocked URL: "):
        await fetch_agent_card(url, guard=True)
    assert await discover_agent(url, guard=True) is None
    result = await invoke_remote_agent(url, "hi", guard=True)
    assert (result.success, result.task_id, result.response_text) == (False, "", None)
    assert (result.error or "").startswith("Blocked URL: ")
    assert (network.names.asked, network.reached) == ([], [])


async def test_the_text_names_what_is_wrong_and_no_password() -> None:
    with pytest.raises(ValidationError) as caught:
        await fetch_agent_card("http://10.0.0.1:80", guard=True)
    assert str(caught.value) == (
        "Blocked URL: 10.0.0.1 is a private address: "
        "no request goes there unless it is allowed with the guard's allow 10.0.0.1"
    )
    assert caught.value.reason == "VALIDATION_ERROR"
    result = await invoke_remote_agent("http://someone:secret@10.0.0.1", "hi", guard=True)
    assert "secret" not in (result.error or "")


async def test_a_public_agent_is_called(network: Network) -> None:
    result = await invoke_remote_agent("http://agent.example.com", "hi", guard=True)
    assert (result.error or "").startswith("Submit failed: nobody answers at")
    assert (network.names.asked, network.reached) == (["agent.example.com"], [PUBLIC])


@pytest.mark.parametrize("guard", [None, False])
async def test_without_a_guard_this_machine_is_called(stub: Any, guard: bool | None) -> None:
    server = await stub(lambda seen: CARD if "well-known" in seen.path else DONE)
    assert await fetch_agent_card(server.url, guard=guard) == CARD
    assert (await invoke_remote_agent(server.url, "hi", guard=guard)).success


async def test_a_custom_guard_allows_what_it_lists(stub: Any) -> None:
    server = await stub(lambda seen: CARD if "well-known" in seen.path else DONE)
    guard = AddressGuard(["127.0.0.1"])
    assert await fetch_agent_card(server.url, guard=guard) == CARD
    assert (await invoke_remote_agent(server.url, "hi", guard=guard)).success
    assert server.paths == ["GET /.well-known/agent-card.json", "POST /a2a/tasks/send", "GET /a2a/tasks/t1"]
    with pytest.raises(ValidationError, match=r"^Blocked URL: 127\.0\.0\.2"):
        await fetch_agent_card("http://127.0.0.2", guard=guard)


# -- what is connected to ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1"])
async def test_a_name_that_leads_inside_is_blocked_when_it_is_connected_to(network: Network, inside: str) -> None:
    network.names = Names(inside)
    with pytest.raises(ValidationError, match=r"^Blocked URL: rebinding\.example is ") as caught:
        await fetch_agent_card("http://rebinding.example", guard=True)
    assert inside not in str(caught.value), "a stranger learns no address that it did not write"
    result = await invoke_remote_agent("http://rebinding.example", "hi", guard=True)
    assert (result.error or "").startswith("Blocked URL: rebinding.example is ")
    assert network.reached == []


class Hurried(Clock):
    """Lets the pauses between two looks pass at once."""

    def call_later(self, seconds: float, callback: Any) -> Any:
        timer = super().call_later(seconds, callback)
        if seconds == 3:
            self.move(seconds)
        return timer


async def test_a_name_that_moves_inside_while_a_task_is_looked_after_is_not_followed_there(
    stub: Any, network: Network
) -> None:
    server = await stub(lambda _: DONE)
    network.names = Names("127.0.0.1", "10.0.0.1", "127.0.0.2", "127.0.0.1")
    url = f"http://rebinding.example:{port_of(server.url)}"
    result = await invoke_remote_agent(url, "hi", guard=AddressGuard(["127.0.0.1"]), clock=Hurried())
    assert result.success
    assert server.paths == ["POST /a2a/tasks/send", "GET /a2a/tasks/t1"]
    assert (len(network.names.asked), network.reached) == (4, ["127.0.0.1", "127.0.0.1"])


async def test_a_card_that_was_fetched_without_a_guard_is_not_for_those_who_have_one(
    stub: Any, network: Network
) -> None:
    server = await stub(lambda _: CARD)
    network.names = Names("127.0.0.1")
    url = f"http://agent.example.com:{port_of(server.url)}"
    assert await fetch_agent_card(url) == CARD
    with pytest.raises(ValidationError, match=r"^Blocked URL: "):
        await fetch_agent_card(url, guard=True)
    with pytest.raises(ValidationError, match=r"^Blocked URL: "):
        await fetch_agent_card(server.url, guard=True)
    assert len(server.seen) == 1


async def test_a_card_that_a_guard_let_through_is_kept_for_that_guard(stub: Any) -> None:
    server, guard, clock = await stub(lambda _: CARD), AddressGuard(["127.0.0.1"]), Clock()
    for _ in range(2):
        assert await fetch_agent_card(server.url, guard=guard, clock=clock) == CARD
    assert len(server.seen) == 1


# -- redirects and proxies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", [None, AddressGuard(["127.0.0.1"])])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_not_followed(stub: Any, guard: AddressGuard | None, status: int) -> None:
    other = await stub(lambda _: CARD)
    server = await stub(lambda _: (b"", status, {"Location": other.url}))
    assert await discover_agent(server.url, guard=guard) is None
    result = await invoke_remote_agent(server.url, "hi", guard=guard)
    assert (result.error or "").startswith(f"Submit failed: HTTP {status} ")
    assert (len(server.seen), other.seen) == (2, [])


async def test_the_proxy_of_the_environment_cannot_be_used_to_get_inside(
    stub: Any, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await stub(lambda _: CARD)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy.url)
    network.names = Names("10.0.0.1")
    with pytest.raises(ValidationError, match=r"^Blocked URL: "):
        await fetch_agent_card("http://agent.example.com", guard=True)
    assert proxy.seen == []
