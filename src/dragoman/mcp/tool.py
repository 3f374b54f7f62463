"""What a tool is: its name, its schemas, its hints, and who does it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mcp_types as types

from dragoman.agents.mcp_tools.arguments import Schema

if TYPE_CHECKING:
    from dragoman.mcp.call import Call

Json = dict[str, Any]
Handler = Callable[["Call"], Awaitable["Answer | types.InputRequiredResult"]]


class Answer:
    """What a tool gives: JSON, as structured content and as text, and files in a form that hosts can show.

    With `listed`, the text is that array alone, as the tools' documentation wants it.
    """

    def __init__(
        self,
        structured: Json,
        *,
        listed: list[Any] | None = None,
        content: list[types.ContentBlock] | None = None,
        failed: bool = False,
    ) -> None:
        self.structured = structured
        self.failed = failed
        self._listed = listed
        self.content = content or []

    def result(self) -> types.CallToolResult:
        """The answer as MCP has it."""
        shown = self.structured if self._listed is None else self._listed
        text = types.TextContent(type="text", text=json.dumps(shown, indent=2, ensure_ascii=False))
        return types.CallToolResult(
            content=[text, *self.content], structured_content=self.structured, is_error=self.failed
        )


class Tool:
    """One tool."""

    def __init__(
        self,
        name: str,
        title: str,
        description: str,
        handler: Handler,
        *,
        takes: Mapping[str, Json],
        required: tuple[str, ...] = (),
        gives: Mapping[str, Json],
        always: tuple[str, ...] = (),
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
    ) -> None:
        self.name = name
        self.handler = handler
        self._title = title
        self._description = description
        self._input: Json = {"type": "object", "properties": dict(takes), "additionalProperties": False}
        if required:
            self._input["required"] = list(required)
        self._output: Json = {"type": "object", "properties": dict(gives)}
        if always:
            self._output["required"] = list(always)
        self._hints = types.ToolAnnotations(
            title=title,
            read_only_hint=read_only,
            destructive_hint=destructive and not read_only,
            idempotent_hint=idempotent or read_only,
            open_world_hint=True,
        )

    @cached_property
    def schema(self) -> Schema:
        """The schema of its arguments, to check them."""
        return Schema(self._input)

    def listed(self) -> types.Tool:
        """The tool as a host sees it."""
        return types.Tool(
            name=self.name,
            title=self._title,
            description=self._description,
            input_schema=self._input,
            output_schema=self._output,
            annotations=self._hints,
        )
