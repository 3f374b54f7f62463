"""Places in a value: where a path leads, and copies with something else there, or with nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from dragoman.schema.effort import affords
from dragoman.schema.outline import Outline, list_of, node_of

Steps = tuple[str | int, ...]

_INDEX = re.compile(r"\[(\d{1,9})\]")
_SEPARATOR = re.compile(r"[.\[]")
# How many dots and brackets a name may have that is found at the beginning of a path.
_MOST_SEPARATORS = 50


def steps_to(holder: Any, path: str) -> Steps | None:
    """The steps to the name at the end of a path as problems spell it (`items[2].id`); None when it is not there."""
    steps: list[str | int] = []
    while True:
        if isinstance(holder, dict):
            mine = cast("dict[str, Any]", holder)
            if path in mine:
                return (*steps, path)
            ends = [match.start() for match in islice(_SEPARATOR.finditer(path), _MOST_SEPARATORS)]
            # The longest, as a name may have dots of its own.
            end = next((end for end in reversed(ends) if path[:end] in mine), None)
            if end is None:
                return None
            step, holder = path[:end], mine[path[:end]]
        else:
            index = _INDEX.match(path)
            row = cast("list[Any]", holder) if isinstance(holder, list) else []
            if index is None or int(index[1]) >= len(row):
                return None
            step, holder, end = int(index[1]), row[int(index[1])], index.end()
        steps.append(step)
        path = path[end:].removeprefix(".")


def put(holder: Any, steps: Sequence[str | int], value: Any) -> Any:
    """A copy with the value at that place; None when there is no such place."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, str) and isinstance(holder, Mapping):
        mine = cast("Mapping[str, Any]", holder)
        inner = put(mine.get(step), rest, value)
        return None if inner is None and rest else {**mine, step: inner}
    if isinstance(step, int) and isinstance(holder, list) and step < len(cast("list[Any]", holder)):
        row = list(cast("list[Any]", holder))
        inner = put(row[step], rest, value)
        if inner is None and rest:
            return None
        row[step] = inner
        return row
    return None


def without(holder: Any, steps: Sequence[str | int], names: Collection[str]) -> Any:
    """A copy in which the object at that place lacks these names; itself when there is none."""
    found = holder
    for step in steps:
        if not isinstance(found, dict if isinstance(step, str) else list):
            return holder
        found = cast("Any", found).get(step) if isinstance(step, str) else cast("Any", found)[step]
    if not isinstance(found, dict):
        return holder
    mine = cast("dict[str, Any]", found)
    return put(holder, steps, {name: one for name, one in mine.items() if name not in names})


_SHELVES = ("$defs", "definitions")


def excerpt(outline: Outline, names: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
    """An object schema with these properties only, and the definitions they need."""
    properties = outline.properties(outline.root)
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: _alone(properties[name], outline, ()) for name in names if name in properties},
    }
    needed = [name for name in names if name in required]
    if needed:
        found["required"] = needed
    if "$schema" in outline.root:
        found = {"$schema": outline.root["$schema"], **found}
    _add_definitions(found, outline)
    return found


def _alone(place: Any, outline: Outline, inside: tuple[str, ...]) -> Any:
    """A copy in which references to places that are left out are replaced by what is there."""
    if not affords(1):
        return True  # it grows beyond measure: here, anything is allowed
    if isinstance(place, (list, tuple)):
        return [_alone(one, outline, inside) for one in list_of(cast("Any", place))]
    node = node_of(place)
    if not node:
        return place
    ref = node.get("$ref")
    copied = {key: _alone(value, outline, inside) for key, value in node.items() if key != "$ref"}
    if not isinstance(ref, str):
        return copied if "$ref" not in node else {"$ref": ref, **copied}
    if not ref.startswith("#") or ref.startswith(tuple(f"#/{shelf}/" for shelf in _SHELVES)):
        return {"$ref": ref, **copied}
    if ref in inside:
        return copied  # it holds itself: deeper than this, anything is allowed
    return {**node_of(_alone(outline.target(ref), outline, (*inside, ref))), **copied}


def _add_definitions(found: dict[str, Any], outline: Outline) -> None:
    waiting: list[Any] = [dict(found)]
    while waiting:
        one = waiting.pop()
        waiting.extend(list_of(one) or node_of(one).values())
        ref = node_of(one).get("$ref")
        for shelf in _SHELVES:
            if isinstance(ref, str) and ref.startswith(f"#/{shelf}/"):
                name = ref.split("/")[2].replace("~1", "/").replace("~0", "~")
                kept = found.setdefault(shelf, {})
                definitions = node_of(outline.root.get(shelf))
                if name in definitions and name not in kept:
                    kept[name] = _alone(definitions[name], outline, ())
                    waiting.append(kept[name])
