"""Most schemas are flat: a few arguments of plain types. Whether such a value fits is told without a validator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
# What says nothing about which values fit.
_WORDS = {"title", "description", "default", "examples"}


class Flat(Struct, frozen=True):
    """A schema that asks only for names and plain types."""

    types: dict[str, tuple[type, ...]]
    required: frozenset[str]
    open: bool

    def takes(self, value: object) -> bool:
        """True when the value surely fits. False decides nothing."""
        if not isinstance(value, dict):
            return False
        given = cast("dict[str, Any]", value)
        if not self.required.issubset(given):
            return False
        for name, each in given.items():
            wanted = self.types.get(name)
            # A boolean is an integer to Python, and to nobody else.
            if type(each) not in wanted if wanted is not None else not self.open:
                return False
        return True


def flat_of(schema: Mapping[str, Any]) -> Flat | None:
    """What a schema asks for, if that is only names and plain types."""
    if (
        schema.get("type") != "object"
        or set(schema) - {"type", "properties", "required", "additionalProperties", "$schema"} - _WORDS
    ):
        return None
    extra, properties, required = (
        schema.get("additionalProperties", True),
        schema.get("properties", {}),
        schema.get("required", []),
    )
    if not isinstance(extra, bool) or not isinstance(properties, dict) or not isinstance(required, list):
        return None
    types: dict[str, tuple[type, ...]] = {}
    for name, place in cast("dict[str, Any]", properties).items():
        if not isinstance(place, dict) or set(cast("dict[str, Any]", place)) - {"type"} - _WORDS:
            return None
        kind: Any = cast("dict[str, Any]", place).get("type")
        if not isinstance(kind, str) or kind not in _TYPES:
            return None
        types[name] = _TYPES[kind]
    names = cast("list[Any]", required)
    return Flat(types, frozenset(names), extra) if all(isinstance(name, str) for name in names) else None
