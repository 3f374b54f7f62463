"""The texts of several messages as one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.engine.context import Context


class Paragraphs:
    """Sets what a model says before and after a tool call, or a pause, apart from each other."""

    def __init__(self, ctx: Context) -> None:
        # After a pause the text goes on where it was.
        self._said = ctx.resume is not None and any(artifact.text for artifact in ctx.artifacts)
        self._begins = True
        self._last: list[str] = []

    def begin(self) -> None:
        """Another message begins."""
        self._begins = True

    def add(self, text: str) -> str:
        """The next piece of the message, with what sets it apart from what was said before."""
        if not text:
            return ""
        lead = "\n\n" if self._begins and self._said else ""
        if self._begins:
            self._last.clear()
        self._last.append(text)
        self._begins, self._said = False, True
        return lead + text

    def ends_with(self, text: str) -> bool:
        """True when the last message was this text, whatever stands between its words."""
        return "".join(self._last).split() == text.split()
