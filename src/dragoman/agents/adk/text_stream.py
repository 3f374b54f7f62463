"""Merges the partial and final texts of an ADK run into one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dragoman.engine.execute.outputs import Replace
from dragoman.model.part import Part

Output = str | Part | Replace
_BREAK = "\n\n"


class Speaker(NamedTuple):
    """The author of an event, and the parallel branch it runs in."""

    author: str
    branch: str = ""

    def takes_turns_with(self, other: Speaker) -> bool:
        """Return True if the two never run in parallel, so that one has finished when the other begins."""
        short, long = sorted((self.branch, other.branch), key=len)
        return not short or short == long or long.startswith(f"{short}.")


class _QueuedBranch:
    """A branch that is sent later: its finished turns, and the chunks of the current one."""

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker
        self.turns: list[Sequence[str | Part]] = []
        self.chunks: list[str] = []

    def end_turn(self) -> None:
        if self.chunks:
            self.turns.append(["".join(self.chunks)])
            self.chunks = []


class AdkTextStream:
    """Turns partial and whole events into one text.

    ADK sends a text in chunks, then once more as a whole. Chunks are not repeated; if the whole text differs, because a
    callback has changed it, it replaces them. Files and data in between are sent at once and end no turn. Texts of
    different turns are separated as paragraphs. Of several agents in parallel, one is streamed and the others are
    queued until it has finished; one that is still writing then is streamed from there on. `before` is the text sent
    before a pause.
    """

    def __init__(self, before: str = "") -> None:
        self._texts = [before] if before else []
        self._speaker: Speaker | None = None
        self._chunks: list[str] = []
        self._turn_start = len(self._texts)
        self._queued: dict[str, _QueuedBranch] = {}
        self._starts_paragraph = True

    def add_chunk(self, speaker: Speaker, text: str) -> Iterator[Output]:
        """Add the next chunk of a speaker's text."""
        if not text:
            return
        yield from self._end_finished_turns(speaker)
        if self._speaker is None:
            self._speaker, self._turn_start = speaker, len(self._texts)
        if self._speaker != speaker:
            self._queue_of(speaker).chunks.append(text)
            return
        self._chunks.append(text)
        yield self._append(text)

    def add_message(self, speaker: Speaker, values: Sequence[str | Part], *, ends: bool = False) -> Iterator[Output]:
        """Add a whole message, whether or not it was sent in chunks: text and other parts, in order.

        Without any text it is no turn of its own, unless it `ends` the turn: then the chunks are the whole text.
        """
        yield from self._end_finished_turns(speaker)
        text = "".join(value for value in values if isinstance(value, str))
        if self._speaker is None:
            yield from self._emit_message(values)
        elif self._speaker != speaker:
            self._enqueue(speaker, values, ends=ends or bool(text))
        else:
            if text:
                yield from self._correct(text)
            yield from (value for value in values if isinstance(value, Part))
            if text or ends:
                yield from self._end_turn()

    def retract(self, speaker: Speaker) -> Iterator[Output]:
        """Remove the chunks of a speaker's current turn."""
        if self._speaker == speaker:
            yield from self._correct("")
            yield from self._end_turn()
        elif speaker.branch in self._queued:
            self._queue_of(speaker).chunks = []

    def finish(self) -> Iterator[Output]:
        """Send what is still queued at the end of the run."""
        for queued in self._queued.values():
            queued.end_turn()
        yield from self._end_turn()

    def ends_with(self, text: str) -> bool:
        """Return True if the text so far ends with this one."""
        return bool(self._texts) and "".join(self._texts).endswith(text)

    def _end_finished_turns(self, speaker: Speaker) -> Iterator[Output]:
        """End the turns of all speakers that must have finished when this one begins."""
        for queued in self._queued.values():
            if queued.speaker != speaker and queued.speaker.takes_turns_with(speaker):
                queued.end_turn()
        if self._speaker is not None and self._speaker != speaker and self._speaker.takes_turns_with(speaker):
            yield from self._end_turn()

    def _queue_of(self, speaker: Speaker) -> _QueuedBranch:
        queued = self._queued.setdefault(speaker.branch, _QueuedBranch(speaker))
        queued.speaker = speaker
        return queued

    def _enqueue(self, speaker: Speaker, values: Sequence[str | Part], *, ends: bool) -> None:
        queued = self._queue_of(speaker)
        if any(isinstance(value, str) for value in values):
            queued.chunks = []
        elif ends:
            queued.end_turn()
        if values:
            queued.turns.append(values)

    def _correct(self, text: str) -> Iterator[Output]:
        """Replace the chunks of the current turn with its whole text."""
        streamed = "".join(self._chunks)
        if text and text.startswith(streamed):
            if text != streamed:
                yield self._append(text[len(streamed) :])
            return
        del self._texts[self._turn_start :]
        self._starts_paragraph = True
        if text:
            self._append(text)
        yield Replace("".join(self._texts))

    def _end_turn(self) -> Iterator[Output]:
        self._speaker, self._chunks, self._starts_paragraph = None, [], True
        for queued in self._queued.values():
            turns, queued.turns = queued.turns, []
            for values in turns:
                yield from self._emit_message(values)
        self._queued = {branch: queued for branch, queued in self._queued.items() if queued.chunks}
        branch = next(iter(self._queued), None)
        if branch is not None:
            first = self._queued.pop(branch)
            self._speaker, self._turn_start = first.speaker, len(self._texts)
            self._chunks = first.chunks
            yield self._append("".join(self._chunks))

    def _emit_message(self, values: Sequence[str | Part]) -> Iterator[Output]:
        self._starts_paragraph = True
        for value in values:
            if isinstance(value, Part):
                yield value
            elif value:
                yield self._append(value)
        self._starts_paragraph = True

    def _append(self, text: str) -> str:
        if self._starts_paragraph and self._texts and not (self._texts[-1].endswith("\n") or text.startswith(_BREAK)):
            text = _BREAK + text
        self._starts_paragraph = False
        self._texts.append(text)
        return text
