"""Reading what a person typed as the value a schema wants."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from dragoman.agents.mcp_tools.schema_effort import affords
from dragoman.agents.mcp_tools.schema_outline import Outline, type_of

_YES = {"yes", "y", "true", "on", "ok"}
_NO = {"no", "n", "false", "off"}
# A longer name is not looked for in a text: nobody types it.
_LONGEST_NAME = 500


class Unreadable(ValueError):
    """The text is not JSON."""


def json_of(text: str) -> Any:
    """The JSON value a text is.

    Raises:
        Unreadable: it is none.
    """
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Unreadable(text) from None


def value_of(text: str, outline: Outline, place: Any) -> Any:
    """The text as a value for that place; the text itself when it cannot be read."""
    choices = outline.choices(place)
    if choices is not None:
        return _chosen(text, choices)
    if outline.takes_plain_text(place):
        return text
    types = outline.types(place)
    word = text.strip().casefold()
    if types is not None and "boolean" in types and word in _YES | _NO:
        return word in _YES
    try:
        value = json_of(text.strip())
    except Unreadable:
        return text
    # What may be text or something else is text, unless it reads as the other.
    return value if types is None or "string" not in types or _is_other(value, types) else text


def _is_other(value: Any, types: frozenset[str]) -> bool:
    kind = type_of(value)
    return kind != "string" and (kind in types or (kind == "integer" and "number" in types))


def _chosen(text: str, choices: tuple[Any, ...]) -> Any:
    word = text.strip()
    folded = word.casefold()
    spelled = [
        (choice, choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()) for choice in choices
    ]
    for choice, spelling in spelled:
        if word in (spelling, f'"{spelling}"', f"`{spelling}`"):
            return choice
    for choice, spelling in spelled:
        if folded == spelling.casefold() or (isinstance(choice, bool) and folded in (_YES if choice else _NO)):
            return choice
    return text


def pairs_in(text: str, names: Iterable[str]) -> dict[str, str]:
    """The `name=value` or `name: value` pairs of a text, on lines of their own or with commas between them.

    Only names that are asked for begin a pair, so that a value may hold commas and colons. None are found where
    looking for them would take too long.
    """
    wanted = sorted({name for name in names if 0 < len(name) <= _LONGEST_NAME}, key=len, reverse=True)
    # Every name is made part of an expression, and tried wherever one may begin.
    places = 1 + sum(map(text.count, "\n,;"))
    if not wanted or not affords(sum(map(len, wanted)) + (len(wanted) + 8) * places // 100):
        return {}
    # Blanks but no line breaks: many empty lines must not be looked through again from each of them.
    one = "|".join(re.escape(name) for name in wanted)
    begins = re.compile(rf"(?:^|[,;])[ \t]*+([`\"']?)({one})\1[ \t]*+[=:]", re.MULTILINE)
    found = list(begins.finditer(text))
    ends = [*(match.start() for match in found), len(text)][1:]
    return {
        match[2]: _bare(text[match.end() : end].strip().rstrip(",;").rstrip())
        for match, end in zip(found, ends, strict=True)
    }


def _bare(text: str) -> str:
    """A text without the quotes around it."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            value = json_of(text)
        except Unreadable:
            return text
        return value if isinstance(value, str) else text
    return text
