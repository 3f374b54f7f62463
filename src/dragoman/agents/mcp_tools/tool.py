"""One MCP tool as a skill."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.offers import categories, humanized
from dragoman.model.card import AgentSkill
from dragoman.schema.arguments import Schema

if TYPE_CHECKING:
    import mcp_types as types

    from dragoman.agents.mcp_tools.supervisor import Supervisor

# What a tool says about itself to us, in its `_meta`.
PERMISSION = "dragoman/permission"
TAGS = "dragoman/tags"
USER = "dragoman/user"
_JSON, _TEXT = "application/json", "text/plain"
_LONGEST_EXAMPLE = 400
_MOST_TAGS = 50
_LONGEST_TITLE, _LONGEST_DESCRIPTION = 200, 20_000


class Tool:
    """A tool of one server, under the id callers use for it."""

    def __init__(
        self,
        supervisor: Supervisor,
        tool: types.Tool,
        *,
        id: str,
        permission: str | None,
        default: bool,
        prefix: str,
        exemplary: bool = True,
    ) -> None:
        self.supervisor = supervisor
        self.id = id
        self.name = tool.name
        self.permission = permission
        self.default = default
        self.schema = Schema(tool.input_schema)
        self._tool = tool
        self._prefix = prefix
        self._exemplary = exemplary
        self._output = None if tool.output_schema is None else Schema(tool.output_schema)

    @property
    def description(self) -> str:
        """What the tool says of itself, or its name; a book is cut."""
        said = self._tool.description or self._tool.title or self.name
        return said if len(said) <= _LONGEST_DESCRIPTION else f"{said[: _LONGEST_DESCRIPTION - 1]}…"

    @property
    def title(self) -> str:
        """A name for people."""
        annotations = self._tool.annotations
        given = self._tool.title or (annotations.title if annotations else None)
        return given[:_LONGEST_TITLE] if given else humanized(self.name, self._prefix)

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

    def is_made_of(self, tool: types.Tool, **about: Any) -> bool:
        """True when this is what would be made of a tool and these arguments: then it need not be made again."""
        mine = {"id": self.id, "permission": self.permission, "default": self.default}
        return tool == self._tool and about == {**mine, "prefix": self._prefix, "exemplary": self._exemplary}

    def card(self) -> AgentSkill:
        """The skill as the agent card shows it; an example is on it where the tool is `exemplary`."""
        return self._card

    @functools.cached_property
    def _card(self) -> AgentSkill:
        example = self._example() if self._exemplary else ""
        return AgentSkill(
            self.id,
            self.title,
            self.description,
            self._tags(),
            (example,) if example else (),
            input_modes=(_JSON, _TEXT) if self.schema.takes_text else (_JSON,),
            output_modes=(_JSON, _TEXT) if self._tool.output_schema else (_TEXT,),
        )

    def _example(self) -> str:
        example = json.dumps({"tool": self.id, "arguments": self.schema.example()}, ensure_ascii=False)
        return example if len(example) <= _LONGEST_EXAMPLE else ""

    def _tags(self) -> tuple[str, ...]:
        own: object = (self._tool.meta or {}).get(TAGS)
        given = cast("list[object]", own)[:_MOST_TAGS] if isinstance(own, (list, tuple)) else []
        said = [str(each)[:_LONGEST_TITLE] for each in given]
        hints = self._tool.annotations
        marks = [] if hints is None else _marks(hints)
        about = (self._tool.description or "")[:_LONGEST_DESCRIPTION]
        return tuple(dict.fromkeys((*said, *categories(self.name, about), *marks, "mcp")))

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
