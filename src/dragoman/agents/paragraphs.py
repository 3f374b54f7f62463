"""The texts of several messages as one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.engine.context import Context

APART = "\n\n"
# What the engine calls the text of a run; other artifacts are those of tools.
_RESULT = "-result"


class Paragraphs:
    """Sets what a model says before and after a tool call, or a pause, apart from each other.

    `before` is the text that stood there when the run began.
    """

    def __init__(self, ctx: Context) -> None:
        # After a pause the text goes on where it was.
        found = [each.text for each in ctx.artifacts if (each.name or "").endswith(_RESULT)] if ctx.resume else []
        self.before = "".join(found)
        self._begins = True
        self._messages: list[list[str]] = []

    @property
    def text(self) -> str:
        """All that callers have been told so far, also before a pause."""
        messages = ["".join(pieces) for pieces in self._messages]
        return APART.join([self.before, *messages] if self.before else messages)

    def begin(self) -> None:
        """Another message begins."""
        self._begins = True

    def add(self, text: str) -> str:
        """The next piece of the message, with what sets it apart from what was said before."""
        if not text:
            return ""
        lead = APART if self._begins and (self.before or self._messages) else ""
        if self._begins:
            self._messages.append([])
        self._messages[-1].append(text)
        self._begins = False
        return lead + text

    def ends_with(self, text: str) -> bool:
        """True when the last message was this text, whatever stands between its words."""
        return ("".join(self._messages[-1]) if self._messages else "").split() == text.split()

    def say(self, text: str) -> bool:
        """True when all messages together are this text, whatever stands between its words."""
        return self.text.split() == text.split()
