"""What an agent may yield, and the parts that callers get for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from dragoman.model.message import JSON_TYPE
from dragoman.model.part import File, Part


class Reply(Struct, frozen=True):
    """Answer with a bare Message and no task. Only as the first and only output.

    A skill says that it may: with `replies=True` or in its return type. One that does not, and one that took longer
    than a second, completes its task with it.
    """

    value: Any


class Conclude(Reply, frozen=True):
    """Complete the task with this as the message of its status. Only as the only output; for bridges."""


class Replace(Struct, frozen=True):
    """The finished answer: it supersedes the chunks streamed so far."""

    value: Any


class Ask(Struct, frozen=True):
    """Pause the task until the caller answers; the run ends here.

    `ref` is JSON the agent wants back: the next run finds it in `ctx.resume.ref`. With `auth` the task waits in
    auth-required instead of input-required. `details` are further values to show beside the question.
    """

    question: str
    ref: Any = None
    auth: bool = False
    details: tuple[Any, ...] = ()


class Answered(Struct, frozen=True):
    """A question of an earlier run and what the caller said to it."""

    question: str
    ref: Any
    text: str
    data: Any


def parts_of(value: Any) -> tuple[Part, ...]:
    """Turn a value into parts.

    Text becomes text; numbers become text marked as JSON, so that every client can show them and ours gives the
    number back; bytes and files become files; everything else becomes data.

    Raises:
        TypeError: the value has no JSON form.
    """
    if isinstance(value, Part):
        return (value,)
    if isinstance(value, str):
        return (Part(text=plain_text(value)),)
    if isinstance(value, (bool, int, float)):
        return (Part(text=msgspec.json.encode(value).decode(), media_type=JSON_TYPE),)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return (Part(raw=bytes(cast("bytes", value)), media_type="application/octet-stream"),)
    if isinstance(value, File):
        return (value.part(),)
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        if items and all(isinstance(item, (Part, File)) for item in items):
            return tuple(part for item in items for part in parts_of(item))
    return (Part(data=json_of(value)),)


def plain_text(value: str) -> str:
    """A text as nothing but a text: some frameworks have kinds of their own, which no codec knows."""
    return value if type(value) is str else str.__str__(value)


def json_of(value: Any) -> Any:
    """Turn a dict, list, dataclass, Struct or pydantic model into plain JSON values.

    Raises:
        TypeError: some part of it has no JSON form.
    """
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_unusual)


def _unusual(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form: return text, numbers, dicts, lists, bytes or a File")


class Marks(Struct, frozen=True):
    """Metadata of an agent's own: `task` is on its tasks and their statuses, `note` on the words of its progress."""

    task: dict[str, Any] = {}
    note: dict[str, Any] = {}
