"""Checks values against a JSON Schema before they are sent, without a validator: callers have no extra installed.

Only plain keywords are checked. A value that passes may still be refused by the agent, which validates all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from dragoman.schema.budget import BudgetExhausted, spend, step_budget
from dragoman.schema.outline import Node, Outline, node_of, short_json, type_of

# How deep values are checked. Schemas may be recursive; values come from a command line.
_MAX_DEPTH = 30

_ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


class Mismatch(NamedTuple):
    """A value that its schema does not allow: where it is (`filter.from`, `items[2]`), and what is wrong."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"`{self.path}` {self.text}"


def find_mismatch(arguments: Mapping[str, Any], schema: Any) -> Mismatch | None:
    """Return the first argument that does not fit the schema of a skill; None when all fit, or nothing can be said.

    Missing arguments are not reported: the agent asks for them.
    """
    outline = Outline(node_of(schema))
    properties = outline.properties(outline.root)
    is_closed = any(part.get("additionalProperties") is False for part in outline.parts(outline.root))
    try:
        with step_budget():
            for name, value in arguments.items():
                if name not in properties and is_closed:
                    return Mismatch(name, f"is not known: it takes {', '.join(properties) or 'no arguments'}")
                found = _check(value, properties.get(name, True), outline, name, 0)
                if found is not None:
                    return found
    except (BudgetExhausted, RecursionError):
        pass  # the agent has to say
    return None


def _check(value: Any, subschema: Any, outline: Outline, path: str, depth: int) -> Mismatch | None:
    spend(10)
    choices = outline.choices(subschema)
    if choices is not None and not any(_is_same(value, choice) for choice in choices):
        return Mismatch(path, f"must be {outline.type_text(subschema)}, not {short_json(value)}")
    if not outline.admits(value, subschema):
        types = sorted(outline.types(subschema) or ())
        allowed = " or ".join(_ARTICLES.get(each, each) for each in types if each != "null" or len(types) == 1)
        return Mismatch(path, f"must be {allowed or 'left out'}, not {short_json(value)}")
    for part in outline.parts(subschema):
        found = _check_limits(value, part, path)
        for branches in outline.alternatives(part) if found is None else ():
            found = _check_alternatives(value, branches, outline, path, depth)
        if found is not None:
            return found
    return _check_members(value, subschema, outline, path, depth) if depth < _MAX_DEPTH else None


def _is_same(value: Any, choice: Any) -> bool:
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _check_alternatives(
    value: Any, branches: Sequence[Any], outline: Outline, path: str, depth: int
) -> Mismatch | None:
    """Return None when a branch fits, else what is wrong in the only one that allows the type of the value."""
    if depth >= _MAX_DEPTH:
        return None
    found = [_check(value, branch, outline, path, depth + 1) for branch in branches]
    if None in found:
        return None
    near = [each for each, branch in zip(found, branches, strict=True) if outline.admits(value, branch)]
    return near[0] if len(near) == 1 else Mismatch(path, f"fits none of its alternatives: {short_json(value)}")


def _check_members(value: Any, subschema: Any, outline: Outline, path: str, depth: int) -> Mismatch | None:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        for name in outline.required(subschema):
            if name not in members:
                return Mismatch(f"{path}.{name}", "is missing")
        steps: Iterable[tuple[str, str | int, Any]] = ((f"{path}.{name}", name, each) for name, each in members.items())
    elif isinstance(value, list):
        steps = ((f"{path}[{at}]", at, each) for at, each in enumerate(cast("list[Any]", value)))
    else:
        return None
    # The members of alternatives are checked with their branch: others may have the same names.
    own: dict[str, Any] = {"allOf": [_without_alternatives(part) for part in outline.parts(subschema)]}
    for inner, step, each in steps:
        found = _check(each, outline.child(own, step), outline, inner, depth + 1)
        if found is not None:
            return found
    return None


def _without_alternatives(part: Node) -> Node:
    return {key: each for key, each in part.items() if key not in ("anyOf", "oneOf", "allOf", "$ref")}


Limit = Callable[[Any, Any], bool]
_NUMBERS: dict[str, tuple[Limit, str]] = {
    "minimum": (lambda value, limit: value >= limit, "must be at least"),
    "maximum": (lambda value, limit: value <= limit, "must be at most"),
    "exclusiveMinimum": (lambda value, limit: value > limit, "must be more than"),
    "exclusiveMaximum": (lambda value, limit: value < limit, "must be less than"),
}
_LENGTHS: dict[str, tuple[str, Limit, str]] = {
    "minLength": ("string", lambda value, limit: len(value) >= limit, "must have at least {} characters"),
    "maxLength": ("string", lambda value, limit: len(value) <= limit, "must have at most {} characters"),
    "minItems": ("array", lambda value, limit: len(value) >= limit, "must have at least {} items"),
    "maxItems": ("array", lambda value, limit: len(value) <= limit, "must have at most {} items"),
}


def _check_limits(value: Any, part: Node, path: str) -> Mismatch | None:
    kind = type_of(value)
    if kind in ("integer", "number"):
        for keyword, (holds, text) in _NUMBERS.items():
            limit = part.get(keyword)
            if isinstance(limit, (int, float)) and not isinstance(limit, bool) and not holds(value, limit):
                return Mismatch(path, f"{text} {short_json(limit)}, not {short_json(value)}")
    for keyword, (of, holds, text) in _LENGTHS.items():
        limit = part.get(keyword)
        if kind == of and isinstance(limit, int) and not holds(value, limit):
            return Mismatch(path, text.format(limit))
    return None
