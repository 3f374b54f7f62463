"""The two simple tools: look at an agent, and have it do something."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client

from dragoman import Agent, Context, Failed
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.net.sockets import SocketClient
from dragoman.testing import served

DISCOVER, INVOKE = "corvid_discover_agent", "corvid_invoke_remote_agent"


def clerk() -> Agent:
    agent = Agent("clerk", description="Does as told")

    @agent.skill
    async def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    @agent.skill
    async def work(ctx: Context, text: str) -> AsyncIterator[str]:
        """Work."""
        if text == "fail":
            raise Failed("no paper")
        if text == "ask":
            await ctx.ask("Which form?")
        if text == "long":
            await asyncio.Event().wait()
        yield f"done: {text}"

    return agent


@pytest.fixture
def url() -> Iterator[str]:
    with served(clerk()) as url:
        yield url


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address a request was made for. Beyond this machine nobody gets."""
    urls: list[str] = []
    send = SocketClient.send

    async def noted(self: SocketClient, request: Any) -> Any:
        urls.append(request.url)
        assert request.url.startswith("http://127.0.0.1:")
        return await send(self, request)

    monkeypatch.setattr(SocketClient, "send", noted)
    return urls


@asynccontextmanager
async def hosted(era: str = "auto", **options: Any) -> AsyncIterator[Client]:
    async with (
        McpServer(McpOptions(simple_tools=True, **options)) as mine,
        Client(mine.server, mode=era) as client,
    ):
        await client.list_tools()  # their results are checked against the schemas from now on
        yield client


async def called(client: Client, tool: str, **arguments: Any) -> tuple[dict[str, Any], bool]:
    result = await client.call_tool(tool, arguments)
    (block,) = result.content
    assert block.type == "text"
    assert json.loads(block.text) == result.structured_content
    assert result.structured_content is not None
    return result.structured_content, bool(result.is_error)


@pytest.mark.requirement("S3-62")
async def test_the_two_tools_are_there_when_they_are_wanted() -> None:
    async with McpServer(McpOptions()) as mine, Client(mine.server) as client:
        plain = [tool.name for tool in (await client.list_tools()).tools]
    async with hosted() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == [*plain, DISCOVER, INVOKE]
    assert set(tools[DISCOVER].input_schema["properties"]) == {"url"}
    assert set(tools[INVOKE].input_schema["properties"]) == {"agent_url", "message", "skill", "timeout_minutes"}
    assert tools[INVOKE].input_schema["required"] == ["agent_url", "message"]


@pytest.mark.requirement("S3-62")
async def test_an_agent_is_discovered_by_its_address(era: str, url: str) -> None:
    async with hosted(era) as client:
        card, failed = await called(client, DISCOVER, url=url)
        assert not failed
        assert (card["name"], card["description"]) == ("clerk", "Does as told")
        assert card["url"].startswith(url)
        assert [skill["id"] for skill in card["skills"]] == ["shout", "work"]
        agents = await client.call_tool("list_remote_agents", {})
        assert agents.structured_content["agents"] == []


@pytest.mark.requirement("S3-62")
async def test_an_agent_is_invoked_with_a_message_and_a_skill(era: str, url: str) -> None:
    async with hosted(era) as client:
        outcome, failed = await called(client, INVOKE, agent_url=url, message="hello", skill="shout")
        assert not failed
        assert (outcome["success"], outcome["state"], outcome["response_text"]) == (True, "completed", "HELLO")
        assert "error" not in outcome
        task = await client.call_tool("get_task", {"task_id": outcome["task_id"]})
        assert task.structured_content is not None
        assert task.structured_content["status"]["state"] == "completed"


@pytest.mark.parametrize(
    ("message", "state", "error"),
    [("fail", "failed", "no paper"), ("ask", "input_required", "The agent asks: Which form?")],
)
async def test_a_task_that_does_not_complete_is_no_success(url: str, message: str, state: str, error: str) -> None:
    async with hosted() as client:
        outcome, failed = await called(client, INVOKE, agent_url=url, message=message, skill="work")
        assert failed
        assert (outcome["success"], outcome["state"], outcome["error"]) == (False, state, error)
        assert outcome["task_id"]


async def test_a_task_that_takes_too_long_goes_on_by_itself(url: str) -> None:
    async with hosted() as client:
        outcome, failed = await called(
            client, INVOKE, agent_url=url, message="long", skill="work", timeout_minutes=0.01
        )
        assert failed
        assert (outcome["success"], outcome["error"]) == (False, "Timed out after 600ms")
        task = await client.call_tool("get_task", {"task_id": outcome["task_id"]})
        assert task.structured_content is not None
        assert task.structured_content["status"]["state"] == "working"


async def test_an_agent_that_is_gone_is_no_success() -> None:
    async with hosted(reconnect=0.5) as client:
        with served(clerk()) as url:
            await called(client, INVOKE, agent_url=url, message="hello", skill="shout")
        outcome, failed = await called(client, INVOKE, agent_url=url, message="hello")
        assert failed
        assert outcome == {"success": False, "task_id": "", "state": "", "error": "Request failed: connection refused"}
        result = await client.call_tool(DISCOVER, {"url": url})
        assert result.is_error
        assert result.content[0].type == "text"
        assert "connection refused" in result.content[0].text


@pytest.mark.parametrize(("tool", "name"), [(DISCOVER, "url"), (INVOKE, "agent_url")])
async def test_what_may_not_be_reached_is_not(tool: str, name: str) -> None:
    async with hosted() as client:
        arguments = {name: "https://agents.example.com", **({"message": "hi"} if tool == INVOKE else {})}
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert result.content[0].type == "text"
        assert "agents.example.com may not be called" in result.content[0].text


@pytest.mark.parametrize("status", [302, 307])
async def test_an_agent_cannot_send_the_tools_elsewhere(reached: list[str], status: int) -> None:
    async def away(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = [(b"location", b"http://169.254.169.254/latest/meta-data/"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    with served(away) as url:
        async with hosted() as client:
            for tool, arguments in ((DISCOVER, {"url": url}), (INVOKE, {"agent_url": url, "message": "hi"})):
                result = await client.call_tool(tool, arguments)
                assert result.is_error
    assert reached
    assert all(each.startswith(f"{url}/") for each in reached)


@pytest.mark.parametrize("minutes", [0, -1, 100_000])
async def test_a_time_that_makes_no_sense_is_refused(url: str, minutes: float) -> None:
    async with hosted() as client:
        result = await client.call_tool(INVOKE, {"agent_url": url, "message": "hi", "timeout_minutes": minutes})
        assert result.is_error
        assert result.content[0].type == "text"
        assert "timeout_minutes" in result.content[0].text
