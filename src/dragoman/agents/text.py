"""Text for and from models: parts as text, paragraphs of an answer, the history of a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.model.part import Part

if TYPE_CHECKING:
    from dragoman.engine.execute.context import Context

PARAGRAPH_BREAK = "\n\n"
# Suffix of the artifact that holds the text of a run; tools write other artifacts.
_RESULT = "-result"


class Paragraphs:
    """Separates the messages of a model before and after a tool call, or a pause, by blank lines.

    `before` is the text of the answer at the start of the run.
    """

    def __init__(self, ctx: Context) -> None:
        # After a pause, new text is appended to the answer so far.
        texts = [each.text for each in ctx.artifacts if (each.name or "").endswith(_RESULT)] if ctx.resume else []
        self.before = "".join(texts)
        self._starts_message = True
        self._messages: list[list[str]] = []

    @property
    def text(self) -> str:
        """The whole answer so far, including the text before a pause."""
        messages = ["".join(pieces) for pieces in self._messages]
        return PARAGRAPH_BREAK.join([self.before, *messages] if self.before else messages)

    def begin(self) -> None:
        """Start a new message with the next piece."""
        self._starts_message = True

    def add(self, text: str) -> str:
        """Append a piece to the message and return it, with the separator if it starts a message."""
        if not text:
            return ""
        lead = PARAGRAPH_BREAK if self._starts_message and (self.before or self._messages) else ""
        if self._starts_message:
            self._messages.append([])
        self._messages[-1].append(text)
        self._starts_message = False
        return lead + text

    def last_message_equals(self, text: str) -> bool:
        """Return True if the last message equals the text, up to differences in white space."""
        return ("".join(self._messages[-1]) if self._messages else "").split() == text.split()

    def answer_equals(self, text: str) -> bool:
        """Return True if the whole answer equals the text, up to differences in white space."""
        return self.text.split() == text.split()


def text_of(part: Part) -> str | None:
    """Return a part as text: data as JSON, a text file with its name; None for a file that is not inline UTF-8 text."""
    if part.kind == "text":
        return part.text
    if part.kind == "data":
        return msgspec.json.encode(part.data).decode()
    if part.raw is None or not (part.media_type or "").startswith("text/"):
        return None
    try:
        text = part.raw.decode()
    except UnicodeDecodeError:
        return None
    return f"{part.filename}:\n{text}" if part.filename else text


def media_of(part: Part) -> str:
    """Return the media type of a part, by default `application/octet-stream`."""
    return part.media_type or "application/octet-stream"


# Maximum JSON size of a history: all of it is read and written with every message of the conversation.
DEFAULT_HISTORY_BYTES = 1_048_576


class ConversationHistory:
    """The history of a conversation, stored in its state by turns: a message and everything up to its answer.

    At most `max_bytes` are stored. The oldest turns are dropped first, and only whole, so that no tool result loses its
    call. A turn that alone exceeds the limit is not stored.
    """

    def __init__(self, ctx: Context, key: str, max_bytes: int = DEFAULT_HISTORY_BYTES) -> None:
        self._ctx = ctx
        self._key = key
        self._max_bytes = max_bytes

    @property
    def turns(self) -> list[list[Any]]:
        """The stored turns, oldest first."""
        return cast("list[list[Any]]", self._ctx.state.get(self._key, []))

    @property
    def messages(self) -> list[Any]:
        """The messages of all stored turns."""
        return [message for turn in self.turns for message in turn]

    def add(self, turn: list[Any]) -> None:
        """Append a turn."""
        self.replace([*self.turns, turn])

    def replace(self, turns: Iterable[list[Any]]) -> None:
        """Replace all stored turns by the newest of these that fit the limit; a turn that is too large is logged."""
        fitting: list[list[Any]] = []
        room = self._max_bytes
        for turn in reversed(list(turns)):
            size = len(msgspec.json.encode(turn)) + 1
            if size > self._max_bytes:
                self._ctx.log.warning("a turn of %d bytes is not stored: the limit is %d", size, self._max_bytes)
                continue
            room -= size
            if room < 0:
                break
            fitting.append(turn)
        self._ctx.state[self._key] = fitting[::-1]
