"""Parses a person's answer to a question about arguments and merges it into the arguments."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.schema.budget import try_spend
from dragoman.schema.conversion import NO, YES, InvalidJson, parse_json
from dragoman.schema.outline import Outline, Steps, find_steps, node_of, remove_names, replace_at, type_of
from dragoman.schema.pattern import matches

if TYPE_CHECKING:
    from dragoman.schema.problem import Problem

# Longer names are not searched for in a text: nobody types them.
_MAX_NAME_LENGTH = 500


def parse_value(text: str, outline: Outline, subschema: Any) -> Any:
    """Parse text as a value of a subschema; return the text itself when it cannot be parsed."""
    choices = outline.choices(subschema)
    if choices is not None:
        return _match_choice(text, choices)
    if outline.takes_plain_text(subschema):
        return text
    types = outline.types(subschema)
    word = text.strip().casefold()
    if types is not None and "boolean" in types and word in YES | NO:
        return word in YES
    try:
        value = parse_json(text.strip())
    except InvalidJson:
        return text
    # Where a string is allowed beside other types, the text stays text unless it parses as one of the others.
    return value if types is None or "string" not in types or _is_non_string(value, types) else text


def _is_non_string(value: Any, types: frozenset[str]) -> bool:
    kind = type_of(value)
    return kind != "string" and (kind in types or (kind == "integer" and "number" in types))


def _match_choice(text: str, choices: tuple[Any, ...]) -> Any:
    word = text.strip()
    folded = word.casefold()
    spellings = [
        (choice, choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()) for choice in choices
    ]
    for choice, spelling in spellings:
        if word in (spelling, f'"{spelling}"', f"`{spelling}`"):
            return choice
    for choice, spelling in spellings:
        if folded == spelling.casefold() or (isinstance(choice, bool) and folded in (YES if choice else NO)):
            return choice
    return text


def parse_pairs(text: str, names: Iterable[str]) -> dict[str, str]:
    """Parse `name=value` or `name: value` pairs, on separate lines or separated by commas or semicolons.

    Only the given names start a pair, so a value may contain commas and colons. Returns no pairs when the search
    would exceed the step budget.
    """
    searched = sorted({name for name in names if 0 < len(name) <= _MAX_NAME_LENGTH}, key=len, reverse=True)
    # All names are alternatives of one regular expression, which is tried wherever a pair may start.
    starts = 1 + sum(map(text.count, "\n,;"))
    if not searched or not try_spend(sum(map(len, searched)) + (len(searched) + 8) * starts // 100):
        return {}
    # Blanks but not line breaks: a run of empty lines would be rescanned from each of its lines.
    alternatives = "|".join(re.escape(name) for name in searched)
    pair_start = re.compile(rf"(?:^|[,;])[ \t]*+([`\"']?)({alternatives})\1[ \t]*+[=:]", re.MULTILINE)
    pairs = list(pair_start.finditer(text))
    ends = [*(match.start() for match in pairs), len(text)][1:]
    return {
        match[2]: _unquote(text[match.end() : end].strip().rstrip(",;").rstrip())
        for match, end in zip(pairs, ends, strict=True)
    }


def _unquote(text: str) -> str:
    """Decode a JSON string; return any other text unchanged."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            value = parse_json(text)
        except InvalidJson:
            return text
        return value if isinstance(value, str) else text
    return text


_UNPARSED = object()


class AnswerReader:
    """Parses the answer to a question about the problems of some arguments.

    `requested_names` are the properties the question asks for; `is_valid(value, subschema)` validates a value.
    """

    def __init__(
        self,
        outline: Outline,
        is_valid: Callable[[Any, Any], bool],
        problems: Sequence[Problem],
        requested_names: Sequence[str],
    ) -> None:
        self._outline = outline
        self._is_valid = is_valid
        self._problems = problems
        self._requested_names = requested_names
        self._properties = outline.properties(outline.root)

    def merge_into(self, arguments: dict[str, Any], text: str, data: Any) -> dict[str, Any]:
        """Return the arguments with the answer merged in.

        Properties that the schema does not allow are dropped, otherwise the question about them would repeat forever.
        """
        allowed = self._drop_unknown(arguments)
        if isinstance(data, dict):
            return self._merge_object(allowed, cast("dict[str, Any]", data))
        if data is not None and len(self._requested_names) == 1:
            return self._merge_value(allowed, data, data)
        if not text.strip():
            return allowed
        try:
            value = parse_json(text.strip())
        except InvalidJson:
            value = _UNPARSED
        if isinstance(value, dict) and self._is_arguments_object(cast("dict[str, Any]", value)):
            return self._merge_object(allowed, cast("dict[str, Any]", value))
        if len(self._requested_names) == 1:
            return self._merge_text(allowed, text)
        return self._merge_pairs(allowed, text)

    def _is_arguments_object(self, members: dict[str, Any]) -> bool:
        """False when the object is itself the value (or JSON text) of the single requested property."""
        return (
            len(self._requested_names) != 1
            or isinstance(members.get("arguments"), dict)
            or bool(members.keys() & self._properties)
        )

    def _merge_object(self, arguments: dict[str, Any], members: dict[str, Any]) -> dict[str, Any]:
        inner = members.get("arguments")
        if isinstance(inner, dict) and "arguments" not in self._properties:
            members = cast("dict[str, Any]", inner)
        elif len(self._requested_names) == 1 and not members.keys() & self._properties:
            subschema = self._properties[self._requested_names[0]]
            if "object" in (self._outline.types(subschema) or ()):
                members = {self._requested_names[0]: members}
        merged = {**arguments, **members}
        for name, problems in self._problems_by_property.items():
            if name in arguments and name in members:
                merged[name] = self._complete_value(name, problems, arguments[name], members[name])
        return merged

    def _complete_value(self, name: str, problems: Sequence[Problem], old: Any, new: Any) -> Any:
        """Merge the new object into the old one if the old one only lacked members; otherwise replace it."""
        only_lacked = all(problem.missing and problem.path != name for problem in problems)
        if only_lacked and isinstance(old, dict) and isinstance(new, dict):
            return _deep_merge(cast("dict[str, Any]", old), cast("dict[str, Any]", new))
        return new

    def _merge_text(self, arguments: dict[str, Any], text: str) -> dict[str, Any]:
        name = self._requested_names[0]
        subschema = self._properties[name]
        value = parse_value(text, self._outline, subschema)
        if value == text and not self._outline.takes_plain_text(subschema):
            pairs = self._merge_pairs(arguments, text)
            if pairs != arguments:
                return pairs
        inner = (
            parse_value(text, self._outline, self._outline.resolve_path(self._problems[0].path)[1])
            if self._problems
            else value
        )
        return self._merge_value(arguments, value, inner)

    def _merge_value(self, arguments: dict[str, Any], value: Any, inner: Any) -> dict[str, Any]:
        """Set the single requested value: at the path of the problem if that is nested, else as the whole property."""
        name = self._requested_names[0]
        path = self._problems[0].path if len(self._problems) == 1 else name
        if path not in ("", name) and not self._is_valid(value, self._properties[name]):
            changed = replace_at(arguments, self._outline.resolve_path(path)[0], inner)
            if changed is not None:
                return cast("dict[str, Any]", changed)
        return {**arguments, name: value}

    def _merge_pairs(self, arguments: dict[str, Any], text: str) -> dict[str, Any]:
        paths = [problem.path for problem in self._problems]
        pairs = parse_pairs(text, [*paths, *self._requested_names, *self._properties])
        merged = dict(arguments)
        for path, value_text in pairs.items():
            (name, *rest), subschema = self._outline.resolve_path(path)
            inner = replace_at(merged.get(str(name)), rest, parse_value(value_text, self._outline, subschema))
            if isinstance(name, str) and (inner is not None or not rest):
                merged[name] = inner
        return merged

    def _drop_unknown(self, arguments: dict[str, Any]) -> dict[str, Any]:
        unknown: dict[Steps, set[str]] = {}
        for problem in self._problems:
            steps = find_steps(arguments, problem.path) if problem.unknown else None
            if steps is not None:
                unknown.setdefault(steps[:-1], set()).add(str(steps[-1]))
        allowed: Any = dict(arguments)
        for steps, names in unknown.items():
            is_complete = not any(problem.stands_for_more for problem in self._problems)
            all_names = names if is_complete else names | self._unknown_names(arguments, steps)
            allowed = remove_names(allowed, steps, all_names)
        return allowed

    def _unknown_names(self, arguments: dict[str, Any], steps: Steps) -> set[str]:
        """Return all disallowed names in an object: the problem list may name only the first ones."""
        value: Any = arguments
        subschema: Any = self._outline.root
        for step in steps:
            value, subschema = value[step], self._outline.child(subschema, step)
        properties = self._outline.properties(subschema)
        parts = self._outline.parts(subschema)
        patterns = [pattern for part in parts for pattern in node_of(part.get("patternProperties"))]
        return {
            name
            for name in cast("dict[str, Any]", value)
            if name not in properties and not any(try_spend(1) and matches(pattern, name) for pattern in patterns)
        }

    @functools.cached_property
    def _problems_by_property(self) -> dict[str, list[Problem]]:
        """Problems grouped by top-level property."""
        grouped: dict[str, list[Problem]] = {}
        for problem in self._problems:
            steps = self._outline.resolve_path(problem.path)[0]
            if steps and isinstance(steps[0], str):
                grouped.setdefault(steps[0], []).append(problem)
        return grouped


def _deep_merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for name, value in new.items():
        existing = merged.get(name)
        both = isinstance(existing, dict) and isinstance(value, dict)
        merged[name] = _deep_merge(cast("dict[str, Any]", existing), cast("dict[str, Any]", value)) if both else value
    return merged
