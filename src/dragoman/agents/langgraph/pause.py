"""Converts interrupts of a graph to questions, and answers to resume values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from dragoman.agents.langgraph.messages import plain
from dragoman.agents.pause import YES_OR_NO, Pause, Pending, approval_of, call_text
from dragoman.model.error import Rejected

BREAKPOINT = "breakpoint"
_QUESTIONS = ("question", "message", "prompt", "description")


def pause_for(interrupts: Sequence[Any], state: Any, remark: str = "") -> Pause:
    """Return the pause for the interrupts of a graph; without any, it has stopped at a breakpoint."""
    if not interrupts:
        stopped = Pending(BREAKPOINT, "The graph has stopped at a breakpoint. Shall it go on?", approval=True)
        return Pause((stopped,), state)
    return Pause(tuple(_pending(one, alone=len(interrupts) == 1) for one in interrupts), state, remark=remark)


def _pending(interrupt: Any, *, alone: bool) -> Pending:
    value = plain(interrupt.value)
    details: dict[str, Any] = {"id": interrupt.id, "value": value}
    schema = getattr(interrupt, "response_schema", None)
    if isinstance(schema, dict):
        details["schema"] = schema
    is_only_text = alone and isinstance(value, str) and "schema" not in details
    reason = isinstance(value, dict) and bool(_calls(cast("dict[str, Any]", value)))
    return Pending(interrupt.id, _question(value), None if is_only_text else details, reason=reason)


def _question(value: Any) -> str:
    if isinstance(value, str):
        return value
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    calls = _calls(fields)
    if calls:
        return (
            "May I call " + ", ".join(call_text(str(call.get("name")), _text(call.get("args"))) for call in calls) + "?"
        )
    return next((fields[key] for key in _QUESTIONS if isinstance(fields.get(key), str)), _text(value))


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _calls(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls that LangChain's human-in-the-loop middleware asks about."""
    calls = value.get("action_requests")
    return cast("list[dict[str, Any]]", calls) if isinstance(calls, list) else []


def answers_of(pause: Pause) -> dict[str, Any] | Pause:
    """Return the resume values by interrupt id; or the pause that asks again.

    Raises:
        Rejected: the caller refuses to continue from a breakpoint.
    """
    answers: dict[str, Any] = {}
    for one in pause.pending:
        answer = pause.answers[one.id]
        if one.id == BREAKPOINT:
            approval = approval_of(answer)
            if approval is None or not approval.approved:
                raise Rejected("the graph was not allowed to continue from its breakpoint")
            return {}
        details: dict[str, Any] = one.details or {}
        calls = _calls(cast("dict[str, Any]", details["value"])) if isinstance(details.get("value"), dict) else []
        value = _decisions(answer, len(calls)) if calls else _convert(answer, details.get("schema"))
        if value is msgspec.UNSET:
            return pause.without_answer(one.id, YES_OR_NO)
        answers[one.id] = value
    return answers


def _decisions(answer: Any, number: int) -> Any:
    if isinstance(answer, dict) and "decisions" in answer:
        return cast("dict[str, Any]", answer)
    approval = approval_of(answer)
    if approval is None:
        return msgspec.UNSET
    decision = {"type": "approve" if approval.approved else "reject"}
    return {"decisions": [decision | ({"message": approval.message} if approval.message else {})] * number}


def _convert(answer: Any, schema: Any) -> Any:
    """Convert a text answer to the type that the interrupt declares; without a declaration it is returned unchanged."""
    expected_type = cast("dict[str, Any]", schema).get("type", "object") if isinstance(schema, dict) else "string"
    if not isinstance(answer, str) or expected_type == "string":
        return answer
    if expected_type == "boolean":
        approval = approval_of(answer)
        return msgspec.UNSET if approval is None else approval.approved
    try:
        return msgspec.json.decode(answer)
    except msgspec.DecodeError:
        return answer
