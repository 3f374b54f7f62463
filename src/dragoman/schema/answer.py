"""Reading what a person typed as the value a schema wants."""

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

# A longer name is not looked for in a text: nobody types it.
_MAX_NAME_LENGTH = 500


def parse_value(text: str, outline: Outline, place: Any) -> Any:
    """The text as a value for that place; the text itself when it cannot be read."""
    choices = outline.choices(place)
    if choices is not None:
        return _match_choice(text, choices)
    if outline.takes_plain_text(place):
        return text
    types = outline.types(place)
    word = text.strip().casefold()
    if types is not None and "boolean" in types and word in YES | NO:
        return word in YES
    try:
        value = parse_json(text.strip())
    except InvalidJson:
        return text
    # What may be text or something else is text, unless it reads as the other.
    return value if types is None or "string" not in types or _is_other(value, types) else text


def _is_other(value: Any, types: frozenset[str]) -> bool:
    kind = type_of(value)
    return kind != "string" and (kind in types or (kind == "integer" and "number" in types))


def _match_choice(text: str, choices: tuple[Any, ...]) -> Any:
    word = text.strip()
    folded = word.casefold()
    spelled = [
        (choice, choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()) for choice in choices
    ]
    for choice, spelling in spelled:
        if word in (spelling, f'"{spelling}"', f"`{spelling}`"):
            return choice
    for choice, spelling in spelled:
        if folded == spelling.casefold() or (isinstance(choice, bool) and folded in (YES if choice else NO)):
            return choice
    return text


def parse_pairs(text: str, names: Iterable[str]) -> dict[str, str]:
    """The `name=value` or `name: value` pairs of a text, on lines of their own or with commas between them.

    Only names that are asked for begin a pair, so that a value may hold commas and colons. None are found where
    looking for them would take too long.
    """
    wanted = sorted({name for name in names if 0 < len(name) <= _MAX_NAME_LENGTH}, key=len, reverse=True)
    # Every name is made part of an expression, and tried wherever one may begin.
    places = 1 + sum(map(text.count, "\n,;"))
    if not wanted or not try_spend(sum(map(len, wanted)) + (len(wanted) + 8) * places // 100):
        return {}
    # Blanks but no line breaks: many empty lines must not be looked through again from each of them.
    one = "|".join(re.escape(name) for name in wanted)
    begins = re.compile(rf"(?:^|[,;])[ \t]*+([`\"']?)({one})\1[ \t]*+[=:]", re.MULTILINE)
    found = list(begins.finditer(text))
    ends = [*(match.start() for match in found), len(text)][1:]
    return {
        match[2]: _unquote(text[match.end() : end].strip().rstrip(",;").rstrip())
        for match, end in zip(found, ends, strict=True)
    }


def _unquote(text: str) -> str:
    """A text without the quotes around it."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            value = parse_json(text)
        except InvalidJson:
            return text
        return value if isinstance(value, str) else text
    return text


_UNPARSED = object()


class AnswerReader:
    """Reads answers to one question. `asked` are the properties it is about, `fits` tells whether a value is right."""

    def __init__(
        self,
        outline: Outline,
        fits: Callable[[Any, Any], bool],
        problems: Sequence[Problem],
        properties_asked_for: Sequence[str],
    ) -> None:
        self._outline = outline
        self._fits = fits
        self._problems = problems
        self._properties_asked_for = properties_asked_for
        self._properties = outline.properties(outline.root)

    def merge_into(self, arguments: dict[str, Any], text: str, data: Any) -> dict[str, Any]:
        """The arguments with the answer in them; what is not known is dropped, as it would be asked about for ever."""
        kept = self._drop_unknown(arguments)
        if isinstance(data, dict):
            return self._merge_object(kept, cast("dict[str, Any]", data))
        if data is not None and len(self._properties_asked_for) == 1:
            return self._merge_value(kept, data, data)
        if not text.strip():
            return kept
        try:
            read = parse_json(text.strip())
        except InvalidJson:
            read = _UNPARSED
        if isinstance(read, dict) and self._is_arguments_object(cast("dict[str, Any]", read)):
            return self._merge_object(kept, cast("dict[str, Any]", read))
        if len(self._properties_asked_for) == 1:
            return self._merge_text(kept, text)
        return self._merge_pairs(kept, text)

    def _is_arguments_object(self, found: dict[str, Any]) -> bool:
        """True unless an object is the text or the value that the one property wants."""
        return (
            len(self._properties_asked_for) != 1
            or isinstance(found.get("arguments"), dict)
            or bool(found.keys() & self._properties)
        )

    def _merge_object(self, arguments: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        inner = found.get("arguments")
        if isinstance(inner, dict) and "arguments" not in self._properties:
            found = cast("dict[str, Any]", inner)
        elif len(self._properties_asked_for) == 1 and not found.keys() & self._properties:
            place = self._properties[self._properties_asked_for[0]]
            if "object" in (self._outline.types(place) or ()):
                found = {self._properties_asked_for[0]: found}
        merged = {**arguments, **found}
        for name, within in self._problems_by_property.items():
            if name in arguments and name in found:
                merged[name] = self._complete_value(name, within, arguments[name], found[name])
        return merged

    def _complete_value(self, name: str, within: Sequence[Problem], old: Any, new: Any) -> Any:
        """The new value, with what the old one had beside it when it only lacked something; else it is replaced."""
        only_lacked = all(problem.missing and problem.path != name for problem in within)
        if only_lacked and isinstance(old, dict) and isinstance(new, dict):
            return _deep_merge(cast("dict[str, Any]", old), cast("dict[str, Any]", new))
        return new

    def _merge_text(self, arguments: dict[str, Any], text: str) -> dict[str, Any]:
        name = self._properties_asked_for[0]
        place = self._properties[name]
        value = parse_value(text, self._outline, place)
        if value == text and not self._outline.takes_plain_text(place):
            pairs = self._merge_pairs(arguments, text)
            if pairs != arguments:
                return pairs
        inner = (
            parse_value(text, self._outline, self._outline.at(self._problems[0].path)[1]) if self._problems else value
        )
        return self._merge_value(arguments, value, inner)

    def _merge_value(self, arguments: dict[str, Any], value: Any, inner: Any) -> dict[str, Any]:
        """Put in the one value: where the problem is, if it is inside the property, else as the property."""
        name = self._properties_asked_for[0]
        path = self._problems[0].path if len(self._problems) == 1 else name
        if path not in ("", name) and not self._fits(value, self._properties[name]):
            changed = replace_at(arguments, self._outline.at(path)[0], inner)
            if changed is not None:
                return cast("dict[str, Any]", changed)
        return {**arguments, name: value}

    def _merge_pairs(self, arguments: dict[str, Any], text: str) -> dict[str, Any]:
        paths = [problem.path for problem in self._problems]
        found = parse_pairs(text, [*paths, *self._properties_asked_for, *self._properties])
        merged = dict(arguments)
        for path, words in found.items():
            (name, *rest), place = self._outline.at(path)
            inner = replace_at(merged.get(str(name)), rest, parse_value(words, self._outline, place))
            if isinstance(name, str) and (inner is not None or not rest):
                merged[name] = inner
        return merged

    def _drop_unknown(self, arguments: dict[str, Any]) -> dict[str, Any]:
        unknown: dict[Steps, set[str]] = {}
        for problem in self._problems:
            steps = find_steps(arguments, problem.path) if problem.unknown else None
            if steps is not None:
                unknown.setdefault(steps[:-1], set()).add(str(steps[-1]))
        kept: Any = dict(arguments)
        for holder, names in unknown.items():
            told_all = not any(problem.stands_for_more for problem in self._problems)
            kept = remove_names(kept, holder, names if told_all else names | self._unknown_names(arguments, holder))
        return kept

    def _unknown_names(self, arguments: dict[str, Any], holder: Steps) -> set[str]:
        """All names that are no better known than those that were told, when only some were."""
        value: Any = arguments
        place: Any = self._outline.root
        for step in holder:
            value, place = value[step], self._outline.child(place, step)
        known = self._outline.properties(place)
        patterns = [one for part in self._outline.parts(place) for one in node_of(part.get("patternProperties"))]
        return {
            name
            for name in cast("dict[str, Any]", value)
            if name not in known and not any(try_spend(1) and matches(pattern, name) for pattern in patterns)
        }

    @functools.cached_property
    def _problems_by_property(self) -> dict[str, list[Problem]]:
        """The problems by the property they are in."""
        found: dict[str, list[Problem]] = {}
        for problem in self._problems:
            steps = self._outline.at(problem.path)[0]
            if steps and isinstance(steps[0], str):
                found.setdefault(steps[0], []).append(problem)
        return found


def _deep_merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found = dict(old)
    for name, value in new.items():
        mine = found.get(name)
        both = isinstance(mine, dict) and isinstance(value, dict)
        found[name] = _deep_merge(cast("dict[str, Any]", mine), cast("dict[str, Any]", value)) if both else value
    return found
