"""Which tool a message means, and with what arguments."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from dragoman.agents.offers import may_use, named_in, request_of
from dragoman.engine.execute.outputs import Ask
from dragoman.model.error import Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.agents.mcp_tools.tool import Tool
    from dragoman.engine.execute.context import Context

_LISTED = 20
_SHORT = 100
# With how many names one that is not known is compared.
_COMPARED = 500
# How many are named in the data of the question which one is meant.
_NAMED = 1000


class Chosen(Struct, frozen=True):
    """A tool, and the arguments that are known so far."""

    tool: Tool
    arguments: dict[str, Any]


def chosen(ctx: Context, tools: Mapping[str, Tool]) -> Chosen | Ask:
    """What the message that began the task asks for, or the question which tool is meant.

    A data part `{"tool": …, "arguments": {…}}` comes first, then metadata `skillId`, then a text that is such an
    object, then the default tool. Who cannot be asked gets the first tool they may use.

    Raises:
        Rejected: there is no such tool, or the caller may not use it.
    """
    name, given = request_of(ctx, by_skill=True)
    said = _request(_decoded(ctx.history[0].text if ctx.history else ctx.text)) if name is None else (name, given)
    if said is not None:
        return Chosen(_named(ctx, said[0], tools), said[1])
    usable = _usable(ctx, tools)
    default = next((tool for tool in usable if tool.default), None)
    if default is None and len(usable) == 1 and ctx.asks:
        default = usable[0]
    if default is not None:
        return Chosen(default, _with_text(default, given, ctx.message.text))
    if not ctx.asks:
        if not usable:
            raise Rejected("this agent has no tools")
        # What the oldest callers expect: the first tool, with the text as it is.
        return Chosen(usable[0], given or {"text": ctx.message.text})
    return which(usable)


def chosen_by_answer(ctx: Context, tools: Mapping[str, Tool]) -> Chosen | Ask:
    """What the answer to `which` says. Raises Rejected."""
    answer = ctx.resume
    assert answer is not None
    said = _request(answer.data) or _request(_decoded(answer.text))
    if said is not None:
        return Chosen(_named(ctx, said[0], tools), said[1])
    usable = _usable(ctx, tools)
    wanted = answer.text.strip().strip("`\"'")
    word = wanted.lower()
    tool = next((tool for tool in usable if word and word in (tool.id.lower(), tool.card().name.lower())), None)
    if tool is None:
        return which(usable, wanted)
    data = answer.data
    return Chosen(tool, dict(cast("dict[str, Any]", data)) if isinstance(data, dict) else {})


def which(usable: Sequence[Tool], unknown: str = "") -> Ask:
    """The question which tool is meant."""
    if not usable:
        raise Rejected("this agent has no tools")
    near = _nearest(unknown, usable)
    no_such = (
        f"there is no tool {unknown[:_SHORT]!r}{f': did you mean `{near[0]}`?' if near else '.'} " if unknown else ""
    )
    lines = [f"- {tool.id}: {_line(tool.description)}" for tool in usable[:_LISTED]]
    more = [f"… and {len(usable) - _LISTED} more, see the agent card"] if len(usable) > _LISTED else []
    how = 'Answer with its name, or with data {"tool": "…", "arguments": {…}}.'
    question = "\n".join([f"{no_such}Which tool? {how}", *lines, *more])
    return Ask(
        question[:1].upper() + question[1:],
        ref={"ask": "tool"},
        details=({"tools": [tool.id for tool in usable[:_NAMED]]},),
    )


def _usable(ctx: Context, tools: Mapping[str, Tool]) -> list[Tool]:
    return [tool for tool in tools.values() if may_use(ctx, tool)]


def _nearest(name: str, usable: Sequence[Tool]) -> list[str]:
    """The tool with the most similar name, if there is one. Comparing takes as long as letters times letters."""
    if not name or len(name) > _SHORT:
        return []
    return difflib.get_close_matches(name, [tool.id for tool in usable[:_COMPARED] if len(tool.id) <= _SHORT], 1)


def _named(ctx: Context, name: str, tools: Mapping[str, Tool]) -> Tool:
    tool = tools.get(name)
    if tool is None or (ctx.user is None and not may_use(ctx, tool)):
        # Only what the caller's card lists is told; a stranger does not even learn that there is more.
        near = _nearest(name, _usable(ctx, tools))
        hint = f": did you mean `{near[0]}`?" if near else ""
        closed = any(each.permission is not None for each in tools.values())
        hint = hint or (", or one that needs credentials" if closed and ctx.user is None else "")
        raise Rejected(f"unknown tool `{name[:_SHORT]}`{hint}")
    return tool


def _with_text(tool: Tool, arguments: dict[str, Any], text: str) -> dict[str, Any]:
    slot = tool.schema.text_slot(arguments) if text else None
    return arguments if slot is None else {**arguments, slot: text}


def _request(data: object) -> tuple[str, dict[str, Any]] | None:
    return named_in(cast("dict[str, Any]", data), by_skill=True) if isinstance(data, dict) else None


def _decoded(text: str) -> object:
    if not text.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _line(text: str) -> str:
    first = text.strip().split("\n", 1)[0]
    return first if len(first) <= _SHORT else f"{first[: _SHORT - 1]}…"
