"""Hosts of both eras, in this process, and agents for them on real ports."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client
from unit.mcp import foreign_agent

from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.testing import served

HERE = Path(__file__).parent
Json = dict[str, Any]


class Host:
    """An MCP host with our server in its own process."""

    def __init__(self, server: McpServer, client: Client) -> None:
        self.server = server
        self.client = client
        self._outputs: dict[str, Json] = {}

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool."""
        return await self.client.call_tool(tool, arguments)

    async def ok(self, tool: str, **arguments: Any) -> Json:
        """Call a tool that works; what it gives is the same as text, and as its schema says."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.content[0].text
        return await self.shown(tool, result)

    async def shown(self, tool: str, result: Any) -> Json:
        """The structured result, after a look whether the text and the schema agree with it."""
        if not self._outputs:
            listed = await self.client.list_tools()
            self._outputs = {each.name: each.output_schema or {} for each in listed.tools}
        shown: Json = result.structured_content
        jsonschema.validate(shown, self._outputs[tool])
        plain = {"list_remote_agents": "agents", "list_tasks": "tasks"}.get(tool)
        assert json.loads(result.content[0].text) == (shown[plain] if plain else shown)
        return shown

    async def error(self, tool: str, **arguments: Any) -> str:
        """Call a tool that fails, and give what it says."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result.content
        assert len(result.content) == 1
        return result.content[0].text

    async def agent(self, url: str) -> str:
        """Register an agent and give its id."""
        return (await self.ok("resolve_agent_card", base_url=url))["agent_id"]


Hosted = Callable[..., AbstractAsyncContextManager[Host]]


@pytest.fixture(params=["auto", "legacy"], ids=["modern", "handshake"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both eras."""
    return request.param


@pytest.fixture
def hosted(mode: str) -> Hosted:
    """`async with hosted(wait_seconds=1) as host`: options of the server, and with `host_` before them of the host."""

    @asynccontextmanager
    async def host(**options: Any) -> AsyncIterator[Host]:
        own = {name.removeprefix("host_"): options.pop(name) for name in list(options) if name.startswith("host_")}
        async with McpServer(McpOptions(**options)) as server, Client(server.server, mode=mode, **own) as client:
            yield Host(server, client)

    return host


@pytest.fixture
def foreign() -> Iterator[Any]:
    """An agent written by hand, served; its `url` is where."""
    agent = foreign_agent.ForeignAgent()
    with served(agent) as url:
        agent.url = url
        agent.offers(url)
        yield agent


@pytest.fixture
def other() -> Iterator[Any]:
    """One more of them, for tests with two."""
    agent = foreign_agent.ForeignAgent()
    with served(agent) as url:
        agent.url = url
        agent.offers(url)
        yield agent
