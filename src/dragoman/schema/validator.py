"""The validator of one schema: compiled when it is first needed, kept, never on the network, and never for long."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as DRAFTS
from msgspec import Struct
from referencing import Registry, Specification
from referencing.jsonschema import specification_with

from dragoman.schema.effort import limited
from dragoman.schema.keywords import counted
from dragoman.schema.shape import check_shape, names_by_pattern

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    from dragoman.schema.outline import Outline

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


logger = logging.getLogger("dragoman.mcp")

# How many errors are told at once.
_MOST_ERRORS = 20
# What a validator may not keep from those who wait for it. A panic in a library is not among them, and no Exception.
_PASSED_ON = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


class Judge:
    """Tells what a schema has against a value. What it cannot tell is left to the server that wrote the schema."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._complained = False

    def errors(self, value: Any) -> tuple[list[ValidationError], int | None]:
        """The first things that are wrong, and how many more there are; None when they are too many to be counted.

        Nothing is wrong when the schema cannot be used for this value, or not soon enough.
        """
        if self._flat is not None and self._flat.takes(value):
            return [], 0
        if self._validator is None:
            return [], 0
        found: list[ValidationError] = []
        more = 0
        try:
            with limited():
                for error in self._validator.iter_errors(value):
                    if len(found) < _MOST_ERRORS:
                        found.append(error)
                    else:
                        more += 1
        except _PASSED_ON:
            raise
        except BaseException as error:  # noqa: BLE001 - a foreign schema may break a validator in any way it likes
            if len(found) == _MOST_ERRORS:
                return found, None  # enough to ask about
            self.complain(error)
            return [], 0
        return found, more

    def fits(self, value: Any, place: Any) -> bool:
        """True when a schema within this one takes the value; by its type alone when the validator cannot tell."""
        if self._validator is None:
            return self._outline.admits(value, place)
        try:
            return bool(cast("Any", self._validator).evolve(schema=place).is_valid(value))
        except _PASSED_ON:
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            self.complain(error)
            return self._outline.admits(value, place)

    @functools.cached_property
    def _flat(self) -> Flat | None:
        return flat_of(self._outline.root)

    @functools.cached_property
    def _validator(self) -> Validator | None:
        # The draft is chosen here, once for all places. What is required comes first, to be among the errors told.
        first = {"required": self._outline.root["required"]} if "required" in self._outline.root else {}
        schema = {key: value for key, value in {**first, **self._outline.root}.items() if key != "$schema"}
        try:
            kind = validator_for(self._outline.root, default=Draft202012Validator)
            check_shape(schema)
            by_pattern = names_by_pattern(schema)
            if by_pattern:
                logger.warning("`unevaluatedProperties` beside `patternProperties` is left to the server to judge by")
            made = cast("Any", counted(kind, names_by_pattern=by_pattern))
            return made(schema, registry=Registry[Any](), _resolver=_resolver(kind, schema))
        except _PASSED_ON:
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            self.complain(error)
            return None

    def complain(self, error: BaseException) -> None:
        """Log, the first time, that the schema is of no use."""
        if not self._complained:
            self._complained = True
            logger.warning(
                "a tool's schema cannot be used, its server will judge the arguments: %s",
                str(error).partition("\n")[0][:200] or type(error).__name__,
            )


def _resolver(kind: type[Validator], schema: dict[str, Any]) -> Any:
    """Finds what references mean: within the schema and in the drafts. The library's default would fetch the rest."""
    specification = specification_with(cast("Any", kind).ID_OF(kind.META_SCHEMA), default=Specification.OPAQUE)
    resource = specification.create_resource(schema)
    uri = resource.id() or ""
    # Crawled once: else the whole schema is looked through for a name each time it is referred to.
    return DRAFTS.combine(Registry[Any]().with_resource(uri, resource)).crawl().resolver(uri)
