"""Turns elicitation requests of MCP servers into task questions, and answers into elicitation results."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, cast

import mcp_types as types
from msgspec import Struct
from pydantic import TypeAdapter

from dragoman.agents.mcp_tools.call import MAX_NESTING, ToolCall, is_too_deep
from dragoman.engine.execute.outputs import Ask
from dragoman.model.error import Failed
from dragoman.model.part import Part
from dragoman.schema.arguments import Problem, Schema

if TYPE_CHECKING:
    from dragoman.clock import Clock, Timer
    from dragoman.engine.journal.replay import AnsweredQuestion

_PARAMS: TypeAdapter[types.ElicitRequestParams] = TypeAdapter(types.ElicitRequestParams)
_ACTION_WORDS: dict[str, Literal["decline", "cancel"]] = {
    "decline": "decline",
    "declined": "decline",
    "no thanks": "decline",
    "cancel": "cancel",
}

# The possible actions, sent with each question so that intermediaries can forward them.
ACTIONS = ["accept", "decline", "cancel"]


def build_question(params: types.ElicitRequestParams, ref: dict[str, Any], problem: str = "") -> Ask:
    """Build the question that pauses the task; a URL elicitation becomes auth-required."""
    if isinstance(params, types.ElicitRequestURLParams):
        visit = Part(url=params.url, metadata={"actions": ACTIONS})
        return Ask(params.message, ref=ref, auth=True, details=(visit,), forwards=True)
    schema = Schema(dict(params.requested_schema))
    lines = [params.message, *(f"- {line}" for line in schema.fields() if line.split("`")[1] not in params.message)]
    question = "\n".join([problem, *lines] if problem else lines)
    details = {"message": params.message, "requestedSchema": dict(params.requested_schema), "actions": ACTIONS}
    return Ask(question, ref=ref, details=(details,))


def parse_answer(params: types.ElicitRequestParams, answer: AnsweredQuestion) -> types.ElicitResult | str:
    """Convert the caller's answer to the result the server expects, or return a text that says what is wrong with it.

    "decline" and "cancel" are recognized, as text or as `{"action": …}`.
    """
    data: Any = answer.data
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    if not isinstance(params, types.ElicitRequestURLParams) and "action" in _properties(params):
        fields = {}  # `action` is a field of the form itself
    action = _ACTION_WORDS.get(str(fields.get("action", answer.text)).strip().lower())
    if action is not None:
        return types.ElicitResult(action=action)
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    if isinstance(fields.get("content"), dict) and fields.get("action") == "accept":
        data = fields["content"]
    schema = Schema(dict(params.requested_schema))
    content = schema.merge_answer({}, _requested_fields(schema, params), answer.text, data)
    if is_too_deep(content):
        return f"the answer is nested deeper than {MAX_NESTING}"
    content = schema.coerce_integers(content)
    problems = schema.problems(content)
    if problems:
        return schema.question("the answer", problems)
    try:
        return types.ElicitResult(action="accept", content=content)
    except ValueError:  # a form's schema may allow nested values, which MCP does not
        return "the answer can hold texts, numbers, true and false, and lists of texts, but nothing else"


def _requested_fields(schema: Schema, params: types.ElicitRequestFormParams) -> tuple[Problem, ...]:
    """Return the fields that a text may answer, as missing: the required ones, or all if none is required."""
    missing = schema.problems({})
    return missing or tuple(Problem(name, True, "is missing") for name in _properties(params))


def _properties(params: types.ElicitRequestFormParams) -> dict[str, Any]:
    return cast("dict[str, Any]", params.requested_schema.get("properties") or {})


def params_to_json(params: types.ElicitRequestParams) -> dict[str, Any]:
    """Encode an elicitation request as JSON, for storage."""
    return params.model_dump(by_alias=True, mode="json", exclude_none=True)


def params_from_json(wire: object) -> types.ElicitRequestParams:
    """Decode a stored elicitation request."""
    return _PARAMS.validate_python(wire, by_name=False)


# Seconds a call stays open for an answer.
OPEN_CALL_SECONDS = 3600.0
# Maximum open calls: per user, of all anonymous users, in total. Each costs the server a running call.
MAX_PER_USER, MAX_ANONYMOUS, MAX_OPEN_CALLS = 20, 200, 1000


class _OpenCall(Struct, frozen=True):
    call: ToolCall
    timer: Timer
    user_key: tuple[str, str]


class OpenCalls:
    """Calls that stay open while they wait for an answer, for servers that ask within a call."""

    def __init__(self) -> None:
        self._calls: dict[str, _OpenCall] = {}
        self._count_by_user = Counter[tuple[str, str]]()
        self._ending: set[asyncio.Task[None]] = set()

    def add(self, call: ToolCall, clock: Clock) -> str:
        """Keep a call open until its answer comes or OPEN_CALL_SECONDS have passed; return its key.

        Raises:
            Failed: too many questions are waiting. The caller still has to end the call.
        """
        tenant, user, _ = call.caller
        user_key = (tenant, user)
        waiting = self._count_by_user[user_key]
        if waiting >= (MAX_PER_USER if user else MAX_ANONYMOUS):
            raise Failed(f"`{call.tool}` asks, but {waiting} questions wait for you: answer or cancel one first")
        if len(self._calls) >= MAX_OPEN_CALLS:
            raise Failed(f"`{call.tool}` asks, but too many questions wait for their answers here: try it again later")
        key = secrets.token_hex(16)

        def expire() -> None:
            expired = self.pop(key)
            if expired is not None:
                ending = asyncio.get_running_loop().create_task(expired.cancel())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

        self._calls[key] = _OpenCall(call, clock.call_later(OPEN_CALL_SECONDS, expire), user_key)
        self._count_by_user[user_key] += 1
        return key

    def pop(self, key: object) -> ToolCall | None:
        """Remove and return the call of a key; None when it is gone."""
        open_call = self._calls.pop(str(key), None)
        if open_call is None:
            return None
        open_call.timer.cancel()
        self._count_by_user[open_call.user_key] -= 1
        if not self._count_by_user[open_call.user_key]:
            del self._count_by_user[open_call.user_key]
        return open_call.call

    async def cancel(self, ref: Any) -> None:
        """Cancel the call of a question that will not be answered."""
        key = cast("dict[str, Any]", ref).get("key") if isinstance(ref, dict) else None
        call = self.pop(key)
        if call is not None:
            await call.cancel()

    async def close(self) -> None:
        """Cancel all calls."""
        calls = [self.pop(key) for key in tuple(self._calls)]
        await asyncio.gather(*(call.cancel() for call in calls if call is not None), *self._ending)
