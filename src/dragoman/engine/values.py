"""From the values agents return to the parts callers get."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from dragoman.model.answer import JSON_TYPE
from dragoman.model.file import File
from dragoman.model.part import Part


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
