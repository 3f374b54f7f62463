"""Questions of a tool, as questions of the task, and the answers on their way back."""

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
    from dragoman.engine.execute.outputs import AnsweredQuestion

_PARAMS: TypeAdapter[types.ElicitRequestParams] = TypeAdapter(types.ElicitRequestParams)
_ACTION_WORDS: dict[str, Literal["decline", "cancel"]] = {
    "decline": "decline",
    "declined": "decline",
    "no thanks": "decline",
    "cancel": "cancel",
}

# What may be done with a question, told with it: whoever passes it on can pass on that, too.
ACTIONS = ["accept", "decline", "cancel"]


def build_question(params: types.ElicitRequestParams, ref: dict[str, Any], problem: str = "") -> Ask:
    """The question as a pause of the task. One with a URL is about leave from somebody: that is auth-required."""
    if isinstance(params, types.ElicitRequestURLParams):
        visit = Part(url=params.url, metadata={"actions": ACTIONS})
        return Ask(params.message, ref=ref, auth=True, details=(visit,))
    schema = Schema(dict(params.requested_schema))
    lines = [params.message, *(f"- {line}" for line in schema.fields() if line.split("`")[1] not in params.message)]
    question = "\n".join([problem, *lines] if problem else lines)
    details = {"message": params.message, "requestedSchema": dict(params.requested_schema), "actions": ACTIONS}
    return Ask(question, ref=ref, details=(details,))


def parse_answer(params: types.ElicitRequestParams, answer: AnsweredQuestion) -> types.ElicitResult | str:
    """What the caller said, as the server wants it; or what is wrong with it.

    "decline" and "cancel" are understood as such, in the text or as `{"action": …}`.
    """
    data: Any = answer.data
    said = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    if not isinstance(params, types.ElicitRequestURLParams) and "action" in _properties(params):
        said = {}  # then it is the form's own word
    action = _ACTION_WORDS.get(str(said.get("action", answer.text)).strip().lower())
    if action is not None:
        return types.ElicitResult(action=action)
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    if isinstance(said.get("content"), dict) and said.get("action") == "accept":
        data = said["content"]
    schema = Schema(dict(params.requested_schema))
    content = schema.merge_answer({}, _fields_asked_for(schema, params), answer.text, data)
    if is_too_deep(content):
        return f"the answer is nested deeper than {MAX_NESTING}"
    content = schema.coerce_integers(content)
    problems = schema.problems(content)
    if problems:
        return schema.question("the answer", problems)
    try:
        return types.ElicitResult(action="accept", content=content)
    except ValueError:  # the form may allow what MCP does not: it is about fields, not about what is inside them
        return "the answer can hold texts, numbers, true and false, and lists of texts, but nothing else"


def _fields_asked_for(schema: Schema, params: types.ElicitRequestFormParams) -> tuple[Problem, ...]:
    """What a plain text would answer: what is required, else the only thing that is asked for."""
    missing = schema.problems({})
    return missing or tuple(Problem(name, True, "is missing") for name in _properties(params))


def _properties(params: types.ElicitRequestFormParams) -> dict[str, Any]:
    return cast("dict[str, Any]", params.requested_schema.get("properties") or {})


def params_to_json(params: types.ElicitRequestParams) -> dict[str, Any]:
    """The question as JSON, to be kept."""
    return params.model_dump(by_alias=True, mode="json", exclude_none=True)


def params_from_json(wire: object) -> types.ElicitRequestParams:
    """The question that was kept."""
    return _PARAMS.validate_python(wire, by_name=False)


# How long a call is held open for an answer.
OPEN_CALL_SECONDS = 3600.0
# How many there may be: of one user, of all strangers, of everybody. Each costs the server a call that is under way.
MAX_PER_USER, MAX_ANONYMOUS, MAX_OPEN_CALLS = 20, 200, 1000


class _OpenCall(Struct, frozen=True):
    call: ToolCall
    timer: Timer
    user: tuple[str, str]


class OpenCalls:
    """Calls that wait for an answer, open: servers of the handshake era know no other way."""

    def __init__(self) -> None:
        self._calls: dict[str, _OpenCall] = {}
        self._count_by_user = Counter[tuple[str, str]]()
        self._ending: set[asyncio.Task[None]] = set()

    def add(self, call: ToolCall, clock: Clock) -> str:
        """Keep a call until its answer comes. Gives its key.

        Raises:
            Failed: too many questions wait already. The call is still the caller's to end.
        """
        tenant, user, _ = call.caller
        who = (tenant, user)
        if self._count_by_user[who] >= (MAX_PER_USER if user else MAX_ANONYMOUS):
            raise Failed(
                f"`{call.tool}` asks, but {self._count_by_user[who]} questions wait for you: answer or cancel one first"
            )
        if len(self._calls) >= MAX_OPEN_CALLS:
            raise Failed(f"`{call.tool}` asks, but too many questions wait for their answers here: try it again later")
        key = secrets.token_hex(16)

        def expire() -> None:
            found = self.pop(key)
            if found is not None:
                ending = asyncio.get_running_loop().create_task(found.cancel())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

        self._calls[key] = _OpenCall(call, clock.call_later(OPEN_CALL_SECONDS, expire), who)
        self._count_by_user[who] += 1
        return key

    def pop(self, key: object) -> ToolCall | None:
        """The call of a key, if it is still there."""
        holding = self._calls.pop(str(key), None)
        if holding is None:
            return None
        holding.timer.cancel()
        self._count_by_user[holding.user] -= 1
        if not self._count_by_user[holding.user]:
            del self._count_by_user[holding.user]
        return holding.call

    async def cancel(self, ref: Any) -> None:
        """Nobody will answer: cancel the call."""
        key = cast("dict[str, Any]", ref).get("key") if isinstance(ref, dict) else None
        call = self.pop(key)
        if call is not None:
            await call.cancel()

    async def close(self) -> None:
        """Cancel all of them."""
        calls = [self.pop(key) for key in tuple(self._calls)]
        await asyncio.gather(*(call.cancel() for call in calls if call is not None), *self._ending)
