"""What the tools give: cards, records and tasks as plain JSON, in the words of the tools' own documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.dialects.cards import card_json
from dragoman.dialects.v03_codec import task_to_03
from dragoman.model.json import decode_any, encode
from dragoman.model.message import Message
from dragoman.model.state import State

if TYPE_CHECKING:
    from dragoman.model.card import AgentCard
    from dragoman.model.task import Task

Json = dict[str, Any]
# Objects and lists within each other, as far as all hosts read them.
DEEPEST = 64
_CAPABILITIES = ("streaming", "pushNotifications", "stateTransitionHistory")


def state_word(state: State) -> str:
    """A state with an underscore: `input_required`."""
    return "unknown" if state is State.UNSPECIFIED else state.value.removeprefix("TASK_STATE_").lower()


def card_shape(card: AgentCard, raw: Json) -> Json:
    """A card of any version, with the same few keys for all. `raw` is the card as it was sent."""
    older = card_json(card, {}, "0.3")
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


def task_shape(task: Task, history_length: int | None = None) -> Json:
    """A task: id, status, artifacts and history where there are any."""
    spelled: Json = decode_any(encode(task_to_03(task)))
    status: Json = spelled["status"]
    shown: Json = {"id": task.id}
    if task.context_id:
        shown["context_id"] = task.context_id
    shown["status"] = {**_without_kind(status), "state": state_word(task.state)}
    artifacts = [_bounded(_without_kind(each)) for each in cast("list[Json]", spelled.get("artifacts") or [])]
    if artifacts:
        shown["artifacts"] = artifacts
    history = [_bounded(_without_kind(each)) for each in cast("list[Json]", spelled.get("history") or [])]
    if history_length is not None:
        history = history[len(history) - history_length :] if history_length else []
    if history:
        shown["history"] = history
    return _shallow(shown)


def message_shape(message: Message) -> Json:
    """A bare answer, as a task that is completed by it: there is nothing to follow."""
    return {
        "id": message.task_id or "",
        "context_id": message.context_id or "",
        "status": {"state": "completed"},
        "artifacts": [{"parts": _shallow(_message_parts(message))}],
    }


def _message_parts(message: Message) -> list[Json]:
    from dragoman.dialects.v03_codec import message_to_03

    return [_small(part) for part in cast("list[Json]", decode_any(encode(message_to_03(message)))["parts"])]


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


def _bounded(value: Json) -> Json:
    parts = value.get("parts")
    return (
        value
        if not isinstance(parts, list)
        else {**value, "parts": [_small(each) for each in cast("list[Json]", parts)]}
    )


def _small(part: Json) -> Json:
    """A part without its bytes, which are beside it as content a host can show."""
    file: Any = part.get("file")
    if not isinstance(file, dict) or "bytes" not in file:
        return part
    held = cast("Json", file)
    size = len(str(held["bytes"]).rstrip("=")) * 3 // 4
    return {**part, "file": {**{key: each for key, each in held.items() if key != "bytes"}, "size": size}}
