"""Turns integral floats into integers where a schema says integer: JSON has one number type, most servers have two."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, cast

from dragoman.schema.budget import spend
from dragoman.schema.outline import MAX_DEPTH, Node, Outline, list_of, node_of
from dragoman.schema.pattern import matches

# Beyond this a float cannot represent every integer: the intended one is not recoverable.
_MAX_EXACT = 2.0**53
# Budget steps charged per value.
_STEPS_PER_VALUE = 4


def contains_float(value: Any) -> bool:
    """True when there is a float anywhere in a JSON value."""
    # Level by level with C-speed set and chain operations: there may be very many values.
    level: list[Any] = [value]
    while level:
        kinds = set(map(type, level))
        if float in kinds:
            return True
        if dict not in kinds and list not in kinds:
            return False
        rows: list[list[Any]] = [one for one in level if isinstance(one, list)] if list in kinds else []
        objects: list[dict[str, Any]] = [one for one in level if isinstance(one, dict)] if dict in kinds else []
        level = [*chain.from_iterable(rows), *chain.from_iterable(map(dict[str, Any].values, objects))]
    return False


class IntegerCoercion:
    """Replaces integral floats, such as 3.0, by integers where a schema says so.

    `is_valid(value, subschema)` selects the matching alternative.
    """

    def __init__(self, outline: Outline, is_valid: Callable[[Any, Any], bool]) -> None:
        self._outline = outline
        self._is_valid = is_valid

    def coerce(self, value: Any, subschema: Any, depth: int = 0) -> Any:
        """Return the value with integers where the schema says integer; the same object when nothing changes.

        Raises:
            RecursionError: the nesting is too deep.
            BudgetExhausted: there is too much to do.
        """
        spend(_STEPS_PER_VALUE)
        if isinstance(value, float):
            whole = abs(value) <= _MAX_EXACT and value.is_integer() and self._wants_integer(value, subschema, depth)
            return int(value) if whole else value
        if not isinstance(value, (dict, list)):
            return value
        current: Any = cast("Any", value)
        for part in self._outline.parts(subschema):
            if isinstance(current, dict):
                current = self._coerce_object(cast("dict[str, Any]", current), part)
            else:
                current = self._coerce_array(cast("list[Any]", current), part)
            for branches in self._outline.alternatives(part) if depth < MAX_DEPTH else ():
                chosen = next((branch for branch in branches if self._is_valid(current, branch)), None)
                if chosen is not None:
                    current = self.coerce(current, chosen, depth + 1)
        return current

    def _wants_integer(self, value: float, subschema: Any, depth: int) -> bool:
        for part in self._outline.parts(subschema):
            own = part.get("type")
            types = [own] if isinstance(own, str) else list_of(own)
            if "integer" in types and "number" not in types:
                return True
            for branches in self._outline.alternatives(part) if depth < MAX_DEPTH else ():
                # A value that may be any number stays a float: every matching alternative must want an integer.
                matching = [branch for branch in branches if self._is_valid(value, branch)]
                if matching and all(self._wants_integer(value, branch, depth + 1) for branch in matching):
                    return True
        return False

    def _coerce_object(self, value: dict[str, Any], part: Node) -> dict[str, Any]:
        named = node_of(part.get("properties"))
        patterns = node_of(part.get("patternProperties"))
        others = part.get("additionalProperties")
        if not named and not patterns and others is None:
            return value
        changed: dict[str, Any] = {}
        for name, one in value.items():
            subschemas = [schema for pattern, schema in patterns.items() if matches(pattern, name)]
            if name in named:
                subschemas.append(named[name])
            new: Any = one
            for subschema in subschemas or [others]:
                new = self.coerce(new, subschema)
            if new is not one:
                changed[name] = new
        return {**value, **changed} if changed else value

    def _coerce_array(self, value: list[Any], part: Node) -> list[Any]:
        if not part.keys() & {"items", "prefixItems"}:
            return value
        bare = {key: part[key] for key in ("items", "prefixItems", "additionalItems") if key in part}
        new = [self.coerce(one, self._outline.item(bare, index)) for index, one in enumerate(value)]
        return new if any(one is not old for one, old in zip(new, value, strict=True)) else value
