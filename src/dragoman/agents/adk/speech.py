"""What an ADK agent says in one run, told once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from dragoman.engine.outputs import Replace
from dragoman.model.part import Part

Output = str | Part | Replace
_BREAK = "\n\n"


class Speech:
    """Turns pieces and whole events into one text.

    ADK tells a text in pieces and then once more whole. What was told in pieces is not repeated; where the whole says
    something else (a callback has changed it), it takes the place of the pieces. Texts of different turns are
    paragraphs. When several speak at once, one is heard in pieces and the others are told when they have finished.
    `before` is what the caller was told before a pause.
    """

    def __init__(self, before: str = "") -> None:
        self._said = [before] if before else []
        self._speaker: Hashable = None
        self._pieces: list[str] = []
        self._turn_begins_at = len(self._said)
        self._later: list[Sequence[str | Part]] = []
        self._is_new = True

    def piece(self, who: Hashable, text: str) -> Iterator[Output]:
        """The next piece of what somebody says."""
        if not text or (self._speaker is not None and self._speaker != who):
            return
        if self._speaker is None:
            self._speaker, self._turn_begins_at = who, len(self._said)
        self._pieces.append(text)
        yield self._next(text)

    def whole(self, who: Hashable, values: Sequence[str | Part]) -> Iterator[Output]:
        """All of what somebody says, in pieces or not: text and other parts, in their order."""
        if self._speaker is not None and self._speaker != who:
            if values:
                self._later.append(values)
            return
        if self._speaker is None:
            yield from self._told(values)
            return
        text = "".join(value for value in values if isinstance(value, str))
        streamed = "".join(self._pieces)
        if text.startswith(streamed):
            if text != streamed:
                yield self._next(text[len(streamed) :])
        elif text:
            del self._said[self._turn_begins_at :]
            self._is_new = True
            self._next(text)
            yield Replace("".join(self._said))
        yield from (value for value in values if isinstance(value, Part))
        yield from self._over()

    def end(self) -> Iterator[Output]:
        """The run is over: tell what is left."""
        yield from self._over()

    def has_said(self, text: str) -> bool:
        """True when this was the last thing that was said."""
        return bool(self._said) and "".join(self._said).endswith(text)

    def _over(self) -> Iterator[Output]:
        self._speaker, self._pieces, self._is_new = None, [], True
        later, self._later = self._later, []
        for values in later:
            yield from self._told(values)

    def _told(self, values: Sequence[str | Part]) -> Iterator[Output]:
        self._is_new = True
        for value in values:
            if isinstance(value, Part):
                yield value
            elif value:
                yield self._next(value)
        self._is_new = True

    def _next(self, text: str) -> str:
        if self._is_new and self._said and not self._said[-1].endswith("\n"):
            text = _BREAK + text
        self._is_new = False
        self._said.append(text)
        return text
