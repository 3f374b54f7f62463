"""The files and texts of tasks, read by a host as resources."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from unit.mcp.parrot import replying

from dragoman import Agent, Context, File, Part
from dragoman.mcp.serve import McpOptions
from dragoman.mcp.server import McpServer
from dragoman.mcp.session.resources import TEMPLATE
from dragoman.mcp.tools.content import MAX_INLINE, part_uri
from dragoman.model.state import State
from dragoman.model.task import Artifact, Task, TaskStatus
from dragoman.testing import served

BIG = bytes(range(256)) * 1024 + b"\x00"
assert len(BIG) > MAX_INLINE


def papers() -> Agent:
    agent = Agent("papers", description="Makes files")

    @agent.skill
    async def make(ctx: Context) -> AsyncIterator[str]:
        """Make one of each kind."""
        parts = (
            Part(text="words"),
            Part(raw=b"a,b", filename="table.csv", media_type="text/csv"),
            Part(raw=b"\x00\x01", media_type="application/zip"),
            Part(url="https://files.example.com/far.pdf", media_type="application/pdf"),
            Part(data={"rows": 3}),
        )
        await ctx.update_artifact(Artifact("all/of them", parts))
        await ctx.artifact(File(BIG, name="big.bin", media_type="image/png"), id="big")
        yield "made"

    return agent


@pytest.fixture
def url() -> Iterator[str]:
    with served(papers()) as url:
        yield url


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def hosted(era: str) -> AsyncIterator[tuple[Client, McpServer]]:
    async with McpServer(McpOptions()) as mine, Client(mine.server, mode=era) as client:
        yield client, mine


async def made(host: Client, url: str) -> dict[str, Any]:
    result = await host.call_tool("send_message", {"agent_id": url, "text": "go"})
    assert result.structured_content is not None
    return {**result.structured_content, "blocks": result.content}


def place(task: dict[str, Any]) -> str:
    return f"a2a://{task['agent_id']}/{task['id']}"


async def read(host: Client, uri: str) -> Any:
    (contents,) = (await host.read_resource(uri)).contents
    return contents


async def test_the_resource_template_is_listed(era: str) -> None:
    async with hosted(era) as (client, _):
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == TEMPLATE == "a2a://{agent_id}/{task_id}/{artifact_id}/{part}"


async def test_every_text_and_file_of_a_task_can_be_read(era: str, url: str) -> None:
    async with hosted(era) as (client, _):
        task = await made(client, url)
        uris = [part_uri(place(task), "all/of them", number) for number in range(4)]
        text, table, archive, link = [await read(client, uri) for uri in uris]
        assert text == types.TextResourceContents(uri=uris[0], mime_type="text/plain", text="words")
        assert table == types.TextResourceContents(uri=uris[1], mime_type="text/csv", text="a,b")
        assert (base64.b64decode(archive.blob), archive.mime_type) == (b"\x00\x01", "application/zip")
        assert (link.text, link.mime_type) == ("https://files.example.com/far.pdf\r\n", "text/uri-list")


async def test_what_a_result_only_links_can_be_read_there(era: str, url: str) -> None:
    async with hosted(era) as (client, _):
        task = await made(client, url)
        (link,) = [each for each in task["blocks"] if each.type == "resource_link" and each.uri.startswith("a2a:")]
        assert (link.name, link.size) == ("big.bin", len(BIG))
        contents = await read(client, link.uri)
        assert (base64.b64decode(contents.blob), contents.mime_type) == (BIG, "image/png")


async def test_the_files_are_listed_and_the_links_and_words_are_not(era: str, url: str) -> None:
    async with hosted(era) as (client, _):
        assert (await client.list_resources()).resources == []
        task = await made(client, url)
        listed = (await client.list_resources(cache_mode="bypass")).resources
        assert {each.uri for each in listed} == {
            part_uri(place(task), "all/of them", 1),
            part_uri(place(task), "all/of them", 2),
            part_uri(place(task), "big", 0),
        }


async def test_what_is_not_in_memory_is_asked_for_if_its_task_is_known(era: str, url: str) -> None:
    async with hosted(era) as (client, _):
        task = await made(client, url)
        async with McpServer(McpOptions()) as fresh, Client(fresh.server) as other:
            agent = await fresh.context.peers.resolve(url)
            uri = part_uri(f"a2a://{agent.agent_id}/{task['id']}", "big", 0)
            # A task id of the agent alone shows nothing: the task may be another user's.
            with pytest.raises(MCPError, match="not found"):
                await other.read_resource(uri)
            record = fresh.context.registry.start_task(agent.agent_id)
            fresh.context.registry.update_task(record, Task(task["id"], "", TaskStatus(State.WORKING)))
            assert base64.b64decode((await read(other, uri)).blob) == BIG


@pytest.mark.parametrize(
    "steps",
    [
        ("{task}", "all/of them", 4),  # data is no content
        ("{task}", "all/of them", 5),
        ("{task}", "nothing", 0),
        ("nothing", "big", 0),
    ],
)
async def test_a_missing_resource_is_the_error_of_the_revision(era: str, url: str, steps: tuple[str, str, int]) -> None:
    async with hosted(era) as (client, _):
        task = await made(client, url)
        task_id, holder, number = steps
        uri = part_uri(f"a2a://{task['agent_id']}/{task_id.format(task=task['id'])}", holder, number)
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
        before = client.protocol_version < "2026"
        assert (caught.value.code, caught.value.data) == (-32002 if before else -32602, {"uri": uri})


@pytest.mark.parametrize(
    "uri", ["a2a://agent_unknown/t/a/0", "https://files.example.com/far.pdf", "file:///etc/passwd"]
)
async def test_nothing_else_is_read(era: str, uri: str) -> None:
    async with hosted(era) as (client, _):
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource(uri)


async def test_the_task_of_one_agent_is_not_read_as_that_of_another(era: str, url: str) -> None:
    async with hosted(era) as (client, mine):
        task = await made(client, url)
        with served(papers()) as other_url:
            other = await mine.context.peers.resolve(other_url)
            with pytest.raises(MCPError, match="not found"):
                await client.read_resource(part_uri(f"a2a://{other.agent_id}/{task['id']}", "big", 0))


async def test_an_unreachable_agent_is_a_clear_error(era: str) -> None:
    async with hosted(era) as (client, _):
        with served(papers()) as url:
            task = await made(client, url)
        assert base64.b64decode((await read(client, part_uri(place(task), "big", 0))).blob) == BIG
        with pytest.raises(MCPError, match="connection refused"):
            await client.read_resource(part_uri(place(task), "later", 0))


async def test_a_file_of_a_mere_message_is_linked_and_can_be_read(era: str) -> None:
    file = {"name": "big.zip", "mimeType": "application/zip", "bytes": base64.b64encode(BIG).decode()}
    with served(replying({"kind": "file", "file": file})) as url:
        async with hosted(era) as (client, _):
            task = await made(client, url)
            (block,) = [each for each in task["blocks"] if each.type != "text"]
            assert (block.type, block.size) == ("resource_link", len(BIG))
            contents = await read(client, block.uri)
            assert (base64.b64decode(contents.blob), contents.mime_type) == (BIG, "application/zip")
