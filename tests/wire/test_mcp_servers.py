"""Two real MCP servers behind A2A, over several wires. All others are in tests/interop, which lends the tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop import mcp_sides as sides
from interop.mcp_results import of_task
from interop.mcp_servers import everything, time_server
from interop.mcp_servers.server import McpServer

from dragoman import State, Task

WIRES = [("jsonrpc", "1.0"), ("rest", "1.0"), ("jsonrpc", "0.3")]


def present(server: McpServer) -> McpServer:
    if server.missing:
        pytest.skip(server.missing)
    return server


@pytest.mark.requirement("S0-2", "S3-36")
@pytest.mark.parametrize(("transport", "protocol"), WIRES)
async def test_every_tool_of_server_everything_gives_the_same_through_a2a(
    transport: str, protocol: str, tmp_path: Path
) -> None:
    server = present(everything.SERVER)
    different = await sides.differences(server, tmp_path / "here", transport=transport, protocol=protocol)
    assert not different, "\n".join(different)


async def test_every_tool_of_mcp_server_time_gives_the_same_through_a2a(tmp_path: Path) -> None:
    different = await sides.differences(present(time_server.SERVER), tmp_path / "here")
    assert not different, "\n".join(different)


async def test_what_a_real_tool_lacks_is_asked_for(tmp_path: Path) -> None:
    server, here = present(time_server.SERVER), tmp_path / "here"
    step = next(step for step in server.steps(here) if step.tool == "convert_time")
    known = {key: value for key, value in step.arguments.items() if key != "target_timezone"}
    async with sides.bridged(server, here) as side:
        asked = await side.client.send(tool=step.tool, arguments=known)
        assert isinstance(asked, Task)
        assert asked.state is State.INPUT_REQUIRED
        assert "target_timezone" in (asked.question or "")
        answered = await side.client.send(step.arguments["target_timezone"], task=asked)
        assert isinstance(answered, Task)
        whole = await side.call(step)
    assert of_task(answered).seen(step.view) == whole.seen(step.view)
    assert whole.state == "completed"
