"""The validator of one schema: compiled when it is first needed, kept, and never on the network."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from referencing import Registry

from dragoman.agents.mcp_tools.flat import Flat, flat_of
from dragoman.agents.mcp_tools.pattern import is_safe
from dragoman.agents.mcp_tools.schema_outline import FORBIDDEN, Node, Outline, list_of, node_of

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

logger = logging.getLogger("dragoman.mcp")


class Judge:
    """Tells what a schema has against a value. What it cannot tell is left to the server that wrote the schema."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._complained = False

    def errors(self, value: Any) -> list[ValidationError]:
        """All that is wrong; nothing when the schema cannot be used for this value."""
        if self._flat is not None and self._flat.takes(value):
            return []
        if self._validator is None:
            return []
        try:
            return list(self._validator.iter_errors(value))
        except Exception as error:  # noqa: BLE001 - a foreign schema may break a validator in any way it likes
            self._complain(error)
            return []

    def fits(self, value: Any, place: Any) -> bool:
        """True when a schema within this one takes the value; by its type alone when the validator cannot tell."""
        if self._validator is None:
            return self._outline.admits(value, place)
        try:
            return bool(cast("Any", self._validator).evolve(schema=place).is_valid(value))
        except Exception as error:  # noqa: BLE001 - as above
            self._complain(error)
            return self._outline.admits(value, place)

    @functools.cached_property
    def _flat(self) -> Flat | None:
        return flat_of(self._outline.root)

    @functools.cached_property
    def _validator(self) -> Validator | None:
        # The draft is chosen here: a `$schema` left inside would switch to the library's own classes at `$ref: "#"`.
        schema = {key: value for key, value in self._outline.root.items() if key != "$schema"}
        try:
            kind = validator_for(self._outline.root, default=Draft202012Validator)
            # No formats: patterns of another dialect of regular expressions are no reason to judge nothing at all.
            cast("Any", kind).check_schema(schema, format_checker=None)
            _check_names(schema)
            # A registry of its own holds nothing and fetches nothing; the library's default would fetch.
            return _kind(kind)(schema, registry=Registry())
        except Exception as error:  # noqa: BLE001 - as above
            self._complain(error)
            return None

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            logger.warning(
                "a tool's schema cannot be used, its server will judge the arguments: %s",
                str(error).partition("\n")[0][:200] or type(error).__name__,
            )


@functools.cache
def _kind(kind: type[Validator]) -> type[Validator]:
    return cast("Any", validators).extend(kind, {"pattern": _pattern, "properties": _properties})


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """The keyword `pattern`, without the patterns that may take for ever: the server judges those."""
    if validator.is_type(value, "string") and is_safe(pattern, value) and not re.search(pattern, value):
        yield ValidationError("does not match")


def _properties(validator: Any, properties: Node, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """The keyword `properties`; the library's own does not tell which property was forbidden by `false`."""
    for name, place in properties.items() if validator.is_type(value, "object") else ():
        if name in value and place is False:
            yield ValidationError("is forbidden", validator=FORBIDDEN, path=[name])
        elif name in value:
            yield from validator.descend(value[name], place, path=name, schema_path=name)


def _check_names(schema: Any) -> None:
    """Raises ValueError when names are told apart by a pattern that cannot be tried here."""
    waiting: list[Any] = [schema]
    while waiting:
        one = waiting.pop()
        waiting.extend(list_of(one) or node_of(one).values())
        for pattern in node_of(node_of(one).get("patternProperties")):
            if not is_safe(pattern, ""):
                raise ValueError(f"names are told apart by a pattern that cannot be tried: {pattern[:60]}")
