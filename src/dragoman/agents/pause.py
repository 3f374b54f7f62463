"""What a paused run waits for, and what has been answered so far."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from dragoman.agents.approval import approval_of
from dragoman.engine.outputs import Answered, Ask

YES_OR_NO = "Please answer yes or no."
# More of a call's arguments is not put into a question; all of them are shown beside it.
_LONGEST = 200


class Pending(Struct, frozen=True, omit_defaults=True):
    """One thing that a run waits for: an approval, or a value.

    `shown` is what programs may read beside the question.
    """

    id: str
    question: str
    shown: Any = None
    approval: bool = False


class Pause(Struct, frozen=True, omit_defaults=True):
    """All that a run waits for. It is JSON, and is kept with the question.

    The questions are asked one after the other, so that a plain "yes" is about one thing. A data part may answer
    several at once, by their ids. `held` is what the framework needs to go on.
    """

    pending: tuple[Pending, ...]
    held: Any = None
    answers: dict[str, Any] = {}
    remark: str = ""

    @property
    def open(self) -> tuple[Pending, ...]:
        """What has not been answered."""
        return tuple(one for one in self.pending if one.id not in self.answers)

    def ask(self) -> Ask:
        """The next question, with everything that is open shown beside it."""
        first = self.open[0]
        question = f"{first.question} {self.remark}".strip()
        return Ask(question, ref=msgspec.to_builtins(self), details=tuple(one.shown for one in self.open if one.shown))

    def heard(self, answer: Any) -> Pause:
        """The pause after an answer. What cannot be read is asked for again."""
        waiting = self.open
        by_id = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        if not by_id or not by_id.keys() <= {one.id for one in waiting}:
            by_id = {waiting[0].id: cast("Any", answer)}
        unread = {one.id for one in waiting if one.id in by_id and one.approval and approval_of(by_id[one.id]) is None}
        read = {key: value for key, value in by_id.items() if key not in unread}
        return Pause(self.pending, self.held, {**self.answers, **read}, YES_OR_NO if unread else "")

    def again(self, id: str, remark: str) -> Pause:
        """The pause without that answer, which does not fit."""
        answers = {other: value for other, value in self.answers.items() if other != id}
        return Pause(self.pending, self.held, answers, remark)


def pause_of(resume: Answered | None) -> Pause | None:
    """The pause that this run goes on from, with the answer that has just come; None in a first run."""
    if resume is None:
        return None
    answer = resume.text if resume.data is None else resume.data
    return msgspec.convert(resume.ref, Pause).heard(answer)


def call_text(tool: str, arguments: str) -> str:
    """A call as a person may read it in a question."""
    return f"{tool}({arguments if len(arguments) <= _LONGEST else arguments[:_LONGEST] + '…'})"
