"""From an ADK session to what a remote agent is told next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
from google.genai import types
from pydantic import BaseModel

from dragoman.agents.adk.parts import from_genai, parts_of_content, to_genai
from dragoman.model.part import Part
from dragoman.model.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.events.event import Event

# What an event of a remote agent says of its task. Nothing else is kept, however much was said.
TASK_ID, CONTEXT_ID, STATE = "a2a:task_id", "a2a:context_id", "a2a:state"
# Calls that stand for the question of an agent that is not ADK's, under the names by which ADK's own clients know them.
ASKS_INPUT = "mock_function_call_for_required_user_input"
ASKS_AUTH = "mock_function_call_for_required_user_auth"
# Between the local agents, or with secrets in them: no business of anybody far away.
_INTERNAL = ("transfer_to_agent", ASKS_INPUT, ASKS_AUTH)
_REQUESTS = "adk_request_"
_USER = "user"


class NodeInput(types.Content):
    """What a workflow gives to its node: that is the message, whatever was said elsewhere in the session."""


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message to a remote agent: its parts, and where it belongs.

    `answers` is True for the response to a call of that task's: it is of no use to any other.
    """

    parts: tuple[Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    is_answer: bool = False


def state_key(name: str) -> str:
    """Where in the session's state a remote agent's conversation is kept, for those who do not see its events."""
    return f"dragoman:{name}"


def node_content(value: Any) -> NodeInput:
    """A node's input as content: text as text, data as data."""
    if isinstance(value, types.Content):
        return NodeInput(role=_USER, parts=value.parts)
    if isinstance(value, str):
        return NodeInput(role=_USER, parts=[types.Part(text=value)])
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else msgspec.to_builtins(value, enc_hook=str)
    return NodeInput(role=_USER, parts=[to_genai(Part(data=data))])


def outgoing_message(ctx: InvocationContext, name: str) -> OutgoingMessage | None:
    """What the remote agent `name` is told in this turn, or None when nobody has said anything.

    Where it asked something and the user answers that call, the answer goes to the same task. Otherwise it is told
    all that has happened since it last spoke: the user in his own words, other agents as quotations.
    """
    events = [
        event for event in live_events(ctx.session.events) if _is_visible(event, ctx.branch) and not event.partial
    ]
    last = max((at for at, event in enumerate(events) if _is_own(event, name)), default=-1)
    since = events[last + 1 :]
    answer = _answer(events[: last + 1], since, name)
    if answer is not None:
        return answer
    if last < 0 or _is_state_newer(events, ctx.session.state, name):
        ids = _saved_ids(ctx.session.state, name)
    else:
        ids = _ids_in(events[last].custom_metadata or {})
    content = ctx.user_content
    parts = parts_of_content(content) if isinstance(content, NodeInput) else _context_parts(since, name)
    if not parts and content is not None and ids[1] is None:
        # In a loop nothing may have happened since: then the request is what the user said. It answers no question.
        parts = tuple(_user_parts(content.parts or ()))
    return OutgoingMessage(parts, *ids) if parts else None


def live_events(events: Sequence[Event]) -> list[Event]:
    """The events that still count. Who rewinds a session takes back all from the first event of an invocation on."""
    first_index: dict[str, int] = {}
    for at, event in enumerate(events):
        first_index.setdefault(event.invocation_id, at)
    result: list[Event] = []
    at = len(events) - 1
    while at >= 0:
        # Older versions of ADK do not rewind.
        back: str | None = getattr(events[at].actions, "rewind_before_invocation_id", None)
        if back:
            at = min(at, first_index.get(back, at))
        else:
            result.append(events[at])
        at -= 1
    return result[::-1]


def _is_visible(event: Event, branch: str | None) -> bool:
    """True for what was said here or above: agents that run side by side do not hear each other.

    Who comes after them, and belongs to no branch, hears all of them.
    """
    return not event.branch or not branch or branch == event.branch or branch.startswith(f"{event.branch}.")


def _is_own(event: Event, name: str) -> bool:
    return event.author == name and STATE in (event.custom_metadata or {})


def _ids_in(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    waiting = metadata.get(STATE) in (State.INPUT_REQUIRED, State.AUTH_REQUIRED)
    return metadata.get(CONTEXT_ID), metadata.get(TASK_ID) if waiting else None


def _is_state_newer(events: Sequence[Event], state: Mapping[str, Any], name: str) -> bool:
    """True when the state knows another place than the events put there: it was reset, or a tool went on from it."""
    key = state_key(name)
    for event in reversed(events):
        if key in event.actions.state_delta:
            return state.get(key) != event.actions.state_delta[key]
    return False


def _saved_ids(state: Mapping[str, Any], name: str) -> tuple[str | None, str | None]:
    """The place that the session's state knows: the events may be elsewhere, or no longer there."""
    saved: Any = state.get(state_key(name))
    if not isinstance(saved, dict):
        return None, None
    fields = cast("dict[str, Any]", saved)
    return fields.get("context_id"), fields.get("task_id")


# -- an answer to a question ---------------------------------------------------------------------------------------


def _answer(before: Sequence[Event], since: Sequence[Event], name: str) -> OutgoingMessage | None:
    calls = {
        call.id: event for event in before if _is_own(event, name) for call in event.get_function_calls() if call.id
    }
    question_event: Event | None = None
    parts: list[Part] = []
    for event in since:
        call_ids = (
            [each.id for each in event.get_function_responses() if each.id in calls] if event.author == _USER else ()
        )
        if not call_ids or event.content is None:
            continue
        question_event = calls[call_ids[-1]]
        for part in event.content.parts or ():
            response = part.function_response
            if response is None or response.id in calls:
                parts.extend(_answer_parts(part))
    if question_event is None or not parts:
        return None
    metadata = question_event.custom_metadata or {}
    return OutgoingMessage(tuple(parts), metadata.get(CONTEXT_ID), metadata.get(TASK_ID), is_answer=True)


def _answer_parts(part: types.Part) -> Iterator[Part]:
    response = part.function_response
    if response is None or response.name not in (ASKS_INPUT, ASKS_AUTH):
        converted = from_genai(part)
        if converted is not None:
            yield converted
        return
    # The call was made up here: the agent over there waits for plain words, or for data.
    value: Any = response.response or {}
    if len(value) == 1:
        (value,) = value.values()
    yield Part(text=value) if isinstance(value, str) else Part(data=value)


# -- what has happened ---------------------------------------------------------------------------------------------


def _context_parts(events: Iterable[Event], name: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    speakers = 0
    for event in events:
        content = event.content
        if content is None or event.author == name:
            continue
        genai_parts = content.parts or ()
        converted = tuple(_user_parts(genai_parts) if event.author == _USER else _quoted(event.author, genai_parts))
        speakers += len(converted) > 0
        parts.extend(converted)
    # With room between them: many agents would read several speakers' texts without any.
    return tuple(merge_texts(parts, "\n\n")) if speakers > 1 else tuple(parts)


def _user_parts(parts: Iterable[types.Part]) -> Iterator[Part]:
    for part in parts:
        # An answer to somebody else's call, which may be a credential.
        if part.function_response is None and (converted := from_genai(part)) is not None:
            yield converted


def _quoted(author: str, parts: Iterable[types.Part]) -> Iterator[Part]:
    for part in parts:
        call, response = part.function_call, part.function_response
        if part.thought or part.executable_code or part.code_execution_result:
            continue
        if call is not None:
            if not _is_internal(call.name):
                yield Part(text=f"For context: [{author}] called tool {call.name} with {_json(call.args)}")
        elif response is not None:
            if not _is_internal(response.name):
                yield Part(text=f"For context: tool {response.name} returned: {_json(response.response)}")
        elif part.text:
            yield Part(text=f"For context: [{author}] said: {part.text}")
        elif (converted := from_genai(part)) is not None and converted.text is None:
            yield converted


def _is_internal(name: str | None) -> bool:
    return name is None or name in _INTERNAL or name.startswith(_REQUESTS)


def _json(value: Any) -> str:
    return msgspec.json.encode({} if value is None else value, enc_hook=str).decode()


def is_plain(part: Part) -> bool:
    """True for a text and nothing else."""
    return part.text is not None and part.metadata is None and part.media_type is None and part.filename is None


def merge_texts(parts: Iterable[Part], between: str) -> Iterator[Part]:
    """The parts with plain texts that follow each other as one."""
    texts: list[str] = []
    for part in parts:
        if is_plain(part):
            texts.append(part.text or "")
            continue
        if texts:
            yield Part(text=between.join(texts))
            texts = []
        yield part
    if texts:
        yield Part(text=between.join(texts))
