"""Arguments against a JSON schema: what fits, what is wrong, how to ask for it, and how to read the answer."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from dragoman.schema.answer import AnswerReader
from dragoman.schema.budget import MAX_STEPS, BudgetExhausted, step_budget
from dragoman.schema.example import ExampleBuilder
from dragoman.schema.integers import IntegerCoercion, contains_float
from dragoman.schema.outline import Outline, object_schema
from dragoman.schema.problem import Problem, problems_from_errors
from dragoman.schema.validator import BoundedValidator

__all__ = ["Problem", "Schema"]

_MAX_DESCRIPTION = 200
_MAX_PATH = 200


class Schema:
    """The schema of a tool's arguments, or of a form. Any schema will do: what cannot be used is left to the server."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        sent = cast("Any", schema)  # it comes from a foreign server
        self._outline = Outline(schema if isinstance(sent, Mapping) else {"not": {}} if sent is False else {})
        self._validator = BoundedValidator(self._outline)

    def coerce_integers(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with 3 for 3.0 wherever the schema says integer; the same object when nothing changes."""
        if not contains_float(arguments):
            return arguments
        try:
            with step_budget():
                return IntegerCoercion(self._outline, self._validator.is_valid).coerce(arguments, self._outline.root)
        except (RecursionError, BudgetExhausted) as error:
            self._validator.log_unusable(error)
            return arguments

    def problems(self, arguments: dict[str, Any]) -> tuple[Problem, ...]:
        """What is wrong with them: first what is missing, then the rest in the order of the schema.

        Of very many, the first ones, and one problem of the whole that says how many more there are.
        """
        errors, more = self._validator.errors(arguments)
        if not errors:
            return ()
        with step_budget():
            return problems_from_errors(errors, self._outline, more)

    @step_budget()
    def question(self, tool: str, problems: Sequence[Problem]) -> str:
        """What to ask a person, one line for each problem."""
        return "\n".join(self._question_line(tool, problem) for problem in problems)

    def _question_line(self, tool: str, problem: Problem) -> str:
        path = problem.path if len(problem.path) <= _MAX_PATH else problem.path[: _MAX_PATH - 1] + "…"
        if not problem.missing:
            where = path or ('""' if problem.unknown else "")  # a name may be empty
            return f"`{tool}`: `{where}` {problem.text}" if where else f"`{tool}` {problem.text}"
        return f"`{tool}` needs {self._field_line(path, self._outline.at(problem.path)[1])}"

    @step_budget()
    def fields(self) -> list[str]:
        """Its properties as lines for people: name, kind, whether it may be left out, and what it is about."""
        optional = self._properties.keys() - set(self._required)
        return [self._field_line(name, place, optional=name in optional) for name, place in self._properties.items()]

    def _field_line(self, name: str, place: Any, *, optional: bool = False) -> str:
        words, about = self._outline.type_text(place), self._outline.description(place)
        notes = ", ".join(filter(None, (words, "optional" if optional else "")))
        if len(about) > _MAX_DESCRIPTION:
            about = about[: _MAX_DESCRIPTION - 1] + "…"
        return f"`{name}`{f' ({notes})' if notes else ''}{': ' if about else ''}{about}"

    @step_budget()
    def requested_schema(self, problems: Sequence[Problem]) -> dict[str, Any]:
        """The schema of what is to be given again: only the properties that are missing or wrong."""
        return object_schema(self._outline, self._properties_asked_for(problems), self._required)

    @step_budget()
    def merge_answer(
        self, arguments: dict[str, Any], problems: Sequence[Problem], text: str, data: Any
    ) -> dict[str, Any]:
        """The arguments with an answer to the question merged in. What cannot be read is put in as it is."""
        answer = AnswerReader(self._outline, self._validator.is_valid, problems, self._properties_asked_for(problems))
        return answer.merge_into(arguments, text, data)

    def _properties_asked_for(self, problems: Sequence[Problem]) -> list[str]:
        """The properties that a question is about; all of them when it is about none in particular."""
        if problems and not any(problem.path for problem in problems):
            return list(self._properties)
        # A name that is not known is wrong, but nobody is to give it again.
        paths = [problem.path for problem in problems if problem.path and not problem.unknown]
        tops = dict.fromkeys(str(self._outline.at(path)[0][0]) for path in paths)
        return [name for name in tops if name in self._properties]

    @step_budget()
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

    @step_budget(5 * MAX_STEPS)
    def example(self) -> dict[str, Any]:
        """One plausible set of arguments."""
        found = ExampleBuilder(self._outline, self._validator.is_valid).build(
            {"type": "object", "allOf": [self._outline.root]}
        )
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    @functools.cached_property
    def takes_text(self) -> bool:
        """True when plain text can be all it needs: nothing is required, or one string."""
        with step_budget():
            return self._takes_text()

    def _takes_text(self) -> bool:
        places = [self._properties.get(name, {}) for name in self._required]
        return not places or (len(places) == 1 and self._outline.takes_plain_text(places[0]))

    @functools.cached_property
    def _properties(self) -> dict[str, Any]:
        with step_budget():
            return self._outline.properties(self._outline.root)

    @functools.cached_property
    def _required(self) -> tuple[str, ...]:
        return self._outline.required(self._outline.root)
