"""What may turn out to be the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dragoman.agents.process import events
from dragoman.agents.process.profiles.conversation import conversation_id

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_FAILED = "the program failed"


class Draft:
    """The last words of a program, until it is clear whether they are its answer or were said before more work.

    There is one answer or one failure; whatever comes after it is passed over. `problem` is a complaint that may still
    pass: it counts when the output ends with no answer.
    """

    def __init__(self) -> None:
        self.conversation: str | None = None
        self.problem = ""
        self.is_over = False
        self._said: dict[str, str] = {}

    @property
    def text(self) -> str:
        """What was said since the last work."""
        return "\n\n".join(self._said.values())

    def belongs_to(self, conversation: Any) -> None:
        """Note how the program calls this conversation, if that can be used."""
        self.conversation = conversation_id(conversation) or self.conversation

    def add(self, text: str) -> None:
        """The program says a piece more."""
        self._said[""] = self._said.get("", "") + text

    def put(self, name: str, text: str) -> None:
        """The program says a part of its message, or says it anew."""
        self._said[name] = text

    def set_aside(self) -> list[Event]:
        """There is more to come: what was said is no answer."""
        text, self._said = self.text, {}
        return [events.thinking(text)] if text.strip() else []

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
        said = message.strip() or self.problem.strip() or _FAILED
        return [events.error(said, kind) if _WORD.fullmatch(kind) else events.error(said)]

    def close(self) -> list[Event]:
        """The output ends: what was said last is the answer, unless there is something to complain about."""
        if self.problem:
            return self.fail(self.problem)
        return self.finish(self.text) if self.text.strip() else []
