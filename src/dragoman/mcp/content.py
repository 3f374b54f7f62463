"""Parts of A2A as content of MCP, in a form that hosts can show."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import mcp_types as types

from dragoman.model.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.model.message import Message
    from dragoman.model.part import Part

# What is larger is not put into the result, but can be read.
INLINE = 256 * 1024
_BYTES = "application/octet-stream"


def blocks_of(answer: Task | Message, place: str) -> list[types.ContentBlock]:
    """The texts and files of an answer. Data is in the structured result. `place` is where files can be read.

    Images and audio are shown, other files are embedded while they are small, and linked when they are not.
    """
    return [block for path, part in parts_of(answer) if (block := _block(part, f"{place}/{path}")) is not None]


def parts_of(answer: Task | Message) -> Iterator[tuple[str, Part]]:
    """All parts of an answer, each with its place in it."""
    if not isinstance(answer, Task):
        yield from ((str(number), part) for number, part in enumerate(answer.parts))
        return
    for artifact in answer.artifacts:
        yield from ((f"{artifact.artifact_id}/{number}", part) for number, part in enumerate(artifact.parts))


def _block(part: Part, uri: str) -> types.ContentBlock | None:
    kind = part.media_type or ""
    if part.text is not None:
        return types.TextContent(type="text", text=part.text)
    if part.url is not None:
        name = part.filename or part.url.rsplit("/", 1)[-1] or part.url
        return types.ResourceLink(type="resource_link", uri=part.url, name=name, mime_type=part.media_type)
    if part.raw is None:
        return None
    if len(part.raw) > INLINE:
        name = part.filename or "file"
        return types.ResourceLink(
            type="resource_link", uri=uri, name=name, mime_type=kind or _BYTES, size=len(part.raw)
        )
    data = base64.b64encode(part.raw).decode()
    if kind.startswith("image/"):
        return types.ImageContent(type="image", data=data, mime_type=kind)
    if kind.startswith("audio/"):
        return types.AudioContent(type="audio", data=data, mime_type=kind)
    held = types.BlobResourceContents(uri=uri, mime_type=kind or _BYTES, blob=data)
    return types.EmbeddedResource(type="resource", resource=held)
