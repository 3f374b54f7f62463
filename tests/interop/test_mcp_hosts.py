"""An MCP host, our MCP server, and behind it the servers of foreign SDKs: they play the script of peers/script.py."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import jsonschema
import mcp_types as types
import pytest
from interop.field import PEERS, Peer
from interop.peers import script
from mcp import Client

from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer

CHOSEN = [peer for peer in PEERS if peer.folder in ("a2a-sdk", "a2a-sdk-03")]
RECORD = {"agent_id", "name", "base_url", "status", "card", "auth_mode", "last_seen_at", "created_at", "source"}
CARD = {"name", "description", "url", "version", "protocolVersion", "capabilities", "skills"}
CAPABILITIES = {"streaming", "pushNotifications", "stateTransitionHistory"}

pytestmark = [
    pytest.mark.interop,
    pytest.mark.parametrize("peer", CHOSEN, ids=str),
    pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["modern", "handshake"]),
]

Json = dict[str, Any]
Url = Callable[[Peer], str]


class Host:
    """An MCP host that knows one agent."""

    def __init__(self, client: Client, schemas: dict[str, Json]) -> None:
        self.client = client
        self.agent_id = ""
        self._schemas = schemas

    async def ok(self, tool: str, **arguments: Any) -> Json:
        """Call a tool that works."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return self.shown(tool, result)

    def shown(self, tool: str, result: types.CallToolResult) -> Json:
        """The structured result, as its schema has it, and the same as text."""
        shown = result.structured_content
        assert shown is not None
        jsonschema.validate(shown, self._schemas[tool])
        text = json.loads(result.content[0].text)  # pyright: ignore[reportAttributeAccessIssue]
        assert text == (shown["tasks"] if tool == "list_tasks" else shown)
        return shown

    async def send(self, text: str, **more: Any) -> Json:
        """Send a message that does not fail."""
        return await self.ok("send_message", agent_id=self.agent_id, text=text, **more)


@asynccontextmanager
async def host_of(url: str, mode: str, **options: Any) -> AsyncIterator[Host]:
    async with McpServer(McpOptions()) as mine, Client(mine.server, mode=mode, **options) as client:
        listed = await client.list_tools()
        host = Host(client, {tool.name: tool.output_schema or {} for tool in listed.tools})
        host.agent_id = (await host.ok("resolve_agent_card", base_url=url))["agent_id"]
        yield host


@pytest.mark.smoke
@pytest.mark.requirement("S4-6", "S4-7", "S4-11", "S4-16", "S4-22", "S4-55")
async def test_the_card_of_a_foreign_server_has_the_documented_keys(server_of: Url, peer: Peer, mode: str) -> None:
    url = server_of(peer)
    async with host_of(url, mode) as host:
        record = await host.ok("resolve_agent_card", base_url=url)
        assert set(record) == RECORD
        assert set(record["card"]) == CARD
        assert set(record["card"]["capabilities"]) == CAPABILITIES
        assert (record["name"], record["status"], record["auth_mode"]) == (script.NAME, "connected", None)
        assert record["card"]["capabilities"]["streaming"] is True
        checked = await host.ok("validate_agent_card", base_url=url)
        assert (checked["version_valid"], checked["skill_count"]) == (True, len(record["card"]["skills"]))
        extended = await host.ok("get_extended_agent_card", agent_id=host.agent_id)
        assert {key: value for key, value in extended.items() if key != "card"} == {
            key: value for key, value in record.items() if key != "card"
        }
        assert extended["card"]["name"] in (script.NAME, script.EXTENDED_NAME)


@pytest.mark.requirement("S4-27", "S4-29", "S4-30", "S4-40", "S4-59")
async def test_a_message_comes_back_as_a_task_with_artifacts(server_of: Url, peer: Peer, mode: str) -> None:
    async with host_of(server_of(peer), mode) as host:
        task = await host.send("echo hello there")
        assert (task["status"]["state"], task["text"]) == ("completed", "hello there")
        assert [part for artifact in task["artifacts"] for part in artifact["parts"]] == [
            {"kind": "text", "text": "hello there"}
        ]
        again = await host.ok("get_task", task_id=task["id"])
        assert (again["id"], again["status"]["state"], again["text"]) == (task["id"], "completed", "hello there")
        assert again["history"][0]["role"] == "user"
        assert "next_step" not in again


@pytest.mark.requirement("S4-60")
async def test_a_question_is_a_hint_or_is_put_to_the_user(server_of: Url, peer: Peer, mode: str) -> None:
    url = server_of(peer)
    async with host_of(url, mode) as host:
        asked = await host.send("ask")
        assert (asked["status"]["state"], asked["question"]) == ("input_required", script.QUESTION)
        done = await host.send("Ada", task_id=asked["id"])
        assert (done["id"], done["status"]["state"], done["text"]) == (asked["id"], "completed", script.greeting("Ada"))

    questions: list[str] = []

    async def user(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "Bob"})

    async with host_of(url, mode, elicitation_callback=user) as host:
        assert (await host.send("ask"))["text"] == script.greeting("Bob")
        assert [each.partition(" asks: ")[2] for each in questions] == [script.QUESTION]


async def test_data_and_files_come_through(server_of: Url, peer: Peer, mode: str) -> None:
    async with host_of(server_of(peer), mode) as host:
        [data] = [part["data"] for artifact in (await host.send("data"))["artifacts"] for part in artifact["parts"]]
        assert data == script.DATA
        result = await host.client.call_tool("send_message", {"agent_id": host.agent_id, "text": "file"})
        [held] = [each for each in result.content if isinstance(each, types.EmbeddedResource)]
        assert re.match(r"a2a://agent_\w+/", str(held.resource.uri))
        [file] = [part["file"] for each in host.shown("send_message", result)["artifacts"] for part in each["parts"]]
        assert (file["name"], file["size"]) == (script.FILE_NAME, len(script.FILE))
