"""Canonical JSON: the one spelling in which events are stored and forwarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.model.event import StreamResponse
from dragoman.model.message import Message
from dragoman.model.task import Task

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
decode_any: Callable[[bytes], Any] = msgspec.json.Decoder().decode
decode_event: Callable[[bytes], StreamResponse] = msgspec.json.Decoder(StreamResponse).decode
decode_task: Callable[[bytes], Task] = msgspec.json.Decoder(Task).decode
decode_message: Callable[[bytes], Message] = msgspec.json.Decoder(Message).decode
