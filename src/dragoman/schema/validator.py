"""The validator of one schema: compiled on first use, bounded in time, and without network access."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as DRAFTS
from msgspec import Struct
from referencing import Registry, Specification
from referencing.jsonschema import specification_with

from dragoman.schema.budget import step_budget
from dragoman.schema.keywords import budgeted_validator
from dragoman.schema.outline import TYPES, Node, list_of, node_of, short_json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    from dragoman.schema.outline import Outline

logger = logging.getLogger("dragoman.mcp")

# Maximum number of subschemas and nesting depth: the validator recurses.
_MAX_SUBSCHEMAS, _MAX_DEPTH = 4_000, 50


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == value // 1


def _is_name_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[Any]", value))


def _is_type(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return bool(names) and _is_name_list(names) and set(TYPES).issuperset(names)


def _is_limit(value: Any) -> bool:
    return _is_number(value) or isinstance(value, bool)  # draft 4: a boolean says whether `minimum` is exclusive


def _is_name_list_object(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_name_list, cast("dict[str, Any]", value).values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_KEYWORD_CHECKS: dict[str, Callable[[Any], bool]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list),
    "required": _is_name_list,
    "pattern": _is_text,
    "dependentRequired": _is_name_list_object,
    "uniqueItems": lambda value: isinstance(value, bool),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "exclusiveMinimum": _is_limit,
    "exclusiveMaximum": _is_limit,
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(("$id", "id", "$schema", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor"), _is_text),
    **dict.fromkeys(
        (
            *("minLength", "maxLength", "minItems", "maxItems"),
            *("minProperties", "maxProperties", "minContains", "maxContains"),
        ),
        _is_count,
    ),
}


def check_shape(schema: Any) -> None:
    """Check that a schema is well-formed, within the size limit and not too deep.

    Raises:
        ValueError: it is not.
    """
    level: list[Any] = [schema]
    count = 0
    for _ in range(_MAX_DEPTH):
        count += len(level)
        if count > _MAX_SUBSCHEMAS:
            raise ValueError("it is too large")
        level = [inner for subschema in level for inner in _subschemas(subschema)]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")


def has_unevaluated_patterns(schema: Any) -> bool:
    """True when `unevaluatedProperties` may be used together with `patternProperties`.

    Raises:
        ValueError, TypeError, RecursionError: the schema cannot be encoded as JSON.
    """
    # Searched anywhere in the text: a reference may lead to a part under no keyword.
    text = msgspec.json.encode(schema)
    return b'"unevaluatedProperties"' in text and b'"patternProperties"' in text


def _subschemas(subschema: Any) -> list[Any]:
    """Return the direct subschemas of a schema. Raises ValueError when a keyword is malformed."""
    if isinstance(subschema, bool):
        return []
    if not isinstance(subschema, dict):
        raise ValueError(f"{short_json(subschema)} is no schema")
    node = cast("Node", subschema)
    for word in node.keys() & _KEYWORD_CHECKS.keys():
        if not _KEYWORD_CHECKS[word](node[word]):
            raise _keyword_error(word, node[word])
    inner: list[Any] = []
    for word in node.keys() & _SUBSCHEMA_KEYWORDS.keys():
        inner += _SUBSCHEMA_KEYWORDS[word](word, node[word])
    return inner


def _keyword_error(word: str, value: Any) -> ValueError:
    return ValueError(f"{short_json(value)} is not what `{word}` can be")


def _subschemas_of_value(word: str, value: Any) -> Sequence[Any]:
    # Up to 2019-09 `items` may be a list: the schemas of the first items.
    return list_of(value) if word == "items" and list_of(value) else (value,)


def _subschemas_of_list(word: str, value: Any) -> Sequence[Any]:
    if not list_of(value):
        raise _keyword_error(word, value)
    return list_of(value)


def _subschemas_of_object(word: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, dict):
        raise _keyword_error(word, value)
    schemas = list(node_of(cast("Any", value)).values())
    # `dependencies` may list names instead.
    return schemas if word != "dependencies" else [one for one in schemas if not isinstance(one, (list, str))]


# Keywords that contain schemas: one, a list, or an object of them.
_SUBSCHEMA_KEYWORDS: dict[str, Callable[[str, Any], Sequence[Any]]] = {
    **dict.fromkeys(
        (
            *("additionalItems", "additionalProperties", "contains", "contentSchema", "else"),
            *("if", "items", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
        ),
        _subschemas_of_value,
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _subschemas_of_list),
    **dict.fromkeys(
        ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"),
        _subschemas_of_object,
    ),
}


_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
# Keywords that do not affect validity.
_ANNOTATIONS = {"title", "description", "default", "examples"}


class FlatSchema(Struct, frozen=True):
    """A schema of named properties with plain types: validated without `jsonschema`."""

    types: dict[str, tuple[type, ...]]
    required: frozenset[str]
    allows_additional: bool

    def is_surely_valid(self, value: object) -> bool:
        """True when the value is valid; False when the full validator has to decide."""
        if not isinstance(value, dict):
            return False
        members = cast("dict[str, Any]", value)
        if not self.required.issubset(members):
            return False
        for name, each in members.items():
            types = self.types.get(name)
            # By exact type: to Python, a boolean is an integer.
            if type(each) not in types if types is not None else not self.allows_additional:
                return False
        return True


def parse_flat_schema(schema: Mapping[str, Any]) -> FlatSchema | None:
    """Return the schema as a FlatSchema; None when it uses anything else."""
    if (
        schema.get("type") != "object"
        or set(schema) - {"type", "properties", "required", "additionalProperties", "$schema"} - _ANNOTATIONS
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
    for name, subschema in cast("dict[str, Any]", properties).items():
        if not isinstance(subschema, dict) or set(cast("dict[str, Any]", subschema)) - {"type"} - _ANNOTATIONS:
            return None
        kind: Any = cast("dict[str, Any]", subschema).get("type")
        if not isinstance(kind, str) or kind not in _PLAIN_TYPES:
            return None
        types[name] = _PLAIN_TYPES[kind]
    names = cast("list[Any]", required)
    return FlatSchema(types, frozenset(names), extra) if all(isinstance(name, str) for name in names) else None


# Errors collected per value.
_MAX_ERRORS = 20
# Never handled here. A panic of a Rust library is a BaseException too, but means only that the schema is unusable.
_RERAISED = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


class BoundedValidator:
    """Validates values against a foreign schema, with every step charged to the step budget.

    Where the schema cannot be used, or not within the budget, values pass: the server that published it decides.
    `errors` has a budget of its own, `is_valid` uses that of its caller.
    """

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._has_logged = False

    def errors(self, value: Any) -> tuple[list[ValidationError], int | None]:
        """Return the first errors and the number of further ones, None when they are too many to count.

        There are no errors when the schema cannot be used for this value, or not within the budget.
        """
        if self._flat is not None and self._flat.is_surely_valid(value):
            return [], 0
        if self._validator is None:
            return [], 0
        errors: list[ValidationError] = []
        more = 0
        try:
            with step_budget():
                for error in self._validator.iter_errors(value):
                    if len(errors) < _MAX_ERRORS:
                        errors.append(error)
                    else:
                        more += 1
        except _RERAISED:
            raise
        except BaseException as error:  # noqa: BLE001 - a foreign schema may break a validator in any way it likes
            if len(errors) == _MAX_ERRORS:
                return errors, None  # enough to ask about
            self.log_unusable(error)
            return [], 0
        return errors, more

    def is_valid(self, value: Any, subschema: Any) -> bool:
        """True when the value is valid against a subschema; checks only its type when the validator cannot be used."""
        if self._validator is None:
            return self._outline.admits(value, subschema)
        try:
            return bool(cast("Any", self._validator).evolve(schema=subschema).is_valid(value))
        except _RERAISED:
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            self.log_unusable(error)
            return self._outline.admits(value, subschema)

    @functools.cached_property
    def _flat(self) -> FlatSchema | None:
        return parse_flat_schema(self._outline.root)

    @functools.cached_property
    def _validator(self) -> Validator | None:
        # The draft is chosen here, once for all subschemas. `required` goes first: only the first errors are collected.
        first = {"required": self._outline.root["required"]} if "required" in self._outline.root else {}
        schema = {key: value for key, value in {**first, **self._outline.root}.items() if key != "$schema"}
        try:
            kind = validator_for(self._outline.root, default=Draft202012Validator)
            check_shape(schema)
            ignore_unevaluated = has_unevaluated_patterns(schema)
            if ignore_unevaluated:
                logger.warning("`unevaluatedProperties` beside `patternProperties` is left to the server")
            validator_class = cast("Any", budgeted_validator(kind, ignore_unevaluated=ignore_unevaluated))
            return validator_class(schema, registry=Registry[Any](), _resolver=_resolver(kind, schema))
        except _RERAISED:
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            self.log_unusable(error)
            return None

    def log_unusable(self, error: BaseException) -> None:
        """Log, once, that the schema cannot be used."""
        if not self._has_logged:
            self._has_logged = True
            logger.warning(
                "a tool's schema cannot be used, its server will judge the arguments: %s",
                str(error).partition("\n")[0][:200] or type(error).__name__,
            )


def _resolver(kind: type[Validator], schema: dict[str, Any]) -> Any:
    """Build a resolver for references within the schema and to the drafts; the default one may use the network."""
    specification = specification_with(cast("Any", kind).ID_OF(kind.META_SCHEMA), default=Specification.OPAQUE)
    resource = specification.create_resource(schema)
    uri = resource.id() or ""
    # Crawled once: otherwise every lookup of a name would search the whole schema.
    return DRAFTS.combine(Registry[Any]().with_resource(uri, resource)).crawl().resolver(uri)
