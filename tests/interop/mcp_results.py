"""What a call of an MCP tool comes to, read twice: from the result itself, and from the task that Dragoman makes of it.

The reading of results here is written from the two protocols alone, and uses nothing of `dragoman.agents`: where the
two readings differ, one of them is wrong.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import mcp_types as mcp
from mcp import MCPError

from dragoman import Part, State, Task

Content = tuple[str, Any, str | None]
"""The kind of a part, its value, and its media type."""
Question = tuple[str, str, Any]
"""`form` or `url`, the words, and the schema or the address."""
Read = Callable[[str], Awaitable[mcp.ReadResourceResult]]

# Errors of the protocol that say: nobody could have done this.
REFUSALS = (mcp.INVALID_PARAMS, mcp.METHOD_NOT_FOUND)
PLAIN = "text/plain"


@dataclass(frozen=True)
class Outcome:
    """How a call ended, what it gave, what it said when it failed, and what it asked on the way."""

    state: str
    parts: list[Content] = field(default_factory=list)
    error: str = ""
    questions: list[Question] = field(default_factory=list)

    def seen(self, view: Callable[[Any], Any] | None) -> Outcome:
        """The same without what differs by nature."""
        if view is None:
            return self
        parts = [(kind, view(value), media_type) for kind, value, media_type in self.parts]
        return replace(self, parts=parts, error=view(self.error))


# -- from MCP ----------------------------------------------------------------------------------------------------------


async def of_result(result: mcp.CallToolResult, read: Read) -> Outcome:
    """What a result has to become."""
    structured = result.structured_content
    plain = plain_value(result)
    if plain is not None:
        return Outcome("completed", [plain])
    parts: list[Content] = [] if structured is None else [("data", structured, "application/json")]
    texts: list[str] = []
    for block in result.content:
        if isinstance(block, mcp.TextContent):
            texts.append(block.text)
            if structured is None or not (repeats(block.text, structured) or lists(result)):
                parts.append(("text", block.text, None))
        elif isinstance(block, (mcp.ImageContent, mcp.AudioContent)):
            parts.append(("raw", base64.b64decode(block.data), block.mime_type))
        elif isinstance(block, mcp.EmbeddedResource):
            parts.append(of_resource(block.resource))
        elif block.uri.startswith(("http://", "https://")):
            parts.append(("url", block.uri, block.mime_type))
        else:
            parts += [of_resource(each) for each in (await read(block.uri)).contents]
    if result.is_error:
        return Outcome("failed", parts, "\n".join(texts))
    return Outcome("completed", parts)


def of_error(error: MCPError) -> Outcome:
    """What an error of the protocol has to become."""
    return Outcome("rejected" if error.code in REFUSALS else "failed", error=error.message)


def of_resource(contents: mcp.TextResourceContents | mcp.BlobResourceContents) -> Content:
    if isinstance(contents, mcp.TextResourceContents):
        return "text", contents.text, None if contents.mime_type == PLAIN else contents.mime_type
    return "raw", base64.b64decode(contents.blob), contents.mime_type or "application/octet-stream"


def repeats(text: str, structured: object) -> bool:
    """True when a text only says again what the structured content says."""
    try:
        return exact(json.loads(text)) == exact(structured)
    except ValueError:
        return False


def wrapped(result: mcp.CallToolResult) -> Any:
    """What servers wrap to make an object of it, `{"result": …}`; None for anything else."""
    structured: Any = result.structured_content
    return structured["result"] if isinstance(structured, dict) and [*structured] == ["result"] else None


def plain_value(result: mcp.CallToolResult) -> Content | None:
    """A plain value that was wrapped, as the text it is."""
    value = wrapped(result)
    match result.content:
        case [mcp.TextContent(text=text)] if isinstance(value, str) and text == value:
            return "text", text, None
        case [mcp.TextContent(text=text)] if isinstance(value, (int, float)) and repeats(text, value):
            return "text", text, "application/json"
        case _:
            return None


def lists(result: mcp.CallToolResult) -> bool:
    """True when the texts are the items of a list that was wrapped, all in one of them."""
    match result.content:
        case [mcp.TextContent(text=text)]:
            return isinstance(wrapped(result), list) and repeats(text, wrapped(result))
        case _:
            return False


def exact(value: Any) -> str:
    """One spelling for one JSON value; 1.0 is 1 there, and true is not."""

    def whole(each: Any) -> Any:
        if isinstance(each, dict):
            return {key: whole(inner) for key, inner in cast("dict[str, Any]", each).items()}
        if isinstance(each, list):
            return [whole(inner) for inner in cast("list[Any]", each)]
        return int(each) if isinstance(each, float) and each.is_integer() else each

    return json.dumps(whole(value), sort_keys=True)


def of_question(params: mcp.ElicitRequestParams) -> Question:
    if isinstance(params, mcp.ElicitRequestURLParams):
        return "url", params.message, params.url
    return "form", params.message, params.requested_schema


# -- from A2A ----------------------------------------------------------------------------------------------------------


def of_task(task: Task) -> Outcome:
    """What a task that has ended says."""
    parts = [of_part(part) for artifact in task.artifacts for part in artifact.parts]
    return Outcome(task.state.name.lower(), parts, task.error or "")


def of_part(part: Part) -> Content:
    value = {"text": part.text, "raw": part.raw, "url": part.url, "data": part.data}[part.kind]
    return part.kind, value, part.media_type


def of_waiting(task: Task) -> Question:
    """What a task that waits asks for."""
    assert task.status.message is not None
    if task.state is State.AUTH_REQUIRED:
        (url,) = (part.url for part in task.status.message.parts if part.kind == "url")
        return "url", task.question or "", url
    (asked,) = (part.data for part in task.status.message.parts if part.kind == "data")
    return "form", asked["message"], asked["requestedSchema"]
