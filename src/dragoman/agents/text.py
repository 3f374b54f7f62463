"""Messages as text for a model: parts, paragraphs, and the conversation so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.model.part import Part

if TYPE_CHECKING:
    from dragoman.engine.execute.context import Context

PARAGRAPH_BREAK = "\n\n"
# What the engine calls the text of a run; other artifacts are those of tools.
_RESULT = "-result"


class Paragraphs:
    """Sets what a model says before and after a tool call, or a pause, apart from each other.

    `before` is the text that stood there when the run began.
    """

    def __init__(self, ctx: Context) -> None:
        # After a pause the text goes on where it was.
        texts = [each.text for each in ctx.artifacts if (each.name or "").endswith(_RESULT)] if ctx.resume else []
        self.before = "".join(texts)
        self._starts_message = True
        self._messages: list[list[str]] = []

    @property
    def text(self) -> str:
        """All that callers have been told so far, also before a pause."""
        messages = ["".join(pieces) for pieces in self._messages]
        return PARAGRAPH_BREAK.join([self.before, *messages] if self.before else messages)

    def begin(self) -> None:
        """Another message begins."""
        self._starts_message = True

    def add(self, text: str) -> str:
        """The next piece of the message, with what sets it apart from what was said before."""
        if not text:
            return ""
        lead = PARAGRAPH_BREAK if self._starts_message and (self.before or self._messages) else ""
        if self._starts_message:
            self._messages.append([])
        self._messages[-1].append(text)
        self._starts_message = False
        return lead + text

    def ends_with(self, text: str) -> bool:
        """True when the last message was this text, whatever stands between its words."""
        return ("".join(self._messages[-1]) if self._messages else "").split() == text.split()

    def equals(self, text: str) -> bool:
        """True when all messages together are this text, whatever stands between its words."""
        return self.text.split() == text.split()


def text_of(part: Part) -> str | None:
    """A text, data as JSON, or the text of a text file; None for all other files."""
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
    """The media type of a file, or the one that says nothing."""
    return part.media_type or "application/octet-stream"


# How much JSON is kept: it is read and written with every message of the conversation.
DEFAULT_HISTORY_BYTES = 1_048_576


class ConversationHistory:
    """The turns of a conversation, in its state: a turn is everything from a message to the end of its answer.

    At most `most` bytes are kept. The oldest turns go first, and whole, so that no tool's result is left without its
    call. A turn that alone is larger is not kept.
    """

    def __init__(self, ctx: Context, key: str, max_bytes: int = DEFAULT_HISTORY_BYTES) -> None:
        self._ctx = ctx
        self._key = key
        self._max_bytes = max_bytes

    @property
    def turns(self) -> list[list[Any]]:
        """What is remembered, by turns."""
        return cast("list[list[Any]]", self._ctx.state.get(self._key, []))

    @property
    def messages(self) -> list[Any]:
        """What is remembered, in a row."""
        return [message for turn in self.turns for message in turn]

    def add(self, turn: list[Any]) -> None:
        """Remember one more turn."""
        self.replace([*self.turns, turn])

    def replace(self, turns: Iterable[list[Any]]) -> None:
        """Remember these turns, and no others."""
        fitting: list[list[Any]] = []
        room = self._max_bytes
        for turn in reversed(list(turns)):
            size = len(msgspec.json.encode(turn)) + 1
            if size > self._max_bytes:
                self._ctx.log.warning("a turn of %d bytes is not remembered: at most %d are", size, self._max_bytes)
                continue
            room -= size
            if room < 0:
                break
            fitting.append(turn)
        self._ctx.state[self._key] = fitting[::-1]
