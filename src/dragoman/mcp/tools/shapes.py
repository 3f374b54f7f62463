"""What the tools give: cards, records and tasks as plain JSON, in the words of the tools' own documentation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.client.discovery import TappedResponse
from dragoman.dialects.cards.card import card_json
from dragoman.dialects.table import V0_3
from dragoman.dialects.v03.codec import task_to_03
from dragoman.mcp.tools.content import INLINE, SHOWN, room_for, uri_of
from dragoman.model.json import decode_any, encode
from dragoman.model.message import Message
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.model.card import AgentCard
    from dragoman.model.task import Task
    from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse

Json = dict[str, Any]
# Objects and lists within each other, as far as all hosts read them.
DEEPEST = 64
# In a list: who wants the rest of a task asks for it.
_BRIEF = 200
_MOST_ARTIFACTS = 5
_CAPABILITIES = ("streaming", "pushNotifications", "stateTransitionHistory")


def state_word(state: State) -> str:
    """A state with an underscore: `input_required`."""
    return "unknown" if state is State.UNSPECIFIED else state.value.removeprefix("TASK_STATE_").lower()


def card_shape(card: AgentCard, raw: Json) -> Json:
    """A card of any version, with the same few keys for all. `raw` is the card as it was sent."""
    older = card_json(card, {}, V0_3)
    versions = [each.protocol_version for each in card.supported_interfaces]
    said = raw.get("protocolVersion")
    capabilities: Json = raw["capabilities"] if isinstance(raw.get("capabilities"), dict) else {}
    return {
        "name": card.name,
        "description": card.description,
        "url": older.get("url", ""),
        "version": card.version,
        "protocolVersion": said if isinstance(said, str) and said else next(iter(versions), ""),
        "capabilities": {name: capabilities.get(name) is True for name in _CAPABILITIES},
        "skills": [
            {"id": each.id, "name": each.name, "description": each.description, "tags": list(each.tags)}
            for each in card.skills
        ],
    }


def task_shape(task: Task, history_length: int | None = None, *, place: str) -> Json:
    """A task: id, status, artifacts and history where there are any.

    Of what is too large a beginning is shown, and the resource to read for the rest. `place` is where those are.
    """
    room = room_for(task)
    spelled: Json = decode_any(encode(task_to_03(task)))
    status: Json = spelled["status"]
    shown: Json = {"id": task.id}
    if task.context_id:
        shown["context_id"] = task.context_id
    shown["status"] = {**_without_kind(status), "state": state_word(task.state)}
    if isinstance(status.get("message"), dict):
        shown["status"]["message"] = _bounded(cast("Json", status["message"]), room, place)
    spelled_artifacts = cast("list[Json]", spelled.get("artifacts") or [])
    artifacts = [_bounded(_without_kind(each), room, place) for each in spelled_artifacts]
    if artifacts:
        shown["artifacts"] = artifacts
    history = [_bounded(_without_kind(each), room, place) for each in cast("list[Json]", spelled.get("history") or [])]
    if history_length is not None:
        history = history[len(history) - history_length :] if history_length else []
    if history:
        shown["history"] = history
    return _shallow(shown)


def summary_shape(task: Task) -> Json:
    """A task in a list: its state, and how its texts begin."""
    shown: Json = {"id": task.id}
    if task.context_id:
        shown["context_id"] = task.context_id
    status: Json = {"state": state_word(task.state)}
    if task.status.timestamp:
        status["timestamp"] = task.status.timestamp
    if task.status.message is not None and task.status.message.text:
        status["message"] = {"role": "agent", "parts": [_beginning(task.status.message.text)]}
    shown["status"] = status
    artifacts: list[Json] = []
    for each in task.artifacts[:_MOST_ARTIFACTS]:
        named = {"artifactId": each.artifact_id} | ({"name": each.name[:_BRIEF]} if each.name else {})
        artifacts.append({**named, "parts": [_beginning(each.text)] if each.text else []})
    if artifacts:
        shown["artifacts"] = artifacts
    return shown


def _beginning(text: str) -> Json:
    return {"kind": "text", "text": text if len(text) <= _BRIEF else f"{text[:_BRIEF]}…"}


def shortened(text: str, room: int = INLINE, how: str = "the parts say how to read the rest") -> str:
    """A text, or how it begins when it is longer than that, and how to get the rest."""
    return text if len(text) <= room else f"{text[:SHOWN]}… [{len(text)} characters in all: {how}]"


def message_shape(message: Message, *, place: str) -> Json:
    """A bare answer, as a task that is completed by it: there is nothing to follow. `place` is empty if not kept."""
    return {
        "id": message.task_id or "",
        "context_id": message.context_id or "",
        "status": {"state": "completed"},
        "artifacts": [{"parts": _shallow(_message_parts(message, place))}],
    }


def _message_parts(message: Message, place: str) -> list[Json]:
    from dragoman.dialects.v03.codec import message_to_03

    spelled: Json = decode_any(encode(message_to_03(message)))
    return _bounded(spelled, room_for(message), place)["parts"]


def _shallow(value: Any, room: int = DEEPEST) -> Any:
    """Without an end to its depth, a value is shown as text from there on: hosts give up reading, and lose it all."""
    if isinstance(value, (dict, list)) and not room:
        return encode(value).decode()
    if isinstance(value, dict):
        return {key: _shallow(each, room - 1) for key, each in cast("Json", value).items()}
    return [_shallow(each, room - 1) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _without_kind(value: Json) -> Json:
    """Without the word that says what an object is: only parts keep it."""
    return {key: each for key, each in value.items() if key not in ("kind", "taskId", "contextId")}


def _bounded(value: Json, room: int, place: str) -> Json:
    parts = value.get("parts")
    if not isinstance(parts, list):
        return value
    holder = str(value.get("artifactId") or value.get("messageId") or "")
    numbered = enumerate(cast("list[Json]", parts))
    return {
        **value,
        "parts": [_small(each, room, place and uri_of(place, holder, number)) for number, each in numbered],
    }


def _small(part: Json, room: int, uri: str) -> Json:
    """A part without its bytes, which are beside it as content a host can show, and without most of a long text."""
    text: Any = part.get("text")
    if isinstance(text, str):
        how = f"read the resource {uri}" if uri else "the whole is in the content beside this"
        return {**part, "text": shortened(text, room, how)}
    file: Any = part.get("file")
    if not isinstance(file, dict) or "bytes" not in file:
        return part
    held = cast("Json", file)
    size = len(str(held["bytes"]).rstrip("=")) * 3 // 4
    return {**part, "file": {**{key: each for key, each in held.items() if key != "bytes"}, "size": size}}


_ABOUT_TASKS = ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask")
_SAYS_WHAT_IT_IS = re.compile(rb'"kind"\s*:\s*"(?:task|message)"')


async def complete_answers(request: HttpRequest, call_next: CallNext) -> HttpResponse:
    """An interceptor that completes them: what kind of answer it is, a state that is a mere word, the task's id.

    Agents written by hand answer `{id, status, artifacts}` or `{id, status, history}`, and a cancel with a word.
    """
    response = await call_next(request)
    kind = response.headers.get("Content-Type", "")
    if request.operation not in _ABOUT_TASKS or "json" not in kind or response.status != 200:
        return response
    return TappedResponse(response, lambda body: _completed_body(body, request.body or b""))


def _completed_body(body: bytes, asked: bytes) -> bytes:
    if _SAYS_WHAT_IT_IS.search(body):
        return body
    try:
        answer: Any = decode_any(body)
        params = _object(_object(decode_any(asked)).get("params"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    result = _object(_object(answer).get("result"))
    if not result or "jsonrpc" not in answer:
        return body
    return encode({**answer, "result": completed(result, params.get("id"))})


def completed(result: Json, task_id: str | None) -> Json:
    """A task or message with what it is; anything else as it is. `task_id` is that of the task that was asked about."""
    if isinstance(result.get("status"), str):
        result = {**result, "status": {"state": result["status"]}}
    if isinstance(result.get("status"), dict):
        return {"kind": "task", **result, "id": str(result.get("id") or task_id or "")}
    if isinstance(result.get("parts"), list):
        return {"kind": "message", **result}
    return result


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
