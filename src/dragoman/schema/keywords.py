"""JSON Schema keywords for `jsonschema` with bounded cost: work is charged to the step budget.

The library's own keywords put the whole value into every error message, compare all items with each other, and run
any regular expression. Those defined here leave the message empty, because `problem` builds the texts; those that are
kept are charged for their work and their messages.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, cast

import msgspec
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError

from dragoman.schema.budget import BudgetExhausted, enter_reference, leave_reference, spend
from dragoman.schema.integers import contains_float
from dragoman.schema.outline import FORBIDDEN, Node
from dragoman.schema.pattern import compile_pattern

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]

# Errors considered per alternative.
_MAX_ERRORS = 20
# Steps charged for validating one value against one subschema.
_DESCENT_COST = 6
# Steps charged per error.
_ERROR_COST = 3
_UNEVALUATED = "unevaluatedProperties"


@functools.cache
def budgeted_validator(kind: type[Validator], *, ignore_unevaluated: bool = False) -> type[Validator]:
    """Return the validator class of a draft that charges its work, and raises BudgetExhausted when there is too much.

    With `ignore_unevaluated` it ignores `unevaluatedProperties`. Needed beside `patternProperties`: there the library
    matches the patterns itself, with an engine whose time is unbounded.
    """
    original = cast("dict[str, Keyword]", kind.VALIDATORS)
    newest = cast("dict[str, Keyword]", Draft202012Validator.VALIDATORS)
    # An older draft may define a keyword differently: its implementation is then kept, and charged.
    own = {name: keyword for name, keyword in _KEYWORDS.items() if original.get(name) is newest[name]}
    costly = {
        name: _with_cost(original[name], cost) for name, cost in _COSTS.items() if name in original and name not in own
    }
    referring = {name: _guard_cycles(original[name]) for name in _REFERENCES if name in original}
    ignored = {_UNEVALUATED: _ignore} if ignore_unevaluated else {}
    validator_class: Any = cast("Any", validators).extend(kind, {**costly, **referring, **own, **ignored})
    descend = validator_class.descend

    def descend_or_forbid(
        validator: Any, instance: Any, schema: Any, *args: Any, **named: Any
    ) -> Iterator[ValidationError]:
        return (
            _false_schema_error(instance, *args, **named)
            if schema is False
            else descend(validator, instance, schema, *args, **named)
        )

    validator_class.descend, validator_class.evolve = descend_or_forbid, _evolve
    return cast("type[Validator]", validator_class)


def _evolve(validator: Any, **changes: Any) -> Any:
    """Return the validator for another subschema: of the same class, whatever its `$schema` says.

    The library's `evolve` would return one without a budget.
    """
    spend(_DESCENT_COST)
    schema = changes.get("schema", validator.schema)
    return type(validator)(
        {"not": {}} if schema is False else schema,
        registry=validator._registry,
        _resolver=changes.get("_resolver", validator._resolver),
    )


def _ignore(*_: Any) -> Iterator[ValidationError]:
    return iter(())


def _false_schema_error(value: Any, path: Any = None, schema_path: Any = None, **_: Any) -> Iterator[ValidationError]:
    """Yield the error of the schema `false`, with its path: the library's error has none."""
    yield ValidationError(
        "",
        validator=FORBIDDEN,
        validator_value=False,
        instance=value,
        schema=False,
        path=() if path is None else [path],
        schema_path=() if schema_path is None else [schema_path],
    )


def _with_cost(keyword: Keyword, cost: Callable[[Any, Any], int]) -> Keyword:
    """Wrap a keyword of the library: charge its work before, and the length of its messages after."""

    def charged(validator: Any, limit: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        spend(cost(limit, value))
        for error in keyword(validator, limit, value, schema) or ():
            spend(1 + len(error.message) // 50)
            yield error

    return charged


def _guard_cycles(keyword: Keyword) -> Keyword:
    """Wrap a reference keyword of the library so that a reference to itself raises BudgetExhausted."""

    def guarded(validator: Any, ref: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        spend(_DESCENT_COST)
        enter_reference(schema, value)
        try:
            yield from keyword(validator, ref, value, schema)
        finally:
            leave_reference(schema, value)

    return guarded


def _keyword_from_test(test: Callable[[Any, Any, Any], bool]) -> Keyword:
    """Build a keyword from a predicate."""

    def tested(validator: Any, limit: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
        if not test(validator, limit, value):
            spend(_ERROR_COST)
            yield ValidationError("")

    return tested


def _length_keyword(kind: str, fits: Callable[[int, Any], bool]) -> Keyword:
    return _keyword_from_test(
        lambda validator, limit, value: not validator.is_type(value, kind) or fits(len(value), limit)
    )


def _has_type(validator: Any, types: Any, value: Any) -> bool:
    return any(validator.is_type(value, one) for one in ([types] if isinstance(types, str) else types))


def _is_one_of(_validator: Any, choices: Any, value: Any) -> bool:
    spend(len(choices) // 20)
    if isinstance(value, str):
        return value in choices
    return any(is_equal_json(choice, value) for choice in choices)


def is_equal_json(one: Any, two: Any) -> bool:
    """Compare as JSON: 1 equals 1.0, and true does not equal 1."""
    spend(1)
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, list) and isinstance(two, list):
        rows = cast("list[Any]", one), cast("list[Any]", two)
        return len(rows[0]) == len(rows[1]) and all(map(is_equal_json, *rows))
    if isinstance(one, dict) and isinstance(two, dict):
        mine, other = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
        return mine.keys() == other.keys() and all(is_equal_json(value, other[name]) for name, value in mine.items())
    return one == two


def _is_unique(validator: Any, must_be_unique: Any, value: Any) -> bool:
    if not must_be_unique or not validator.is_type(value, "array"):
        return True
    items = cast("list[Any]", value)
    spend(len(items) // 10)
    kinds: set[type[Any]] = set(map(type, items))
    if kinds <= {str}:
        return len(set(items)) == len(items)
    if kinds <= {int, float}:  # not by hash: an attacker can choose numbers whose hashes collide
        return all(one != two for one, two in pairwise(sorted(items)))
    seen: set[bytes] = set()
    for item in items:
        spend(1)
        text = msgspec.json.encode(_with_integers(item) if contains_float(item) else item, order="sorted")
        spend(len(text) // 100)
        if text in seen:
            return False
        seen.add(text)
    return True


def _with_integers(value: Any) -> Any:
    spend(1)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_integers(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _with_integers(one) for name, one in cast("dict[str, Any]", value).items()}
    return value


def _required(validator: Any, names: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "object"):
        spend(len(names) // 20)
        for name in names:
            if name not in value:
                yield ValidationError("")  # one error for all missing names
                return


def _properties(validator: Any, properties: Node, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "object"):
        spend(len(properties) // 20)
        for name, subschema in properties.items():
            if name in value:
                yield from validator.descend(value[name], subschema, path=name, schema_path=name)


def _pattern_properties(validator: Any, patterns: Node, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "object"):
        for pattern, subschema in patterns.items():
            matcher = compile_pattern(pattern)
            for name, one in value.items() if matcher is not None else ():
                if matcher is not None and matcher.search(name):
                    yield from validator.descend(one, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, subschema: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if subschema in (True, {}) or not validator.is_type(value, "object"):
        return
    spend(len(value) // 10)
    named = schema.get("properties", {})
    matchers = [compile_pattern(pattern) for pattern in schema.get("patternProperties", {})]
    for name, one in value.items():
        # A pattern that is not enforced may match this name: no error then.
        if name in named or any(matcher is None or matcher.search(name) for matcher in matchers):
            continue
        if subschema is False:
            yield ValidationError("")
            return
        yield from validator.descend(one, subschema, path=name)


def _matches_pattern(validator: Any, pattern: Any, value: Any) -> bool:
    """True when the pattern matches, and when it cannot be tried: then the server decides."""
    if not validator.is_type(value, "string"):
        return True
    try:
        matcher = compile_pattern(pattern)
        return matcher is None or matcher.search(value)
    except BudgetExhausted:
        return True


def _items(validator: Any, subschema: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "array"):
        first = len(schema.get("prefixItems", ()))
        if subschema is False and len(value) > first:
            yield ValidationError("")
        for index in range(first, len(value)) if subschema not in (True, False, {}) else ():
            yield from validator.descend(value[index], subschema, path=index)


def _any_of(validator: Any, branches: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if not any(_is_valid(validator, branch, value) for branch in branches):
        yield ValidationError("", context=_branch_errors(validator, branches, value))


def _one_of(validator: Any, branches: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    matching = sum(1 for branch in branches if _is_valid(validator, branch, value))
    if matching != 1:
        yield ValidationError("", context=() if matching else _branch_errors(validator, branches, value))


def _is_valid(validator: Any, branch: Any, value: Any) -> bool:
    # Checked before errors are collected, as it stops at the first error: a discriminator usually comes first.
    return next(validator.descend(value, branch), None) is None


def _branch_errors(validator: Any, branches: Any, value: Any) -> list[ValidationError]:
    return [
        error
        for index, branch in enumerate(branches)
        for error in islice(validator.descend(value, branch, schema_path=index), _MAX_ERRORS)
    ]


def _quadratic_cost(_limit: Any, value: Any) -> int:
    return len(cast("list[Any]", value)) ** 2 // 10 if isinstance(value, (dict, list)) else 0


def _per_item_cost(_limit: Any, value: Any) -> int:
    return 2 * len(cast("list[Any]", value)) if isinstance(value, list) else 0


def _limit_cost(limit: Any, _value: Any) -> int:
    return len(cast("list[Any]", limit)) // 20 if isinstance(limit, (dict, list)) else 0


_KEYWORDS: dict[str, Keyword] = {
    "type": _keyword_from_test(_has_type),
    "enum": _keyword_from_test(_is_one_of),
    "const": _keyword_from_test(lambda _, limit, value: is_equal_json(limit, value)),
    "not": _keyword_from_test(lambda validator, limit, value: not validator.evolve(schema=limit).is_valid(value)),
    "pattern": _keyword_from_test(_matches_pattern),
    "minLength": _length_keyword("string", operator.ge),
    "maxLength": _length_keyword("string", operator.le),
    "minItems": _length_keyword("array", operator.ge),
    "maxItems": _length_keyword("array", operator.le),
    "minProperties": _length_keyword("object", operator.ge),
    "maxProperties": _length_keyword("object", operator.le),
    "uniqueItems": _keyword_from_test(_is_unique),
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "items": _items,
    "anyOf": _any_of,
    "oneOf": _one_of,
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_COSTS: dict[str, Callable[[Any, Any], int]] = {
    "contains": _per_item_cost,
    "unevaluatedItems": _quadratic_cost,
    _UNEVALUATED: _quadratic_cost,
    "dependentRequired": _limit_cost,
    "dependencies": _limit_cost,
    "additionalItems": _limit_cost,
    "type": _limit_cost,
    "disallow": _limit_cost,
}
