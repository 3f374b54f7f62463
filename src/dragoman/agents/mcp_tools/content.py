"""What a tool of an MCP server returned, as the parts of an answer."""

from __future__ import annotations

import base64
import json
import logging
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import unquote

from mcp_types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel

from dragoman.model.part import Part
from dragoman.schema.keywords import is_equal_json

logger = logging.getLogger("dragoman.mcp")

MAX_EMBEDDED_BYTES = 4_000_000  # bytes that links may bring into one result
MAX_LINKS = 32  # links of one result that are followed
_MAX_NAME_BYTES = 200  # bytes of a file's name; file systems take 255
_PROTOCOL_PREFIX = "io.modelcontextprotocol/"

ReadResource = Callable[[str], Awaitable[ReadResourceResult]]

# Where the name of a format is not the ending of its files. Python's own table differs from machine to machine.
_EXTENSIONS = {
    "image/jpeg": "jpg",
    "image/x-icon": "ico",
    "image/vnd.microsoft.icon": "ico",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
}


async def parts_of_result(
    result: CallToolResult, read: ReadResource, *, limit: int = MAX_EMBEDDED_BYTES
) -> tuple[Part, ...]:
    """Make parts of a tool's result: its data first, then its content in order.

    A link that only the MCP server can follow is followed with `read`, as long as all that links bring is at most
    `limit` bytes. After one that brings too much, or for which `read` raises TimeoutError, no more are followed.
    Nothing is raised for what is broken, too large or not known: it becomes data, as it came.
    """
    return await _ResultConverter(result, read, limit).parts()


def error_text(result: CallToolResult) -> str:
    """What a failed tool says, for people."""
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    return text if text.strip() else "The tool failed and did not say why."


def metadata_of(result: CallToolResult) -> dict[str, Any] | None:
    """What the result says about itself, under the key `mcp`; None when it says nothing.

    What the protocol itself puts there is between the server and its client.
    """
    own = {key: value for key, value in (result.meta or {}).items() if not key.startswith(_PROTOCOL_PREFIX)}
    return {"mcp": own} if own else None


class _ResultConverter:
    """One result on its way to parts: it counts the files that it names and the bytes that links have brought."""

    def __init__(self, result: CallToolResult, read: ReadResource, limit: int) -> None:
        self._result = result
        self._read = read
        self._bytes_left = limit
        self._links_left = MAX_LINKS
        self._numbers = Counter[str]()

    async def parts(self) -> tuple[Part, ...]:
        structured = self._result.structured_content
        wrapped = self._unwrap(structured)
        if wrapped is not None:
            return (wrapped,)
        found = [] if structured is None else [Part(data=structured, media_type="application/json")]
        for block in self._result.content:
            if isinstance(block, TextContent):
                if structured is None or not _encodes(block.text, structured):
                    found.append(Part(text=block.text, metadata=_metadata(block.annotations)))
            elif isinstance(block, ResourceLink):
                found += await self._link_parts(block)
            else:
                found.append(self._file_part(block))
        return tuple(found)

    def _unwrap(self, structured: object) -> Part | None:
        """A plain value that its server wrapped, `{"result": 3}` beside the text "3", as what it is: that text."""
        content = self._result.content
        if not isinstance(structured, dict) or len(content) != 1 or not isinstance(content[0], TextContent):
            return None
        wrapping = cast("dict[str, Any]", structured)
        value: Any = wrapping.get("result")
        block, is_text = content[0], isinstance(value, str)
        if len(wrapping) != 1 or not isinstance(value, (str, int, float)):
            return None
        if block.text != value if is_text else not _encodes(block.text, value):
            return None
        metadata = _metadata(block.annotations, {"structuredContent": wrapping})
        return Part(text=block.text, media_type=None if is_text else "application/json", metadata=metadata)

    def _file_part(self, block: object) -> Part:
        if isinstance(block, (ImageContent, AudioContent)):
            self._numbers[block.type] += 1
            raw = _decode_base64(block.data)
            if raw is not None:
                filename = f"{block.type}-{self._numbers[block.type]}.{_extension(block.mime_type)}"
                metadata = _metadata(block.annotations)
                return Part(raw=raw, filename=filename, media_type=block.mime_type or None, metadata=metadata)
        elif isinstance(block, EmbeddedResource):
            part = _resource_part(block.resource, block.annotations)
            if part is not None:
                return part
        return Part(data=_to_json(block))

    async def _link_parts(self, link: ResourceLink) -> list[Part]:
        if link.uri.lower().startswith(("http://", "https://")):
            about = link.model_dump(mode="json", include={"title", "description", "size"}, exclude_none=True)
            metadata = _metadata(link.annotations, about)
            filename, media_type = _file_name(link.name), link.mime_type or None
            return [Part(url=link.uri, filename=filename, media_type=media_type, metadata=metadata)]
        # Nobody but the MCP server knows what to do with the uri, so it is never handed out as a url.
        return await self._follow(link) or [Part(data=_to_json(link))]

    async def _follow(self, link: ResourceLink) -> list[Part]:
        """What the link leads to; nothing when it cannot be read or is too large."""
        if self._links_left <= 0 or (link.size or 0) > self._bytes_left:
            return []
        self._links_left -= 1
        try:
            contents = (await self._read(link.uri)).contents
        except TimeoutError:
            logger.warning("the resource %s takes too long to be read", link.uri)
            self._links_left = 0  # those after it might, too
            return []
        except Exception as error:  # noqa: BLE001 - a link that leads nowhere is still a result
            logger.warning("the resource %s could not be read: %s", link.uri, error)
            return []
        about = link.model_dump(mode="json", include={"name", "title", "description"}, exclude_none=True)
        parts = [_resource_part(each, link.annotations, about) or Part(data=_to_json(each)) for each in contents]
        size = sum(map(_size, parts))
        if size > self._bytes_left:
            self._links_left = 0  # what is read to be thrown away costs as much as what is kept
            return []
        self._bytes_left -= size
        return parts


def _resource_part(
    contents: TextResourceContents | BlobResourceContents,
    annotations: Annotations | None,
    about: dict[str, Any] | None = None,
) -> Part | None:
    """The contents of a resource as a part; None when they are not what base64 can mean."""
    filename, media_type = _basename(contents.uri), contents.mime_type or None
    metadata = _metadata(annotations, {"uri": contents.uri, **(about or {})})
    if isinstance(contents, TextResourceContents):
        # A reader takes text for plain when nothing else is said.
        media_type = None if media_type is None or _essence(media_type) == "text/plain" else media_type
        return Part(text=contents.text, filename=filename, media_type=media_type, metadata=metadata)
    raw = _decode_base64(contents.blob)
    if raw is None:
        return None
    return Part(raw=raw, filename=filename, media_type=media_type or "application/octet-stream", metadata=metadata)


def _metadata(annotations: Annotations | None, beside: dict[str, Any] | None = None) -> dict[str, Any] | None:
    found = dict(beside or {})
    if annotations is not None and (told := _to_json(annotations)):
        found["annotations"] = told
    return found or None


def _to_json(block: object) -> Any:
    """A block as it is spelled in MCP."""
    return block.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(block, BaseModel) else block


def _decode_base64(data: str) -> bytes | None:
    """The bytes that a text in base64 means; None when it means none. Lines may be broken, as in mails."""
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except ValueError:
        return None


def _size(part: Part) -> int:
    if part.raw is not None:
        return len(part.raw)
    content = part.text if part.text is not None else str(part.data)
    return len(content.encode(errors="surrogatepass"))


def _essence(media_type: str) -> str:
    """A media type without its parameters."""
    return media_type.partition(";")[0].strip().lower()


def _extension(media_type: str) -> str:
    essence = _essence(media_type)
    ending = _EXTENSIONS.get(essence) or essence.partition("/")[2].partition("+")[0].removeprefix("x-")
    # It becomes a part of a file's name, and a server may write anything here.
    return ending if ending.isascii() and ending.isalnum() else "bin"


def _basename(uri: str) -> str | None:
    """The last step of a uri's path, as a file's name; None when it has none."""
    place = uri.partition("#")[0].partition("?")[0]
    place = unquote(place.partition(":")[2] or place).replace("\\", "/").rstrip("/")
    return _file_name(place.rpartition("/")[2])


def _file_name(name: str) -> str | None:
    """What a server calls a thing, as a name under which it can safely be saved; None when nothing is left of it."""
    # Of the category C are all that cannot be seen: control characters, marks that turn the writing around, halves of
    # characters. A colon is a drive on some systems.
    shown = "".join("_" if each in "/\\:" else each for each in name if unicodedata.category(each)[0] != "C").strip()
    stem, dot, ending = shown.rpartition(".")
    if len(shown.encode()) > _MAX_NAME_BYTES and dot and len(ending.encode()) <= _MAX_NAME_BYTES // 4:
        shown = _truncate(stem, _MAX_NAME_BYTES - len(ending.encode()) - 1) + dot + ending
    shown = _truncate(shown, _MAX_NAME_BYTES)
    return None if shown in ("", ".", "..") else shown


def _truncate(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _encodes(text: str, value: Any) -> bool:
    try:
        return is_equal_json(json.loads(text), value)
    except (ValueError, RecursionError):
        return False
