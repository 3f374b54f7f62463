"""What an MCP tool returned, as parts."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mcp import Client
from mcp.server import MCPServer
from mcp_types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolUseContent,
)

from dragoman import Agent
from dragoman.agents.mcp_tools.content import MAX_EMBEDDED_BYTES, MAX_LINKS, error_text, metadata_of, parts_of_result
from dragoman.model.json import encode
from dragoman.model.part import Part

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
WAV = b"RIFF\x00\xfeWAVE"
ANNOTATIONS = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-12T15:00:58Z")
ANNOTATIONS_ON_THE_WIRE = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-12T15:00:58Z"}


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def text_resource(uri: str, text: str, mime_type: str | None = None) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, text=text, mime_type=mime_type))


def blob_resource(uri: str, blob: str, mime_type: str | None = None) -> EmbeddedResource:
    return EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=blob, mime_type=mime_type))


async def never_read(uri: str) -> ReadResourceResult:
    raise AssertionError(f"nobody should read {uri}")


def converted(*content: ContentBlock, structured: Any = None) -> tuple[Part, ...]:
    result = CallToolResult(content=list(content), structured_content=structured)
    return asyncio.run(parts_of_result(result, never_read))


# -- text and data -----------------------------------------------------------------------------------------------------


def test_an_empty_result_has_no_parts() -> None:
    assert converted() == ()


def test_text_has_no_media_type_and_nothing_beside_it() -> None:
    (part,) = converted(TextContent(text="hello"))
    assert encode(part) == b'{"text":"hello"}'


def test_annotations_are_kept_as_they_are_spelled_on_the_wire() -> None:
    image = ImageContent(data=base64_of(PNG), mime_type="image/png", annotations=ANNOTATIONS)
    resource = text_resource("demo://a", "x").model_copy(update={"annotations": ANNOTATIONS})
    text, picture, file = converted(TextContent(text="x", annotations=ANNOTATIONS), image, resource)
    assert text.metadata == {"annotations": ANNOTATIONS_ON_THE_WIRE}
    assert picture.metadata == {"annotations": ANNOTATIONS_ON_THE_WIRE}
    assert file.metadata == {"uri": "demo://a", "annotations": ANNOTATIONS_ON_THE_WIRE}


def test_annotations_that_say_nothing_are_left_out() -> None:
    assert converted(TextContent(text="x", annotations=Annotations())) == (Part(text="x"),)


def test_data_comes_first_and_the_rest_in_order() -> None:
    parts = converted(
        TextContent(text="one"),
        ImageContent(data=base64_of(PNG), mime_type="image/png"),
        TextContent(text='{"k": 1}'),
        TextContent(text="two"),
        structured={"k": 1},
    )
    assert [part.kind for part in parts] == ["data", "text", "raw", "text"]
    assert parts[0] == Part(data={"k": 1}, media_type="application/json")
    assert [part.text for part in parts] == [None, "one", None, "two"]


def test_numbers_and_the_order_of_keys_stay_as_they_are() -> None:
    value = {"z": 1.0, "a": 1, "m": [2**63, 1e22, -0.5, 10**30], "b": {"y": None, "x": True}}
    (part,) = converted(structured=value)
    assert encode(part.data) == encode(value)
    assert list(part.data) == ["z", "a", "m", "b"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values.filter(lambda value: value is not None), st.sampled_from([None, 2]), st.booleans(), st.booleans())
def test_text_that_is_only_the_data_again_is_dropped(value: Any, indent: int | None, escape: bool, order: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escape, sort_keys=order)
    assert converted(TextContent(text=text), structured=value) == (Part(data=value, media_type="application/json"),)


@given(json_values.filter(lambda value: value is not None), json_values)
def test_text_that_is_other_json_stays(value: Any, other: Any) -> None:
    assume(not (isinstance(value, dict) and list(cast("dict[str, Any]", value)) == ["result"]))
    same = encode_canonically(value) == encode_canonically(other)
    parts = converted(TextContent(text=json.dumps(other)), structured=value)
    assert len(parts) == (1 if same else 2)


@pytest.mark.parametrize(
    ("value", "text", "media_type"),
    [
        ("240 g", "240 g", None),
        (10, "10", "application/json"),
        (2.5, "2.5", "application/json"),
        (True, "true", "application/json"),
    ],
)
def test_a_plain_value_that_was_wrapped_is_what_it_is(value: Any, text: str, media_type: str | None) -> None:
    (part,) = converted(TextContent(text=text), structured={"result": value})
    assert (part.text, part.media_type) == (text, media_type)
    assert part.metadata == {"structuredContent": {"result": value}}


@pytest.mark.parametrize(
    ("structured", "text"),
    [({"result": 10}, "ten"), ({"result": "10"}, '"10"'), ({"result": [1]}, "2"), ({"result": 1, "unit": "g"}, "1")],
)
def test_what_only_looks_wrapped_stays_beside_its_text(structured: dict[str, Any], text: str) -> None:
    data, words = converted(TextContent(text=text), structured=structured)
    assert (data.data, words.text) == (structured, text)


@pytest.mark.parametrize(
    ("items", "texts"),
    [
        (["a", "b"], ["a", "b"]),  # the official SDK: one text per item
        ([1, {"b": 2}], ["1", '{\n  "b": 2\n}']),
        ([["a", "b"], None, ["c"]], ["a", "b", "c"]),
        (["only"], ["only"]),
        (["a", 2], ['["a",2]']),  # FastMCP 4: one text for all of them
        ([], []),
    ],
)
def test_a_list_that_was_wrapped_comes_once(items: list[Any], texts: list[str]) -> None:
    parts = converted(*(TextContent(text=text) for text in texts), structured={"result": items})
    assert parts == (Part(data={"result": items}, media_type="application/json"),)


@pytest.mark.parametrize(
    ("structured", "texts"),
    [
        ({"result": ["a", "b"]}, ["a", "c"]),
        ({"result": ["a", "b"]}, ["a"]),
        ({"result": ["a", "b"]}, ["b", "a"]),
        ({"result": ["a"], "total": 1}, ["a"]),
        ({"items": ["a"]}, ["a"]),
    ],
)
def test_texts_that_are_not_the_items_of_a_wrapped_list_stay(structured: dict[str, Any], texts: list[str]) -> None:
    data, *words = converted(*(TextContent(text=text) for text in texts), structured=structured)
    assert data.data == structured
    assert [word.text for word in words] == texts


async def test_a_list_that_the_official_sdk_returns_comes_once(start: Any, tool_part: Any) -> None:
    server = MCPServer("lists", log_level="CRITICAL")

    @server.tool()
    def shopping() -> list[str]:
        return ["eggs", "flour"]

    engine = await start(Agent.from_mcp(server))
    task = await engine.send(None, parts=(tool_part("shopping"),))
    (artifact,) = task.artifacts
    assert [part.data for part in artifact.parts] == [{"result": ["eggs", "flour"]}]


def encode_canonically(value: Any) -> str:
    """Equal texts for equal JSON values."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return "[" + ",".join(map(encode_canonically, cast("list[Any]", value))) + "]"
    if isinstance(value, dict):
        pairs = sorted(cast("dict[str, Any]", value).items(), key=lambda pair: pair[0])
        return "{" + ",".join(json.dumps(key) + ":" + encode_canonically(each) for key, each in pairs) + "}"
    return json.dumps(value)


@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ("1", True),
        ("true", 1),
        ("0", False),
        ("[true]", [1]),
        ('{"k": 0}', {"k": False}),
        ("[1, 2]", [2, 1]),
        ("[1]", [1, 1]),
        ('{"k": 1, "l": 2}', {"k": 1}),
        ("{}", []),
        ("null", 0),
        ("hello", "hello"),
        ("1.", 1),
        ("1 and more", 1),
        ('{"k": 1}{"k": 1}', {"k": 1}),
        ("", {}),
        ("[" * 100_000, []),
        ("[" * 900 + "]" * 900, []),
    ],
)
def test_text_that_says_anything_else_stays(text: str, structured: Any) -> None:
    assert converted(TextContent(text=text), structured=structured) == (
        Part(data=structured, media_type="application/json"),
        Part(text=text),
    )


@pytest.mark.parametrize(
    ("text", "structured"), [("1", 1.0), ("1.0", 1), ("1e2", 100), ('{"b":1,"a":2.0}', {"a": 2, "b": 1}), (" [ ] ", [])]
)
def test_the_same_number_in_another_spelling_is_the_same(text: str, structured: Any) -> None:
    assert len(converted(TextContent(text=text), structured=structured)) == 1


@pytest.mark.parametrize("value", [0, 0.0, False, "", [], {}])
def test_data_may_be_empty_or_nought(value: Any) -> None:
    (part,) = converted(structured=value)
    assert (part.kind, part.data, type(part.data)) == ("data", value, type(value))


def test_without_data_a_text_is_never_dropped() -> None:
    assert converted(TextContent(text="null")) == (Part(text="null"),)


# -- files -------------------------------------------------------------------------------------------------------------


def test_images_and_sounds_are_numbered_each_for_itself() -> None:
    parts = converted(
        ImageContent(data=base64_of(PNG), mime_type="image/png"),
        AudioContent(data=base64_of(WAV), mime_type="audio/wav"),
        ImageContent(data=base64_of(b"jpeg"), mime_type="image/jpeg"),
        AudioContent(data=base64_of(b""), mime_type="audio/mpeg"),
    )
    assert parts == (
        Part(raw=PNG, media_type="image/png", filename="image-1.png"),
        Part(raw=WAV, media_type="audio/wav", filename="audio-1.wav"),
        Part(raw=b"jpeg", media_type="image/jpeg", filename="image-2.jpg"),
        Part(raw=b"", media_type="audio/mpeg", filename="audio-2.mp3"),
    )


@pytest.mark.parametrize(
    ("media_type", "filename"),
    [
        ("image/svg+xml", "image-1.svg"),
        ("image/webp", "image-1.webp"),
        ("IMAGE/JPEG", "image-1.jpg"),
        ("image/png; q=1", "image-1.png"),
        ("image/x-icon", "image-1.ico"),
        ("image/../../etc/passwd", "image-1.bin"),
        ("image", "image-1.bin"),
    ],
)
def test_a_file_is_named_by_its_media_type(media_type: str, filename: str) -> None:
    (part,) = converted(ImageContent(data="", mime_type=media_type))
    assert (part.filename, part.media_type) == (filename, media_type)


@pytest.mark.parametrize("data", ["no base64!", "AAA", "AAAAA", "AA==AA==", "\xe4\xf6\xfc"])
def test_broken_base64_is_passed_on_unchanged(data: str) -> None:
    assert converted(
        ImageContent(data=data, mime_type="image/png"),
        AudioContent(data=data, mime_type="audio/wav"),
        blob_resource("demo://a", data),
    ) == (
        Part(data={"type": "image", "data": data, "mimeType": "image/png"}),
        Part(data={"type": "audio", "data": data, "mimeType": "audio/wav"}),
        Part(data={"type": "resource", "resource": {"uri": "demo://a", "blob": data}}),
    )


def test_base64_in_lines_is_base64() -> None:
    (part,) = converted(ImageContent(data=base64.encodebytes(PNG * 20).decode(), mime_type="image/png"))
    assert part.raw == PNG * 20


@pytest.mark.parametrize("mime_type", [None, "text/plain", "text/plain; charset=utf-8", "Text/Plain"])
def test_a_plain_text_resource_has_no_media_type(mime_type: str | None) -> None:
    assert converted(text_resource("file:///notes/today.txt", "milk", mime_type)) == (
        Part(text="milk", filename="today.txt", metadata={"uri": "file:///notes/today.txt"}),
    )


def test_a_text_resource_of_another_type_says_so() -> None:
    (part,) = converted(text_resource("demo://a/b.md", "# b", "text/markdown"))
    assert (part.text, part.media_type) == ("# b", "text/markdown")


def test_a_resource_of_bytes_is_bytes() -> None:
    uri = "demo://pictures/a.png"
    assert converted(blob_resource(uri, base64_of(PNG), "image/png"), blob_resource(uri, base64_of(PNG))) == (
        Part(raw=PNG, media_type="image/png", filename="a.png", metadata={"uri": uri}),
        Part(raw=PNG, media_type="application/octet-stream", filename="a.png", metadata={"uri": uri}),
    )


@pytest.mark.parametrize(
    ("uri", "filename"),
    [
        ("demo://greeting", "greeting"),
        ("demo://notes/", "notes"),
        ("file:///a/my%20file.txt?version=1/2#top/3", "my file.txt"),
        ("file:///a/..%2F..%2Fetc%2Fpasswd", "passwd"),
        ("file:///C:%5Cnotes%5Ca.txt", "a.txt"),
        ("demo://a/..", None),
        ("demo://", None),
        ("", None),
        ("a.txt", "a.txt"),
        ("demo://[", "["),
    ],
)
def test_a_resource_is_named_by_the_end_of_its_uri(uri: str, filename: str | None) -> None:
    (part,) = converted(text_resource(uri, "x"))
    assert (part.filename, part.metadata) == (filename, {"uri": uri})


@pytest.mark.parametrize(
    ("uri", "filename"),
    [
        ("file:///a%00b", "ab"),
        ("file:///a%0d%0aSet-Cookie:x", "aSet-Cookie_x"),
        ("file:///a%E2%80%AEtxt.exe", "atxt.exe"),
        ("file:///%00", None),
        ("file:///%20..%20", None),
        (f"file:///{'a' * 5000}.txt", f"{'a' * 196}.txt"),
        (f"file:///{'ä' * 5000}", "ä" * 100),
        (f"file:///a.{'b' * 5000}", f"a.{'b' * 198}"),
    ],
)
def test_a_file_s_name_can_safely_be_used(uri: str, filename: str | None) -> None:
    (part,) = converted(text_resource(uri, "x"))
    assert part.filename == filename


@pytest.mark.parametrize(
    ("name", "filename"),
    [
        ("../../etc/cron.d/x", ".._.._etc_cron.d_x"),
        ("C:\\x", "C__x"),
        ("..", None),
        ("", None),
        ("Report 1.pdf", "Report 1.pdf"),
        ("a\r\nb", "ab"),
    ],
)
def test_so_can_the_name_of_a_link(name: str, filename: str | None) -> None:
    (part,) = converted(ResourceLink(uri="https://example.org/", name=name))
    assert part.filename == filename


def test_what_is_not_known_is_handed_on_as_data() -> None:
    use = ToolUseContent(name="add", id="1", input={"a": None})
    assert asyncio.run(parts_of_result(CallToolResult.model_construct(content=[use]), never_read)) == (
        Part(data={"type": "tool_use", "name": "add", "id": "1", "input": {"a": None}}),
    )


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["https://example.org/a.pdf", "http://example.org/a.pdf", "HTTPS://example.org/a.pdf"])
def test_a_link_into_the_web_stays_a_link(uri: str) -> None:
    assert converted(ResourceLink(uri=uri, name="a.pdf", mime_type="application/pdf")) == (
        Part(url=uri, filename="a.pdf", media_type="application/pdf"),
    )


def test_what_a_link_says_about_itself_is_kept() -> None:
    link = ResourceLink(
        uri="https://example.org/a",
        name="a",
        title="The A",
        description="All of it",
        size=0,
        annotations=ANNOTATIONS,
    )
    (part,) = converted(link)
    about = {"title": "The A", "description": "All of it", "size": 0}
    assert part.metadata == {**about, "annotations": ANNOTATIONS_ON_THE_WIRE}


SERVER = MCPServer("demo")


@SERVER.resource("demo://greeting", mime_type="text/plain")
def greeting() -> str:
    return "hello"


@SERVER.resource("demo://picture.png", mime_type="image/png")
def picture() -> bytes:
    return PNG


@SERVER.resource("demo://large", mime_type="text/plain")
def large() -> str:
    return "ä" * 500


@SERVER.resource("demo://broken")
def broken() -> str:
    raise RuntimeError("out of paper")


@SERVER.tool()
def everything() -> CallToolResult:
    """Return all there is."""
    return CallToolResult(
        content=[
            TextContent(text='{"b": 1, "a": [2.0]}'),
            TextContent(text="look"),
            ImageContent(data=base64_of(PNG), mime_type="image/png"),
            AudioContent(data=base64_of(WAV), mime_type="audio/wav"),
            text_resource("demo://notes/today.md", "# today", "text/markdown"),
            blob_resource("demo://notes/a.bin", base64_of(b"\x00")),
            ResourceLink(uri="https://example.org/a.pdf", name="a.pdf"),
            ResourceLink(uri="demo://greeting", name="the greeting"),
            ResourceLink(uri="demo://picture.png", name="the picture"),
            ResourceLink(uri="demo://broken", name="no more"),
        ],
        structured_content={"b": 1, "a": [2]},
        _meta={"trace": "7"},
    )


@SERVER.tool()
def links(uris: list[str]) -> CallToolResult:
    """Return links."""
    return CallToolResult(content=[ResourceLink(uri=uri, name="n", mime_type="text/plain") for uri in uris])


# Today's MCP and the one before it. A client is opened and closed by one task, which rules out a fixture.
both = pytest.mark.parametrize("mode", ["auto", "legacy"])


async def linked(mode: str, *uris: str, limit: int = MAX_EMBEDDED_BYTES) -> tuple[Part, ...]:
    async with Client(SERVER, mode=mode) as client:
        result = await client.call_tool("links", {"uris": list(uris)})
        return await parts_of_result(result, client.read_resource, limit=limit)


def link_as_data(uri: str) -> Part:
    return Part(data={"type": "resource_link", "uri": uri, "name": "n", "mimeType": "text/plain"})


def greeting_part(name: str = "n") -> Part:
    return Part(text="hello", filename="greeting", metadata={"uri": "demo://greeting", "name": name})


def picture_part(name: str = "n") -> Part:
    metadata = {"uri": "demo://picture.png", "name": name}
    return Part(raw=PNG, filename="picture.png", media_type="image/png", metadata=metadata)


GREETING, PICTURE = greeting_part(), picture_part()
LARGE = Part(text="ä" * 500, filename="large", metadata={"uri": "demo://large", "name": "n"})


@both
async def test_a_result_of_all_kinds_keeps_all_of_them(mode: str) -> None:
    async with Client(SERVER, mode=mode) as client:
        result = await client.call_tool("everything")
        parts = await parts_of_result(result, client.read_resource)
    assert parts == (
        Part(data={"b": 1, "a": [2]}, media_type="application/json"),
        Part(text="look"),
        Part(raw=PNG, filename="image-1.png", media_type="image/png"),
        Part(raw=WAV, filename="audio-1.wav", media_type="audio/wav"),
        Part(
            text="# today", filename="today.md", media_type="text/markdown", metadata={"uri": "demo://notes/today.md"}
        ),
        Part(
            raw=b"\x00",
            filename="a.bin",
            media_type="application/octet-stream",
            metadata={"uri": "demo://notes/a.bin"},
        ),
        Part(url="https://example.org/a.pdf", filename="a.pdf"),
        greeting_part("the greeting"),
        picture_part("the picture"),
        Part(data={"type": "resource_link", "uri": "demo://broken", "name": "no more"}),
    )
    metadata = metadata_of(result)
    assert metadata is not None
    assert metadata["mcp"]["trace"] == "7"


@both
async def test_a_link_that_leads_nowhere_is_handed_on_as_data(mode: str) -> None:
    assert await linked(mode, "demo://nothing", "file:///nothing", "demo://greeting") == (
        link_as_data("demo://nothing"),
        link_as_data("file:///nothing"),
        GREETING,
    )


@both
async def test_what_is_too_large_stays_where_it_is_and_no_more_is_read(mode: str) -> None:
    assert await linked(mode, "demo://greeting", "demo://large", "demo://greeting", limit=999) == (
        GREETING,
        link_as_data("demo://large"),
        link_as_data("demo://greeting"),
    )
    assert await linked(mode, "demo://large", limit=1000) == (LARGE,)


@both
async def test_the_limit_is_for_all_links_together(mode: str) -> None:
    two = len("hello") + len(PNG)
    assert await linked(mode, "demo://greeting", "demo://picture.png", "demo://greeting", limit=two + 4) == (
        GREETING,
        PICTURE,
        link_as_data("demo://greeting"),
    )


async def test_what_says_that_it_is_too_large_is_not_read() -> None:
    link = ResourceLink(uri="demo://large", name="n", mime_type="text/plain", size=1001)
    (part,) = await parts_of_result(CallToolResult(content=[link]), never_read, limit=1000)
    assert part.data == {**link_as_data("demo://large").data, "size": 1001}


async def test_so_many_links_are_followed_and_the_rest_are_data() -> None:
    read: list[str] = []

    async def reading(uri: str) -> ReadResourceResult:
        read.append(uri)
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, text="")])

    links = [ResourceLink(uri=f"demo://{n}", name="n", mime_type="text/plain") for n in range(MAX_LINKS + 2)]
    parts = await parts_of_result(CallToolResult(content=[*links]), reading)
    assert read == [link.uri for link in links[:MAX_LINKS]]
    assert parts[MAX_LINKS:] == tuple(link_as_data(link.uri) for link in links[MAX_LINKS:])


async def test_after_a_link_that_takes_too_long_no_other_is_followed() -> None:
    read: list[str] = []

    async def late(uri: str) -> ReadResourceResult:
        read.append(uri)
        raise TimeoutError

    links = [ResourceLink(uri=f"demo://{n}", name="n", mime_type="text/plain") for n in range(3)]
    parts = await parts_of_result(CallToolResult(content=[*links]), late)
    assert parts == tuple(link_as_data(link.uri) for link in links)
    assert read == ["demo://0"]


async def test_all_contents_of_a_link_are_handed_on() -> None:
    async def folder(uri: str) -> ReadResourceResult:
        return ReadResourceResult(
            contents=[
                TextResourceContents(uri=f"{uri}/a", text="a"),
                BlobResourceContents(uri=f"{uri}/b", blob=base64_of(PNG), mime_type="image/png"),
                BlobResourceContents(uri=f"{uri}/c", blob="broken!"),
            ]
        )

    link = ResourceLink(uri="demo://folder", name="n", annotations=Annotations(priority=1))
    beside = {"name": "n", "annotations": {"priority": 1.0}}
    assert await parts_of_result(CallToolResult(content=[link]), folder) == (
        Part(text="a", filename="a", metadata={"uri": "demo://folder/a", **beside}),
        Part(raw=PNG, filename="b", media_type="image/png", metadata={"uri": "demo://folder/b", **beside}),
        Part(data={"uri": "demo://folder/c", "blob": "broken!"}),
    )


async def test_a_link_to_nothing_at_all_is_handed_on_as_data() -> None:
    async def empty(uri: str) -> ReadResourceResult:
        return ReadResourceResult(contents=[])

    link = ResourceLink(uri="demo://empty", name="n")
    (part,) = await parts_of_result(CallToolResult(content=[link]), empty)
    assert part == Part(data={"type": "resource_link", "uri": "demo://empty", "name": "n"})


async def test_a_cancel_while_a_link_is_read_goes_through() -> None:
    reading = asyncio.Event()

    async def slow(uri: str) -> ReadResourceResult:
        reading.set()
        await asyncio.Event().wait()
        raise AssertionError(uri)

    result = CallToolResult(content=[ResourceLink(uri="demo://slow", name="n")])
    converting = asyncio.ensure_future(parts_of_result(result, slow))
    await reading.wait()
    converting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await converting


# -- errors and metadata -----------------------------------------------------------------------------------------------


def test_an_error_has_the_text_of_the_tool() -> None:
    image = ImageContent(data="", mime_type="image/png")
    result = CallToolResult(content=[TextContent(text="no"), image, TextContent(text="way")], is_error=True)
    assert error_text(result) == "no\nway"


@pytest.mark.parametrize("content", [[], [TextContent(text=" ")], [ImageContent(data="", mime_type="image/png")]])
def test_an_error_without_a_text_gets_a_sentence(content: list[ContentBlock]) -> None:
    assert error_text(CallToolResult(content=content, is_error=True)) == "The tool failed and did not say why."


def test_what_a_result_says_about_itself_has_a_place_of_its_own() -> None:
    assert metadata_of(CallToolResult(content=[], _meta={"example.org/cost": 3})) == {"mcp": {"example.org/cost": 3}}


@pytest.mark.parametrize("meta", [None, {}])
def test_a_result_that_says_nothing_about_itself_has_no_metadata(meta: dict[str, Any] | None) -> None:
    assert metadata_of(CallToolResult(content=[], _meta=meta)) is None
