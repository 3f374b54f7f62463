"""Names what an agent's question asks for, in the few words that fit into a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.cli.printing import shorten
from dragoman.model.message import ANSWER_KEY
from dragoman.telemetry.printable import one_line

if TYPE_CHECKING:
    from dragoman.model.task import Task

_KINDS = {"integer": "whole number", "number": "number", "boolean": "yes/no", "object": "JSON", "array": "JSON list"}
_MAX_WIDTH = 40


def expected_answer(task: Task) -> str:
    """Return the kind of answer that the open question of a task asks for; empty for text, and where it is unknown.

    The question has a JSON Schema in its metadata, or, if it comes from an MCP tool, in a data part. It is foreign: the
    words are safe to print.
    """
    message = task.status.message
    if message is None:
        return ""
    schema = _object((message.metadata or {}).get(ANSWER_KEY))
    for part in message.parts if not schema else ():
        form = _object(_object(part.data).get("requestedSchema") if part.kind == "data" else None)
        fields = list(_object(form.get("properties")).values())
        # A form of several fields is described by the question.
        schema = _object(fields[0]) if len(fields) == 1 else {}
    return one_line(shorten(_words(schema, message.text), _MAX_WIDTH))


def _words(schema: dict[str, Any], question: str) -> str:
    choices: Any = schema.get("enum")
    if isinstance(choices, list):
        names = [str(each) for each in cast("list[Any]", choices)]
        return "" if all(name in question for name in names) else "/".join(names)
    return _KINDS.get(str(schema.get("type")), "")


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
