"""MCP servers that nobody here wrote: whatever their tools do, A2A tells it as MCP does."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from interop import mcp_sides as sides
from interop.mcp_results import Outcome, of_task, of_waiting
from interop.mcp_servers.everything import LONG, OVER_HTTP, URL, URL_ARGUMENTS
from interop.mcp_servers.everything import SERVER as EVERYTHING
from interop.mcp_servers.field import SERVERS
from interop.mcp_servers.server import McpServer
from interop.mcp_servers.shell_server import SERVER as SHELL
from interop.mcp_servers.step import Answer, Step
from mcp import MCPError
from support.processes import command_of, descendants, parent_of, until_ended

from dragoman import State, Task
from dragoman.model.event import StatusUpdate

pytestmark = pytest.mark.interop

ALL = pytest.mark.parametrize("server", SERVERS, ids=str)
BOTH = pytest.mark.parametrize("server", [EVERYTHING, OVER_HTTP], ids=str)


@pytest.fixture(autouse=True)
def _is_there(request: pytest.FixtureRequest) -> None:
    server = request.node.callspec.params["server"]
    if server.missing:
        pytest.skip(server.missing)


@pytest.mark.smoke
@ALL
async def test_every_tool_gives_the_same_through_a2a(
    server: McpServer, tmp_path: Path, record_mcp: Callable[[McpServer, int, int], None]
) -> None:
    here = tmp_path / "here"
    different = await sides.differences(server, here)
    assert not different, "\n".join(different)
    steps = server.steps(here)
    record_mcp(server, len({step.tool for step in steps}), len(steps))


@BOTH
async def test_progress_of_a_tool_arrives_while_it_works(server: McpServer, tmp_path: Path) -> None:
    arguments = {"duration": 1.5, "steps": 5}
    expected: list[tuple[float, float | None]] = []

    async def moved(done: float, total: float | None, message: str | None) -> None:
        expected.append((done, total))

    async with sides.direct(server, tmp_path / "here") as side:
        await side.client.call_tool(LONG, arguments, progress_callback=moved)
    async with sides.bridged(server, tmp_path / "here") as side:
        stream = side.client.stream(tool=LONG, arguments=arguments)
        updates = [event.raw async for event in stream if isinstance(event.raw, StatusUpdate)]
    measures = [update.metadata for update in updates if update.metadata and "done" in update.metadata]
    reports = [(each["done"], each["total"]) for each in measures]
    # What comes too fast on a busy machine is left out; the order and the first of it never are.
    assert reports == [each for each in expected if each in reports]
    assert reports[0] == expected[0]
    assert len(reports) > 1
    assert stream.task.state is State.COMPLETED


@BOTH
async def test_an_error_that_demands_a_visit_is_a_question_and_then_the_call_is_made_again(
    server: McpServer, tmp_path: Path
) -> None:
    step = Step(URL, {**URL_ARGUMENTS, "errorPath": True}, answers=(Answer("accept"),))
    async with sides.direct(server, tmp_path / "here") as side:
        with pytest.raises(MCPError) as refusal:
            await side.client.call_tool(URL, step.arguments)
        visit = refusal.value.error.data["elicitations"][0]
        expected = await side.call(step)
    async with sides.bridged(server, tmp_path / "here") as side:
        first = await side.client.send(tool=URL, arguments=step.arguments)
        assert isinstance(first, Task)
        assert of_waiting(first) == ("url", visit["message"], visit["url"])
        second = await side.client.send("done", task=first)
        assert isinstance(second, Task)
        assert [of_waiting(second)] == expected.questions
        last = await side.client.send("done", task=second)
        assert isinstance(last, Task)
    assert of_task(last) == Outcome(expected.state, expected.parts)


# -- cancel ------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize("server", [SHELL], ids=str)
async def test_a_cancel_ends_the_program_that_the_tool_has_started(server: McpServer, tmp_path: Path) -> None:
    async with sides.bridged(server, tmp_path / "here") as side:
        arguments = {"command": ["sleep", "60"], "directory": str(tmp_path), "timeout": 90}
        task = await side.client.send(tool="shell_execute", arguments=arguments, wait=False)
        program = await started(("sleep", "60"))
        shell = parent_of(program)
        began = time.monotonic()
        canceled = await side.client.cancel_task(task)
        await asyncio.to_thread(until_ended, program)
        took = time.monotonic() - began
        assert canceled.state is State.CANCELED
        assert took < 1
        # The call was cancelled, the server not killed: it is the same as before, and works.
        after = await side.call(Step("shell_execute", {"command": ["sleep", "0"], "directory": str(tmp_path)}))
        assert after == Outcome("completed")
        assert server.name in command_of(shell)[1]


async def started(command: tuple[str, ...]) -> int:
    """The program with this command that descends from this process, as soon as there is one."""
    async with asyncio.timeout(20):
        while True:
            for pid in await asyncio.to_thread(lambda: list(descendants(os.getpid()))):
                if command_of(pid) == command:
                    return pid
