"""Integral floats become integers where a schema says integer: JSON has one kind of number, servers have two."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, cast

from dragoman.schema.budget import spend
from dragoman.schema.outline import MAX_DEPTH, Node, Outline, list_of, node_of
from dragoman.schema.pattern import matches

# Beyond this a float does not tell one integer from the next: what it meant cannot be known.
_MAX_EXACT = 2.0**53
# What one value costs, in steps of effort.
_STEPS_PER_VALUE = 4


def contains_float(value: Any) -> bool:
    """True when there is a float anywhere in a JSON value."""
    # All of one depth at once, as there may be very many.
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
    """Walks a value and a schema together. `fits` tells which of several alternatives a value is."""

    def __init__(self, outline: Outline, fits: Callable[[Any, Any], bool]) -> None:
        self._outline = outline
        self._fits = fits

    def coerce(self, value: Any, place: Any, depth: int = 0) -> Any:
        """The value as the schema wants it; itself when nothing changes.

        Raises RecursionError on endless nesting, and Exhausted when there is too much to do.
        """
        spend(_STEPS_PER_VALUE)
        if isinstance(value, float):
            whole = abs(value) <= _MAX_EXACT and value.is_integer() and self._wants_integer(value, place, depth)
            return int(value) if whole else value
        if not isinstance(value, (dict, list)):
            return value
        current: Any = cast("Any", value)
        for part in self._outline.parts(place):
            if isinstance(current, dict):
                current = self._object(cast("dict[str, Any]", current), part)
            else:
                current = self._array(cast("list[Any]", current), part)
            for branches in self._outline.alternatives(part) if depth < MAX_DEPTH else ():
                chosen = next((branch for branch in branches if self._fits(current, branch)), None)
                if chosen is not None:
                    current = self.coerce(current, chosen, depth + 1)
        return current

    def _wants_integer(self, value: float, place: Any, depth: int) -> bool:
        for part in self._outline.parts(place):
            own = part.get("type")
            types = [own] if isinstance(own, str) else list_of(own)
            if "integer" in types and "number" not in types:
                return True
            for branches in self._outline.alternatives(part) if depth < MAX_DEPTH else ():
                # What may be any number stays as it is: every alternative that takes it has to want an integer.
                taking = [branch for branch in branches if self._fits(value, branch)]
                if taking and all(self._wants_integer(value, branch, depth + 1) for branch in taking):
                    return True
        return False

    def _object(self, value: dict[str, Any], part: Node) -> dict[str, Any]:
        named = node_of(part.get("properties"))
        patterns = node_of(part.get("patternProperties"))
        others = part.get("additionalProperties")
        if not named and not patterns and others is None:
            return value
        changed: dict[str, Any] = {}
        for name, one in value.items():
            places = [schema for pattern, schema in patterns.items() if matches(pattern, name)]
            if name in named:
                places.append(named[name])
            new: Any = one
            for place in places or [others]:
                new = self.coerce(new, place)
            if new is not one:
                changed[name] = new
        return {**value, **changed} if changed else value

    def _array(self, value: list[Any], part: Node) -> list[Any]:
        if not part.keys() & {"items", "prefixItems"}:
            return value
        bare = {key: part[key] for key in ("items", "prefixItems", "additionalItems") if key in part}
        new = [self.coerce(one, self._outline.item(bare, index)) for index, one in enumerate(value)]
        return new if any(one is not old for one, old in zip(new, value, strict=True)) else value
