"""One MCP tool as a skill, and the choice of the tool and the arguments that a message asks for."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from dragoman.agents.offers import categories, humanized, may_use, requested_skill, skill_in_data
from dragoman.engine.execute.outputs import Ask
from dragoman.model.card import AgentSkill
from dragoman.model.error import Rejected
from dragoman.schema.arguments import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mcp_types as types

    from dragoman.agents.mcp_tools.supervisor import Supervisor
    from dragoman.engine.execute.context import Context

# Keys in the `_meta` of a tool.
PERMISSION = "dragoman/permission"
TAGS = "dragoman/tags"
USER = "dragoman/user"
_JSON, _TEXT = "application/json", "text/plain"
_MAX_EXAMPLE = 400
_MAX_TAGS = 50
_MAX_TITLE, _MAX_DESCRIPTION = 200, 20_000


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
        with_example: bool = True,
    ) -> None:
        self.supervisor = supervisor
        self.id = id
        self.name = tool.name
        self.permission = permission
        self.default = default
        self.schema = Schema(tool.input_schema)
        self._tool = tool
        self._prefix = prefix
        self._with_example = with_example
        self._output = None if tool.output_schema is None else Schema(tool.output_schema)

    @property
    def description(self) -> str:
        """The tool's description, else its title or name; truncated."""
        text = self._tool.description or self._tool.title or self.name
        return text if len(text) <= _MAX_DESCRIPTION else f"{text[: _MAX_DESCRIPTION - 1]}…"

    @property
    def title(self) -> str:
        """A display name."""
        annotations = self._tool.annotations
        title = self._tool.title or (annotations.title if annotations else None)
        return title[:_MAX_TITLE] if title else humanized(self.name, self._prefix)

    @property
    def wants_user(self) -> bool:
        """True when the tool asks to receive the caller's identity."""
        return bool((self._tool.meta or {}).get(USER))

    @property
    def may_repeat(self) -> bool:
        """True when the tool's hints say that running it twice does no harm."""
        hints = self._tool.annotations
        return hints is not None and (hints.read_only_hint is True or hints.idempotent_hint is True)

    def output_schema_violation(self, result: types.CallToolResult) -> str:
        """Return how a result violates the tool's own output schema; empty when it does not, or cannot be checked."""
        if self._output is None or result.is_error:
            return ""
        if "structured_content" not in result.model_fields_set:
            return "it has an output schema, and returned no structured content"
        return self._output.question(self.id, self._output.problems(result.structured_content))

    def is_built_from(self, tool: types.Tool, **options: Any) -> bool:
        """True when building this tool again from these arguments would change nothing."""
        own_options = {"id": self.id, "permission": self.permission, "default": self.default}
        return tool == self._tool and options == {
            **own_options,
            "prefix": self._prefix,
            "with_example": self._with_example,
        }

    def card(self) -> AgentSkill:
        """The tool's entry in the agent card."""
        return self._card

    @functools.cached_property
    def _card(self) -> AgentSkill:
        example = self._example() if self._with_example else ""
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
        return example if len(example) <= _MAX_EXAMPLE else ""

    def _tags(self) -> tuple[str, ...]:
        own: object = (self._tool.meta or {}).get(TAGS)
        items = cast("list[object]", own)[:_MAX_TAGS] if isinstance(own, (list, tuple)) else []
        own_tags = [str(each)[:_MAX_TITLE] for each in items]
        hints = self._tool.annotations
        hint_tags = [] if hints is None else _hint_tags(hints)
        about = (self._tool.description or "")[:_MAX_DESCRIPTION]
        return tuple(dict.fromkeys((*own_tags, *categories(self.name, about), *hint_tags, "mcp")))

    def sample(self) -> dict[str, Any]:
        """A message part that the tool accepts."""
        return {"data": {"tool": self.id, "arguments": self.schema.example()}}

    def schemas(self) -> dict[str, Any]:
        """Its schemas and hints, as its server publishes them."""
        schemas: dict[str, Any] = {"inputSchema": self._tool.input_schema}
        if self._tool.output_schema is not None:
            schemas["outputSchema"] = self._tool.output_schema
        if self._tool.annotations is not None:
            schemas["annotations"] = self._tool.annotations.model_dump(by_alias=True, exclude_none=True)
        return schemas


def _hint_tags(hints: types.ToolAnnotations) -> list[str]:
    tags = ["read-only"] if hints.read_only_hint else ["destructive"] if hints.destructive_hint else []
    return [*tags, "open-world"] if hints.open_world_hint else tags


def permission_of(tool: types.Tool, id: str, permissions: Mapping[str, str | None]) -> str | None:
    """Return the permission a tool needs: from the first matching pattern of the configuration, else its own."""
    for pattern, permission in permissions.items():
        if fnmatchcase(id, pattern) or fnmatchcase(tool.name, pattern):
            return permission
    own: object = (tool.meta or {}).get(PERMISSION)
    return own if isinstance(own, str) and own else None


_MAX_LISTED = 20
_MAX_LINE = 100
# Names with which an unknown name is compared.
_MAX_COMPARED = 500
# Tools named in the data of the question which tool is meant.
_MAX_NAMED = 1000


class ToolRequest(Struct, frozen=True):
    """A tool, and the arguments collected so far."""

    tool: Tool
    arguments: dict[str, Any]


def choose_tool(ctx: Context, tools: Mapping[str, Tool]) -> ToolRequest | Ask:
    """Choose the tool that the first message of the task asks for, or build the question which tool is meant.

    A data part `{"tool": …, "arguments": {…}}` comes first, then metadata `skillId`, then a text that is such an
    object, then the default tool, or the only one. Without those, a caller that cannot be asked gets the first tool it
    may use. Permission for a tool that is named is checked later, except for anonymous callers.

    Raises:
        Rejected: there is no such tool, an anonymous caller may not use it, or there is none the caller may use.
    """
    name, arguments = requested_skill(ctx, by_skill=True)
    explicit = (
        _parse_request(_parse_json_object(ctx.history[0].text if ctx.history else ctx.text))
        if name is None
        else (name, arguments)
    )
    if explicit is not None:
        return ToolRequest(_find_tool(ctx, explicit[0], tools), explicit[1])
    usable = _permitted_tools(ctx, tools)
    default = next((tool for tool in usable if tool.default), None)
    if default is None and len(usable) == 1 and ctx.asks:
        default = usable[0]
    if default is not None:
        return ToolRequest(default, _with_text(default, arguments, ctx.message.text))
    if not ctx.asks:
        if not usable:
            raise Rejected("this agent has no tools")
        # As callers of protocol 0.1 expect: the first tool, with the text as it is.
        return ToolRequest(usable[0], arguments or {"text": ctx.message.text})
    return ask_which_tool(usable)


def choose_tool_by_answer(ctx: Context, tools: Mapping[str, Tool]) -> ToolRequest | Ask:
    """Choose the tool that the answer to `ask_which_tool` names; ask again if there is no such tool.

    Raises:
        Rejected: as for `choose_tool`, if the answer is an object `{"tool": …}`.
    """
    answer = ctx.resume
    assert answer is not None
    explicit = _parse_request(answer.data) or _parse_request(_parse_json_object(answer.text))
    if explicit is not None:
        return ToolRequest(_find_tool(ctx, explicit[0], tools), explicit[1])
    usable = _permitted_tools(ctx, tools)
    name = answer.text.strip().strip("`\"'")
    folded = name.lower()
    tool = next((tool for tool in usable if folded and folded in (tool.id.lower(), tool.card().name.lower())), None)
    if tool is None:
        return ask_which_tool(usable, name)
    data = answer.data
    return ToolRequest(tool, dict(cast("dict[str, Any]", data)) if isinstance(data, dict) else {})


def ask_which_tool(usable: Sequence[Tool], unknown: str = "") -> Ask:
    """Build the question which tool is meant. Raises Rejected if the caller may use none."""
    if not usable:
        raise Rejected("this agent has no tools")
    near = _closest_name(unknown, usable)
    no_such = (
        f"there is no tool {unknown[:_MAX_LINE]!r}{f': did you mean `{near[0]}`?' if near else '.'} " if unknown else ""
    )
    lines = [f"- {tool.id}: {_first_line(tool.description)}" for tool in usable[:_MAX_LISTED]]
    more = [f"… and {len(usable) - _MAX_LISTED} more, see the agent card"] if len(usable) > _MAX_LISTED else []
    how = 'Answer with its name, or with data {"tool": "…", "arguments": {…}}.'
    question = "\n".join([f"{no_such}Which tool? {how}", *lines, *more])
    return Ask(
        question[:1].upper() + question[1:],
        ref={"ask": "tool"},
        details=({"tools": [tool.id for tool in usable[:_MAX_NAMED]]},),
    )


def _permitted_tools(ctx: Context, tools: Mapping[str, Tool]) -> list[Tool]:
    return [tool for tool in tools.values() if may_use(ctx, tool)]


def _closest_name(name: str, usable: Sequence[Tool]) -> list[str]:
    """Return the most similar name in a list, which is empty if there is none.

    Names are compared in time proportional to the product of their lengths, so long ones are skipped.
    """
    if not name or len(name) > _MAX_LINE:
        return []
    return difflib.get_close_matches(name, [tool.id for tool in usable[:_MAX_COMPARED] if len(tool.id) <= _MAX_LINE], 1)


def _find_tool(ctx: Context, name: str, tools: Mapping[str, Tool]) -> Tool:
    tool = tools.get(name)
    if tool is None or (ctx.user is None and not may_use(ctx, tool)):
        # Hints name only tools on the caller's card; an anonymous caller does not learn that others exist.
        near = _closest_name(name, _permitted_tools(ctx, tools))
        hint = f": did you mean `{near[0]}`?" if near else ""
        closed = any(each.permission is not None for each in tools.values())
        hint = hint or (", or one that needs credentials" if closed and ctx.user is None else "")
        raise Rejected(f"unknown tool `{name[:_MAX_LINE]}`{hint}")
    return tool


def _with_text(tool: Tool, arguments: dict[str, Any], text: str) -> dict[str, Any]:
    name = tool.schema.text_property(arguments) if text else None
    return arguments if name is None else {**arguments, name: text}


def _parse_request(data: object) -> tuple[str, dict[str, Any]] | None:
    return skill_in_data(cast("dict[str, Any]", data), by_skill=True) if isinstance(data, dict) else None


def _parse_json_object(text: str) -> object:
    if not text.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _first_line(text: str) -> str:
    first = text.strip().split("\n", 1)[0]
    return first if len(first) <= _MAX_LINE else f"{first[: _MAX_LINE - 1]}…"
