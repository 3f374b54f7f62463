"""An answer to a question about arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.mcp_tools.answered_text import Unreadable, json_of, pairs_in, value_of
from dragoman.agents.mcp_tools.schema_outline import Outline

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
        merged = dict(arguments)
        for name, value in found.items():
            merged[name] = self._completed(name, merged.get(name), value)
        return merged

    def _completed(self, name: str, old: Any, new: Any) -> Any:
        """The new value, with what the old one had beside it when it only lacked something; else it is replaced."""
        within = [problem for problem in self._problems if str(self._outline.at(problem.path)[0][:1]) == str([name])]
        only_lacked = within and all(problem.missing and problem.path != name for problem in within)
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
            put = _put(arguments, self._outline.at(path)[0], inner)
            if put is not None:
                return cast("dict[str, Any]", put)
        return {**arguments, name: value}

    def _with_pairs(self, arguments: dict[str, Any], text: str) -> dict[str, Any]:
        paths = [problem.path for problem in self._problems]
        found = pairs_in(text, [*paths, *self._asked, *self._properties])
        merged = dict(arguments)
        for path, words in found.items():
            steps, place = self._outline.at(path)
            put = _put(merged, steps, value_of(words, self._outline, place))
            merged = merged if put is None else cast("dict[str, Any]", put)
        return merged

    def _without_unknown(self, arguments: dict[str, Any]) -> dict[str, Any]:
        kept: Any = dict(arguments)
        for problem in self._problems:
            if problem.unknown:
                kept = _dropped(kept, self._outline.at(problem.path)[0])
        return kept


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found = dict(old)
    for name, value in new.items():
        mine = found.get(name)
        both = isinstance(mine, dict) and isinstance(value, dict)
        found[name] = _joined(cast("dict[str, Any]", mine), cast("dict[str, Any]", value)) if both else value
    return found


def _put(holder: Any, steps: Sequence[str | int], value: Any) -> Any:
    """A copy with the value at that place; None when there is no such place."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, str) and isinstance(holder, Mapping):
        mine = cast("Mapping[str, Any]", holder)
        inner = _put(mine.get(step), rest, value)
        return None if inner is None and rest else {**mine, step: inner}
    if isinstance(step, int) and isinstance(holder, list) and step < len(cast("list[Any]", holder)):
        row = list(cast("list[Any]", holder))
        inner = _put(row[step], rest, value)
        if inner is None and rest:
            return None
        row[step] = inner
        return row
    return None


def _dropped(holder: Any, steps: Sequence[str | int]) -> Any:
    """A copy without that place; itself when there is no such place."""
    step, rest = steps[0], steps[1:]
    if isinstance(step, str) and isinstance(holder, dict) and step in holder:
        mine = dict(cast("dict[str, Any]", holder))
        if rest:
            mine[step] = _dropped(mine[step], rest)
        else:
            del mine[step]
        return mine
    if isinstance(step, int) and isinstance(holder, list) and step < len(cast("list[Any]", holder)) and rest:
        row = list(cast("list[Any]", holder))
        row[step] = _dropped(row[step], rest)
        return row
    return cast("Any", holder)
