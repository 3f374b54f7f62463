"""Helpers to parse the JSON lines of command-line agents."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.agents.process import events
from dragoman.agents.process.profiles.profile import conversation_id

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

JsonObject = Mapping[str, Any]
_NOTHING: JsonObject = {}


def object_of(line: bytes) -> JsonObject | None:
    """Return the JSON object of a line; None if it is none."""
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _decode_lone_surrogates(line)
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _decode_lone_surrogates(line: bytes) -> Any:
    """Decode a line that contains half of a surrogate pair: some programs cut text in the middle of an emoji."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        text = json.dumps(json.loads(line.decode(errors="replace")), ensure_ascii=False)
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return msgspec.json.decode(whole)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def text_in(record: JsonObject, *names: str) -> str:
    """Return the first non-blank text under these keys; empty if there is none."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def object_in(record: JsonObject, name: str) -> JsonObject:
    """Return the object under a key; an empty one if there is none."""
    value = record.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else _NOTHING


def objects_in(record: JsonObject, name: str) -> Sequence[JsonObject]:
    """Return the objects of the list under a key."""
    return [cast("JsonObject", one) for one in _list_in(record, name) if isinstance(one, dict)]


def _list_in(record: JsonObject, name: str) -> list[Any]:
    value = record.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []


def message_in(record: JsonObject, name: str) -> str:
    """Return the message of an error under a key, which is text or an object with a `message`."""
    return text_in(record, name) or text_in(object_in(record, name), "message")


def messages_in(record: JsonObject, name: str) -> Sequence[str]:
    """Return the messages of the errors in the list under a key."""
    messages = (message_in({name: one}, name) for one in _list_in(record, name))
    return [message for message in messages if message]


_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_FAILED = "the program failed"


class AnswerDraft:
    """The latest text of a program, until it turns out to be the answer or a remark before more work.

    A run has one answer or one failure; anything after it is ignored. `problem` is an error that may be temporary: it
    counts if the output ends without an answer.
    """

    def __init__(self) -> None:
        self.conversation: str | None = None
        self.problem = ""
        self.is_over = False
        # By name, in pieces: joined once, since a text of many small pieces would take quadratic time.
        self._texts: dict[str, list[str]] = {}

    @property
    def text(self) -> str:
        """The text since the last tool call."""
        return "\n\n".join(map("".join, self._texts.values()))

    def set_conversation(self, conversation: Any) -> None:
        """Remember the program's id of the conversation, if it is valid."""
        self.conversation = conversation_id(conversation) or self.conversation

    def add(self, text: str) -> None:
        """Append a chunk of text."""
        self._texts.setdefault("", []).append(text)

    def put(self, name: str, text: str) -> None:
        """Add or replace a named part of the text."""
        self._texts[name] = [text]

    def set_aside(self) -> list[Event]:
        """Turn the text into a `thinking` event: more work follows, so it was not the answer."""
        text, self._texts = self.text, {}
        return [events.thinking(text)] if text.strip() else []

    def note_problem(self, problem: str) -> None:
        """Remember a possible cause of failure."""
        self.problem = problem or self.problem

    def finish(self, value: Any) -> list[Event]:
        """Return the `result` event of the answer."""
        if self.is_over:
            return []
        self.is_over = True
        return [events.result(value, remembers=self.conversation)]

    def fail(self, message: str, kind: str = "") -> list[Event]:
        """Return the `error` event of a failure. `kind` is the program's own error type."""
        if self.is_over:
            return []
        self.is_over = True
        text = message.strip() or self.problem.strip() or _FAILED
        return [events.error(text, kind) if _WORD.fullmatch(kind) else events.error(text)]

    def close(self) -> list[Event]:
        """Return the events at the end of the output: the remembered problem, or the last text as the answer."""
        if self.problem:
            return self.fail(self.problem)
        return self.finish(self.text) if self.text.strip() else []


class ObjectReader(ABC):
    """Base of the `LineReader`s; each program implements `read`."""

    def __init__(self) -> None:
        self.draft = AnswerDraft()

    def feed(self, line: bytes) -> Iterable[Event]:
        record = None if self.draft.is_over else object_of(line)
        return () if record is None else self.read(text_in(record, "type"), record)

    @abstractmethod
    def read(self, kind: str, record: JsonObject) -> list[Event]:
        """Return the events of an object by its type; none for unknown types."""

    def close(self) -> Iterable[Event]:
        return self.draft.close()


MAX_CHARS = 200
# Argument names that describe a tool call best; the first that is present is shown.
_ARGUMENT_KEYS = (
    *("command", "cmd", "file_path", "filePath", "absolute_path", "path", "pattern", "globPattern"),
    *("query", "url", "description", "prompt"),
)


def one_line(text: str) -> str:
    """Return a text as one short line without control characters."""
    # Only a prefix is examined, because the text may be a whole file.
    printable = "".join(sign if sign.isprintable() else " " for sign in text[: MAX_CHARS * 4])
    line = " ".join(printable.split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


def call_line(tool: str, arguments: Any, before: str = "") -> str:
    """Describe a tool call by its name and main argument; `before` is its outcome."""
    argument = arguments if isinstance(arguments, str) else _argument_text(arguments)
    return one_line(": ".join(filter(None, (before, one_line(tool) or "a tool", argument))))


def _argument_text(arguments: Any) -> str:
    if not isinstance(arguments, dict) or not arguments:
        return ""
    fields = cast("JsonObject", arguments)
    try:
        return text_in(fields, *_ARGUMENT_KEYS) or msgspec.json.encode(fields).decode()
    except RecursionError:
        return ""
