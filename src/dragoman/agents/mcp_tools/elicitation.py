"""Questions of a tool, as questions of the task, and the answers on their way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import mcp_types as types
from pydantic import TypeAdapter

from dragoman.agents.mcp_tools.arguments import Problem, Schema
from dragoman.agents.mcp_tools.call import NESTING, is_too_deep
from dragoman.engine.outputs import Ask
from dragoman.model.part import Part

if TYPE_CHECKING:
    from dragoman.engine.outputs import Answered

_PARAMS: TypeAdapter[types.ElicitRequestParams] = TypeAdapter(types.ElicitRequestParams)
_ACTIONS: dict[str, Literal["decline", "cancel"]] = {
    "decline": "decline",
    "declined": "decline",
    "no thanks": "decline",
    "cancel": "cancel",
}

# What may be done with a question, told with it: whoever passes it on can pass on that, too.
ACTIONS = ["accept", "decline", "cancel"]


def asking(params: types.ElicitRequestParams, ref: dict[str, Any], problem: str = "") -> Ask:
    """The question as a pause of the task. One with a URL is about leave from somebody: that is auth-required."""
    if isinstance(params, types.ElicitRequestURLParams):
        visit = Part(url=params.url, metadata={"actions": ACTIONS})
        return Ask(params.message, ref=ref, auth=True, details=(visit,))
    schema = Schema(dict(params.requested_schema))
    lines = [params.message, *(f"- {line}" for line in schema.fields() if line.split("`")[1] not in params.message)]
    question = "\n".join([problem, *lines] if problem else lines)
    details = {"message": params.message, "requestedSchema": dict(params.requested_schema), "actions": ACTIONS}
    return Ask(question, ref=ref, details=(details,))


def answered(params: types.ElicitRequestParams, answer: Answered) -> types.ElicitResult | str:
    """What the caller said, as the server wants it; or what is wrong with it.

    "decline" and "cancel" are understood as such, in the text or as `{"action": …}`.
    """
    data: Any = answer.data
    said = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    if not isinstance(params, types.ElicitRequestURLParams) and "action" in _properties(params):
        said = {}  # then it is the form's own word
    action = _ACTIONS.get(str(said.get("action", answer.text)).strip().lower())
    if action is not None:
        return types.ElicitResult(action=action)
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    if isinstance(said.get("content"), dict) and said.get("action") == "accept":
        data = said["content"]
    schema = Schema(dict(params.requested_schema))
    content = schema.answered({}, _asked(schema, params), answer.text, data)
    if is_too_deep(content):
        return f"the answer is nested deeper than {NESTING}"
    content = schema.fitted(content)
    problems = schema.problems(content)
    if problems:
        return schema.question("the answer", problems)
    try:
        return types.ElicitResult(action="accept", content=content)
    except ValueError:  # the form may allow what MCP does not: it is about fields, not about what is inside them
        return "the answer can hold texts, numbers, true and false, and lists of texts, but nothing else"


def _asked(schema: Schema, params: types.ElicitRequestFormParams) -> tuple[Problem, ...]:
    """What a plain text would answer: what is required, else the only thing that is asked for."""
    missing = schema.problems({})
    return missing or tuple(Problem(name, True, "is missing") for name in _properties(params))


def _properties(params: types.ElicitRequestFormParams) -> dict[str, Any]:
    return cast("dict[str, Any]", params.requested_schema.get("properties") or {})


def wire_of(params: types.ElicitRequestParams) -> dict[str, Any]:
    """The question as JSON, to be kept."""
    return params.model_dump(by_alias=True, mode="json", exclude_none=True)


def params_from(wire: object) -> types.ElicitRequestParams:
    """The question that was kept."""
    return _PARAMS.validate_python(wire, by_name=False)
