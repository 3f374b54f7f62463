"""Places: what a schema says about one, and where a path leads in a value. Reads any schema, also a broken one."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from dragoman.schema.budget import try_spend

Node = Mapping[str, Any]

# The names that JSON schema has for types, the most telling first.
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")

# The keyword under which a property is reported whose schema is `false`.
FORBIDDEN = "false"
# How far alternatives within alternatives are followed: a schema may be recursive.
MAX_DEPTH = 4
# What is shown of a value, and how many values and names are listed.
MAX_SHOWN = 60
_MAX_LISTED = 12
# How many schemas may hold at one place: a reference may lead to a reference, and so on.
_MAX_PARTS = 100
# How many steps a path is taken apart into: more than a value can be deep.
_MAX_STEPS = 200
_INDEX = re.compile(r"\[(\d{1,9})\]")
_NAME = re.compile(r"[^.\[]+")


def node_of(value: Any) -> Node:
    """The value if it can be a schema with keywords, else an empty one."""
    return cast("Node", value) if isinstance(value, Mapping) else {}


def list_of(value: Any) -> Sequence[Any]:
    """The value if it is a list, else an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def short_json(value: Any) -> str:
    """A value as JSON, cut when it is long."""
    try:
        text = msgspec.json.encode(_truncate(value, [MAX_SHOWN + 1])).decode()
    except (TypeError, ValueError, RecursionError):
        return "a value that is not JSON"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _truncate(value: Any, left: list[int]) -> Any:
    """As much of a value as is shown, each piece of which has a character at least: the rest is never encoded."""
    left[0] -= 1
    if isinstance(value, str):
        return value[: MAX_SHOWN + 1]
    if isinstance(value, dict):
        pairs = islice(cast("dict[Any, Any]", value).items(), max(left[0], 0))
        return {name[: MAX_SHOWN + 1] if isinstance(name, str) else name: _truncate(one, left) for name, one in pairs}
    if isinstance(value, (list, tuple)):
        return [_truncate(one, left) for one in islice(cast("Sequence[Any]", value), max(left[0], 0))]
    return value


def join_limited(items: Sequence[Any], spell: Callable[[Any], str] = str) -> str:
    """Names or values in a row; of many, the first ones."""
    row = ", ".join(spell(item) for item in items[:_MAX_LISTED])
    return row if len(items) <= _MAX_LISTED else f"{row}, … ({len(items)} in all)"


def type_of(value: Any) -> str:
    """The name JSON schema has for a value's type; an integral float is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "integer" if value == value // 1 else "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


class Outline:
    """One schema and its places. A place is any schema within it, as it stands there."""

    def __init__(self, root: Node) -> None:
        self.root = root

    def parts(self, place: Any) -> tuple[Node, ...]:
        """All that holds at a place at once: itself, what it refers to, and its `allOf`."""
        found: dict[int, Node] = {}
        waiting: deque[Any] = deque([place])
        while waiting and len(found) < _MAX_PARTS:
            one = waiting.popleft()
            if not isinstance(one, Mapping) or id(cast("Node", one)) in found:
                continue
            node = cast("Node", one)
            found[id(node)] = node
            if isinstance(node.get("$ref"), str):
                waiting.append(self.target(node["$ref"]))
            waiting.extend(list_of(node.get("allOf")))
        return tuple(found.values())

    def target(self, ref: str) -> Any:
        """What a local reference (`#`, `#/$defs/x`) points at; None for any other, and when there is nothing."""
        if ref == "#":
            return self.root
        if not ref.startswith("#/"):
            return None
        found: Any = self.root
        for step in unquote(ref[2:]).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping):
                found = node_of(found).get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(list_of(found)):
                found = list_of(found)[int(name)]
            else:
                return None
        return found

    def alternatives(self, part: Node) -> tuple[Sequence[Any], ...]:
        """The lists of which one member has to hold."""
        return tuple(found for key in ("anyOf", "oneOf") if (found := list_of(part.get(key))))

    def _affordable_alternatives(self, part: Node) -> tuple[Sequence[Any], ...]:
        """The same, as long as there is effort left for it: alternatives of alternatives may be very many."""
        return tuple(branches for branches in self.alternatives(part) if try_spend(2 * len(branches)))

    def types(self, place: Any, depth: int = 0) -> frozenset[str] | None:
        """The types a place takes; None when it does not say."""
        found: frozenset[str] | None = None
        for part in self.parts(place):
            own = part.get("type")
            said: list[frozenset[str] | None] = []
            if own is not None:
                said.append(frozenset(str(one) for one in ([own] if isinstance(own, str) else list_of(own))))
            if depth < MAX_DEPTH:
                for branches in self._affordable_alternatives(part):
                    each = [self.types(branch, depth + 1) for branch in branches]
                    said.append(None if None in each else frozenset[str]().union(*(one for one in each if one)))
            for types in said:
                if types is not None:
                    found = types if found is None else _intersect_types(found, types)
        return found

    def choices(self, place: Any, depth: int = 0) -> tuple[Any, ...] | None:
        """The values a place is limited to; None when it is not."""
        for part in self.parts(place):
            if "const" in part:
                return (part["const"],)
            if isinstance(part.get("enum"), (list, tuple)):
                return tuple(list_of(part["enum"]))
            for branches in self._affordable_alternatives(part) if depth < MAX_DEPTH else ():
                each = [(None,) if self.is_null(branch) else self.choices(branch, depth + 1) for branch in branches]
                if None not in each and any(one != (None,) for one in each):
                    return tuple(value for one in each for value in one or ())
        return None

    def properties(self, place: Any, depth: int = 0) -> dict[str, Any]:
        """The named properties of a place, also those that only an alternative has."""
        found: dict[str, Any] = {}
        for part in self.parts(place):
            for name, schema in node_of(part.get("properties")).items():
                found.setdefault(str(name), schema)
        if depth >= MAX_DEPTH:
            return found
        for branch in [
            branch for part in self.parts(place) for some in self._affordable_alternatives(part) for branch in some
        ]:
            for name, schema in self.properties(branch, depth + 1).items():
                found.setdefault(name, schema)
        return found

    def required(self, place: Any) -> tuple[str, ...]:
        """The names that have to be there."""
        names = [name for part in self.parts(place) for name in list_of(part.get("required")) if isinstance(name, str)]
        return tuple(dict.fromkeys(names))

    def item(self, place: Any, index: int) -> Any:
        """The schema of one item of an array, in the spelling of 2020-12 or of draft-07."""
        for part in self.parts(place):
            old = part.get("items")
            first = list_of(part.get("prefixItems")) or list_of(old)
            if index < len(first):
                return first[index]
            rest = part.get("additionalItems") if isinstance(old, (list, tuple)) else old
            if rest is not None:
                return rest
        return True

    def takes_plain_text(self, place: Any) -> bool:
        """True for a string, or one that may be null, that is not limited to certain values."""
        types = self.types(place)
        return types is not None and "string" in types <= {"string", "null"} and self.choices(place) is None

    def is_null(self, place: Any) -> bool:
        """True when a place takes null and nothing else."""
        return self.types(place) == frozenset({"null"})

    def admits(self, value: Any, place: Any) -> bool:
        """True when the type of the value is one the place takes."""
        types = self.types(place)
        kind = type_of(value)
        return place is not False and (types is None or kind in types or (kind == "integer" and "number" in types))

    def at(self, path: str) -> tuple[list[str | int], Any]:
        """The steps of a path as problems spell it (`items[2].id`), and the schema of that place."""
        steps: list[str | int] = []
        place: Any = self.root
        while path:
            step, path = self._step(place, path) if len(steps) < _MAX_STEPS else (path, "")
            steps.append(step)
            place = self.child(place, step)
            path = path.removeprefix(".")
        return steps, place

    def child(self, place: Any, step: str | int) -> Any:
        """The schema of what a value of that place has under a name, or as its item."""
        if isinstance(step, int):
            return self.item(place, step)
        rest = [part["additionalProperties"] for part in self.parts(place) if "additionalProperties" in part]
        return self.properties(place).get(step, rest[0] if rest else {})

    def _step(self, place: Any, path: str) -> tuple[str | int, str]:
        known = [name for name in self.properties(place) if name and _starts_with_name(path, name)]
        if known:  # a name may have dots of its own
            name = max(known, key=len)
            return name, path[len(name) :]
        index = _INDEX.match(path)
        if index is not None:
            return int(index[1]), path[index.end() :]
        match = _NAME.match(path)
        return (match[0], path[match.end() :]) if match else (path, "")

    def type_text(self, place: Any) -> str:
        """How to call what a place takes: its choices, else its types; empty when it does not say."""
        choices = self.choices(place)
        if choices is not None:
            return short_json(choices[0]) if len(choices) == 1 else f"one of {join_limited(choices, short_json)}"
        return " or ".join(sorted(self.types(place) or (), key=lambda name: (name == "null", name)))

    def description(self, place: Any) -> str:
        """What the schema says about a place, in one line."""
        said = [part["description"] for part in self.parts(place) if isinstance(part.get("description"), str)]
        return " ".join(str(said[0]).split()) if said else ""


def _intersect_types(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """The types that both allow; an integer is a number."""
    both = one & other
    if "integer" in one | other and "number" in one | other and "number" not in both:
        both |= {"integer"}
    return both


def _starts_with_name(path: str, name: str) -> bool:
    return path.startswith(name) and path[len(name) : len(name) + 1] in ("", ".", "[")


Steps = tuple[str | int, ...]

_SEPARATOR = re.compile(r"[.\[]")
# How many dots and brackets a name may have that is found at the beginning of a path.
_MAX_SEPARATORS = 50


def find_steps(holder: Any, path: str) -> Steps | None:
    """The steps to the name at the end of a path as problems spell it (`items[2].id`); None when it is not there."""
    steps: list[str | int] = []
    while True:
        if isinstance(holder, dict):
            mine = cast("dict[str, Any]", holder)
            if path in mine:
                return (*steps, path)
            ends = [match.start() for match in islice(_SEPARATOR.finditer(path), _MAX_SEPARATORS)]
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


def replace_at(holder: Any, steps: Sequence[str | int], value: Any) -> Any:
    """A copy with the value at that place; None when there is no such place."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, str) and isinstance(holder, Mapping):
        mine = cast("Mapping[str, Any]", holder)
        inner = replace_at(mine.get(step), rest, value)
        return None if inner is None and rest else {**mine, step: inner}
    if isinstance(step, int) and isinstance(holder, list) and step < len(cast("list[Any]", holder)):
        row = list(cast("list[Any]", holder))
        inner = replace_at(row[step], rest, value)
        if inner is None and rest:
            return None
        row[step] = inner
        return row
    return None


def remove_names(holder: Any, steps: Sequence[str | int], names: Collection[str]) -> Any:
    """A copy in which the object at that place lacks these names; itself when there is none."""
    found = holder
    for step in steps:
        if not isinstance(found, dict if isinstance(step, str) else list):
            return holder
        found = cast("Any", found).get(step) if isinstance(step, str) else cast("Any", found)[step]
    if not isinstance(found, dict):
        return holder
    mine = cast("dict[str, Any]", found)
    return replace_at(holder, steps, {name: one for name, one in mine.items() if name not in names})


_DEFINITION_KEYWORDS = ("$defs", "definitions")


def object_schema(outline: Outline, names: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
    """An object schema with these properties only, and the definitions they need."""
    properties = outline.properties(outline.root)
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: _inline_references(properties[name], outline, ()) for name in names if name in properties},
    }
    needed = [name for name in names if name in required]
    if needed:
        found["required"] = needed
    if "$schema" in outline.root:
        found = {"$schema": outline.root["$schema"], **found}
    _add_definitions(found, outline)
    return found


def _inline_references(place: Any, outline: Outline, inside: tuple[str, ...]) -> Any:
    """A copy in which references to places that are left out are replaced by what is there."""
    if not try_spend(1):
        return True  # it grows beyond measure: here, anything is allowed
    if isinstance(place, (list, tuple)):
        return [_inline_references(one, outline, inside) for one in list_of(cast("Any", place))]
    node = node_of(place)
    if not node:
        return place
    ref = node.get("$ref")
    copied = {key: _inline_references(value, outline, inside) for key, value in node.items() if key != "$ref"}
    if not isinstance(ref, str):
        return copied if "$ref" not in node else {"$ref": ref, **copied}
    if not ref.startswith("#") or ref.startswith(tuple(f"#/{shelf}/" for shelf in _DEFINITION_KEYWORDS)):
        return {"$ref": ref, **copied}
    if ref in inside:
        return copied  # it holds itself: deeper than this, anything is allowed
    return {**node_of(_inline_references(outline.target(ref), outline, (*inside, ref))), **copied}


def _add_definitions(found: dict[str, Any], outline: Outline) -> None:
    waiting: list[Any] = [dict(found)]
    while waiting:
        one = waiting.pop()
        waiting.extend(list_of(one) or node_of(one).values())
        ref = node_of(one).get("$ref")
        for shelf in _DEFINITION_KEYWORDS:
            if isinstance(ref, str) and ref.startswith(f"#/{shelf}/"):
                name = ref.split("/")[2].replace("~1", "/").replace("~0", "~")
                kept = found.setdefault(shelf, {})
                definitions = node_of(outline.root.get(shelf))
                if name in definitions and name not in kept:
                    kept[name] = _inline_references(definitions[name], outline, ())
                    waiting.append(kept[name])
