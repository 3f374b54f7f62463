"""Whether a schema has the shape that JSON schema asks for, so that a validator can work with it.

The library does the same with a schema of schemas, which takes a quarter of a millisecond for each place in a schema
and as many frames as it is deep. This is one walk, without recursion, over a hundred times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from dragoman.schema.outline import Node, list_of, node_of, shown

# How many places a schema may have, and how deep it may be: the validator goes down by recursion.
_LARGEST, _DEEPEST = 4_000, 50

_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == value // 1


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[Any]", value))


def _is_type(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return bool(names) and _is_names(names) and _TYPES.issuperset(names)


def _is_limit(value: Any) -> bool:
    return _is_number(value) or isinstance(value, bool)  # of draft 4: whether `minimum` itself is excluded


def _is_lists_of_names(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_names, cast("dict[str, Any]", value).values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_SHAPES: dict[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list),
    "required": _is_names,
    "pattern": _is_text,
    "dependentRequired": _is_lists_of_names,
    "uniqueItems": lambda value: isinstance(value, bool),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "exclusiveMinimum": _is_limit,
    "exclusiveMaximum": _is_limit,
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(("$id", "id", "$schema", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor"), _is_text),
    **dict.fromkeys(
        (
            *("minLength", "maxLength", "minItems", "maxItems"),
            *("minProperties", "maxProperties", "minContains", "maxContains"),
        ),
        _is_count,
    ),
}


def check_shape(schema: Any) -> None:
    """Raises ValueError when it is no JSON schema, too large, or too deep."""
    level: list[Any] = [schema]
    count = 0
    for _ in range(_DEEPEST):
        count += len(level)
        if count > _LARGEST:
            raise ValueError("it is too large to be judged by")
        level = [inner for place in level for inner in _inside(place)]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {_DEEPEST} levels")


def names_by_pattern(schema: Any) -> bool:
    """True when `unevaluatedProperties` may stand beside patterns that tell names apart.

    Raises:
        ValueError, TypeError, RecursionError: it is no JSON.
    """
    # Anywhere, as a reference may lead to what is nobody's keyword.
    text = msgspec.json.encode(schema)
    return b'"unevaluatedProperties"' in text and b'"patternProperties"' in text


def _inside(place: Any) -> list[Any]:
    """The schemas right within a schema."""
    if isinstance(place, bool):
        return []
    if not isinstance(place, dict):
        raise ValueError(f"{shown(place)} is no schema")
    node = cast("Node", place)
    for word in node.keys() & _SHAPES.keys():
        if not _SHAPES[word](node[word]):
            raise _wrong(word, node[word])
    found: list[Any] = []
    for word in node.keys() & _HOLDING.keys():
        found += _HOLDING[word](word, node[word])
    return found


def _wrong(word: str, value: Any) -> ValueError:
    return ValueError(f"{shown(value)} is not what `{word}` can be")


def _one(word: str, value: Any) -> Sequence[Any]:
    # Up to 2019-09 `items` may be a list, for the first ones.
    return list_of(value) if word == "items" and list_of(value) else (value,)


def _many(word: str, value: Any) -> Sequence[Any]:
    if not list_of(value):
        raise _wrong(word, value)
    return list_of(value)


def _named(word: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, dict):
        raise _wrong(word, value)
    schemas = list(node_of(cast("Any", value)).values())
    # Dependencies may be names instead.
    return schemas if word != "dependencies" else [one for one in schemas if not isinstance(one, (list, str))]


# Keywords with schemas in them: one, a list of them, or some under names.
_HOLDING: dict[str, Callable[[str, Any], Sequence[Any]]] = {
    **dict.fromkeys(
        (
            *("additionalItems", "additionalProperties", "contains", "contentSchema", "else"),
            *("if", "items", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
        ),
        _one,
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _many),
    **dict.fromkeys(
        ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"), _named
    ),
}
