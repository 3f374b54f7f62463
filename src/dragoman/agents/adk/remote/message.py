"""Builds the next message to a remote agent from an ADK session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
from google.genai import types
from pydantic import BaseModel

from dragoman.agents.adk.parts import from_genai, parts_of_content, to_genai
from dragoman.agents.adk.replies import read_confirmation
from dragoman.model.part import Part
from dragoman.model.state import State
from dragoman.schema.conversion import TypeMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.events.event import Event

# Metadata of a remote agent's event that identifies its task; nothing else is stored.
TASK_ID, CONTEXT_ID, STATE = "a2a:task_id", "a2a:context_id", "a2a:state"
# Calls that represent the question of a non-ADK agent, by the names that ADK's own clients use.
ASKS_INPUT = "mock_function_call_for_required_user_input"
ASKS_AUTH = "mock_function_call_for_required_user_auth"
# Calls that ADK makes itself, to ask for permission or for input.
CONFIRMATION, INPUT = "adk_request_confirmation", "adk_request_input"
# Calls between local agents, or with secrets: not sent to remote agents.
_INTERNAL = ("transfer_to_agent", ASKS_INPUT, ASKS_AUTH)
_REQUESTS = "adk_request_"
_USER = "user"


class NodeInput(types.Content):
    """The input of a workflow node: it is the whole message, whatever else is in the session."""


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message to a remote agent, with the context and task it belongs to.

    `is_answer` is True for the response to a call of that task, which is meaningless to any other. `response` is the
    same for words: what they are to the call that waits, as long as the message goes to its task.
    """

    parts: tuple[Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    is_answer: bool = False
    response: Part | None = None

    @property
    def content(self) -> tuple[Part, ...]:
        """The parts to send."""
        return self.parts if self.response is None or self.task_id is None else (self.response,)


def state_key(name: str) -> str:
    """Return the key in the session's state of a remote agent's conversation, for readers who do not see its events."""
    return f"dragoman:{name}"


def node_content(value: Any) -> NodeInput:
    """Convert the input of a node to content: text as text, data as data."""
    if isinstance(value, types.Content):
        return NodeInput(role=_USER, parts=value.parts)
    if isinstance(value, str):
        return NodeInput(role=_USER, parts=[types.Part(text=value)])
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else msgspec.to_builtins(value, enc_hook=str)
    return NodeInput(role=_USER, parts=[to_genai(Part(data=data))])


def outgoing_message(ctx: InvocationContext, name: str) -> OutgoingMessage | None:
    """Return the next message to the remote agent `name`; None if there is nothing to send.

    If the user has answered a call of the agent, the answer goes to the same task. Otherwise the message contains
    everything since the agent's last turn: the user's own parts, and quotes of other agents.
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
        # In a loop there may be nothing new: then the user's request is sent again, unless a question is open.
        parts = tuple(_user_parts(content.parts or ()))
    if not parts:
        return None
    response = _response(events[last], parts) if ids[1] is not None and last >= 0 else None
    return OutgoingMessage(parts, *ids, response=response)


def live_events(events: Sequence[Event]) -> list[Event]:
    """Return the events that still count: a rewind removes everything from the first event of an invocation on."""
    first_index: dict[str, int] = {}
    for at, event in enumerate(events):
        first_index.setdefault(event.invocation_id, at)
    result: list[Event] = []
    at = len(events) - 1
    while at >= 0:
        # Older versions of ADK have no rewind.
        back: str | None = getattr(events[at].actions, "rewind_before_invocation_id", None)
        if back:
            at = min(at, first_index.get(back, at))
        else:
            result.append(events[at])
        at -= 1
    return result[::-1]


def _is_visible(event: Event, branch: str | None) -> bool:
    """Return True for events of this branch or its ancestors: parallel agents do not see each other.

    An agent outside of all branches sees all events.
    """
    return not event.branch or not branch or branch == event.branch or branch.startswith(f"{event.branch}.")


def _is_own(event: Event, name: str) -> bool:
    return event.author == name and STATE in (event.custom_metadata or {})


def _ids_in(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    waiting = metadata.get(STATE) in (State.INPUT_REQUIRED, State.AUTH_REQUIRED)
    return metadata.get(CONTEXT_ID), metadata.get(TASK_ID) if waiting else None


def _is_state_newer(events: Sequence[Event], state: Mapping[str, Any], name: str) -> bool:
    """Return True if the state differs from what the last event has put there: it was reset, or a tool has used it."""
    key = state_key(name)
    for event in reversed(events):
        if key in event.actions.state_delta:
            return state.get(key) != event.actions.state_delta[key]
    return False


def _saved_ids(state: Mapping[str, Any], name: str) -> tuple[str | None, str | None]:
    """Return the ids from the session's state: the events may be invisible or removed."""
    saved: Any = state.get(state_key(name))
    if not isinstance(saved, dict):
        return None, None
    fields = cast("dict[str, Any]", saved)
    return fields.get("context_id"), fields.get("task_id")


# -- answers to questions ----------------------------------------------------------------------------------------------


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
    # The call was created here: the remote agent expects plain text or data.
    value: Any = response.response or {}
    if len(value) == 1:
        (value,) = value.values()
    yield Part(text=value) if isinstance(value, str) else Part(data=value)


def _response(asked: Event, words: Sequence[Part]) -> Part | None:
    """Return plain words as the response to the one call that waits for them.

    ADK's own servers do not read words as an answer. None if these are no answer to it.
    """
    waiting = asked.long_running_tool_ids or ()
    calls = [call for call in asked.get_function_calls() if call.id in waiting]
    if len(calls) != 1 or len(words) != 1 or not is_plain(words[0]):
        return None
    name, text = calls[0].name, words[0].text or ""
    if name == CONFIRMATION:
        try:
            value = read_confirmation(text)
        except TypeMismatch:
            return None
    elif _is_internal(name) and name != INPUT:
        return None
    else:
        value = {"result": text}
    return from_genai(types.Part(function_response=types.FunctionResponse(id=calls[0].id, name=name, response=value)))


# -- new context since the last turn -----------------------------------------------------------------------------------


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
    # Separated by blank lines, because many agents concatenate text parts.
    return tuple(merge_texts(parts, "\n\n")) if speakers > 1 else tuple(parts)


def _user_parts(parts: Iterable[types.Part]) -> Iterator[Part]:
    for part in parts:
        # Skip responses to calls of other agents, which may contain credentials.
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
    """Return True for a part with text and nothing else."""
    return part.text is not None and part.metadata is None and part.media_type is None and part.filename is None


def merge_texts(parts: Iterable[Part], between: str) -> Iterator[Part]:
    """Join consecutive plain texts."""
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
