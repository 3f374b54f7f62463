"""One MCP tool as a skill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from dragoman.agents.mcp_tools.arguments import Schema
from dragoman.agents.presentation import categories, humanized
from dragoman.model.card import AgentSkill

if TYPE_CHECKING:
    import mcp_types as types

    from dragoman.agents.mcp_tools.supervisor import Supervisor

# What a tool says about itself to us, in its `_meta`.
PERMISSION = "dragoman/permission"
TAGS = "dragoman/tags"
USER = "dragoman/user"
_JSON, _TEXT = "application/json", "text/plain"
_LONGEST_EXAMPLE = 400


class Tool:
    """A tool of one server, under the id callers use for it."""

    def __init__(
        self, supervisor: Supervisor, tool: types.Tool, *, id: str, permission: str | None, default: bool, prefix: str
    ) -> None:
        self.supervisor = supervisor
        self.id = id
        self.name = tool.name
        self.permission = permission
        self.default = default
        self.schema = Schema(tool.input_schema)
        self._tool = tool
        self._prefix = prefix
        self._output = None if tool.output_schema is None else Schema(tool.output_schema)

    @property
    def description(self) -> str:
        """What the tool says of itself, or its name."""
        return self._tool.description or self._tool.title or self.name

    @property
    def title(self) -> str:
        """A name for people."""
        annotations = self._tool.annotations
        return self._tool.title or (annotations.title if annotations else None) or humanized(self.name, self._prefix)

    @property
    def wants_user(self) -> bool:
        """True when it asks to be told who calls."""
        return bool((self._tool.meta or {}).get(USER))

    @property
    def may_repeat(self) -> bool:
        """True when running it twice does no harm, as far as its server says."""
        hints = self._tool.annotations
        return hints is not None and (hints.read_only_hint is True or hints.idempotent_hint is True)

    def broken_promise(self, result: types.CallToolResult) -> str:
        """What is wrong with a result, by the tool's own output schema; nothing when that cannot be told."""
        if self._output is None or result.is_error:
            return ""
        if "structured_content" not in result.model_fields_set:
            return "it has an output schema, and returned no structured content"
        return self._output.question(self.id, self._output.problems(result.structured_content))

    def card(self) -> AgentSkill:
        """The skill as the agent card shows it."""
        example = json.dumps({"tool": self.id, "arguments": self.schema.example()}, ensure_ascii=False)
        return AgentSkill(
            self.id,
            self.title,
            self.description,
            self._tags(),
            (example,) if len(example) <= _LONGEST_EXAMPLE else (),
            input_modes=(_JSON, _TEXT) if self.schema.takes_text else (_JSON,),
            output_modes=(_JSON, _TEXT) if self._tool.output_schema else (_TEXT,),
        )

    def _tags(self) -> tuple[str, ...]:
        own: object = (self._tool.meta or {}).get(TAGS)
        said = [str(each) for each in own] if isinstance(own, (list, tuple)) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        hints = self._tool.annotations
        marks = [] if hints is None else _marks(hints)
        return tuple(dict.fromkeys((*said, *categories(self.name, self._tool.description or ""), *marks, "mcp")))

    def sample(self) -> dict[str, Any]:
        """A part of a message that it can do something with."""
        return {"data": {"tool": self.id, "arguments": self.schema.example()}}

    def schemas(self) -> dict[str, Any]:
        """Its schemas and hints, as its server gives them."""
        shown: dict[str, Any] = {"inputSchema": self._tool.input_schema}
        if self._tool.output_schema is not None:
            shown["outputSchema"] = self._tool.output_schema
        if self._tool.annotations is not None:
            shown["annotations"] = self._tool.annotations.model_dump(by_alias=True, exclude_none=True)
        return shown


def _marks(hints: types.ToolAnnotations) -> list[str]:
    marks = ["read-only"] if hints.read_only_hint else ["destructive"] if hints.destructive_hint else []
    return [*marks, "open-world"] if hints.open_world_hint else marks


def permission_of(tool: types.Tool, id: str, permissions: Mapping[str, str | None]) -> str | None:
    """What a caller needs for a tool: the configuration's word (the first pattern that fits), else the tool's own."""
    for pattern, permission in permissions.items():
        if fnmatchcase(id, pattern) or fnmatchcase(tool.name, pattern):
            return permission
    own: object = (tool.meta or {}).get(PERMISSION)
    return own if isinstance(own, str) and own else None
