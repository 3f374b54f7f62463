"""A line of output as a JSON object, and what is in it: of programs nothing can be taken for granted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

Found = Mapping[str, Any]
_NOTHING: Found = {}


def object_of(line: bytes) -> Found | None:
    """The object a line holds; None when it holds none."""
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        found = _mended(line)
    return cast("Found", found) if isinstance(found, dict) else None


def _mended(line: bytes) -> Any:
    """The value of a line with half a character in it: a program has cut a text in the middle of an emoji."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        text = json.dumps(json.loads(line.decode(errors="replace")), ensure_ascii=False)
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return msgspec.json.decode(whole)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def text_in(found: Found, *names: str) -> str:
    """The first text with something in it under these names; empty when there is none."""
    for name in names:
        value = found.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def object_in(found: Found, name: str) -> Found:
    """The object under a name; an empty one when there is none."""
    value = found.get(name)
    return cast("Found", value) if isinstance(value, dict) else _NOTHING


def objects_in(found: Found, name: str) -> Sequence[Found]:
    """The objects of the list under a name."""
    return [cast("Found", one) for one in _list_in(found, name) if isinstance(one, dict)]


def _list_in(found: Found, name: str) -> list[Any]:
    value = found.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []


def message_in(found: Found, name: str) -> str:
    """What an error under a name says: it is a text, or an object with a `message`."""
    return text_in(found, name) or text_in(object_in(found, name), "message")


def messages_in(found: Found, name: str) -> Sequence[str]:
    """What the errors of the list under a name say."""
    messages = (message_in({name: one}, name) for one in _list_in(found, name))
    return [message for message in messages if message]
