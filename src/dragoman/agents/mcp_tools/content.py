"""Converts the result of an MCP tool to message parts."""

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

MAX_EMBEDDED_BYTES = 4_000_000  # of all links of one result together
MAX_LINKS = 32  # links read per result
_MAX_NAME_BYTES = 200  # of a file name; file systems allow 255
_PROTOCOL_PREFIX = "io.modelcontextprotocol/"

ReadResource = Callable[[str], Awaitable[ReadResourceResult]]

# Formats whose name is not their file extension. Python's `mimetypes` differs from machine to machine.
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
    """Convert a tool's result to parts: its structured content first, then its content blocks in order.

    Text that only repeats the structured content as JSON is left out, and so are the texts that repeat a wrapped list,
    `{"result": [1, 2]}`, as a whole or item by item. A wrapped plain value, `{"result": 3}` beside the text "3", is
    that text alone.

    A link that only the MCP server can resolve is read with `read`: at most MAX_LINKS of them, with at most `limit`
    bytes together. After one that exceeds that, or for which `read` raises TimeoutError, no more are read. Nothing is
    raised for content that is broken, too large or of an unknown type: it becomes a data part, unchanged.
    """
    return await _ResultConverter(result, read, limit).parts()


def error_text(result: CallToolResult) -> str:
    """The error message of a failed tool, for people."""
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    return text if text.strip() else "The tool failed and did not say why."


def metadata_of(result: CallToolResult) -> dict[str, Any] | None:
    """The `_meta` of a result, under the key `mcp`; None when there is none.

    Keys of the protocol itself are left out: they are between the server and its client.
    """
    own = {key: value for key, value in (result.meta or {}).items() if not key.startswith(_PROTOCOL_PREFIX)}
    return {"mcp": own} if own else None


class _ResultConverter:
    """Converts one result, counting the files it names and the bytes its links bring."""

    def __init__(self, result: CallToolResult, read: ReadResource, limit: int) -> None:
        self._result = result
        self._read = read
        self._bytes_left = limit
        self._links_left = MAX_LINKS
        self._file_counts = Counter[str]()

    async def parts(self) -> tuple[Part, ...]:
        structured = self._result.structured_content
        wrapped = self._unwrap(structured)
        if wrapped is not None:
            return (wrapped,)
        parts = [] if structured is None else [Part(data=structured, media_type="application/json")]
        repeats_list = self._repeats_list(structured)
        for block in self._result.content:
            if isinstance(block, TextContent):
                if structured is None or not (repeats_list or _is_json_of(block.text, structured)):
                    parts.append(Part(text=block.text, metadata=_metadata(block.annotations)))
            elif isinstance(block, ResourceLink):
                parts += await self._link_parts(block)
            else:
                parts.append(self._file_part(block))
        return tuple(parts)

    def _unwrap(self, structured: object) -> Part | None:
        """Return a wrapped plain value, `{"result": 3}` beside the text "3", as that text; None for anything else."""
        content = self._result.content
        if not isinstance(structured, dict) or len(content) != 1 or not isinstance(content[0], TextContent):
            return None
        wrapping = cast("dict[str, Any]", structured)
        value: Any = wrapping.get("result")
        block, is_text = content[0], isinstance(value, str)
        if len(wrapping) != 1 or not isinstance(value, (str, int, float)):
            return None
        if block.text != value if is_text else not _is_json_of(block.text, value):
            return None
        metadata = _metadata(block.annotations, {"structuredContent": wrapping})
        return Part(text=block.text, media_type=None if is_text else "application/json", metadata=metadata)

    def _repeats_list(self, structured: object) -> bool:
        """True when the texts are a wrapped list, `{"result": [1, 2]}`, again: one text as JSON, or one per item."""
        if not isinstance(structured, dict) or list(cast("dict[str, Any]", structured)) != ["result"]:
            return False
        items: object = cast("dict[str, object]", structured)["result"]
        if not isinstance(items, list):
            return False
        items = cast("list[object]", items)
        texts = [block.text for block in self._result.content if isinstance(block, TextContent)]
        if len(texts) != len(self._result.content):
            return False
        return (len(texts) == 1 and _is_json_of(texts[0], items)) or _are_texts_of(texts, _flattened(items))

    def _file_part(self, block: object) -> Part:
        if isinstance(block, (ImageContent, AudioContent)):
            self._file_counts[block.type] += 1
            raw = _decode_base64(block.data)
            if raw is not None:
                filename = f"{block.type}-{self._file_counts[block.type]}.{_extension(block.mime_type)}"
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
        # Only the MCP server can resolve the URI, so it is never passed on as a URL.
        return await self._read_link(link) or [Part(data=_to_json(link))]

    async def _read_link(self, link: ResourceLink) -> list[Part]:
        """Read a link; return nothing when it cannot be read or is too large."""
        if self._links_left <= 0 or (link.size or 0) > self._bytes_left:
            return []
        self._links_left -= 1
        try:
            contents = (await self._read(link.uri)).contents
        except TimeoutError:
            logger.warning("the resource %s takes too long to be read", link.uri)
            self._links_left = 0  # the next ones may be as slow
            return []
        except Exception as error:  # noqa: BLE001 - an unreadable link is still part of the result
            logger.warning("the resource %s could not be read: %s", link.uri, error)
            return []
        about = link.model_dump(mode="json", include={"name", "title", "description"}, exclude_none=True)
        parts = [_resource_part(each, link.annotations, about) or Part(data=_to_json(each)) for each in contents]
        size = sum(map(_size, parts))
        if size > self._bytes_left:
            self._links_left = 0  # reading more, only to discard it, would cost as much
            return []
        self._bytes_left -= size
        return parts


def _resource_part(
    contents: TextResourceContents | BlobResourceContents,
    annotations: Annotations | None,
    about: dict[str, Any] | None = None,
) -> Part | None:
    """Convert the contents of a resource; None when they are not valid base64."""
    filename, media_type = _basename(contents.uri), contents.mime_type or None
    metadata = _metadata(annotations, {"uri": contents.uri, **(about or {})})
    if isinstance(contents, TextResourceContents):
        # Text without a media type is plain text.
        media_type = None if media_type is None or _essence(media_type) == "text/plain" else media_type
        return Part(text=contents.text, filename=filename, media_type=media_type, metadata=metadata)
    raw = _decode_base64(contents.blob)
    if raw is None:
        return None
    return Part(raw=raw, filename=filename, media_type=media_type or "application/octet-stream", metadata=metadata)


def _metadata(annotations: Annotations | None, extra: dict[str, Any] | None = None) -> dict[str, Any] | None:
    metadata = dict(extra or {})
    if annotations is not None and (encoded := _to_json(annotations)):
        metadata["annotations"] = encoded
    return metadata or None


def _to_json(block: object) -> Any:
    """Encode a block in the spelling of MCP."""
    return block.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(block, BaseModel) else block


def _decode_base64(data: str) -> bytes | None:
    """Decode base64, which may contain line breaks; None when it is invalid."""
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
    """Return a media type without its parameters."""
    return media_type.partition(";")[0].strip().lower()


def _extension(media_type: str) -> str:
    essence = _essence(media_type)
    ending = _EXTENSIONS.get(essence) or essence.partition("/")[2].partition("+")[0].removeprefix("x-")
    # It becomes part of a file name, and a server may send anything here.
    return ending if ending.isascii() and ending.isalnum() else "bin"


def _basename(uri: str) -> str | None:
    """Return the last segment of a URI's path as a file name; None when it has none."""
    path = uri.partition("#")[0].partition("?")[0]
    path = unquote(path.partition(":")[2] or path).replace("\\", "/").rstrip("/")
    return _file_name(path.rpartition("/")[2])


def _file_name(name: str) -> str | None:
    """Turn a foreign name into one that is safe to save a file under; None when nothing of it remains."""
    # Unicode category C is invisible: control characters, marks that reverse the text direction, lone surrogates. A
    # colon separates a drive on some systems.
    clean = "".join("_" if each in "/\\:" else each for each in name if unicodedata.category(each)[0] != "C").strip()
    stem, dot, ending = clean.rpartition(".")
    if len(clean.encode()) > _MAX_NAME_BYTES and dot and len(ending.encode()) <= _MAX_NAME_BYTES // 4:
        clean = _truncate(stem, _MAX_NAME_BYTES - len(ending.encode()) - 1) + dot + ending
    clean = _truncate(clean, _MAX_NAME_BYTES)
    return None if clean in ("", ".", "..") else clean


def _truncate(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _flattened(items: object) -> list[object]:
    """Return the items of a list and of the lists in it, without nulls, which have no text of their own."""
    if not isinstance(items, list):
        return [] if items is None else [items]
    return [inner for each in cast("list[object]", items) for inner in _flattened(each)]


def _are_texts_of(texts: list[str], items: list[object]) -> bool:
    """True when each text is one item, in order: a text as it is, anything else as JSON."""
    return len(texts) == len(items) and all(
        text == item if isinstance(item, str) else _is_json_of(text, item)
        for text, item in zip(texts, items, strict=True)
    )


def _is_json_of(text: str, value: Any) -> bool:
    try:
        return is_equal_json(json.loads(text), value)
    except (ValueError, RecursionError):
        return False
