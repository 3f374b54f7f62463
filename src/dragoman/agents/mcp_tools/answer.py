"""An answer to a question about arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.mcp_tools.answered_text import Unreadable, json_of, pairs_in, value_of
from dragoman.agents.mcp_tools.pattern import matches
from dragoman.agents.mcp_tools.schema_effort import affords
from dragoman.agents.mcp_tools.schema_outline import Outline, node_of
from dragoman.agents.mcp_tools.schema_steps import Steps, put, steps_to, without

if TYPE_CHECKING:
    from dragoman.agents.mcp_tools.problem import Problem

_NOTHING = object()


class Answer:
    """Reads answers to one question. `asked` are the properties it is about, `fits` tells whether a value is right."""

    def __init__(
        self, outline: Outline, fits: Callable[[Any, Any], bool], problems: Sequence[Problem], asked: Sequence[str]
    ) -> None:
        self._outline = outline
        self._fits = fits
        self._problems = problems
        self._asked = asked
        self._properties = outline.properties(outline.root)

    def merged(self, arguments: dict[str, Any], text: str, data: Any) -> dict[str, Any]:
        """The arguments with the answer in them; what is not known is dropped, as it would be asked about for ever."""
        kept = self._without_unknown(arguments)
        if isinstance(data, dict):
            return self._with_object(kept, cast("dict[str, Any]", data))
        if data is not None and len(self._asked) == 1:
            return self._with_value(kept, data, data)
        if not text.strip():
            return kept
        try:
            read = json_of(text.strip())
        except Unreadable:
            read = _NOTHING
        if isinstance(read, dict) and self._is_meant(cast("dict[str, Any]", read)):
            return self._with_object(kept, cast("dict[str, Any]", read))
        if len(self._asked) == 1:
            return self._with_text(kept, text)
        return self._with_pairs(kept, text)

    def _is_meant(self, found: dict[str, Any]) -> bool:
        """True unless an object is the text or the value that the one property wants."""
        return (
            len(self._asked) != 1 or isinstance(found.get("arguments"), dict) or bool(found.keys() & self._properties)
        )

    def _with_object(self, arguments: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        inner = found.get("arguments")
        if isinstance(inner, dict) and "arguments" not in self._properties:
            found = cast("dict[str, Any]", inner)
        elif len(self._asked) == 1 and not found.keys() & self._properties:
            place = self._properties[self._asked[0]]
            if "object" in (self._outline.types(place) or ()):
                found = {self._asked[0]: found}
        merged = {**arguments, **found}
        for name, within in self._within.items():
            if name in arguments and name in found:
                merged[name] = self._completed(name, within, arguments[name], found[name])
        return merged

    def _completed(self, name: str, within: Sequence[Problem], old: Any, new: Any) -> Any:
        """The new value, with what the old one had beside it when it only lacked something; else it is replaced."""
        only_lacked = all(problem.missing and problem.path != name for problem in within)
        if only_lacked and isinstance(old, dict) and isinstance(new, dict):
            return _joined(cast("dict[str, Any]", old), cast("dict[str, Any]", new))
        return new

    def _with_text(self, arguments: dict[str, Any], text: str) -> dict[str, Any]:
        name = self._asked[0]
        place = self._properties[name]
        value = value_of(text, self._outline, place)
        if value == text and not self._outline.takes_plain_text(place):
            pairs = self._with_pairs(arguments, text)
            if pairs != arguments:
                return pairs
        inner = value_of(text, self._outline, self._outline.at(self._problems[0].path)[1]) if self._problems else value
        return self._with_value(arguments, value, inner)

    def _with_value(self, arguments: dict[str, Any], value: Any, inner: Any) -> dict[str, Any]:
        """Put in the one value: where the problem is, if it is inside the property, else as the property."""
        name = self._asked[0]
        path = self._problems[0].path if len(self._problems) == 1 else name
        if path not in ("", name) and not self._fits(value, self._properties[name]):
            changed = put(arguments, self._outline.at(path)[0], inner)
            if changed is not None:
                return cast("dict[str, Any]", changed)
        return {**arguments, name: value}

    def _with_pairs(self, arguments: dict[str, Any], text: str) -> dict[str, Any]:
        paths = [problem.path for problem in self._problems]
        found = pairs_in(text, [*paths, *self._asked, *self._properties])
        merged = dict(arguments)
        for path, words in found.items():
            (name, *rest), place = self._outline.at(path)
            inner = put(merged.get(str(name)), rest, value_of(words, self._outline, place))
            if isinstance(name, str) and (inner is not None or not rest):
                merged[name] = inner
        return merged

    def _without_unknown(self, arguments: dict[str, Any]) -> dict[str, Any]:
        unknown: dict[Steps, set[str]] = {}
        for problem in self._problems:
            steps = steps_to(arguments, problem.path) if problem.unknown else None
            if steps is not None:
                unknown.setdefault(steps[:-1], set()).add(str(steps[-1]))
        kept: Any = dict(arguments)
        for holder, names in unknown.items():
            told_all = not any(problem.stands_for_more for problem in self._problems)
            kept = without(kept, holder, names if told_all else names | self._unknown_in(arguments, holder))
        return kept

    def _unknown_in(self, arguments: dict[str, Any], holder: Steps) -> set[str]:
        """All names that are no better known than those that were told, when only some were."""
        value: Any = arguments
        place: Any = self._outline.root
        for step in holder:
            value, place = value[step], self._outline.inside(place, step)
        known = self._outline.properties(place)
        patterns = [one for part in self._outline.parts(place) for one in node_of(part.get("patternProperties"))]
        return {
            name
            for name in cast("dict[str, Any]", value)
            if name not in known and not any(affords(1) and matches(pattern, name) for pattern in patterns)
        }

    @functools.cached_property
    def _within(self) -> dict[str, list[Problem]]:
        """The problems by the property they are in."""
        found: dict[str, list[Problem]] = {}
        for problem in self._problems:
            steps = self._outline.at(problem.path)[0]
            if steps and isinstance(steps[0], str):
                found.setdefault(steps[0], []).append(problem)
        return found


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found = dict(old)
    for name, value in new.items():
        mine = found.get(name)
        both = isinstance(mine, dict) and isinstance(value, dict)
        found[name] = _joined(cast("dict[str, Any]", mine), cast("dict[str, Any]", value)) if both else value
    return found
