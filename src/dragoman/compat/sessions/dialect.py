"""The wire format of session servers: a request has a plain text, and the response is a flat task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from dragoman.clock import milliseconds, timestamp
from dragoman.model.error import InvalidParams, ParseError
from dragoman.model.json import decode_any, encode
from dragoman.model.state import Role, State
from dragoman.model.task import closing_parts

if TYPE_CHECKING:
    from dragoman.model.part import Part
    from dragoman.model.task import Task

Json = dict[str, Any]

METHOD = "tasks/send"
TIMEOUT_MS = 300_000
# The range of `timeoutMs` over HTTP.
MIN_TIMEOUT_MS, MAX_TIMEOUT_MS = 1000, 600_000
_WORDS = {
    State.UNSPECIFIED: "submitted",
    State.SUBMITTED: "submitted",
    State.WORKING: "working",
    # There are no questions in this format: a task that asks one is about to be failed.
    State.INPUT_REQUIRED: "working",
    State.AUTH_REQUIRED: "working",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELED: "failed",
    State.REJECTED: "failed",
}


class InvalidBody(InvalidParams):
    """An invalid request body; the text names the field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"Validation failed: {field}: {problem}", field=field)


class SessionTaskRequest(Struct, frozen=True):
    """A parsed request. `depth` is the number of agents that have passed it on, `source` the name of the last."""

    message: str
    skill: str | None = None
    timeout_ms: int = TIMEOUT_MS
    depth: int | None = None
    source: str | None = None


def parse_body(body: bytes) -> object:
    """Parse the JSON of a request. Raises ParseError."""
    try:
        return decode_any(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ParseError("Invalid JSON body") from None


def parse_task_request(
    body: object, *, shortest_ms: int = MIN_TIMEOUT_MS, longest_ms: int | None = MAX_TIMEOUT_MS
) -> SessionTaskRequest:
    """Parse a request from decoded JSON; its members are in `params` or at the top level. `method` is optional.

    Raises:
        InvalidBody: a member is missing or invalid.
    """
    if not isinstance(body, Mapping):
        raise InvalidBody("", "the body must be a JSON object")
    members = cast("Mapping[str, Any]", body)
    if members.get("method") not in (None, METHOD):
        raise InvalidBody("method", f"must be {METHOD}")
    if not isinstance(members.get("params"), (Mapping, type(None))):
        raise InvalidBody("params", "must be an object")
    return SessionTaskRequest(
        message=_message(members),
        skill=_text(members, "skill"),
        timeout_ms=_integer(members, "timeoutMs", shortest_ms, longest_ms) or TIMEOUT_MS,
        depth=_integer(members, "depth", 0, None),
        source=_text(members, "sourceAgent") or None,
    )


def task_json(task: Task, *, session_id: str, created_ms: int, changed_ms: int = 0) -> Json:
    """Build the JSON of a task. `changed_ms` is when its journal last grew: `updatedAt` is never earlier."""
    since = milliseconds(task.status.timestamp) if task.status.timestamp else created_ms
    return {
        "id": task.id,
        "state": _WORDS[task.state],
        "messages": list(_messages(task)),
        "sessionId": session_id,
        "createdAt": timestamp(created_ms),
        "updatedAt": timestamp(max(created_ms, since, changed_ms)),
    }


# -- reading -------------------------------------------------------------------------------------------------------


def _find_member(members: Mapping[str, Any], name: str) -> tuple[str, Any]:
    """Return the path and the value of a member, from `params` or from the top level."""
    params: Any = members.get("params")
    inner: Any = None if params is None else params.get(name)
    return (name, members.get(name)) if inner is None else (f"params.{name}", inner)


def _message(members: Mapping[str, Any]) -> str:
    place, message = _find_member(members, "message")
    if message is None:
        raise InvalidBody("", "message is required (either at top-level or inside params)")
    if not isinstance(message, str):
        raise InvalidBody(place, "message must be a string")
    if not message.strip():
        raise InvalidBody(place, "message must not be empty")
    return _unicode(place, message)


def _text(members: Mapping[str, Any], name: str) -> str | None:
    place, value = _find_member(members, name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidBody(place, "must be a string")
    return _unicode(place, value)


def _unicode(place: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, possible only from a caller in this process
        raise InvalidBody(place, "has characters that are not Unicode") from None
    return text


def _integer(members: Mapping[str, Any], name: str, least: int, most: int | None) -> int | None:
    place, value = _find_member(members, name)
    if value is None:
        return None
    # JSON has one number type: 5000.0 is an integer.
    is_integer = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_integer:
        raise InvalidBody(place, "must be a whole number")
    if value < least or (most is not None and value > most):
        limits = f"from {least} to {most}" if most is not None else f"{least} or more"
        raise InvalidBody(place, f"must be {limits}")
    return int(value)


# -- writing -------------------------------------------------------------------------------------------------------


def _messages(task: Task) -> Iterator[Json]:
    for message in task.history:
        if message.role is Role.USER:
            yield _text_message("user", _text_of(message.parts))
    agent_parts = [artifact.parts for artifact in task.artifacts]
    if task.state is State.COMPLETED and task.artifacts:
        agent_parts.append(closing_parts(task))
    elif task.state.final and task.status.message is not None:
        agent_parts.append(task.status.message.parts)
    for parts in agent_parts:
        if text := _text_of(parts):
            yield _text_message("agent", text)


def _text_message(role: str, text: str) -> Json:
    return {"role": role, "parts": [{"type": "text", "text": text}]}


def _text_of(parts: Iterable[Part]) -> str:
    """Join parts into one text, data as JSON; files are left out."""
    pieces = [encode(part.data).decode() if part.kind == "data" else part.text or "" for part in parts]
    return "".join(pieces)
