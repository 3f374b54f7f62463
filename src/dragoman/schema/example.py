"""Builds one plausible value for a schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from dragoman.schema.budget import try_spend
from dragoman.schema.outline import TYPES, Node, Outline, list_of, node_of

# Maximum nesting of an example: a schema may be recursive.
_MAX_DEPTH = 5
# Subschemas filled before only minimal values are used: a schema may branch at every level.
_MAX_STEPS = 1000
_MAX_CHOICES = 50
_MAX_LENGTH = 10_000
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "ada@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uri-reference": "https://example.org/",
    "url": "https://example.org/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}
_TEXTS = ("text", "a", "A", "1", "abc", "ABC", "123", "a1", "A1", "2026-01-31", *_FORMATS.values(), "")
# The last word of a parameter's name, and a text that suits it.
_TEXTS_BY_NAME = {
    "address": "1 Main Street, Springfield",
    "city": "Lisbon",
    "country": "Portugal",
    "currency": "EUR",
    "date": "2026-01-31",
    "day": "Monday",
    "destination": "Lisbon",
    "email": "ada@example.org",
    "language": "Portuguese",
    "location": "Lisbon",
    "name": "Ada",
    "place": "Lisbon",
    "question": "What can you do?",
    "time": "12:00",
    "topic": "tea",
    "town": "Lisbon",
    "uri": "https://example.org/",
    "url": "https://example.org/",
    "user": "ada",
}


class ExampleBuilder:
    """Builds examples. `is_valid(value, subschema)` validates a candidate."""

    def __init__(self, outline: Outline, is_valid: Callable[[Any, Any], bool]) -> None:
        self._outline = outline
        self._is_valid = is_valid
        self._steps = 0

    def build(self, subschema: Any, depth: int = 0) -> Any:
        """Return the first valid candidate; the first of all when none is valid; None when there is none."""
        first: list[Any] = []
        self._steps += 1
        for candidate in self._candidates(subschema, depth):
            if self._is_valid(candidate, subschema):
                return candidate
            first = first or [candidate]
        return first[0] if first else None

    def _candidates(self, subschema: Any, depth: int) -> Iterator[Any]:
        parts = self._outline.parts(subschema)
        for part in parts:
            yield from (part[key] for key in ("default", "const") if key in part)
            yield from list_of(part.get("examples"))[:1]
            yield from list_of(part.get("enum"))[:_MAX_CHOICES]
        merged: dict[str, Any] = {key: value for part in reversed(parts) for key, value in part.items()}
        for part in parts:
            for branches in self._outline.alternatives(part) if self._may_descend(depth) else ():
                # Null last: it is the least useful example.
                for branch in sorted(branches, key=self._outline.is_null):
                    yield from self._from_branch(subschema, branch, depth + 1)
        for name in self._candidate_types(subschema, merged):
            yield from self._candidates_of_type(name, subschema, merged, depth)

    def _may_descend(self, depth: int) -> bool:
        return depth < _MAX_DEPTH and self._steps < _MAX_STEPS and try_spend(1)

    def _candidate_types(self, subschema: Any, merged: Node) -> Sequence[str]:
        """The types to try, the most informative first."""
        types = self._outline.types(subschema)
        if types is not None:
            return [name for name in TYPES if name in types]
        if merged.keys() & {"properties", "required", "minProperties"}:
            return ("object",)
        return ("array",) if merged.keys() & {"items", "prefixItems", "minItems"} else ("string", "integer", "object")

    def _from_branch(self, subschema: Any, branch: Any, depth: int) -> Iterator[Any]:
        """Yield an example of a branch, completed with the required properties of the subschema around it."""
        own = self.build(branch, depth)
        names = self._outline.required(subschema)
        if isinstance(own, dict) and names:
            properties = self._outline.properties(subschema)
            beside = {name: self.build(properties.get(name, {}), depth) for name in names if name not in own}
            yield {**beside, **cast("dict[str, Any]", own)}
        yield own

    def _candidates_of_type(self, name: str, subschema: Any, merged: Node, depth: int) -> Iterator[Any]:
        if name == "object":
            yield from self._objects(subschema, depth)
        elif name == "array":
            yield from self._arrays(subschema, merged, depth)
        elif name == "string":
            yield from _strings(merged)
        elif name in ("integer", "number"):
            yield from _numbers(merged)
        else:
            yield from (True, False) if name == "boolean" else (None,)

    def _objects(self, subschema: Any, depth: int) -> Iterator[Any]:
        required = self._outline.required(subschema)
        properties = self._outline.properties(subschema)
        if not self._may_descend(depth):
            yield {}
            return
        bare = {name: self._property(name, properties.get(name, {}), depth) for name in required}
        if required:
            yield bare
        full = dict(bare)
        for name, schema in properties.items():
            if name not in full:
                value = self._property(name, schema, depth)
                if self._is_valid(value, schema):
                    full[name] = value
        yield full
        yield {}

    def _property(self, name: str, subschema: Any, depth: int) -> Any:
        value = self.build(subschema, depth + 1)
        if value != _TEXTS[0]:
            return value
        # The schema says nothing about the text, but the name may.
        text = example_text(name, value)
        return text if self._is_valid(text, subschema) else value

    def _arrays(self, subschema: Any, merged: Node, depth: int) -> Iterator[Any]:
        least = _bound(merged.get("minItems"), 0)
        if not self._may_descend(depth):
            yield []
            return
        for count in (max(least, 1), least):
            row: list[Any] = []
            for index in range(min(count, 100)):
                item = self._outline.item(subschema, index)
                row.append(
                    self._distinct_item(item, row, depth)
                    if merged.get("uniqueItems") is True
                    else self.build(item, depth + 1)
                )
            yield row

    def _distinct_item(self, subschema: Any, row: list[Any], depth: int) -> Any:
        """Return an item that is not in the list yet, if one is easily found."""
        one = self.build(subschema, depth + 1)
        tries: list[Any] = [one, *(self._outline.choices(subschema) or ())]
        if isinstance(one, str):
            tries += [f"{one}{len(row)}", f"{len(row)}{one[1:]}"]
        elif isinstance(one, (int, float)):
            step = node_of(subschema).get("multipleOf", 1)
            tries += [one + len(row) * step, one - len(row) * step]
        return next((each for each in tries if each not in row and self._is_valid(each, subschema)), one)


def _bound(value: Any, default: int) -> int:
    """Return a length limit of the schema, capped so that an example cannot fill the memory."""
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return min(max(int(value), 0), _MAX_LENGTH) if whole else default


def _strings(merged: Node) -> Iterator[str]:
    least, most = _bound(merged.get("minLength"), 0), _bound(merged.get("maxLength"), _MAX_LENGTH)
    texts = [_FORMATS[merged["format"]]] if merged.get("format") in _FORMATS else []
    for text in (*texts, *_TEXTS):
        yield (text + "x" * (least - len(text)))[:most] if not texts or text not in texts else text
    yield "1" * least


def _numbers(merged: Node) -> Iterator[int | float]:
    limits: dict[str, int | float] = {}
    for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"):
        value = merged.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            limits[key] = value
    least = max((limits[key] for key in ("minimum", "exclusiveMinimum") if key in limits), default=None)
    most = min((limits[key] for key in ("maximum", "exclusiveMaximum") if key in limits), default=None)
    step = limits.get("multipleOf", 1)
    tries: list[int | float] = [1]
    if step > 0:
        base = least if least is not None else most if most is not None else 0
        near = math.floor(base / step) if math.isfinite(base / step) else 0
        tries += [step, *((near + more) * step for more in (0, 1, 2, -1))]
    if least is not None:
        tries += [least, math.ceil(least), math.floor(least) + 1]
    if most is not None:
        tries += [most, math.floor(most), math.ceil(most) - 1]
    if least is not None and most is not None:
        tries.append(least + (most - least) / 2)
    # Integral floats become integers: 3.0 as an example of an integer is valid but looks wrong.
    yield from (int(one) if isinstance(one, float) and one.is_integer() else one for one in tries)


def example_text(name: str, default: str = "hello") -> str:
    """Return a text that somebody might send as this parameter: `home_city` gets a city, an unknown one the default."""
    return _TEXTS_BY_NAME.get(name.casefold().rpartition("_")[2], default)
