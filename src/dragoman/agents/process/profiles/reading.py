"""Reading the JSON lines of a program: objects, tool calls, and the text that may turn out to be the answer."""

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
    """The object a line holds; None when it holds none."""
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _decode_lone_surrogates(line)
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _decode_lone_surrogates(line: bytes) -> Any:
    """The value of a line with half a character in it: a program has cut a text in the middle of an emoji."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        text = json.dumps(json.loads(line.decode(errors="replace")), ensure_ascii=False)
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return msgspec.json.decode(whole)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def text_in(record: JsonObject, *names: str) -> str:
    """The first text with something in it under these names; empty when there is none."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def object_in(record: JsonObject, name: str) -> JsonObject:
    """The object under a name; an empty one when there is none."""
    value = record.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else _NOTHING


def objects_in(record: JsonObject, name: str) -> Sequence[JsonObject]:
    """The objects of the list under a name."""
    return [cast("JsonObject", one) for one in _list_in(record, name) if isinstance(one, dict)]


def _list_in(record: JsonObject, name: str) -> list[Any]:
    value = record.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []


def message_in(record: JsonObject, name: str) -> str:
    """What an error under a name says: it is a text, or an object with a `message`."""
    return text_in(record, name) or text_in(object_in(record, name), "message")


def messages_in(record: JsonObject, name: str) -> Sequence[str]:
    """What the errors of the list under a name say."""
    messages = (message_in({name: one}, name) for one in _list_in(record, name))
    return [message for message in messages if message]


_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_FAILED = "the program failed"


class AnswerDraft:
    """The last words of a program, until it is clear whether they are its answer or were said before more work.

    There is one answer or one failure; whatever comes after it is passed over. `problem` is a complaint that may still
    pass: it counts when the output ends with no answer.
    """

    def __init__(self) -> None:
        self.conversation: str | None = None
        self.problem = ""
        self.is_over = False
        self._texts: dict[str, str] = {}

    @property
    def text(self) -> str:
        """What was said since the last work."""
        return "\n\n".join(self._texts.values())

    def set_conversation(self, conversation: Any) -> None:
        """Note how the program calls this conversation, if that can be used."""
        self.conversation = conversation_id(conversation) or self.conversation

    def add(self, text: str) -> None:
        """The program says a piece more."""
        self._texts[""] = self._texts.get("", "") + text

    def put(self, name: str, text: str) -> None:
        """The program says a part of its message, or says it anew."""
        self._texts[name] = text

    def set_aside(self) -> list[Event]:
        """There is more to come: what was said is no answer."""
        text, self._texts = self.text, {}
        return [events.thinking(text)] if text.strip() else []

    def note_problem(self, problem: str) -> None:
        """Note what may turn out to be why it fails."""
        self.problem = problem or self.problem

    def finish(self, value: Any) -> list[Event]:
        """This is the answer."""
        if self.is_over:
            return []
        self.is_over = True
        return [events.result(value, remembers=self.conversation)]

    def fail(self, message: str, kind: str = "") -> list[Event]:
        """It did not work out. `kind` is the program's own word for it."""
        if self.is_over:
            return []
        self.is_over = True
        text = message.strip() or self.problem.strip() or _FAILED
        return [events.error(text, kind) if _WORD.fullmatch(kind) else events.error(text)]

    def close(self) -> list[Event]:
        """The output ends: what was said last is the answer, unless there is something to complain about."""
        if self.problem:
            return self.fail(self.problem)
        return self.finish(self.text) if self.text.strip() else []


class ObjectReader(ABC):
    """A `LineReader` of objects. Programs of one kind differ in `read`."""

    def __init__(self) -> None:
        self.draft = AnswerDraft()

    def feed(self, line: bytes) -> Iterable[Event]:
        """See `LineReader.feed`."""
        record = None if self.draft.is_over else object_of(line)
        return () if record is None else self.read(text_in(record, "type"), record)

    @abstractmethod
    def read(self, kind: str, record: JsonObject) -> list[Event]:
        """The events of an object of a kind. Kinds that are not known give none."""

    def close(self) -> Iterable[Event]:
        """See `LineReader.close`."""
        return self.draft.close()


LONGEST = 200
# What says most about a call, as the tools of these programs name their arguments; the first that is there is told.
_ARGUMENT_KEYS = (
    *("command", "cmd", "file_path", "filePath", "absolute_path", "path", "pattern", "globPattern"),
    *("query", "url", "description", "prompt"),
)


def one_line(text: str) -> str:
    """A text as one short line without control characters."""
    # No more than could be shown is looked at: a text may be a whole file.
    printable = "".join(sign if sign.isprintable() else " " for sign in text[: LONGEST * 4])
    line = " ".join(printable.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def call_line(tool: str, arguments: Any, before: str = "") -> str:
    """A call of a tool: its name and what it works on. `before` says how it went."""
    about = arguments if isinstance(arguments, str) else _argument_text(arguments)
    return one_line(": ".join(filter(None, (before, one_line(tool) or "a tool", about))))


def _argument_text(arguments: Any) -> str:
    if not isinstance(arguments, dict) or not arguments:
        return ""
    fields = cast("JsonObject", arguments)
    try:
        return text_in(fields, *_ARGUMENT_KEYS) or msgspec.json.encode(fields).decode()
    except RecursionError:
        return ""
