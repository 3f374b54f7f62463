"""Turns a validator's errors into problems with texts that a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from jsonschema.exceptions import ValidationError
from msgspec import Struct

from dragoman.schema.budget import try_spend
from dragoman.schema.outline import FORBIDDEN, Outline, join_limited, list_of, node_of, short_json
from dragoman.schema.pattern import matches

_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_MISSING = "is missing"
_UNKNOWN = "is not known"
_MORE = "more problem"
# Maximum problems in a list, and total characters of their paths.
_MAX_PROBLEMS = 20
_MAX_PATHS_LENGTH = 20_000


class Problem(Struct, frozen=True):
    """One thing that is wrong with the arguments.

    The path is spelled `a`, `filter.from`, `items[2].id`; empty for the whole object.
    """

    path: str
    missing: bool
    text: str

    @property
    def unknown(self) -> bool:
        """True for a name that the schema does not allow. Derived from the text, so that it survives being stored."""
        return self.text.startswith(_UNKNOWN)

    @property
    def stands_for_more(self) -> bool:
        """True for the last problem of a capped list, which says how many more there are."""
        return not self.path and _MORE in self.text


class _ProblemCollector:
    """Collects problems up to the cap, and counts the rest."""

    def __init__(self, more: int) -> None:
        self.problems: dict[tuple[str, str], Problem] = {}
        self.more = more
        self._path_chars_left = _MAX_PATHS_LENGTH

    def add(self, path: str, text: str, *, missing: bool = False) -> None:
        if (path, text) in self.problems:
            return
        if len(self.problems) == _MAX_PROBLEMS or (self.problems and len(path) > self._path_chars_left):
            self.more += 1
            return
        self._path_chars_left -= len(path)
        self.problems[path, text] = Problem(path, missing, text)


def problems_from_errors(
    errors: Iterable[ValidationError], outline: Outline, more: int | None = 0
) -> tuple[Problem, ...]:
    """Convert a validator's errors to problems: missing top-level properties first, then in the order of the schema.

    `more` is the number of errors beyond these, None for too many to count. If any are left out, the last problem
    says how many.
    """
    relevant = [inner for error in errors for inner in _relevant_errors(error)]
    with_choices = {_path(error) for error in relevant if error.validator in ("enum", "const")}
    collector = _ProblemCollector(more or 0)
    for error in relevant:
        if error.validator == "type" and _path(error) in with_choices:
            continue  # the list of allowed values says it all
        _add_problems(collector, error, outline)
    positions = {name: index for index, name in enumerate(outline.properties(outline.root))}

    def sort_key(problem: Problem) -> tuple[bool, int]:
        steps = outline.resolve_path(problem.path)[0]
        top = str(steps[0]) if steps else ""
        return not (problem.missing and len(steps) == 1), positions.get(top, len(positions))

    problems = sorted(collector.problems.values(), key=sort_key)
    if collector.more or more is None:
        many = "many" if more is None else str(collector.more)
        problems.append(Problem("", False, f"has {many} {_MORE}{'s' if many != '1' else ''}"))
    return tuple(problems)


def _relevant_errors(error: ValidationError) -> Iterator[ValidationError]:
    """Yield the error, or those of the alternative that was most likely meant."""
    context = cast("Sequence[ValidationError]", error.context or ())
    if not context or error.validator not in ("anyOf", "oneOf"):
        yield error
        return
    branches: dict[Any, list[ValidationError]] = {}
    for inner in context:
        if inner.validator != FORBIDDEN or inner.path:  # the alternative `false` matches nothing
            branches.setdefault(next(iter(inner.schema_path), None), []).append(inner)
    ranks = {index: _distance(inner) for index, inner in branches.items()}
    least = min(ranks.values(), default=(True, True, True))
    nearest = [branches[index] for index, rank in ranks.items() if rank == least]
    if least[0]:
        yield error  # its type fits none of the alternatives
    elif len(nearest) == 1:
        for inner in nearest[0]:
            yield from _relevant_errors(inner)
    elif all(_is_missing_property(inner) for some in nearest for inner in some):
        yield error  # each lacks something else: one sentence names them all
    else:
        yield _discriminator_error(error, nearest) or next(
            _relevant_errors(max(context, key=lambda inner: len(inner.path)))
        )


def _is_missing_property(error: ValidationError) -> bool:
    return error.validator == "required" and not error.path


def _discriminator_error(
    error: ValidationError, branches: Sequence[Sequence[ValidationError]]
) -> ValidationError | None:
    """Build an error that lists the allowed values of the property that selects an alternative.

    Returns None unless all alternatives are selected by the same property.
    """
    choosing = [next((inner for inner in some if inner.validator in ("enum", "const")), None) for some in branches]
    first = choosing[0]
    if first is None or any(one is None or one.path != first.path for one in choosing):
        return None
    values: list[Any] = []
    for one in choosing:
        limit = None if one is None else cast("Any", one.validator_value)
        values.extend(list_of(limit) if one is not None and one.validator == "enum" else [limit])
    return ValidationError(
        "", validator="enum", validator_value=values, path=first.path, instance=first.instance, parent=error
    )


def _distance(errors: Sequence[ValidationError]) -> tuple[bool, bool, bool]:
    """Rank how far an alternative is from the value: another type, another value, another kind of object."""
    here = [error for error in errors if not error.path]
    return (
        any(error.validator == "type" for error in here),
        any(error.validator in ("enum", "const") for error in here),
        any(error.validator in ("enum", "const") and len(error.path) == 1 for error in errors),
    )


def _path(error: ValidationError, *more: str) -> str:
    text = ""
    for step in [*error.absolute_path, *more]:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _add_problems(collector: _ProblemCollector, error: ValidationError, outline: Outline) -> None:
    value, limit = cast("Any", error.instance), cast("Any", error.validator_value)
    if error.validator == "required":
        for name in list_of(limit):
            if name not in value:
                collector.add(_path(error, str(name)), _MISSING, missing=True)
    elif error.validator in ("dependentRequired", "dependencies"):
        for name, others in node_of(limit).items():
            for other in list_of(others) if name in value else ():
                if other not in value:
                    collector.add(_path(error, str(other)), f"{_MISSING}: `{name}` needs it", missing=True)
    elif error.validator in ("additionalProperties", "unevaluatedProperties") and isinstance(value, Mapping):
        schema = cast("Any", error.schema)
        patterns = list(node_of(node_of(schema).get("patternProperties")))
        allowed = outline.properties(schema)
        names = [
            name
            for name in cast("Mapping[str, Any]", value)
            if name not in allowed and not any(try_spend(1) and matches(pattern, name) for pattern in patterns)
        ]
        for name in names[:_MAX_PROBLEMS]:
            collector.add(_path(error, name), _unknown_name_text(name, list(allowed)))
        collector.more += len(names[_MAX_PROBLEMS:])
    else:
        collector.add(_path(error), _error_text(error, value, limit, outline))


def _unknown_name_text(name: str, allowed: Sequence[str]) -> str:
    # Comparison costs the product of the lengths.
    may_compare = try_spend(len(name) * sum(map(len, allowed)) // 10)
    near = difflib.get_close_matches(name, allowed, 1) if may_compare else ()
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"{_UNKNOWN}: it takes {join_limited(allowed) if allowed else 'nothing'}{hint}"


def _error_text(error: ValidationError, value: Any, limit: Any, outline: Outline) -> str:
    keyword = str(error.validator)
    if _is_about_name(error):
        return f"has a name that is not allowed: {short_json(value)}"
    if keyword == FORBIDDEN:
        return "must not be given"
    if keyword == "type":
        return f"must be {_types_text([limit] if isinstance(limit, str) else list_of(limit))}, not {short_json(value)}"
    if keyword in ("anyOf", "oneOf"):
        return _no_alternative_text(error, value, outline)
    if keyword in ("enum", "const"):
        return f"must be {outline.type_text({keyword: limit})}, not {short_json(value)}"
    build_text = _TEXTS.get(keyword)
    return build_text(limit) if build_text is not None else "does not fit the schema"


def _is_about_name(error: ValidationError) -> bool:
    steps = list(error.absolute_schema_path)
    return any(
        one == "propertyNames" and before != "properties" for before, one in zip(["", *steps], steps, strict=False)
    )


def _no_alternative_text(error: ValidationError, value: Any, outline: Outline) -> str:
    branches = list_of(cast("Any", error.validator_value))
    context = cast("Sequence[ValidationError]", error.context or ())
    if not context:
        return "fits more than one of its alternatives, and has to fit exactly one"
    lacking = [inner for inner in context if _is_missing_property(inner)]
    if lacking:
        sets: dict[Any, str] = {}
        for inner in lacking:
            names = [f"`{name}`" for name in list_of(inner.validator_value) if name not in value]
            sets[next(iter(inner.schema_path), None)] = " and ".join(names)
        return f"needs {', or '.join(dict.fromkeys(sets.values()))}"
    words = [outline.type_text(branch) for branch in branches]
    named = [_TYPES.get(word, word) for word in words if word]
    if len(named) < len(branches):
        return f"fits none of its alternatives: {short_json(value)}"
    return f"must be {' or '.join(dict.fromkeys(named))}, not {short_json(value)}"


def _types_text(names: Sequence[Any]) -> str:
    return " or ".join(_TYPES.get(str(name), str(name)) for name in names)


def _count_text(limit: Any, noun: str) -> str:
    return f"{short_json(limit)} {noun}" if limit == 1 else f"{short_json(limit)} {noun}s"


_TEXTS: dict[str, Callable[[Any], str]] = {
    "minimum": lambda limit: f"must be at least {short_json(limit)}",
    "maximum": lambda limit: f"must be at most {short_json(limit)}",
    "exclusiveMinimum": lambda limit: f"must be more than {short_json(limit)}",
    "exclusiveMaximum": lambda limit: f"must be less than {short_json(limit)}",
    "multipleOf": lambda limit: f"must be a multiple of {short_json(limit)}",
    "minLength": lambda limit: (
        "must not be empty" if limit == 1 else f"must have at least {_count_text(limit, 'character')}"
    ),
    "maxLength": lambda limit: f"must have at most {_count_text(limit, 'character')}",
    "pattern": lambda limit: f"must match the pattern {short_json(limit)}",
    "minItems": lambda limit: "must not be empty" if limit == 1 else f"must have at least {_count_text(limit, 'item')}",
    "maxItems": lambda limit: f"must have at most {_count_text(limit, 'item')}",
    "items": lambda _: "has too many items",
    "uniqueItems": lambda _: "must not have the same item twice",
    "contains": lambda _: "lacks an item of the kind it must have",
    "minContains": lambda limit: f"must have at least {_count_text(limit, 'item')} of a certain kind",
    "maxContains": lambda limit: f"must have at most {_count_text(limit, 'item')} of a certain kind",
    "minProperties": lambda limit: f"must have at least {short_json(limit)} of its properties",
    "maxProperties": lambda limit: f"must have at most {short_json(limit)} of its properties",
    "not": lambda _: "has a value that is not allowed",
}
