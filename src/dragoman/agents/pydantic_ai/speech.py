"""What a Pydantic AI agent says, and what of it counts."""

from __future__ import annotations

import types
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin

from dragoman.agents.text import APART, Paragraphs

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

    from dragoman.engine.execute.context import Context

# What asks a model for another answer, now and in versions before.
_RETRIES = ("retry-feedback", "retry-prompt")


class PydanticSpeech:
    """Puts the texts of a run one after the other. A `quiet` one streams nothing."""

    def __init__(self, ctx: Context, *, quiet: bool) -> None:
        self._paragraphs = Paragraphs(ctx)
        self._settled = self._paragraphs.before
        self._quiet = quiet
        self._last: list[str] = []

    def hear(self, event: object) -> str:
        """Take the next event, and give what can be said now."""
        from pydantic_ai.messages import (
            FunctionToolCallEvent,
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
        )

        text = ""
        if isinstance(event, FunctionToolCallEvent):
            self._settle()
        elif isinstance(event, PartStartEvent):
            if event.index == 0:
                self._last.clear()
            if isinstance(event.part, TextPart):
                # Some models give one text in several parts.
                if event.previous_part_kind != "text":
                    self._paragraphs.begin()
                text = event.part.content
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            text = event.delta.content_delta
        if self._quiet or not text:
            return ""
        self._last.append(text)
        return self._paragraphs.add(text)

    def _settle(self) -> None:
        """A text before a call is no answer: nobody refuses it."""
        texts = [self._settled, "".join(self._last)]
        self._settled = APART.join(text for text in texts if text)
        self._last.clear()

    @property
    def settled(self) -> str:
        """What was said before calls, and before a pause: all that stays when the agent finds no answer."""
        return self._settled

    def says(self, text: str) -> bool:
        """True when callers have been told this text, and no other; also when they are told nothing."""
        return self._quiet or self._paragraphs.say(text)


def speaks_text(output_type: Any) -> bool:
    """True when text may be the output: what others say is JSON, or leads to it."""
    from pydantic_ai import TextOutput

    if isinstance(output_type, list | tuple):
        return any(speaks_text(each) for each in cast("Sequence[Any]", output_type))
    if get_origin(output_type) in (Union, types.UnionType):
        return any(speaks_text(each) for each in get_args(output_type))
    alias: Any = getattr(output_type, "__value__", None)
    if alias is not None:
        return speaks_text(alias)
    return output_type is str or isinstance(output_type, TextOutput)


def accepted_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """What the agent has said, without the answers that its validators have sent back."""
    texts: list[str] = []
    for place, message in enumerate(messages):
        if message.kind == "response" and not _is_refused(messages[place + 1 :]):
            texts += _texts(message)
    return texts


def answer_texts(messages: Sequence[ModelMessage], output: str) -> list[str]:
    """The same with the output in the end: it is what was made of the last text, or of a call."""
    texts = accepted_texts(messages)
    last = next(message for message in reversed(messages) if message.kind == "response")
    return [*(texts[:-1] if _texts(last) else texts), output]


def _texts(response: ModelResponse) -> list[str]:
    grouped = groupby(response.parts, key=lambda part: part.part_kind)
    return ["".join(cast("Any", part).content for part in parts) for kind, parts in grouped if kind == "text"]


def _is_refused(after: Sequence[ModelMessage]) -> bool:
    # What names no tool is about the answer itself.
    parts = cast("Sequence[Any]", after[0].parts if after else ())
    return any(part.part_kind in _RETRIES and not getattr(part, "tool_name", None) for part in parts)
