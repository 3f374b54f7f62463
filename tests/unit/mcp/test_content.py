"""Parts of A2A as content of MCP."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
import pytest

from dragoman.mcp.tools.content import MAX_INLINE, content_blocks, parse_uri, part_uri, resource_contents
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

PLACE = "a2a://agent_1/task-1"
PIXEL = b"\x89PNG\r\n\x1a\n"


def task(*parts: Part, status: Message | None = None) -> Task:
    artifacts = (Artifact("art", parts),) if parts else ()
    return Task("task-1", "context-1", TaskStatus(State.COMPLETED, status), artifacts)


def only(part: Part) -> Any:
    (block,) = content_blocks(task(part), PLACE)
    return block


def test_a_text_is_text() -> None:
    assert only(Part(text="hello", media_type="text/markdown")) == types.TextContent(type="text", text="hello")


def test_a_text_with_the_name_of_a_file_is_an_embedded_file() -> None:
    block = only(Part(text="# Hi", filename="hi.md", media_type="text/markdown"))
    held = types.TextResourceContents(uri=f"{PLACE}/art/0", mime_type="text/markdown", text="# Hi")
    assert block == types.EmbeddedResource(type="resource", resource=held)


@pytest.mark.parametrize(("kind", "content"), [("image/png", types.ImageContent), ("audio/wav", types.AudioContent)])
def test_images_and_audio_are_shown(kind: str, content: type[types.ImageContent | types.AudioContent]) -> None:
    block = only(Part(raw=PIXEL, media_type=kind, filename="a"))
    assert isinstance(block, content)
    assert (base64.b64decode(block.data), block.mime_type) == (PIXEL, kind)


@pytest.mark.parametrize("kind", [None, "application/pdf", "text/plain; charset=latin-1", "text/plain"])
def test_other_files_are_embedded_with_their_bytes(kind: str | None) -> None:
    raw = "é".encode("latin-1")  # no UTF-8, whatever its media type says
    block = only(Part(raw=raw, media_type=kind))
    assert isinstance(block, types.EmbeddedResource)
    assert isinstance(block.resource, types.BlobResourceContents)
    assert base64.b64decode(block.resource.blob) == raw
    assert (block.resource.uri, block.resource.mime_type) == (f"{PLACE}/art/0", kind or "application/octet-stream")


@pytest.mark.parametrize(
    "kind", ["text/csv", "application/json", "application/ld+json", "image/svg+xml;charset=utf-8", "text/plain"]
)
def test_a_file_of_text_is_embedded_as_text(kind: str) -> None:
    held = resource_contents(Part(raw="a,é".encode(), media_type=kind), "a2a://a/b/c/0")
    assert held == types.TextResourceContents(uri="a2a://a/b/c/0", mime_type=kind, text="a,é")


@pytest.mark.parametrize("kind", ["image/png", "audio/wav", "application/zip", None])
def test_a_large_file_is_only_linked(kind: str | None) -> None:
    assert not isinstance(only(Part(raw=b"\x00" * MAX_INLINE, media_type=kind)), types.ResourceLink)
    link = only(Part(raw=b"\x00" * (MAX_INLINE + 1), media_type=kind, filename="big.bin"))
    assert isinstance(link, types.ResourceLink)
    assert (link.uri, link.name, link.size) == (f"{PLACE}/art/0", "big.bin", MAX_INLINE + 1)
    assert link.mime_type == (kind or "application/octet-stream")


def test_a_large_text_with_the_name_of_a_file_is_only_linked() -> None:
    link = only(Part(text="é" * (MAX_INLINE + 1), filename="big.txt"))
    assert isinstance(link, types.ResourceLink)
    assert (link.size, link.mime_type) == (2 * (MAX_INLINE + 1), "text/plain")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://files.example.com/a/report.pdf?signature=abc", "report.pdf"),
        ("https://files.example.com/", "https://files.example.com/"),
    ],
)
def test_a_link_is_a_link_to_where_it_leads(url: str, name: str) -> None:
    link = only(Part(url=url, media_type="application/pdf"))
    expected = types.ResourceLink(type="resource_link", uri=url, name=name, mime_type="application/pdf")
    assert link == expected


@pytest.mark.parametrize("url", ["http://[", "https://[::1/report.pdf"])
def test_a_link_that_leads_nowhere_is_text(url: str) -> None:
    assert only(Part(url=url)) == types.TextContent(type="text", text=url)


@pytest.mark.parametrize("data", [{"a": 1}, None, [], "text"])
def test_data_is_no_content(data: Any) -> None:
    part = Part(data=data)
    assert content_blocks(task(part), PLACE) == []
    assert resource_contents(part, "a2a://a/b/c/0") is None


def test_the_files_of_what_a_task_says_are_content_too_and_its_words_are_not() -> None:
    agent_message = Message("m1", Role.AGENT, (Part(text="Which one?"), Part(raw=PIXEL, media_type="image/png")))
    (block,) = content_blocks(task(status=agent_message), PLACE)
    assert isinstance(block, types.ImageContent)


def test_an_answer_that_is_only_in_the_history_has_its_files_as_content() -> None:
    agent_message = Message("m1", Role.AGENT, (Part(text="Here."), Part(raw=PIXEL, media_type="image/png")))
    (block,) = content_blocks(Task("task-1", "c", TaskStatus(State.COMPLETED), history=(agent_message,)), PLACE)
    assert isinstance(block, types.ImageContent)
    whole = Task("task-1", "c", TaskStatus(State.COMPLETED), (Artifact("art", (Part(text="a"),)),), (agent_message,))
    assert content_blocks(whole, PLACE) == [types.TextContent(type="text", text="a")]


def test_the_texts_of_an_artifact_are_one_text_and_those_of_a_message_paragraphs() -> None:
    parts = (Part(text="one "), Part(text="two"), Part(data=1), Part(text="three"))
    assert [block.text for block in content_blocks(task(*parts), PLACE)] == ["one two", "three"]
    message = Message("m1", Role.AGENT, (Part(text="one"), Part(text="two")))
    assert [block.text for block in content_blocks(message, PLACE)] == ["one\n\ntwo"]
    long = Part(text="x" * (MAX_INLINE // 2 + 1))
    assert len(content_blocks(Message("m1", Role.AGENT, (long, long)), PLACE)) == 2
    marked = Part(text="two", metadata={"annotations": {"priority": 1}})
    assert len(content_blocks(task(Part(text="one"), marked), PLACE)) == 2


def test_a_large_file_of_a_bare_message_is_not_linked_because_nobody_keeps_it() -> None:
    message = Message("m/1", Role.AGENT, (Part(text="here"), Part(raw=b"\x00" * (MAX_INLINE + 1))))
    text, block = content_blocks(message, "a2a://agent_1/message")
    assert isinstance(text, types.TextContent)
    assert isinstance(block, types.EmbeddedResource)
    assert block.resource.uri == "a2a://agent_1/message/m%2F1/1"


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_id", ["plain", "a/b", "50%", "ü ?#&", "..", ".", "a%2Fb"])
@pytest.mark.parametrize("holder", ["art", "x/y/z", "..", "#1"])
def test_an_address_gives_back_the_ids_it_was_made_of(task_id: str, holder: str) -> None:
    uri = part_uri(f"a2a://agent_1/{task_id}", holder, 3)
    assert uri.isascii()
    assert uri.count("/") == 5
    assert not any(sign in uri for sign in ("?", "#", " ", "/../", "/./"))
    assert parse_uri(uri) == ("agent_1", task_id, holder, 3)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "a2a://",
        "a2a://a/b/c",
        "a2a://a/b/c/d/0",
        "a2a://a/b//0",
        "a2a:///b/c/0",
        "a2a://a/b/c/x",
        "a2a://a/b/c/-1",
        "a2a://a/b/c/²",
        "a2a://a/b/c/٣",
        "a2a://a/b/c/" + "9" * 5000,
        "http://a/b/c/0",
    ],
)
def test_other_addresses_are_not_ours(uri: str) -> None:
    assert parse_uri(uri) is None
