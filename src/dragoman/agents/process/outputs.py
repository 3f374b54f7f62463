"""From the bytes a program writes to events."""

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
# How many lines that are none are shown.
_MAX_WARNINGS = 3


class JsonLines:
    """Reads such lines. What is none is logged, and otherwise passed over: a library may have printed something."""

    def __init__(self) -> None:
        self._skipped = 0

    def feed(self, line: bytes) -> Iterator[Event]:
        """The event of a line, if it is one."""
        fields = object_of(line) or {}
        key = next((key for key in KEYS if key in fields), None)
        event = None if key is None else _event(key, fields[key])
        if event is not None:
            yield event
            return
        self._skipped += 1
        if self._skipped <= _MAX_WARNINGS:
            logger.warning("no JSON line of a program: %s", line[:_MAX_LOGGED_BYTES].decode(errors="replace"))

    def close(self) -> Iterator[Event]:
        """Nothing is kept back."""
        if self._skipped > _MAX_WARNINGS:
            logger.warning("a program wrote %d lines that are no JSON lines", self._skipped)
        return iter(())


def _event(key: str, value: Any) -> Event | None:
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


# How long a line of JSON may be. What is longer is no message.
LONGEST_LINE = 10_000_000
DEFAULT_QUESTION = "The program waits for input."


class TextOutput:
    """Plain text, passed on as it comes; a shell drops the line ends at the end of an answer, and so does this.

    Of an interactive program the line that is not finished yet is kept back: it may be a question.
    """

    def __init__(self, *, interactive: bool = False) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._interactive = interactive
        self._trailing_newlines: str = ""
        self._partial: str = ""
        self._last: str = ""

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take some more."""
        yield from self._take(self._decode(data))

    def _take(self, text: str, *, whole: bool = False) -> Iterator[Event]:
        if self._interactive:
            text = self._partial + text
            cut = len(text) if whole else text.rfind("\n") + 1
            text, self._partial = text[:cut], text[cut:]
        text = self._trailing_newlines + text
        visible = text.rstrip("\n")
        self._trailing_newlines = text[len(visible) :]
        if visible:
            if self._interactive:
                self._last = visible.rpartition("\n")[2]
            yield events.text(visible)

    def pause(self, stderr_line: str) -> Iterator[Event]:
        """The program waits for input; `murmur` is what it wrote last to stderr."""
        # A line that was said already is repeated where it looks like a question.
        last = self._last.strip() if self._last.rstrip().endswith(("?", ":", ">")) else ""
        question = self._partial.strip() or _without_repeats(stderr_line) or last or DEFAULT_QUESTION
        # Said as a question now. What was said before ended with its line, so what follows begins one of its own.
        self._partial, self._last = "", ""
        yield events.ask(question)

    def close(self) -> Iterator[Event]:
        """There is no more."""
        yield from self._take(self._decode(b"", final=True), whole=True)


def _without_repeats(stderr_line: str) -> str:
    """A prompt on stderr; one that came before the first input, and then again, is one."""
    words = stderr_line.split()
    return words[-1] if words and len(set(words)) == 1 else stderr_line.strip()


class LinesOutput:
    """Lines that each are something by themselves."""

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._buffer = LineBuffer(LONGEST_LINE)

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take some more. Raises TooLongError."""
        for line in self._buffer.feed(data):
            yield from self._read(line)

    def pause(self, stderr_line: str) -> Iterator[Event]:
        """Never because of silence: such a program says when it asks."""
        return iter(())

    def close(self) -> Iterator[Event]:
        """There is no more."""
        yield from self._read(self._buffer.rest())
        yield from self._reader.close()

    def _read(self, line: bytes) -> Iterable[Event]:
        return self._reader.feed(line) if line.strip() else ()


Output = TextOutput | LinesOutput


def output_of(mode: str, *, interactive: bool, reader: Callable[[], LineReader] | None) -> Output:
    """How to read a program that runs now."""
    if reader is not None:
        return LinesOutput(reader())
    if mode == "jsonl":
        return LinesOutput(JsonLines())
    return TextOutput(interactive=interactive)
