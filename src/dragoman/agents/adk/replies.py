"""Answers to calls that wait: ADK's own, plain text, or data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.agents.adk import credential
from dragoman.agents.adk.parts import TYPE
from dragoman.schema.conversion import TypeMismatch, read_answer

if TYPE_CHECKING:
    from dragoman.agents.adk.calls import Call, Open
    from dragoman.model.message import Message

_YES = {"approve", "approved", "allow", "allowed", "confirm", "confirmed", "sure", "go ahead", "do it", "okay"}
_NO = {"reject", "rejected", "deny", "denied", "decline", "declined", "refuse", "cancel", "stop", "don't", "do not"}
_WANTED: dict[str, Any] = {"boolean": bool, "integer": int, "number": float, "array": list, "object": dict}
_YES_OR_NO = "yes or no"

# The arguments of calls as the agent made them, with what callers do not see, by the calls' ids.
Requested = Mapping[str, dict[str, Any]]


def answered(waiting: Open, message: Message, requested: Requested) -> tuple[Open, str]:
    """Read what a message answers. The second is what is wrong with it, or empty.

    Every call needs an answer. A text, or data, is the answer to the only call that has none yet, or yes or no to all
    where nothing but permission is asked for; otherwise answers are function responses, or an object whose keys are
    the calls' ids or names.
    """
    given = dict(waiting.given)
    why = ""
    for call, text, data in _pairs(waiting, message):
        try:
            given[call.id] = _response(call, text, data, requested)
        except TypeMismatch as error:
            why = f"{error.why} Wanted is {error}."
    after = msgspec.structs.replace(waiting, given=given)
    if not why and after.missing:
        why = "Not every call has an answer."
    return after, why


def _pairs(waiting: Open, message: Message) -> Iterable[tuple[Call, str, Any]]:
    """Which call is answered by which text or data."""
    missing = waiting.missing
    own = _function_responses(waiting, message)
    if own:
        return own
    data = message.data
    by_key = _by_key(missing, data)
    if by_key:
        return by_key
    if not (data is not None or message.text.strip() or message.files):
        return ()
    if len(missing) == 1 or all(call.kind == "confirmation" for call in missing):
        return [(call, message.text, data) for call in missing]
    return ()


def _function_responses(waiting: Open, message: Message) -> list[tuple[Call, str, Any]]:
    calls = {call.id: call for call in waiting.calls}
    found: list[tuple[Call, str, Any]] = []
    for part in message.parts:
        if (part.metadata or {}).get(TYPE) != "function_response" or not isinstance(part.data, dict):
            continue
        said = cast("dict[str, Any]", part.data)
        key: Any = said.get("id") or (waiting.missing[0].id if len(waiting.missing) == 1 else None)
        if key in calls:
            response: Any = said.get("response")
            found.append((calls[key], "", response if response is not None else {}))
    return found


def _by_key(calls: Iterable[Call], data: Any) -> list[tuple[Call, str, Any]]:
    if not isinstance(data, dict):
        return []
    answers = cast("dict[str, Any]", data)
    names = Counter(call.name for call in calls)
    found: list[tuple[Call, str, Any]] = []
    for call in calls:
        key = call.id if call.id in answers else call.name
        if key in answers and (key == call.id or names[call.name] == 1):
            value = answers[key]
            found.append((call, value, None) if isinstance(value, str) else (call, "", value))
    return found


def _response(call: Call, text: str, data: Any, requested: Requested) -> dict[str, Any]:
    if call.kind == "confirmation":
        return _confirmation(text, data)
    if call.kind == "credential":
        return credential.filled(requested[call.id], text, data)
    if call.kind == "input":
        wanted = _WANTED.get(str(call.schema.get("type")))
        if wanted is not None:
            return {"result": read_answer(text, _bare(data), wanted, None)}
    if call.kind == "question":
        said = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        # In a wrapping of its own, or an object with one key would be taken for it further on.
        return {"result": text if data is None else said["result"] if said.keys() == {"result"} else data}
    if isinstance(data, dict):
        return cast("dict[str, Any]", data)
    return {"result": text if data is None else data}


def _confirmation(text: str, data: Any) -> dict[str, Any]:
    data = _bare(data)
    if isinstance(data, dict):
        said = cast("dict[str, Any]", data)
        if not isinstance(said.get("confirmed"), bool):
            raise TypeMismatch(_YES_OR_NO)
        return {"confirmed": said["confirmed"], **({"payload": said["payload"]} if "payload" in said else {})}
    if isinstance(data, str):
        text, data = data, None
    words = text.strip().rstrip(".!").casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if data is None and words in _YES | _NO:
        return {"confirmed": words in _YES}
    return {"confirmed": read_answer(words, data, bool, None)}


def _bare(data: Any) -> Any:
    """What is in the wrappings that ADK's clients use."""
    if not isinstance(data, dict):
        return data
    said = cast("dict[str, Any]", data)
    if said.keys() == {"result"}:
        return said["result"]
    if said.keys() == {"response"} and isinstance(said["response"], str):
        try:
            return msgspec.json.decode(said["response"])
        except msgspec.DecodeError:
            return said["response"]
    return said
