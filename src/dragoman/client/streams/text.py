"""The text of an answer in pieces that can be printed as they come, also when the agent starts over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.client.event import Event


class TextChunk(str):
    """A piece of an answer's text. `restarted` is True for the mark that comes before a text which begins again."""

    __slots__ = ()

    @property
    def restarted(self) -> bool:
        """False: this is text of the answer."""
        return False


class RestartChunk(TextChunk):
    """Stands between the text printed so far, which is void, and the new one. It prints as a line of its own."""

    __slots__ = ()

    @property
    def restarted(self) -> bool:
        """True: the text printed so far is replaced by what follows."""
        return True


RESTART_MARK = RestartChunk("\n[the answer begins again]\n")


class PrintableText:
    """Turns texts that are added to an answer, or replace it, into pieces for a reader who can take nothing back.

    A text that replaces the answer is compared with what has been printed, piece by piece: what is equal is not
    printed again. `printed` grows only; each character is compared once for each time that the answer is replaced.
    """

    def __init__(self) -> None:
        self._printed: list[str] = []
        # What had been printed when the answer was replaced, and how much of it the new text has repeated so far.
        self._before = ""
        self._repeated: int | None = None

    @property
    def is_empty(self) -> bool:
        """True while nothing has been printed."""
        return not self._printed

    def add_event(self, event: Event) -> Iterator[TextChunk]:
        """Yield what is to be printed of the next event.

        A status that replaces the text only puts artifacts that were written alternately into their order: all of it
        has been printed.
        """
        return iter(()) if event.replaces and event.kind == "status" else self.add(event.text, replaces=event.replaces)

    def add(self, text: str, *, replaces: bool = False) -> Iterator[TextChunk]:
        """Yield what is to be printed of the next text; with `replaces`, it is the whole answer anew."""
        if replaces:
            if self._repeated is None:
                self._before = "".join(self._printed)
            self._repeated = 0
        if self._repeated is not None:
            text, differs = self._compare(text)
            if differs:
                self._printed.clear()
                yield RESTART_MARK
        if text:
            self._printed.append(text)
            yield TextChunk(text)

    def end(self) -> Iterator[TextChunk]:
        """Yield what is to be printed after the last text: an answer that became shorter is printed anew."""
        if self._repeated is not None and self._repeated < len(self._before):
            text, self._repeated = self._before[: self._repeated], None
            self._printed = [text]
            yield RESTART_MARK
            if text:
                yield TextChunk(text)

    def _compare(self, text: str) -> tuple[str, bool]:
        """Return what is to be printed of a text that may repeat what was printed, and whether it differs from it."""
        repeated = self._repeated or 0
        rest = self._before[repeated : repeated + len(text)]
        if not text.startswith(rest):
            self._repeated = None
            return self._before[:repeated] + text, True
        self._repeated = repeated + len(rest)
        if self._repeated == len(self._before):
            self._repeated = None
        return text[len(rest) :], False
