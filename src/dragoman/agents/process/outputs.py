"""Parses the standard output of a program into events."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from dragoman.agents.lines import LineBuffer
from dragoman.agents.process import events
from dragoman.agents.process.profiles.reading import object_of
from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event
    from dragoman.agents.process.profiles.profile import LineReader

logger = logging.getLogger("dragoman.process")
KEYS = ("text", "status", "artifact", "ask", "result", "error")
_MAX_LOGGED_BYTES = 200
# Invalid lines are logged up to this number.
_MAX_WARNINGS = 3


class JsonLines:
    """Parses JSON lines, objects with one of `KEYS`. Other lines are skipped: a library may have printed something."""

    def __init__(self) -> None:
        self._skipped = 0

    def feed(self, line: bytes) -> Iterator[Event]:
        """Yield the event of a line, if it is valid."""
        fields = object_of(line) or {}
        key = next((key for key in KEYS if key in fields), None)
        event = None if key is None else _event_of_member(key, fields[key])
        if event is not None:
            yield event
            return
        self._skipped += 1
        if self._skipped <= _MAX_WARNINGS:
            logger.warning("not a JSON line of a program: %s", line[:_MAX_LOGGED_BYTES].decode(errors="replace"))

    def close(self) -> Iterator[Event]:
        """Log how many lines were skipped; there are no further events."""
        if self._skipped > _MAX_WARNINGS:
            logger.warning("a program wrote %d lines that are not JSON lines", self._skipped)
        return iter(())


def _event_of_member(key: str, value: Any) -> Event | None:
    if key == "result":
        return events.result(value)
    if key == "artifact":
        if isinstance(value, Mapping):
            return events.artifact(cast("Mapping[str, Any]", value))
        return events.artifact({"text": value} if isinstance(value, str) else {"data": value})
    if key == "error" and not isinstance(value, str):
        value = encode(value).decode()
    if not isinstance(value, str):
        return None
    make = {"text": events.text, "status": events.tool_status, "ask": events.ask, "error": events.error}
    return make[key](value)


# Maximum length of a JSON line.
MAX_LINE_BYTES = 10_000_000
DEFAULT_QUESTION = "The program waits for input."


class TextOutput:
    """Plain text, streamed as it arrives, without the newlines at its end, like command substitution in a shell.

    The unfinished last line of an interactive program is held back, because it may be a prompt.
    """

    def __init__(self, *, interactive: bool = False) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._interactive = interactive
        self._trailing_newlines: str = ""
        self._partial: str = ""
        self._last_line: str = ""

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the text of the next chunk."""
        yield from self._add(self._decode(data))

    def _add(self, text: str, *, whole: bool = False) -> Iterator[Event]:
        if self._interactive:
            text = self._partial + text
            cut = len(text) if whole else text.rfind("\n") + 1
            text, self._partial = text[:cut], text[cut:]
        text = self._trailing_newlines + text
        visible = text.rstrip("\n")
        self._trailing_newlines = text[len(visible) :]
        if visible:
            if self._interactive:
                self._last_line = visible.rpartition("\n")[2]
            yield events.text(visible)

    def pause(self, stderr_line: str) -> Iterator[Event]:
        """Yield the question of a program that waits for input; `stderr_line` is the last line on its stderr."""
        # A line that has been sent is repeated as the question if it looks like one.
        last = self._last_line.strip() if self._last_line.rstrip().endswith(("?", ":", ">")) else ""
        question = self._partial.strip() or _without_repeats(stderr_line) or last or DEFAULT_QUESTION
        # The held-back line becomes the question. The text sent before it ended with a newline, so what follows starts
        # a line.
        self._partial, self._last_line = "", ""
        yield events.ask(question)

    def close(self) -> Iterator[Event]:
        """Yield the held-back text at the end of the output."""
        yield from self._add(self._decode(b"", final=True), whole=True)


def _without_repeats(stderr_line: str) -> str:
    """Return a prompt from stderr; one that was printed several times in a row counts once."""
    words = stderr_line.split()
    return words[-1] if words and len(set(words)) == 1 else stderr_line.strip()


class LinesOutput:
    """Line-based output: each line is parsed by itself."""

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._buffer = LineBuffer(MAX_LINE_BYTES)

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events of the next chunk. Raises LineTooLongError if a line exceeds MAX_LINE_BYTES."""
        for line in self._buffer.feed(data):
            yield from self._read(line)

    def pause(self, stderr_line: str) -> Iterator[Event]:
        """Return no events: such a program asks explicitly."""
        return iter(())

    def close(self) -> Iterator[Event]:
        """Yield the events of the last line and of the end of the output."""
        yield from self._read(self._buffer.rest())
        yield from self._reader.close()

    def _read(self, line: bytes) -> Iterable[Event]:
        return self._reader.feed(line) if line.strip() else ()


Output = TextOutput | LinesOutput


def output_of(mode: str, *, interactive: bool, reader: Callable[[], LineReader] | None) -> Output:
    """Return a new parser for the output of a program run."""
    if reader is not None:
        return LinesOutput(reader())
    if mode == "jsonl":
        return LinesOutput(JsonLines())
    return TextOutput(interactive=interactive)
