"""Joins the messages of a stream that share a messageId: some agents send a text so, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.model.part import Part, is_plain_text
from dragoman.model.state import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.model.message import Message


class MessageChunks:
    """The messages of one task in pieces. A piece costs the same, however long its message is."""

    def __init__(self) -> None:
        self._first: dict[str, Message] = {}
        self._parts: dict[str, list[Part]] = {}

    def add(self, message: Message) -> Message | None:
        """Add a message of the stream; return the first piece of the same message, or None if this is the first."""
        key = message.message_id
        if message.role is not Role.AGENT or not key:
            return None
        first = self._first.setdefault(key, message)
        if first is message:
            return None
        self._parts.setdefault(key, list(first.parts)).extend(message.parts)
        return first

    def joined(self, message: Message) -> Message:
        """Return the whole message for its first piece; any other message is returned as it is."""
        parts = self._parts.get(message.message_id)
        if parts is None or self._first[message.message_id] is not message:
            return message
        return replace(message, parts=tuple(_merge_texts(parts)))


def _merge_texts(parts: Iterable[Part]) -> Iterable[Part]:
    texts: list[str] = []
    for part in parts:
        if is_plain_text(part):
            texts.append(part.text or "")
            continue
        if texts:
            yield Part(text="".join(texts))
            texts.clear()
        yield part
    if texts:
        yield Part(text="".join(texts))
