"""Lenient reading of a JSON Schema: what it says about each subschema, and where a path leads in a value.

Accepts any schema, also a broken one.
"""

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

# The type names of JSON Schema, the most informative first.
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")

# The pseudo keyword of errors for the schema `false`.
FORBIDDEN = "false"
# How deep nested alternatives are followed: a schema may be recursive.
MAX_DEPTH = 4
# Characters of a value, and number of values or names, in a text for people.
MAX_JSON_LENGTH = 60
_MAX_LISTED = 12
_MAX_DESCRIPTION = 200
# Schemas that may apply at one subschema: a reference may lead to a reference, and so on.
_MAX_PARTS = 100
# Maximum steps of a path: more than a value can be deep.
_MAX_STEPS = 200
_INDEX = re.compile(r"\[(\d{1,9})\]")
_NAME = re.compile(r"[^.\[]+")


def node_of(value: Any) -> Node:
    """Return the value if it can be a schema object, else an empty one."""
    return cast("Node", value) if isinstance(value, Mapping) else {}


def list_of(value: Any) -> Sequence[Any]:
    """Return the value if it is a list, else an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def short_json(value: Any) -> str:
    """Encode a value as JSON, truncated to MAX_JSON_LENGTH characters."""
    try:
        text = msgspec.json.encode(_truncate(value, [MAX_JSON_LENGTH + 1])).decode()
    except (TypeError, ValueError, RecursionError):
        return "a value that is not JSON"
    return text if len(text) <= MAX_JSON_LENGTH else text[: MAX_JSON_LENGTH - 1] + "…"


def _truncate(value: Any, pieces_left: list[int]) -> Any:
    """Copy only as much of a value as can be shown: each piece takes at least a character, the rest is not encoded."""
    pieces_left[0] -= 1
    if isinstance(value, str):
        return value[: MAX_JSON_LENGTH + 1]
    if isinstance(value, dict):
        pairs = islice(cast("dict[Any, Any]", value).items(), max(pieces_left[0], 0))
        return {
            name[: MAX_JSON_LENGTH + 1] if isinstance(name, str) else name: _truncate(one, pieces_left)
            for name, one in pairs
        }
    if isinstance(value, (list, tuple)):
        return [_truncate(one, pieces_left) for one in islice(cast("Sequence[Any]", value), max(pieces_left[0], 0))]
    return value


def join_limited(items: Sequence[Any], spell: Callable[[Any], str] = str) -> str:
    """Join names or values with commas; of many, only the first ones."""
    text = ", ".join(spell(item) for item in items[:_MAX_LISTED])
    return text if len(items) <= _MAX_LISTED else f"{text}, … ({len(items)} in all)"


def type_of(value: Any) -> str:
    """Return the JSON Schema type name of a value; an integral float is an integer."""
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
    """A schema as the texts, forms and examples need it, read without checking that it is well-formed.

    Methods return what the schema says as far as it can be read; references outside the schema are not followed.
    """

    def __init__(self, root: Node) -> None:
        self.root = root

    def parts(self, subschema: Any) -> tuple[Node, ...]:
        """All schemas that apply at a subschema at once: itself, what it refers to, and its `allOf`."""
        schemas: dict[int, Node] = {}
        waiting: deque[Any] = deque([subschema])
        while waiting and len(schemas) < _MAX_PARTS:
            one = waiting.popleft()
            if not isinstance(one, Mapping) or id(cast("Node", one)) in schemas:
                continue
            node = cast("Node", one)
            schemas[id(node)] = node
            if isinstance(node.get("$ref"), str):
                waiting.append(self.resolve(node["$ref"]))
            waiting.extend(list_of(node.get("allOf")))
        return tuple(schemas.values())

    def resolve(self, ref: str) -> Any:
        """Resolve a local reference (`#`, `#/$defs/x`); None for any other reference and for a dangling one."""
        if ref == "#":
            return self.root
        if not ref.startswith("#/"):
            return None
        target: Any = self.root
        for step in unquote(ref[2:]).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping):
                target = node_of(target).get(name)
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(list_of(target)):
                target = list_of(target)[int(name)]
            else:
                return None
        return target

    def alternatives(self, part: Node) -> tuple[Sequence[Any], ...]:
        """The `anyOf` and `oneOf` lists of a schema."""
        return tuple(branches for key in ("anyOf", "oneOf") if (branches := list_of(part.get(key))))

    def _affordable_alternatives(self, part: Node) -> tuple[Sequence[Any], ...]:
        """The alternatives the budget allows to follow: nested alternatives may be very many."""
        return tuple(branches for branches in self.alternatives(part) if try_spend(2 * len(branches)))

    def types(self, subschema: Any, depth: int = 0) -> frozenset[str] | None:
        """The types a subschema allows; None when it does not restrict them."""
        allowed: frozenset[str] | None = None
        for part in self.parts(subschema):
            own = part.get("type")
            restrictions: list[frozenset[str] | None] = []
            if own is not None:
                restrictions.append(frozenset(str(one) for one in ([own] if isinstance(own, str) else list_of(own))))
            if depth < MAX_DEPTH:
                for branches in self._affordable_alternatives(part):
                    each = [self.types(branch, depth + 1) for branch in branches]
                    union = frozenset[str]().union(*(one for one in each if one))
                    restrictions.append(None if None in each else union)
            for types in restrictions:
                if types is not None:
                    allowed = types if allowed is None else _intersect_types(allowed, types)
        return allowed

    def choices(self, subschema: Any, depth: int = 0) -> tuple[Any, ...] | None:
        """The values a subschema is limited to; None when it is not."""
        for part in self.parts(subschema):
            if "const" in part:
                return (part["const"],)
            if isinstance(part.get("enum"), (list, tuple)):
                return tuple(list_of(part["enum"]))
            for branches in self._affordable_alternatives(part) if depth < MAX_DEPTH else ():
                each = [(None,) if self.is_null(branch) else self.choices(branch, depth + 1) for branch in branches]
                if None not in each and any(one != (None,) for one in each):
                    return tuple(value for one in each for value in one or ())
        return None

    def properties(self, subschema: Any, depth: int = 0) -> dict[str, Any]:
        """The named properties of a subschema, including those of its alternatives."""
        properties: dict[str, Any] = {}
        for part in self.parts(subschema):
            for name, schema in node_of(part.get("properties")).items():
                properties.setdefault(str(name), schema)
        if depth >= MAX_DEPTH:
            return properties
        for branch in [
            branch for part in self.parts(subschema) for some in self._affordable_alternatives(part) for branch in some
        ]:
            for name, schema in self.properties(branch, depth + 1).items():
                properties.setdefault(name, schema)
        return properties

    def required(self, subschema: Any) -> tuple[str, ...]:
        """The names of required properties."""
        names = [
            name for part in self.parts(subschema) for name in list_of(part.get("required")) if isinstance(name, str)
        ]
        return tuple(dict.fromkeys(names))

    def item(self, subschema: Any, index: int) -> Any:
        """The schema of one array item, in the spelling of 2020-12 or of draft-07."""
        for part in self.parts(subschema):
            old = part.get("items")
            first = list_of(part.get("prefixItems")) or list_of(old)
            if index < len(first):
                return first[index]
            rest = part.get("additionalItems") if isinstance(old, (list, tuple)) else old
            if rest is not None:
                return rest
        return True

    def takes_plain_text(self, subschema: Any) -> bool:
        """True for a string, possibly nullable, that is not limited to certain values."""
        types = self.types(subschema)
        return types is not None and "string" in types <= {"string", "null"} and self.choices(subschema) is None

    def is_null(self, subschema: Any) -> bool:
        """True when a subschema allows null and nothing else."""
        return self.types(subschema) == frozenset({"null"})

    def admits(self, value: Any, subschema: Any) -> bool:
        """True when the subschema allows the type of the value; nothing else is checked."""
        types = self.types(subschema)
        kind = type_of(value)
        return subschema is not False and (types is None or kind in types or (kind == "integer" and "number" in types))

    def resolve_path(self, path: str) -> tuple[list[str | int], Any]:
        """Parse a problem's path (`items[2].id`) and return its steps and the subschema it leads to."""
        steps: list[str | int] = []
        subschema: Any = self.root
        while path:
            step, path = self._next_step(subschema, path) if len(steps) < _MAX_STEPS else (path, "")
            steps.append(step)
            subschema = self.child(subschema, step)
            path = path.removeprefix(".")
        return steps, subschema

    def child(self, subschema: Any, step: str | int) -> Any:
        """The schema of a property or an array item of a subschema."""
        if isinstance(step, int):
            return self.item(subschema, step)
        rest = [part["additionalProperties"] for part in self.parts(subschema) if "additionalProperties" in part]
        return self.properties(subschema).get(step, rest[0] if rest else {})

    def _next_step(self, subschema: Any, path: str) -> tuple[str | int, str]:
        names = [name for name in self.properties(subschema) if name and _starts_with_name(path, name)]
        if names:  # the longest: a name may contain dots
            name = max(names, key=len)
            return name, path[len(name) :]
        index = _INDEX.match(path)
        if index is not None:
            return int(index[1]), path[index.end() :]
        match = _NAME.match(path)
        return (match[0], path[match.end() :]) if match else (path, "")

    def type_text(self, subschema: Any) -> str:
        """Name what a subschema allows: its choices, else its types; empty when it restricts neither."""
        choices = self.choices(subschema)
        if choices is not None:
            return short_json(choices[0]) if len(choices) == 1 else f"one of {join_limited(choices, short_json)}"
        types = self.types(subschema) or ()
        if "string" in types and self.is_file(subschema):
            types = {"file", *types} - {"string"}
        return " or ".join(sorted(types, key=lambda name: (name == "null", name)))

    def is_file(self, subschema: Any) -> bool:
        """True for a text that stands for a file: its name in the message, a link, or its content."""
        return any(part.get("format") == "file" for part in self.parts(subschema))

    def description(self, subschema: Any) -> str:
        """The description of a subschema, on one line."""
        texts = [part["description"] for part in self.parts(subschema) if isinstance(part.get("description"), str)]
        return " ".join(str(texts[0]).split()) if texts else ""

    def fields(self, quote: str = "`") -> list[str]:
        """Describe the properties for people, one line each: name, type, whether optional, description."""
        properties, required = self.properties(self.root), set(self.required(self.root))
        return [
            self.field_line(name, subschema, optional=name not in required, quote=quote)
            for name, subschema in properties.items()
        ]

    def field_line(self, name: str, subschema: Any, *, optional: bool = False, quote: str = "`") -> str:
        """Describe a property in one line."""
        type_text, about = self.type_text(subschema), self.description(subschema)
        notes = ", ".join(filter(None, (type_text, "optional" if optional else "")))
        if len(about) > _MAX_DESCRIPTION:
            about = about[: _MAX_DESCRIPTION - 1] + "…"
        return f"{quote}{name}{quote}{f' ({notes})' if notes else ''}{': ' if about else ''}{about}"


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
# Maximum dots and brackets in a name at the beginning of a path.
_MAX_SEPARATORS = 50


def find_steps(value: Any, path: str) -> Steps | None:
    """Return the steps of a problem's path (`items[2].id`) as it is found in a value; None when the value lacks it."""
    steps: list[str | int] = []
    while True:
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            if path in members:
                return (*steps, path)
            ends = [match.start() for match in islice(_SEPARATOR.finditer(path), _MAX_SEPARATORS)]
            # The longest match: a name may contain dots.
            end = next((end for end in reversed(ends) if path[:end] in members), None)
            if end is None:
                return None
            step, value = path[:end], members[path[:end]]
        else:
            index = _INDEX.match(path)
            items = cast("list[Any]", value) if isinstance(value, list) else []
            if index is None or int(index[1]) >= len(items):
                return None
            step, value, end = int(index[1]), items[int(index[1])], index.end()
        steps.append(step)
        path = path[end:].removeprefix(".")


def replace_at(container: Any, steps: Sequence[str | int], value: Any) -> Any:
    """Return a copy of the container with the value at a path; None when a step before the last one leads nowhere."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, str) and isinstance(container, Mapping):
        members = cast("Mapping[str, Any]", container)
        inner = replace_at(members.get(step), rest, value)
        return None if inner is None and rest else {**members, step: inner}
    if isinstance(step, int) and isinstance(container, list) and step < len(cast("list[Any]", container)):
        items = list(cast("list[Any]", container))
        inner = replace_at(items[step], rest, value)
        if inner is None and rest:
            return None
        items[step] = inner
        return items
    return None


def remove_names(container: Any, steps: Sequence[str | int], names: Collection[str]) -> Any:
    """Return a copy in which the object at a path lacks these names; the container itself if there is no object."""
    inner = container
    for step in steps:
        if not isinstance(inner, dict if isinstance(step, str) else list):
            return container
        inner = cast("Any", inner).get(step) if isinstance(step, str) else cast("Any", inner)[step]
    if not isinstance(inner, dict):
        return container
    members = cast("dict[str, Any]", inner)
    return replace_at(container, steps, {name: one for name, one in members.items() if name not in names})


_DEFINITION_KEYWORDS = ("$defs", "definitions")


def object_schema(outline: Outline, names: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
    """Build an object schema of these properties only, with the definitions they need."""
    properties = outline.properties(outline.root)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _inline_references(properties[name], outline, ()) for name in names if name in properties},
    }
    needed = [name for name in names if name in required]
    if needed:
        schema["required"] = needed
    if "$schema" in outline.root:
        schema = {"$schema": outline.root["$schema"], **schema}
    _add_definitions(schema, outline)
    return schema


def _inline_references(subschema: Any, outline: Outline, inside: tuple[str, ...]) -> Any:
    """Copy a schema, replacing references to parts that are left out by what they refer to."""
    if not try_spend(1):
        return True  # the budget is used up: from here on anything is allowed
    if isinstance(subschema, (list, tuple)):
        return [_inline_references(one, outline, inside) for one in list_of(cast("Any", subschema))]
    node = node_of(subschema)
    if not node:
        return subschema
    ref = node.get("$ref")
    copied = {key: _inline_references(value, outline, inside) for key, value in node.items() if key != "$ref"}
    if not isinstance(ref, str):
        return copied if "$ref" not in node else {"$ref": ref, **copied}
    if not ref.startswith("#") or ref.startswith(tuple(f"#/{keyword}/" for keyword in _DEFINITION_KEYWORDS)):
        return {"$ref": ref, **copied}
    if ref in inside:
        return copied  # it contains itself: deeper than this, anything is allowed
    return {**node_of(_inline_references(outline.resolve(ref), outline, (*inside, ref))), **copied}


def _add_definitions(schema: dict[str, Any], outline: Outline) -> None:
    waiting: list[Any] = [dict(schema)]
    while waiting:
        one = waiting.pop()
        waiting.extend(list_of(one) or node_of(one).values())
        ref = node_of(one).get("$ref")
        for keyword in _DEFINITION_KEYWORDS:
            if isinstance(ref, str) and ref.startswith(f"#/{keyword}/"):
                name = ref.split("/")[2].replace("~1", "/").replace("~0", "~")
                copied = schema.setdefault(keyword, {})
                definitions = node_of(outline.root.get(keyword))
                if name in definitions and name not in copied:
                    copied[name] = _inline_references(definitions[name], outline, ())
                    waiting.append(copied[name])
