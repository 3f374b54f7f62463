"""What an ADK agent says in one run, told once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dragoman.engine.execute.outputs import Replace
from dragoman.model.part import Part

Output = str | Part | Replace
_BREAK = "\n\n"


class Voice(NamedTuple):
    """Who speaks, and in which of the branches that run side by side."""

    author: str
    branch: str = ""

    def takes_turns_with(self, other: Voice) -> bool:
        """True when the two never speak at once, so that one has finished when the other begins."""
        short, long = sorted((self.branch, other.branch), key=len)
        return not short or short == long or long.startswith(f"{short}.")


class _Waiting:
    """A branch that is heard later: turns that are over, and the pieces of one that is not."""

    def __init__(self, speaker: Voice) -> None:
        self.speaker = speaker
        self.turns: list[Sequence[str | Part]] = []
        self.pieces: list[str] = []

    def end_turn(self) -> None:
        if self.pieces:
            self.turns.append(["".join(self.pieces)])
            self.pieces = []


class Speech:
    """Turns pieces and whole events into one text.

    ADK tells a text in pieces and then once more whole. What was told in pieces is not repeated; where the whole says
    something else (a callback has changed it), it takes the place of the pieces. Files and data between the two are
    told at once and end nothing. Texts of different turns are paragraphs. When several speak at once, one is heard in
    pieces and the others are told when it has finished; who is still speaking then is heard in pieces from there on.
    `before` is what the caller was told before a pause.
    """

    def __init__(self, before: str = "") -> None:
        self._said = [before] if before else []
        self._speaker: Voice | None = None
        self._pieces: list[str] = []
        self._turn_begins_at = len(self._said)
        self._waiting: dict[str, _Waiting] = {}
        self._is_new = True

    def piece(self, who: Voice, text: str) -> Iterator[Output]:
        """The next piece of what somebody says."""
        if not text:
            return
        yield from self._make_way(who)
        if self._speaker is None:
            self._speaker, self._turn_begins_at = who, len(self._said)
        if self._speaker != who:
            self._waits(who).pieces.append(text)
            return
        self._pieces.append(text)
        yield self._next(text)

    def whole(self, who: Voice, values: Sequence[str | Part], *, ends: bool = False) -> Iterator[Output]:
        """All of what somebody says, in pieces or not: text and other parts, in their order.

        Without any text it is no turn of its own, unless it `ends` the turn: then the pieces are all there is.
        """
        yield from self._make_way(who)
        text = "".join(value for value in values if isinstance(value, str))
        if self._speaker is None:
            yield from self._told(values)
        elif self._speaker != who:
            self._wait(who, values, ends=ends or bool(text))
        else:
            if text:
                yield from self._corrected(text)
            yield from (value for value in values if isinstance(value, Part))
            if text or ends:
                yield from self._over()

    def unsaid(self, who: Voice) -> Iterator[Output]:
        """What somebody has said in pieces comes to nothing: it was taken back."""
        if self._speaker == who:
            yield from self._corrected("")
            yield from self._over()
        elif who.branch in self._waiting:
            self._waits(who).pieces = []

    def end(self) -> Iterator[Output]:
        """The run is over: tell what is left."""
        for waiting in self._waiting.values():
            waiting.end_turn()
        yield from self._over()

    def has_said(self, text: str) -> bool:
        """True when this was the last thing that was said."""
        return bool(self._said) and "".join(self._said).endswith(text)

    def _make_way(self, who: Voice) -> Iterator[Output]:
        """End the turns of those who cannot be speaking any more."""
        for waiting in self._waiting.values():
            if waiting.speaker != who and waiting.speaker.takes_turns_with(who):
                waiting.end_turn()
        if self._speaker is not None and self._speaker != who and self._speaker.takes_turns_with(who):
            yield from self._over()

    def _waits(self, who: Voice) -> _Waiting:
        waiting = self._waiting.setdefault(who.branch, _Waiting(who))
        waiting.speaker = who
        return waiting

    def _wait(self, who: Voice, values: Sequence[str | Part], *, ends: bool) -> None:
        waiting = self._waits(who)
        if any(isinstance(value, str) for value in values):
            waiting.pieces = []
        elif ends:
            waiting.end_turn()
        if values:
            waiting.turns.append(values)

    def _corrected(self, text: str) -> Iterator[Output]:
        """Make what was said in pieces what it was meant to be."""
        streamed = "".join(self._pieces)
        if text and text.startswith(streamed):
            if text != streamed:
                yield self._next(text[len(streamed) :])
            return
        del self._said[self._turn_begins_at :]
        self._is_new = True
        if text:
            self._next(text)
        yield Replace("".join(self._said))

    def _over(self) -> Iterator[Output]:
        self._speaker, self._pieces, self._is_new = None, [], True
        for waiting in self._waiting.values():
            turns, waiting.turns = waiting.turns, []
            for values in turns:
                yield from self._told(values)
        self._waiting = {branch: waiting for branch, waiting in self._waiting.items() if waiting.pieces}
        branch = next(iter(self._waiting), None)
        if branch is not None:
            following = self._waiting.pop(branch)
            self._speaker, self._turn_begins_at = following.speaker, len(self._said)
            self._pieces = following.pieces
            yield self._next("".join(self._pieces))

    def _told(self, values: Sequence[str | Part]) -> Iterator[Output]:
        self._is_new = True
        for value in values:
            if isinstance(value, Part):
                yield value
            elif value:
                yield self._next(value)
        self._is_new = True

    def _next(self, text: str) -> str:
        if self._is_new and self._said and not (self._said[-1].endswith("\n") or text.startswith(_BREAK)):
            text = _BREAK + text
        self._is_new = False
        self._said.append(text)
        return text
