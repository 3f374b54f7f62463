"""Checks arguments against a JSON Schema, asks for what is missing or wrong, and merges the answers."""

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

_MAX_PATH = 200


class Schema:
    """The JSON Schema of a tool's arguments or of a form.

    Accepts any schema. One that is broken, or too expensive to validate with, reports no problems: the server that
    published it then has to validate.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        foreign = cast("Any", schema)  # sent by a foreign server: it may be anything
        self._outline = Outline(schema if isinstance(foreign, Mapping) else {"not": {}} if foreign is False else {})
        self._validator = BoundedValidator(self._outline)

    def coerce_integers(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Replace 3.0 by 3 wherever the schema says integer.

        Returns the same object when nothing changes, and when it would take too long.
        """
        if not contains_float(arguments):
            return arguments
        try:
            with step_budget():
                return IntegerCoercion(self._outline, self._validator.is_valid).coerce(arguments, self._outline.root)
        except (RecursionError, BudgetExhausted) as error:
            self._validator.log_unusable(error)
            return arguments

    def problems(self, arguments: dict[str, Any]) -> tuple[Problem, ...]:
        """List what is wrong: missing top-level properties first, then the rest in the order of the schema.

        A long list is cut off; its last problem, which has no path, then says how many more there are. Empty also when
        the schema cannot be used, or not within the step budget.
        """
        errors, more = self._validator.errors(arguments)
        if not errors:
            return ()
        with step_budget():
            return problems_from_errors(errors, self._outline, more)

    @step_budget()
    def question(self, tool: str, problems: Sequence[Problem]) -> str:
        """Build the question for a person, one line per problem."""
        return "\n".join(self._question_line(tool, problem) for problem in problems)

    def _question_line(self, tool: str, problem: Problem) -> str:
        path = problem.path if len(problem.path) <= _MAX_PATH else problem.path[: _MAX_PATH - 1] + "…"
        if not problem.missing:
            where = path or ('""' if problem.unknown else "")  # a property name may be empty
            return f"`{tool}`: `{where}` {problem.text}" if where else f"`{tool}` {problem.text}"
        return f"`{tool}` needs {self._outline.field_line(path, self._outline.resolve_path(problem.path)[1])}"

    @step_budget()
    def fields(self) -> list[str]:
        """Describe the properties for people, one line each: name, type, whether optional, description."""
        return self._outline.fields()

    @step_budget()
    def requested_schema(self, problems: Sequence[Problem]) -> dict[str, Any]:
        """Return the schema of the values to send again: only the properties that are missing or wrong."""
        return object_schema(self._outline, self._requested_names(problems), self._required)

    @step_budget()
    def merge_answer(
        self, arguments: dict[str, Any], problems: Sequence[Problem], text: str, data: Any
    ) -> dict[str, Any]:
        """Return the arguments with an answer to the question merged in.

        Text that cannot be parsed becomes the value if the question was about one property, else it is ignored.
        """
        answer = AnswerReader(self._outline, self._validator.is_valid, problems, self._requested_names(problems))
        return answer.merge_into(arguments, text, data)

    def _requested_names(self, problems: Sequence[Problem]) -> list[str]:
        """Return the properties a question is about; all of them when no problem has a path."""
        if problems and not any(problem.path for problem in problems):
            return list(self._properties)
        # A disallowed name is a problem too, but must not be sent again.
        paths = [problem.path for problem in problems if problem.path and not problem.unknown]
        tops = dict.fromkeys(str(self._outline.resolve_path(path)[0][0]) for path in paths)
        return [name for name in tops if name in self._properties]

    @step_budget()
    def text_property(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the name of the string property that plain text is for, or None.

        That is the only one without an argument, or the only required one among them.
        """
        open_names = [
            name
            for name, subschema in self._properties.items()
            if name not in arguments and self._outline.takes_plain_text(subschema)
        ]
        if len(open_names) > 1:
            open_names = [name for name in open_names if name in self._required]
        return open_names[0] if len(open_names) == 1 else None

    @step_budget(5 * MAX_STEPS)
    def example(self) -> dict[str, Any]:
        """Build one plausible set of arguments."""
        example = ExampleBuilder(self._outline, self._validator.is_valid).build(
            {"type": "object", "allOf": [self._outline.root]}
        )
        return cast("dict[str, Any]", example) if isinstance(example, dict) else {}

    @functools.cached_property
    def takes_text(self) -> bool:
        """True when plain text can be all it needs: nothing is required, or a single string."""
        with step_budget():
            return self._takes_text()

    def _takes_text(self) -> bool:
        subschemas = [self._properties.get(name, {}) for name in self._required]
        return not subschemas or (len(subschemas) == 1 and self._outline.takes_plain_text(subschemas[0]))

    @functools.cached_property
    def _properties(self) -> dict[str, Any]:
        with step_budget():
            return self._outline.properties(self._outline.root)

    @functools.cached_property
    def _required(self) -> tuple[str, ...]:
        return self._outline.required(self._outline.root)
