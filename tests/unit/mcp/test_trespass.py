"""Agents that would take another's place, credentials or time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.mcp import peers
from dragoman.mcp.peers import AddressPolicy, OriginGuard
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.mcp.tools.tool import ToolError
from dragoman.model.error import CannotConnect
from dragoman.net.exchange import HttpRequest
from dragoman.server.config.remotes import Remote
from dragoman.testing import served

NEW = "/.well-known/agent-card.json"
DONE = {"id": "1", "status": {"state": "completed"}}


async def test_nobody_takes_the_place_of_an_agent_by_calling_itself_like_its_address(
    hosted: Any, foreign: Any, other: Any
) -> None:
    foreign.offers(foreign.url, name=other.url)
    foreign.answers["message/send"] = other.answers["message/send"] = DONE
    async with hosted(remotes={"bank": Remote(name="bank", url=other.url)}) as host:
        await host.agent(foreign.url)
        for agent_id in ("bank", other.url, f" {other.url}/", other.url.replace("http", "HTTP")):
            await host.ok("send_message", agent_id=agent_id, text="my password")
        assert (foreign.bodies, len(other.bodies)) == ([], 4)


@pytest.mark.parametrize(
    ("agent", "url", "may"),
    [
        ("http://agents.example", "http://agents.example/rpc", True),
        ("http://agents.example", "https://agents.example/rpc", False),
        ("http://agents.example", "http://agents.example:8080/rpc", False),
        ("http://agents.example", "http://agents.example:9000/rpc", True),
        ("http://agents.example", "http://any.example:1/", True),
        ("http://agents.example", "http://127.0.0.1:8080/admin", False),
        ("http://agents.example", "http://localhost/", False),
        ("http://agents.example", "http://[::1]/", False),
        ("http://agents.example", "grpc://agents.example:50051/a.B/C", True),
        ("https://agents.example", "grpcs://agents.example:50051/a.B/C", True),
        ("https://agents.example", "grpc://agents.example:50051/a.B/C", False),
        ("http://agents.example", "grpc://others.example:50051/a.B/C", False),
        ("http://127.0.0.1:1", "http://localhost:2/", True),
        ("http://127.0.0.1:1", "http://agents.example:8080/", False),
    ],
)
async def test_a_card_leads_to_its_own_origin_and_to_what_is_allowed(agent: str, url: str, may: bool) -> None:
    guard = OriginGuard(
        agent, AddressPolicy(["http://127.0.0.1:8080"], ["agents.example:80", "agents.example:9000", "any.example"])
    )
    passed: list[str] = []

    async def call_next(request: HttpRequest) -> Any:
        passed.append(request.url)

    try:
        await guard(HttpRequest("POST", url), call_next)
    except CannotConnect as error:
        assert "the agent's card sends us elsewhere" in str(error)
    assert passed == ([url] if may else [])


def test_names_under_localhost_are_not_this_machine() -> None:
    reach = AddressPolicy((), ())
    for host in ("metadata.localhost", "localhost.localdomain", "a.localhost:80"):
        with pytest.raises(ToolError, match="may not be called"):
            reach.check(f"http://{host}/")
    assert reach.check("http://localhost:80/") == "http://localhost:80/"


@pytest.mark.parametrize(
    ("path", "token"),
    [
        ("/a", "TOKEN-A"),
        ("/b", "TOKEN-B"),
        (f"/b{NEW}", "TOKEN-B"),
        ("/b?x", "TOKEN-B"),
        ("/b/deeper", "TOKEN-B"),
        ("/b/c/d", "TOKEN-C"),
        ("/well", "TOKEN-WELL"),
        ("/bb", None),
        ("/b/../a", None),
        ("/b/%2e%2e/a", None),
        ("/stranger", None),
        ("", None),
    ],
)
async def test_a_token_goes_to_the_agent_it_is_for_and_to_no_neighbor(
    foreign: Any, path: str, token: str | None
) -> None:
    places = {"a": "/a", "b": "/b", "c": "/b/c", "well": f"/well{NEW}"}
    remotes = {name: Remote(name=name, url=foreign.url + place) for name, place in places.items()}
    tokens = {name: f"TOKEN-{name.upper()}" for name in places}
    base = path.partition("?")[0].removesuffix(NEW)
    foreign.offers(foreign.url, f"{base}{NEW}", "/a" + NEW, "/b/../a" + NEW, protocolVersion="0.3.0")
    foreign.answers["message/send"] = DONE
    async with McpServer(McpOptions(remotes=remotes, tokens=tokens)) as mine:
        record = await mine.context.peers.resolve(foreign.url + path)
        assert record.auth_mode == ("bearer" if token else None)
        await mine.context.peers.client(record).send("hi", wait=False)
    credential = foreign.headers[-1].get("authorization")
    assert credential == (f"Bearer {token}" if token else None)


async def test_a_card_that_never_ends_is_a_timeout(hosted: Any) -> None:
    async def endless(scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] == "http":
            await receive()
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"{", "more_body": True})
            await receive()  # until the caller goes

    with served(endless) as url:
        # Long before a connection that says nothing is given up.
        async with hosted(answer_seconds=0.3) as host, asyncio.timeout(10):
            message = await host.error("resolve_agent_card", base_url=url)
    assert message == "Failed to resolve agent card: timeout"


async def test_a_card_that_begins_with_a_byte_order_mark_is_read(hosted: Any, foreign: Any) -> None:
    foreign.cards[NEW] = b"\xef\xbb\xbf" + json.dumps(foreign.cards[NEW]).encode()
    async with hosted() as host:
        assert (await host.ok("resolve_agent_card", base_url=foreign.url))["name"] == "By hand"
        assert (await host.ok("validate_agent_card", base_url=foreign.url))["name"] == "By hand"


async def test_of_an_agent_that_changes_its_card_again_and_again_few_clients_are_kept(foreign: Any) -> None:
    foreign.answers["message/send"] = DONE
    async with McpServer(McpOptions()) as mine:
        for number in range(10):
            foreign.offers(foreign.url, version=str(number))
            record = await mine.context.peers.resolve(foreign.url)
            await mine.context.peers.client(record).send("hi", wait=False)
        kept = mine.context.peers._retired  # pyright: ignore[reportPrivateUsage]
        assert [len(each) for each in kept.values()] == [peers._MAX_RETIRED]  # pyright: ignore[reportPrivateUsage]
