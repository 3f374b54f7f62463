"""FastMCP on both sides: its server as an agent, beyond what others compare; its client before `dragoman mcp`."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from interop import mcp_sides as sides
from interop.mcp_servers.fast import ASKING, ASKING_OVER_HTTP, NAME, OLDER, OVER_HTTP, SERVER
from interop.mcp_servers.server import PROGRAMS, McpServer, listening, script
from interop.mcp_sides import TOOLS
from mcp import Client as McpClient

from dragoman import Agent, Context, Part, State, Task
from dragoman.model.event import StatusUpdate
from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.skipif(bool(SERVER.missing), reason=SERVER.missing or "it is there")]
# Set when the client has received that step.
SEEN = [threading.Event() for _ in range(3)]
BLOB = b"\x00\x01dragoman"
DRAGOMAN = [sys.executable, "-m", "dragoman", "mcp"]

# -- behind: its server as an agent ------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [SERVER, OVER_HTTP, ASKING, ASKING_OVER_HTTP], ids=str)
async def test_progress_comes_while_a_tool_works(server: McpServer, tmp_path: Path) -> None:
    async with sides.bridged(server, tmp_path / "here") as side:
        stream = side.client.stream(tool="count", arguments={"steps": 3})
        updates = [event.raw async for event in stream if isinstance(event.raw, StatusUpdate)]
    measures = [update.metadata for update in updates if update.metadata and "done" in update.metadata]
    # What comes within a fifth of a second is left out, but never all of it.
    assert measures
    assert [(each["done"], each["total"]) for each in measures] == [
        step for step in ((1, 3), (2, 3), (3, 3)) if step in [(each["done"], each["total"]) for each in measures]
    ]
    assert (stream.task.state, stream.task.text) == (State.COMPLETED, "counted to 3")


@pytest.mark.smoke
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_tool_that_elicits_says_what_it_needs_and_asks_when_it_is_called_again(
    transport: str, tmp_path: Path
) -> None:
    asking = ASKING if transport == "stdio" else ASKING_OVER_HTTP
    with sides.target(asking, tmp_path / "here") as place:
        async with McpClient(sides.transport_to(place)) as direct:
            refused = await direct.call_tool("approve", {})
            assert "elicitation via server-initiated requests is unavailable" in str(refused.content)
        with served(Agent.from_mcp(place, name="field")) as url:
            async with sides.Client(url) as client:
                first = await client.send(tool="approve", arguments={})
                assert isinstance(first, Task)
                assert first.state is State.FAILED
                assert f"`--mcp-revision {OLDER}`" in (first.error or "")
                assert "it may have done a part of its work" in (first.error or "")
                second = await client.send(tool="approve", arguments={})
                assert isinstance(second, Task)
                assert (second.state, (second.question or "").splitlines()[0]) == (State.INPUT_REQUIRED, "Go on?")
                done = await client.send(data={"value": True}, task=second)
                assert isinstance(done, Task)
                assert (done.state, done.text) == (State.COMPLETED, "accept True")
                plain = await client.send(tool="texts", arguments={"n": 2})
                assert isinstance(plain, Task)
                assert plain.data == {"result": ["text 0", "text 1"]}


@pytest.mark.parametrize("server", [ASKING, ASKING_OVER_HTTP], ids=str)
async def test_callers_who_are_asked_at_the_same_time_all_get_to_answer(server: McpServer, tmp_path: Path) -> None:
    async with sides.bridged(server, tmp_path / "here") as side:
        names = ("Ada", "Bob", "Cy")
        asked = [await side.client.send(tool="ask_person", arguments={"label": name}) for name in names]
        for name, task in reversed(list(zip(names, asked, strict=True))):
            assert isinstance(task, Task)
            assert (task.question or "").startswith(f"Who is {name}?")
            done = await side.client.send(data={"name": name, "age": 1}, task=task)
            assert isinstance(done, Task)
            assert (done.state, done.text) == (State.COMPLETED, f"accept Person(name='{name}', age=1)")


# -- in front: its client before `dragoman mcp` ------------------------------------------------------------------------


def agent() -> Agent:
    """An agent that answers, asks, reports, fails and sends files."""
    own = Agent("remote", description="For FastMCP's client")

    @own.skill
    async def play(ctx: Context, text: str) -> Any:
        """Do what the first word says."""
        match text.split():
            case ["ask"]:
                return f"Hello {await ctx.ask('Your name?')}"
            case ["report"]:
                for number in range(3):
                    await ctx.progress(f"step {number}", number, 3)
                    await asyncio.to_thread(SEEN[number].wait, 30)
                return "reported"
            case ["fail"]:
                raise ValueError("no")
            case ["file"]:
                return Part(raw=BLOB, filename="blob.bin", media_type="application/octet-stream")
            case ["image"]:
                return Part(raw=BLOB, filename="dot.png", media_type="image/png")
            case ["wait"]:
                await ctx.progress("waiting")
                await asyncio.Event().wait()
            case _:
                return text

    return own


class Host:
    """FastMCP's client in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.called: set[str] = set()

    async def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        progress: list[Any] = []
        while True:
            line = await asyncio.wait_for(self._process.stdout.readline(), 60)
            assert line, "the client has ended"
            answer = json.loads(line)
            if "progress" not in answer:
                return {**answer, "progress": progress}
            progress.append(answer["progress"])
            for number, seen in enumerate(SEEN):
                if f"step {number}" in (answer["progress"][2] or ""):
                    seen.set()

    async def call(self, tool: str, /, answers: list[Any] | None = None, **arguments: Any) -> dict[str, Any]:
        self.called.add(tool)
        return await self.ask(tool=tool, arguments=arguments, answers=answers)

    async def ok(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.call(tool, **arguments)
        assert not result["error"], result["content"]
        return result["structured"]


@contextmanager
def dragoman(transport: str, here: Path) -> Iterator[list[str]]:
    """`dragoman mcp`: its command, or the URL at which it listens."""
    store = ["--store", f"sqlite:///{here / 'registry.db'}"]
    if transport == "stdio":
        yield [*DRAGOMAN, *store]
    else:
        with listening([*DRAGOMAN, "--http", "127.0.0.1:0", *store]) as url:
            yield [url]


@asynccontextmanager
async def hosted(transport: str, mode: str, here: Path) -> AsyncIterator[tuple[Host, str]]:
    """The client connected to `dragoman mcp`, and the id of an agent that it has resolved."""
    with served(agent()) as url, dragoman(transport, here) as target:
        process = await asyncio.create_subprocess_exec(
            *(str(script(NAME, "python")), str(PROGRAMS / "fastmcp_client.py"), mode, *target),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=2**24,
        )
        try:
            host = Host(process)
            yield host, (await host.ok("resolve_agent_card", base_url=url))["agent_id"]
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await asyncio.wait_for(process.wait(), 30)


BOTH_WAYS = pytest.mark.parametrize("transport", ["stdio", "http"])
BOTH_ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["modern", "handshake"])


@BOTH_WAYS
@BOTH_ERAS
async def test_its_client_can_call_every_tool(transport: str, mode: str, tmp_path: Path) -> None:
    async with hosted(transport, mode, tmp_path) as (host, agent_id):
        assert (await host.ask(tool=None))["tools"] == TOOLS
        base_url = (await host.ok("list_remote_agents"))["agents"][0]["base_url"]
        assert (await host.ok("validate_agent_card", base_url=base_url))["version_valid"]
        task = await host.ok("send_message", agent_id=agent_id, text="hello there")
        assert (task["status"]["state"], task["text"]) == ("completed", "hello there")
        assert (await host.ok("get_task", task_id=task["id"]))["text"] == "hello there"
        assert [each["id"] for each in (await host.ok("list_tasks", agent_id=agent_id))["tasks"]] == [task["id"]]
        failed = await host.call("send_message", agent_id=agent_id, text="fail")
        assert failed["error"]
        assert failed["structured"]["status"]["state"] == "failed"
        waiting = await host.ok("send_streaming_message", agent_id=agent_id, text="wait")
        followed = await host.ok("subscribe_to_task", task_id=waiting["task_id"], wait_seconds=0)
        assert followed["current_state"] in ("submitted", "working")
        assert (await host.ok("cancel_task", task_id=waiting["task_id"]))["status"] == "canceled"
        hook = "http://127.0.0.1:9/hook"
        pushed = await host.ok("configure_push_notifications", agent_id=agent_id, webhook_url=hook)
        assert (pushed["webhook_url"], pushed["active"]) == (hook, True)
        assert (await host.ok("get_extended_agent_card", agent_id=agent_id))["name"] == "remote"
        assert host.called == set(TOOLS)


@BOTH_WAYS
@BOTH_ERAS
async def test_an_agent_s_question_is_an_elicitation_at_its_client(transport: str, mode: str, tmp_path: Path) -> None:
    async with hosted(transport, mode, tmp_path) as (host, agent_id):
        answer = await host.call("send_message", agent_id=agent_id, text="ask", answers=[{"answer": "Ada"}])
        assert [each.splitlines()[0] for each in answer["asked"]] == ["remote asks: Your name?"]
        assert (answer["structured"]["status"]["state"], answer["structured"]["text"]) == ("completed", "Hello Ada")
        declined = await host.call("send_message", agent_id=agent_id, text="ask", answers=[None])
        assert declined["structured"]["status"]["state"] == "input_required"


@BOTH_WAYS
@BOTH_ERAS
async def test_progress_of_an_agent_reaches_its_client(transport: str, mode: str, tmp_path: Path) -> None:
    async with hosted(transport, mode, tmp_path) as (host, agent_id):
        for seen in SEEN:
            seen.clear()
        answer = await host.call("send_message", agent_id=agent_id, text="report")
        assert answer["structured"]["text"] == "reported"
        steps = [message for _, _, message in answer["progress"] if "step" in (message or "")]
        # One is sent again while nothing is new.
        assert list(dict.fromkeys(steps)) == ["working: step 0", "working: step 1", "working: step 2"]
        done = [each[0] for each in answer["progress"]]
        assert done == sorted(set(done))


@BOTH_WAYS
@BOTH_ERAS
async def test_files_of_an_agent_reach_its_client(transport: str, mode: str, tmp_path: Path) -> None:
    async with hosted(transport, mode, tmp_path) as (host, agent_id):
        image = await host.call("send_message", agent_id=agent_id, text="image")
        (block,) = (each for each in image["content"] if each["type"] == "image")
        assert (base64.b64decode(block["data"]), block["mimeType"]) == (BLOB, "image/png")
        file = await host.call("send_message", agent_id=agent_id, text="file")
        (block,) = (each for each in file["content"] if each["type"] in ("resource", "resource_link"))
        if block["type"] == "resource":
            assert base64.b64decode(block["resource"]["blob"]) == BLOB
        else:
            (contents,) = (await host.ask(resource=block["uri"]))["contents"]
            assert base64.b64decode(contents["blob"]) == BLOB
