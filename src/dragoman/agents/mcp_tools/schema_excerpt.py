"""The part of a schema that is asked for again, able to stand on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from dragoman.agents.mcp_tools.schema_effort import affords
from dragoman.agents.mcp_tools.schema_outline import Outline, list_of, node_of

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
