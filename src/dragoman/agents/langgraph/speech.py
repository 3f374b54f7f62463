"""What the nodes of a graph say, as one text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dragoman.agents.langgraph.tools import Path, is_within
from dragoman.agents.text import Paragraphs

if TYPE_CHECKING:
    from dragoman.engine.execute.context import Context


class GraphSpeech:
    """Puts the messages of nodes one after the other.

    Nodes may work side by side: one message at a time is streamed, and the others are held until it has ended. What
    is said in a tool, also by another agent that is a tool, is none of the caller's.
    """

    def __init__(self, ctx: Context, tools: frozenset[Path]) -> None:
        self.paragraphs = Paragraphs(ctx)
        self._tools = tools
        self._speaker: str | None = None
        self._place = ""
        self._held: dict[str, list[str]] = {}
        self._ended: set[str] = set()
        self._texts: dict[tuple[str, str], list[str]] = {}

    def hear(self, message: Any, about: dict[str, Any]) -> Iterator[str]:
        """Take the next piece of a message, and give what can be said now."""
        place: str = about.get("langgraph_checkpoint_ns", "")
        if message.type not in ("ai", "AIMessageChunk") or is_within(place, self._tools):
            return
        speaker, text = str(message.id), str(message.text)
        whole = message.type == "ai"
        if whole and any(where == place and "".join(said) == text for (where, _), said in self._texts.items()):
            # The node gives a copy of what its model has said.
            return
        self._texts.setdefault((place, speaker), []).append(text)
        if self._speaker is not None and speaker != self._speaker and place == self._place:
            # One place says one thing at a time: what was not ended was given up.
            yield from self._next()
        if self._speaker in (None, speaker):
            yield from self._say(speaker, place, text)
        else:
            self._held.setdefault(speaker, []).append(text)
        if whole or getattr(message, "chunk_position", None) == "last":
            self._ended.add(speaker)
            if speaker == self._speaker:
                yield from self._next()

    def rest(self) -> Iterator[str]:
        """The run is over: give what is still held."""
        while self._held:
            yield from self._next()

    def _say(self, speaker: str, place: str, text: str) -> Iterator[str]:
        if not text:
            return
        if self._speaker is None:
            self._speaker, self._place = speaker, place
            self.paragraphs.begin()
        yield self.paragraphs.add(text)

    def _next(self) -> Iterator[str]:
        """Let those speak who have waited, up to one who has not ended yet."""
        self._speaker = None
        while self._held and self._speaker is None:
            speaker = next(iter(self._held))
            place = next(where for where, other in self._texts if other == speaker)
            yield from self._say(speaker, place, "".join(self._held.pop(speaker)))
            if speaker in self._ended:
                self._speaker = None
