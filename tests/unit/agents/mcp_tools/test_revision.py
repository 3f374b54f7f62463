"""Which protocol revision is spoken with an MCP server, and the tools for which the newest is too new."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp.server import MCPServer

from dragoman import Agent, State
from dragoman.agents.mcp_tools.task import QUESTION_LOST
from dragoman.model.error import ConfigError
from dragoman.testing import served

Start = Callable[..., Awaitable[Any]]
Command = Callable[..., list[str]]
Until = Callable[[Callable[[], object]], Awaitable[None]]
OLD, NEW = "2025-11-25", "2026-07-28"
CANNOT_ASK = f"`inquire` asks in a way that MCP revision {NEW} does not have: it may have done a part of its work. "
OPTION = f"`--mcp-revision {OLD}`, or Agent.from_mcp(…, revision=…)"


def spoken(agent: Any) -> str:
    return agent.tools._supervisors[0].connection.client.protocol_version


def is_running(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture(params=["object", "stdio", "http"])
def asking(request: pytest.FixtureRequest, kit: MCPServer, sdk_command: list[str], sdk_server: ModuleType) -> Any:
    """A server of both eras with a tool that asks within its call, over all transports."""
    if request.param == "http":
        with served(sdk_server.web_app(kit, "both")) as url:
            yield f"{url}/mcp"
    else:
        yield kit if request.param == "object" else sdk_command


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_call_that_cannot_ask_fails_and_names_the_option_and_the_next_one_asks(
    asking: Any, wrapped: bool, start: Start, tool_part: Any, tmp_path: Path
) -> None:
    agent: Any = Agent.from_mcp(asking)
    engine = await start(agent)
    assert spoken(agent) == NEW
    server = agent.name
    call = tool_part("inquire", label="x", wrapped=wrapped)
    task = await engine.send(None, parts=(call,))
    assert (task.state, task.error) == (
        State.FAILED,
        f"{CANNOT_ASK}Call it again: `{server}` is called with revision {OLD} from now on. "
        f"To use that from the start, set {OPTION}",
    )
    # At most once: what has been begun is not begun again without being asked.
    assert len((tmp_path / "asked").read_text()) == 1
    task = await engine.send(None, parts=(call,))
    assert (task.state, task.question) == (State.INPUT_REQUIRED, "Who is x?\n- `name` (string)")
    assert spoken(agent) == OLD
    assert (await engine.send("Ada", task=task)).text == "x: accept name='Ada'"
    other = await engine.send(None, parts=(tool_part("echo", text="as before"),))
    assert (other.state, other.text) == (State.COMPLETED, "as before")


async def test_with_the_revision_set_the_first_call_asks(asking: Any, start: Start, tool_part: Any) -> None:
    agent = Agent.from_mcp(asking, revision=OLD)
    engine = await start(agent)
    assert spoken(agent) == OLD
    task = await engine.send(None, parts=(tool_part("inquire", label="x"),))
    assert (await engine.send("Ada", task=task)).text == "x: accept name='Ada'"


async def test_a_revision_that_was_set_stays(kit: MCPServer, start: Start, tool_part: Any) -> None:
    agent = Agent.from_mcp(kit, revision=NEW)
    engine = await start(agent)
    for _ in range(2):
        task = await engine.send(None, parts=(tool_part("inquire"),))
        assert (task.state, task.error) == (State.FAILED, f"{CANNOT_ASK}To let it ask, use {OPTION}")
    assert spoken(agent) == NEW


class ModernOnly:
    """An MCP server over HTTP that knows the newest revision only."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or (b"mcp-protocol-version", NEW.encode()) in scope["headers"]:
            await self._app(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})


async def test_a_server_that_has_no_older_revision_stays_in_use(
    kit: MCPServer, sdk_server: ModuleType, start: Start, tool_part: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with served(ModernOnly(sdk_server.web_app(kit, "both"))) as url:
        agent = Agent.from_mcp(f"{url}/mcp")
        engine = await start(agent)
        await engine.send(None, parts=(tool_part("inquire"),))
        assert (await engine.send(None, parts=(tool_part("echo", text="still here"),))).text == "still here"
        assert "it has no older protocol revision" in caplog.text
        task = await engine.send(None, parts=(tool_part("inquire"),))
        assert task.error == f"{CANNOT_ASK}To let it ask, use {OPTION}"
        assert spoken(agent) == NEW


async def test_calls_in_progress_end_where_they_began_when_the_revision_changes(
    sdk_command: list[str], start: Start, tool_part: Any, tmp_path: Path, until: Until
) -> None:
    engine = await start(Agent.from_mcp(sdk_command))
    first = (await engine.send(None, parts=(tool_part("pid"),))).text
    os.mkfifo(tmp_path / "pipe")
    held = engine.sending(None, parts=(tool_part("held"),))
    await until((tmp_path / "begun").exists)
    await engine.send(None, parts=(tool_part("inquire"),))
    second = (await engine.send(None, parts=(tool_part("pid"),))).text
    assert second != first
    assert is_running(first)
    await asyncio.to_thread((tmp_path / "pipe").write_bytes, b"go on")
    assert (await held).text == f"held by {first}"
    await until(lambda: not is_running(first))
    assert is_running(second)


async def test_a_question_of_the_newest_revision_is_gone_when_an_older_one_is_spoken(
    kit: MCPServer, start: Start, tool_part: Any
) -> None:
    engine = await start(Agent.from_mcp(kit))
    waiting = await engine.send(None, parts=(tool_part("introduce"),))
    assert waiting.state is State.INPUT_REQUIRED
    await engine.send(None, parts=(tool_part("inquire"),))
    task = await engine.send("Ada", task=waiting)
    assert (task.state, task.error) == (State.FAILED, QUESTION_LOST)


async def test_a_server_without_the_revision_that_was_set_cannot_be_used(start: Start, handshake: Command) -> None:
    with pytest.raises(ConfigError, match=f"the MCP server `handshake_server` speaks revision {OLD}, and not {NEW}"):
        await start(Agent.from_mcp(handshake(), revision=NEW))


@pytest.mark.parametrize("revision", ["", "2025-06-18", "latest"])
def test_a_revision_that_cannot_be_chosen_is_refused(revision: str) -> None:
    with pytest.raises(
        ConfigError, match=f"there is no MCP revision '{revision}' to choose: there are {OLD} and {NEW}"
    ):
        Agent.from_mcp("server", revision=revision)
