"""There and back: an MCP server behind A2A, and A2A behind an MCP server. A host sees what it would have seen directly.

server-everything → `Agent.from_mcp` on a port → `McpServer` → the official client, in both eras of MCP. The tool is
`send_message`, so a result is a task there, and "the same" means, for each call:

- the task is `completed` where the direct result is good, `failed` where it is an error, `rejected` where the protocol
  refuses the call; the last two are errors here too, with the direct error's words as `text`;
- the parts of the task's artifacts are those of the direct result, as `mcp_results.of_result` reads it: the structured
  content first, then each block, in order, with the same text, bytes, value or address, and the same media type;
- the first block is the structured content as JSON; after it come the same parts once more, in order, without data,
  then the files of what the task says. A file that is text is put as text there: its bytes are that text in UTF-8;
- the user is asked the same: kind, words, schema or address, in order; before the words stands who asks.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import mcp_types as mcp
import pytest
from interop import mcp_sides as sides
from interop.mcp_results import Content, Outcome, Question, exact
from interop.mcp_servers.everything import FORM, LONG, SERVER, URL, URL_ARGUMENTS
from interop.mcp_servers.server import McpServer as ForeignServer
from interop.mcp_servers.step import Answer, Step
from mcp import Client as McpClient
from mcp import MCPError

from dragoman import Agent
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.testing import served

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(SERVER.missing), reason=SERVER.missing or "it is there"),
]

Era = Literal["legacy", "auto"]
BOTH_ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
ERRORS = ("failed", "rejected")
FILES = "a2a://"


class Through:
    """The official client, our MCP server, an agent on a real port, and the server behind it."""

    def __init__(self, client: McpClient, agent_id: str, asker: sides.Asker) -> None:
        self.client = client
        self.agent_id = agent_id
        self._asker = asker
        self._left = ""

    async def tools(self) -> list[str]:
        card = (await self.use("resolve_agent_card", base_url=self.agent_id))["card"]
        return [skill["id"] for skill in card["skills"]]

    async def call(self, step: Step, **more: Any) -> Outcome:
        self._asker.begin(step.answers)
        outcome = await self.outcome(await self.send(step, **more))
        return replace(outcome, questions=[await self._asked(*question) for question in self._asker.end()])

    async def _asked(self, kind: str, words: str, wanted: Any) -> Question:
        """The question without the name of who asks, which must be there."""
        name = (await self.use("resolve_agent_card", base_url=self.agent_id))["name"]
        assert words.startswith(f"{name} asks: ")
        return kind, words.removeprefix(f"{name} asks: "), wanted

    async def send(self, step: Step, **more: Any) -> mcp.CallToolResult:
        data = {"tool": step.tool, "arguments": step.arguments}
        return await self.client.call_tool("send_message", {**self.words(step), "data": data, **more})

    def words(self, step: Step) -> dict[str, Any]:
        return {"agent_id": self.agent_id, "text": f"Please use {step.tool}."}

    async def use(self, name: str, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments)
        assert not result.is_error, result.content
        return cast("dict[str, Any]", result.structured_content)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def outcome(self, result: mcp.CallToolResult) -> Outcome:
        """What the result says. What it says twice is compared."""
        first, *rest = result.content
        assert isinstance(first, mcp.TextContent)
        assert result.structured_content is not None, first.text
        task = cast("dict[str, Any]", result.structured_content)
        assert exact(json.loads(first.text)) == exact(task)
        blocks = iter(rest)
        parts = [await self._part(part, blocks) for part in parts_of(task)]
        beside = task["status"].get("message", {}).get("parts", [])
        for part in beside:
            if "file" in part:  # the parts of messages have no kind
                await self._part({"kind": "file", **part}, blocks)
        assert not self._left
        assert list(blocks) == [], "there are blocks that no part stands for"
        state = task["status"]["state"]
        assert result.is_error == (state in ERRORS)
        return Outcome(state, parts, task["text"] if result.is_error else "")

    async def _part(self, part: dict[str, Any], blocks: Iterator[mcp.ContentBlock]) -> Content:
        if part["kind"] == "data":
            return "data", part["data"], "application/json"
        if part["kind"] == "text":
            # Adjacent texts are one block: what is left of it is the next part's.
            text, media_type = (self._left, None) if self._left else await self._text(next(blocks))
            assert text.startswith(part["text"])
            self._left = text.removeprefix(part["text"])
            return "text", part["text"], None if media_type == "text/plain" else media_type
        assert not self._left
        block = next(blocks)
        content = await self._file(block)
        file = part["file"]
        assert content[2] == file.get("mimeType")
        assert content[1] == file["uri"] if content[0] == "url" else len(content[1]) == file["size"]
        return content

    async def _text(self, block: mcp.ContentBlock) -> tuple[str, str | None]:
        if isinstance(block, mcp.TextContent):
            return block.text, None
        contents = await self._contents(block)
        assert isinstance(contents, mcp.TextResourceContents)
        return contents.text, contents.mime_type

    async def _file(self, block: mcp.ContentBlock) -> Content:
        if isinstance(block, (mcp.ImageContent, mcp.AudioContent)):
            return "raw", base64.b64decode(block.data), block.mime_type
        if isinstance(block, mcp.ResourceLink) and not block.uri.startswith(FILES):
            return "url", block.uri, block.mime_type
        contents = await self._contents(block)
        if isinstance(contents, mcp.TextResourceContents):
            return "raw", contents.text.encode(), contents.mime_type
        return "raw", base64.b64decode(contents.blob), contents.mime_type

    async def _contents(self, block: mcp.ContentBlock) -> mcp.TextResourceContents | mcp.BlobResourceContents:
        if isinstance(block, mcp.EmbeddedResource):
            return block.resource
        assert isinstance(block, mcp.ResourceLink)
        (contents,) = (await self.client.read_resource(block.uri)).contents
        return contents


def parts_of(task: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for artifact in task.get("artifacts", ()) for part in artifact["parts"]]


@asynccontextmanager
async def through(server: ForeignServer, here: Path, era: Era) -> AsyncGenerator[Through, None]:
    """The server as an agent, called by a host of that era."""
    asker = sides.Asker()
    with sides.target(server, here) as place, served(Agent.from_mcp(place, env=server.env(here))) as url:
        async with (
            McpServer(McpOptions()) as mine,
            McpClient(mine.server, mode=era, elicitation_callback=asker) as client,
        ):
            yield Through(client, url, asker)


async def both(era: Era, here: Path, *steps: Step, **more: Any) -> list[tuple[Step, Outcome, Outcome]]:
    """Each step, made directly and there and back, each side from the same beginning."""
    async with sides.direct(SERVER, here) as side:
        expected = [(await side.call(step)).seen(step.view) for step in steps]
    async with through(SERVER, here, era) as side:
        received = [(await side.call(step, **more)).seen(step.view) for step in steps]
    return list(zip(steps, expected, received, strict=True))


def spelled(outcome: Outcome) -> str:
    """One spelling for what is the same: objects of JSON have no order, and as Python has it 1 == True."""
    parts = [(kind, exact(value) if kind == "data" else value, media_type) for kind, value, media_type in outcome.parts]
    questions = [(kind, words, exact(wanted)) for kind, words, wanted in outcome.questions]
    return repr(replace(outcome, parts=parts, questions=questions))


# -- results -----------------------------------------------------------------------------------------------------------


def accepts_every_form(step: Step) -> bool:
    return step.tool != URL and all(answer.action == "accept" for answer in step.answers)


@pytest.mark.smoke
@BOTH_ERAS
async def test_every_tool_gives_the_same_there_and_back(era: Era, tmp_path: Path) -> None:
    here = tmp_path / "here"
    steps = SERVER.steps(here)
    async with sides.direct(SERVER, here) as side:
        tools = await side.tools()
    assert set(tools) == {step.tool for step in steps}
    async with through(SERVER, here, era) as side:
        assert await side.tools() == tools
    compared = await both(era, here, *filter(accepts_every_form, steps))
    different = [
        f"{step.tool} {step.arguments}\n  directly:       {one}\n  there and back: {other}"
        for step, one, other in compared
        if spelled(one) != spelled(other)
    ]
    assert not different, "\n".join(different)


@BOTH_ERAS
async def test_a_skill_and_its_arguments_mean_the_same_as_a_tool(era: Era, tmp_path: Path) -> None:
    step = Step("get-sum", {"a": 2, "b": 0.5})
    async with through(SERVER, tmp_path / "here", era) as side:
        named = await side.call(step)
        words = {**side.words(step), "skill_id": step.tool, "data": step.arguments}
        chosen = await side.outcome(await side.client.call_tool("send_message", words))
    assert chosen == named
    assert chosen.state == "completed"
    assert chosen.parts


@BOTH_ERAS
async def test_annotations_of_content_are_found_in_the_artifacts(era: Era, tmp_path: Path) -> None:
    step = Step("get-annotated-message", {"messageType": "success", "includeImage": True})
    async with sides.direct(SERVER, tmp_path / "here") as side:
        content = (await side.client.call_tool(step.tool, step.arguments)).content
    expected = [annotations_of(block) for block in content]
    async with through(SERVER, tmp_path / "here", era) as side:
        task = cast("dict[str, Any]", (await side.send(step)).structured_content)
    assert [part["metadata"]["annotations"] for part in parts_of(task)] == expected
    assert all(expected)


def annotations_of(block: mcp.ContentBlock) -> dict[str, Any]:
    assert block.annotations is not None
    return block.annotations.model_dump(mode="json", by_alias=True, exclude_none=True)


@BOTH_ERAS
async def test_the_address_of_a_resource_is_found_in_the_artifacts(era: Era, tmp_path: Path) -> None:
    step = Step("get-resource-reference", {"resourceType": "Blob", "resourceId": 3})
    async with sides.direct(SERVER, tmp_path / "here") as side:
        content = (await side.client.call_tool(step.tool, step.arguments)).content
    expected = [block.resource.uri for block in content if isinstance(block, mcp.EmbeddedResource)]
    async with through(SERVER, tmp_path / "here", era) as side:
        task = cast("dict[str, Any]", (await side.send(step)).structured_content)
    assert [part["metadata"]["uri"] for part in parts_of(task) if "metadata" in part] == expected
    assert len(expected) == 1


# -- questions ---------------------------------------------------------------------------------------------------------

# A task that goes on as soon as it has its answer; one that never gets it should not take longer than this.
SOON = {"wait_seconds": 8}


@BOTH_ERAS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_the_tool_hears_that_a_form_was_not_filled_in(
    era: Era, action: Literal["decline", "cancel"], tmp_path: Path
) -> None:
    step = Step(FORM, answers=(Answer(action),))
    ((_, expected, received),) = await both(era, tmp_path / "here", step, **SOON)
    assert spelled(received) == spelled(expected)


@BOTH_ERAS
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_the_tool_hears_what_became_of_a_visit(
    era: Era, action: Literal["accept", "decline"], tmp_path: Path
) -> None:
    step = Step(URL, URL_ARGUMENTS, answers=(Answer(action),))
    ((_, expected, received),) = await both(era, tmp_path / "here", step, **SOON)
    assert spelled(received) == spelled(expected)


@BOTH_ERAS
async def test_an_error_that_demands_a_visit_is_put_to_the_user(era: Era, tmp_path: Path) -> None:
    arguments = {**URL_ARGUMENTS, "errorPath": True}
    again = Step(URL, arguments, answers=(Answer("accept"),))
    async with sides.direct(SERVER, tmp_path / "here") as side:
        with pytest.raises(MCPError) as refusal:
            await side.client.call_tool(URL, arguments)
        visit = refusal.value.error.data["elicitations"][0]
        expected = await side.call(again)
    demanded: Question = ("url", visit["message"], visit["url"])
    async with through(SERVER, tmp_path / "here", era) as side:
        received = await side.call(replace(again, answers=(Answer("accept"), Answer("accept"))), **SOON)
    assert spelled(received) == spelled(replace(expected, questions=[demanded, *expected.questions]))


# -- progress, cancel --------------------------------------------------------------------------------------------------


@BOTH_ERAS
async def test_progress_reaches_the_host(era: Era, tmp_path: Path) -> None:
    step = Step(LONG, {"duration": 1.5, "steps": 5})
    expected: list[str] = []
    reports: list[tuple[float, str]] = []

    async def moved(done: float, total: float | None, message: str | None) -> None:
        expected.append(f"{done:g}/{total:g}")

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        reports.append((done, message or ""))

    async with sides.direct(SERVER, tmp_path / "here") as side:
        await side.client.call_tool(step.tool, step.arguments, progress_callback=moved)
    async with through(SERVER, tmp_path / "here", era) as side:
        data = {"tool": step.tool, "arguments": step.arguments}
        words = {**side.words(step), "data": data}
        await side.client.call_tool("send_message", words, progress_callback=on_progress)
    numbers = [number for number, _ in reports]
    assert numbers == sorted(set(numbers)), "the numbers must grow"
    measures = [each for _, message in reports for each in expected if each in message]
    # What comes too fast on a busy machine is left out; the order never changes.
    assert measures == [each for each in expected if each in measures]
    assert len(measures) > 1


@BOTH_ERAS
async def test_a_cancel_reaches_the_tool_as_it_does_directly(era: Era, tmp_path: Path) -> None:
    here = tmp_path / "here"
    server = replace(SERVER, program=overheard)
    step = Step(LONG, {"duration": 60, "steps": 600})
    async with sides.direct(server, here) as side:
        await aborted(side.client, step.tool, step.arguments)
        expected = await cancels(here)
    async with through(server, here, era) as side:
        data = {"tool": step.tool, "arguments": step.arguments}
        begun = await side.use("send_streaming_message", **side.words(step), data=data)
        task_id = begun["task_id"]
        async with following(side.client, "subscribe_to_task", {"task_id": task_id}):
            assert await side.use("cancel_task", task_id=task_id) == {"task_id": task_id, "status": "canceled"}
        received = await cancels(here)
        assert (await side.use("get_task", task_id=task_id))["status"]["state"] == "canceled"
        after = await side.call(Step("echo", {"message": "still here"}))
    assert received == expected == [LONG]
    assert after == Outcome("completed", [("text", "Echo: still here", None)])


@BOTH_ERAS
async def test_a_host_that_gives_up_can_have_the_tool_canceled(era: Era, tmp_path: Path) -> None:
    here = tmp_path / "here"
    step = Step(LONG, {"duration": 60, "steps": 600})
    async with through(replace(SERVER, program=overheard), here, era) as side:
        data = {"tool": step.tool, "arguments": step.arguments}
        await aborted(side.client, "send_message", {**side.words(step), "data": data, "cancel_on_abort": True})
        assert await cancels(here) == [LONG]


def overheard(here: Path) -> list[str | Path]:
    """The server, with all that is sent to it in a file beside."""
    return ["sh", "-c", 'tee "$0" | "$@"', here / "sent", *SERVER.program(here)]


async def cancels(here: Path) -> list[str]:
    """The tools whose calls were canceled, as soon as there is one."""
    async with asyncio.timeout(20):
        while True:
            lines = (await asyncio.to_thread((here / "sent").read_text)).splitlines()
            sent = [json.loads(line) for line in lines if line.endswith("}")]
            calls = {each["id"]: each["params"]["name"] for each in sent if each["method"] == "tools/call"}
            ended = [each["params"]["requestId"] for each in sent if each["method"] == "notifications/cancelled"]
            if ended:
                return [calls[each] for each in ended]


async def aborted(client: McpClient, tool: str, arguments: dict[str, Any]) -> None:
    """A call that is given up as soon as it moves."""
    async with following(client, tool, arguments) as call:
        call.cancel()


@asynccontextmanager
async def following(
    client: McpClient, tool: str, arguments: dict[str, Any]
) -> AsyncGenerator[asyncio.Task[mcp.CallToolResult], None]:
    """A call that has begun to move, and that ends at the end."""
    moves = asyncio.Event()

    async def moved(done: float, total: float | None, message: str | None) -> None:
        # Our server also tells of the task's state; "1/600" is the tool's own word.
        if total is not None or "/" in (message or ""):
            moves.set()

    call = asyncio.create_task(client.call_tool(tool, arguments, progress_callback=moved))
    async with asyncio.timeout(20):
        await moves.wait()
        yield call
        await asyncio.wait((call,))
