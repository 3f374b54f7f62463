"""Canonical JSON, the encoding in which events are stored and forwarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from dragoman.model.event import StreamResponse
from dragoman.model.message import Message
from dragoman.model.task import Task

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
decode_any: Callable[[bytes], Any] = msgspec.json.Decoder().decode
decode_event: Callable[[bytes], StreamResponse] = msgspec.json.Decoder(StreamResponse).decode
decode_task: Callable[[bytes], Task] = msgspec.json.Decoder(Task).decode
decode_message: Callable[[bytes], Message] = msgspec.json.Decoder(Message).decode
# The exceptions that decoding raises for invalid input.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def as_object(value: object) -> dict[str, Any]:
    """Return decoded JSON if it is an object, otherwise an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return decoded JSON if it is an array, otherwise an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_objects(value: object) -> list[dict[str, Any]]:
    """The entries of an array, each as an object: an empty one for an entry that is none."""
    return [as_object(each) for each in as_list(value)]
