"""Names of webhooks that are public when they are checked, and lead inside when they are called.

Nothing here connects anywhere: names are resolved by the test, and sockets are noted instead of made.
"""

from __future__ import annotations

import queue
import socket
from functools import partial
from typing import Any

import aiohttp
import httpx2
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from dragoman import Agent
from dragoman.net import aio
from dragoman.net.connector import GuardedConnector
from dragoman.testing import served

PUBLIC, PUBLIC_6 = "8.8.8.8", "2001:4860:4860::8888"
SECONDS = 10
INSIDE = (
    *("127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("169.254.1.1", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fd00::1", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "2002:7f00:1::", "2001:0:7f00:1::"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "fe80::1%lo", "localhost", "2130706433", ""),
)


class Names(AbstractResolver):
    """Each name is public when it is looked up first, and leads to what `later` says from then on."""

    def __init__(self, later: dict[str, list[str]]) -> None:
        self.later = later
        self.known: set[str] = set()
        self.rebound: queue.SimpleQueue[str] = queue.SimpleQueue()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        answer = self.later[host] if host in self.known else [PUBLIC, PUBLIC_6]
        if host in self.known:
            self.rebound.put(host)
        self.known.add(host)
        return [ResolveResult(hostname=host, host=ip, port=1, family=family, proto=0, flags=0) for ip in answer]

    async def close(self) -> None:
        pass


class Sockets:
    """Notes what would have been connected to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def __call__(self, info: Any) -> socket.socket:
        self.asked.append(info[4][:2])
        raise ConnectionRefusedError(111, "not in a test")


def register(server: str, host: str) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    hook = {"url": f"http://{host}:8080/hook"}
    params = {"message": message, "configuration": {"taskPushNotificationConfig": hook}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    answer = httpx2.post(server, json=body, headers={"A2A-Version": "1.0"}, timeout=SECONDS).json()
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_webhook_whose_name_moves_inside_is_never_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    later: dict[str, list[str]] = {}
    for number, inside in enumerate(INSIDE):
        later[f"alone{number}.example"] = [inside]
        later[f"second{number}.example"] = [PUBLIC, inside]
        later[f"first{number}.example"] = [inside, PUBLIC_6]
    names, sockets = Names(later), Sockets()
    monkeypatch.setattr(aiohttp, "DefaultResolver", lambda: names)
    monkeypatch.setattr(aio, "_open_socket", sockets)
    # A name is looked up again with every try, and the next try comes soon.
    monkeypatch.setattr(aio, "GuardedConnector", partial(GuardedConnector, use_dns_cache=False))
    monkeypatch.setattr("dragoman.webhooks.backoff.FIRST_DELAY", 0.01)
    agent = Agent("echo", description="Says it again")

    @agent.skill
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    with served(agent) as server:
        for host in later:
            register(server, host)
        assert {names.rebound.get(timeout=SECONDS) for _ in later} == set(later)

    assert set(sockets.asked) == {(PUBLIC, 8080), (PUBLIC_6, 8080)}
    # Once each, at the first look-up.
    assert len(sockets.asked) == 2 * len(later)
