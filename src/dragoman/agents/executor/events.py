"""Parses the events that an executor enqueues."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import Any, TypeAlias, cast

from msgspec import Struct, to_builtins

from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.dialects.v1.dialect import V1_0
from dragoman.model.error import BadResponse, InvalidAgentResponse, InvalidParams
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.message import Message
from dragoman.model.task import Task

Event: TypeAlias = Task | Message | StatusUpdate | ArtifactUpdate

_EVENT_TYPES = (Task, Message, StatusUpdate, ArtifactUpdate)
_MEMBER_BY_TYPE = {
    "Task": "task",
    "Message": "message",
    "TaskStatusUpdateEvent": "statusUpdate",
    "TaskArtifactUpdateEvent": "artifactUpdate",
}
_WRAPPER_MEMBERS = {*_MEMBER_BY_TYPE.values(), "status_update", "artifact_update"}
# Beyond this a double cannot represent every integer: the original one is not recoverable.
_MAX_EXACT = 2**53


def parse_event(value: Any) -> Event:
    """Parse an event: one of a2a-sdk 1.x or 0.3, one of `dragoman.model`, or a dict or object of such a shape.

    protobuf stores every number of `data` and `metadata` as a double. Whole ones are read as int, as nearly all of them
    were originally: an executor's `{"count": 3}` must not reach callers as `3.0`.

    Raises:
        InvalidAgentResponse: it is not an event.
    """
    if isinstance(value, _EVENT_TYPES):
        return value
    if hasattr(value, "to_model"):  # an event of dragoman.compat.executor
        value = value.to_model()
        if isinstance(value, _EVENT_TYPES):
            return value
    name = type(value).__name__
    try:
        return _parse(value, name)
    except (BadResponse, InvalidParams, ValueError, TypeError) as error:
        raise InvalidAgentResponse(f"an executor enqueued a {name} that cannot be read") from error


def _parse(value: Any, name: str) -> Event:
    if hasattr(value, "DESCRIPTOR"):
        member = _MEMBER_BY_TYPE.get(value.DESCRIPTOR.name)
        if member is None:
            raise TypeError("it is no event")
        as_dict: Any = import_module("google.protobuf.json_format").MessageToDict
        return V1_0.read_event({member: _with_integers(as_dict(value))}).payload
    if hasattr(value, "model_dump"):
        return V03_RPC.read_event(value.model_dump(mode="json", by_alias=True, exclude_none=True)).payload
    plain = _to_json_value(value)
    if not isinstance(plain, dict):
        raise TypeError("it is no event")
    fields = cast("dict[str, Any]", plain)
    if "kind" in fields:
        return V03_RPC.read_event(fields).payload
    if not fields.keys() & _WRAPPER_MEMBERS:
        fields = {_MEMBER_BY_TYPE.get(name) or _member_by_fields(fields): fields}
    return V1_0.read_event(fields).payload


def _member_by_fields(fields: dict[str, Any]) -> str:
    """Determine which of the four events a dict is, by a field that only that one has."""
    if "parts" in fields:
        return "message"
    if "artifact" in fields:
        return "artifactUpdate"
    if "status" not in fields:
        raise TypeError("it is no event")
    return "task" if "id" in fields else "statusUpdate"


def _to_json_value(value: Any) -> Any:
    """Convert an object and everything in it to JSON values; attributes that are None are left out."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        # Kept: None in a mapping is a JSON null.
        return {str(key): _to_json_value(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [_to_json_value(each) for each in cast("Sequence[Any]", value)]
    if isinstance(value, Struct):  # a part of `dragoman.model` in a foreign message
        return to_builtins(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "__dict__"):
        members = vars(value)
    else:
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return {key: _to_json_value(each) for key, each in members.items() if each is not None and not key.startswith("_")}


def _with_integers(value: Any) -> Any:
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) <= _MAX_EXACT and (bool(value) or math.copysign(1, value) > 0)
        return int(value) if whole else value
    if isinstance(value, dict):
        return {key: _with_integers(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_with_integers(each) for each in cast("list[Any]", value)]
    return value
