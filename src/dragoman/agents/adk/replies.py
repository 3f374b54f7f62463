"""Reads answers to pending calls: ADK's function responses, plain text, or data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.agents.adk import credential
from dragoman.agents.adk.parts import TYPE
from dragoman.schema.conversion import TypeMismatch, read_answer

if TYPE_CHECKING:
    from dragoman.agents.adk.calls import PendingCall, PendingCalls
    from dragoman.model.message import Message

_YES = {"approve", "approved", "allow", "allowed", "confirm", "confirmed", "sure", "go ahead", "do it", "okay"}
_NO = {"reject", "rejected", "deny", "denied", "decline", "declined", "refuse", "cancel", "stop", "don't", "do not"}
_TYPES: dict[str, Any] = {"boolean": bool, "integer": int, "number": float, "array": list, "object": dict}
_YES_OR_NO = "yes or no"

# The complete arguments of calls by id, including those that callers do not see.
CallArguments = Mapping[str, dict[str, Any]]


def read_answers(pending: PendingCalls, message: Message, arguments: CallArguments) -> tuple[PendingCalls, str]:
    """Read the answers of a message. Return the calls with them, and what is wrong with the message, or "".

    Every call needs an answer. Text or data answers the only open call, or all of them if they only ask for
    confirmation. Otherwise answers are function responses, or an object whose keys are the ids or names of the calls.
    """
    answers = dict(pending.answers)
    problem = ""
    for call, text, data in _match_answers(pending, message):
        try:
            answers[call.id] = _response(call, text, data, arguments)
        except TypeMismatch as error:
            problem = f"{error.why} Expected {error}."
    updated = msgspec.structs.replace(pending, answers=answers)
    if not problem and updated.missing:
        problem = "Not every call has an answer."
    return updated, problem


def _match_answers(pending: PendingCalls, message: Message) -> Iterable[tuple[PendingCall, str, Any]]:
    """Pair each call with the text or data that answers it."""
    missing = pending.missing
    own = _function_responses(pending, message)
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


def _function_responses(pending: PendingCalls, message: Message) -> list[tuple[PendingCall, str, Any]]:
    calls = {call.id: call for call in pending.calls}
    pairs: list[tuple[PendingCall, str, Any]] = []
    for part in message.parts:
        if (part.metadata or {}).get(TYPE) != "function_response" or not isinstance(part.data, dict):
            continue
        body = cast("dict[str, Any]", part.data)
        key: Any = body.get("id") or (pending.missing[0].id if len(pending.missing) == 1 else None)
        if key in calls:
            response: Any = body.get("response")
            pairs.append((calls[key], "", response if response is not None else {}))
    return pairs


def _by_key(calls: Iterable[PendingCall], data: Any) -> list[tuple[PendingCall, str, Any]]:
    if not isinstance(data, dict):
        return []
    answers = cast("dict[str, Any]", data)
    names = Counter(call.name for call in calls)
    pairs: list[tuple[PendingCall, str, Any]] = []
    for call in calls:
        key = call.id if call.id in answers else call.name
        if key in answers and (key == call.id or names[call.name] == 1):
            value = answers[key]
            pairs.append((call, value, None) if isinstance(value, str) else (call, "", value))
    return pairs


def _response(call: PendingCall, text: str, data: Any, arguments: CallArguments) -> dict[str, Any]:
    if call.kind == "confirmation":
        return read_confirmation(text, data)
    if call.kind == "credential":
        return credential.fill_in(arguments[call.id], text, data)
    if call.kind == "input":
        expected_type = _TYPES.get(str(call.schema.get("type")))
        if expected_type is not None:
            return {"result": read_answer(text, _unwrap(data), expected_type, None)}
    if call.kind == "question":
        body = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        # Always wrapped, or an object with a single key would be unwrapped later.
        return {"result": text if data is None else body["result"] if body.keys() == {"result"} else data}
    if isinstance(data, dict):
        return cast("dict[str, Any]", data)
    return {"result": text if data is None else data}


def read_confirmation(text: str, data: Any = None) -> dict[str, Any]:
    """Read the answer to a request for permission, as the response that ADK expects.

    Raises:
        TypeMismatch: it is neither yes nor no.
    """
    data = _decode(text) if data is None and text.startswith("{") else _unwrap(data)
    if isinstance(data, dict):
        body = cast("dict[str, Any]", data)
        if not isinstance(body.get("confirmed"), bool):
            raise TypeMismatch(_YES_OR_NO)
        return {"confirmed": body["confirmed"], **({"payload": body["payload"]} if "payload" in body else {})}
    if isinstance(data, str):
        text, data = data, None
    words = text.strip().rstrip(".!").casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if data is None and words in _YES | _NO:
        return {"confirmed": words in _YES}
    return {"confirmed": read_answer(words, data, bool, None)}


def _unwrap(data: Any) -> Any:
    """Remove the wrappers that ADK's clients use."""
    if not isinstance(data, dict):
        return data
    body = cast("dict[str, Any]", data)
    if body.keys() == {"result"}:
        return body["result"]
    if body.keys() == {"response"} and isinstance(body["response"], str):
        return _decode(body["response"])
    return body


def _decode(text: str) -> Any:
    """Read a function response that was sent as text. What is not JSON stays text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
