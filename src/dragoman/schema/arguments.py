"""Arguments against a JSON schema: what fits, what is wrong, how to ask for it, and how to read the answer."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from dragoman.schema.answer import Answer
from dragoman.schema.effort import MOST, Exhausted, limited
from dragoman.schema.example import Example
from dragoman.schema.integers import Fitting, holds_float
from dragoman.schema.outline import Outline, excerpt
from dragoman.schema.problem import Problem, problems_in
from dragoman.schema.validator import Judge

__all__ = ["Problem", "Schema"]

_LONGEST_DESCRIPTION = 200
_LONGEST_PATH = 200


class Schema:
    """The schema of a tool's arguments, or of a form. Any schema will do: what cannot be used is left to the server."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        sent = cast("Any", schema)  # it comes from a foreign server
        self._outline = Outline(schema if isinstance(sent, Mapping) else {"not": {}} if sent is False else {})
        self._judge = Judge(self._outline)

    def fitted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with 3 for 3.0 wherever the schema says integer; the same object when nothing changes."""
        if not holds_float(arguments):
            return arguments
        try:
            with limited():
                return Fitting(self._outline, self._judge.fits).fitted(arguments, self._outline.root)
        except (RecursionError, Exhausted) as error:
            self._judge.complain(error)
            return arguments

    def problems(self, arguments: dict[str, Any]) -> tuple[Problem, ...]:
        """What is wrong with them: first what is missing, then the rest in the order of the schema.

        Of very many, the first ones, and one problem of the whole that says how many more there are.
        """
        errors, more = self._judge.errors(arguments)
        if not errors:
            return ()
        with limited():
            return problems_in(errors, self._outline, more)

    @limited()
    def question(self, tool: str, problems: Sequence[Problem]) -> str:
        """What to ask a person, one line for each problem."""
        return "\n".join(self._line(tool, problem) for problem in problems)

    def _line(self, tool: str, problem: Problem) -> str:
        path = problem.path if len(problem.path) <= _LONGEST_PATH else problem.path[: _LONGEST_PATH - 1] + "…"
        if not problem.missing:
            where = path or ('""' if problem.unknown else "")  # a name may be empty
            return f"`{tool}`: `{where}` {problem.text}" if where else f"`{tool}` {problem.text}"
        return f"`{tool}` needs {self._field(path, self._outline.at(problem.path)[1])}"

    @limited()
    def fields(self) -> list[str]:
        """Its properties as lines for people: name, kind, whether it may be left out, and what it is about."""
        optional = self._properties.keys() - set(self._required)
        return [self._field(name, place, optional=name in optional) for name, place in self._properties.items()]

    def _field(self, name: str, place: Any, *, optional: bool = False) -> str:
        words, about = self._outline.words(place), self._outline.description(place)
        notes = ", ".join(filter(None, (words, "optional" if optional else "")))
        if len(about) > _LONGEST_DESCRIPTION:
            about = about[: _LONGEST_DESCRIPTION - 1] + "…"
        return f"`{name}`{f' ({notes})' if notes else ''}{': ' if about else ''}{about}"

    @limited()
    def requested(self, problems: Sequence[Problem]) -> dict[str, Any]:
        """The schema of what is to be given again: only the properties that are missing or wrong."""
        return excerpt(self._outline, self._asked(problems), self._required)

    @limited()
    def answered(self, arguments: dict[str, Any], problems: Sequence[Problem], text: str, data: Any) -> dict[str, Any]:
        """The arguments with an answer to the question merged in. What cannot be read is put in as it is."""
        answer = Answer(self._outline, self._judge.fits, problems, self._asked(problems))
        return answer.merged(arguments, text, data)

    def _asked(self, problems: Sequence[Problem]) -> list[str]:
        """The properties that a question is about; all of them when it is about none in particular."""
        if problems and not any(problem.path for problem in problems):
            return list(self._properties)
        # A name that is not known is wrong, but nobody is to give it again.
        paths = [problem.path for problem in problems if problem.path and not problem.unknown]
        tops = dict.fromkeys(str(self._outline.at(path)[0][0]) for path in paths)
        return [name for name in tops if name in self._properties]

    @limited()
    def text_slot(self, arguments: Mapping[str, Any]) -> str | None:
        """The string property that plain text is meant for: the only one left, or the only required one left."""
        left = [
            name
            for name, place in self._properties.items()
            if name not in arguments and self._outline.takes_plain_text(place)
        ]
        if len(left) > 1:
            left = [name for name in left if name in self._required]
        return left[0] if len(left) == 1 else None

    @limited(5 * MOST)
    def example(self) -> dict[str, Any]:
        """One plausible set of arguments."""
        found = Example(self._outline, self._judge.fits).of({"type": "object", "allOf": [self._outline.root]})
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    @functools.cached_property
    def takes_text(self) -> bool:
        """True when plain text can be all it needs: nothing is required, or one string."""
        with limited():
            return self._takes_text()

    def _takes_text(self) -> bool:
        places = [self._properties.get(name, {}) for name in self._required]
        return not places or (len(places) == 1 and self._outline.takes_plain_text(places[0]))

    @functools.cached_property
    def _properties(self) -> dict[str, Any]:
        with limited():
            return self._outline.properties(self._outline.root)

    @functools.cached_property
    def _required(self) -> tuple[str, ...]:
        return self._outline.required(self._outline.root)
